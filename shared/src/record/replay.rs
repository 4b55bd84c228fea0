//! Replay: a run's events fed to the core again must cause the same orders.

use super::Record;
use super::codec::write_record;
use crate::core::{Actions, Core, Event};
use crate::time::Time;
use std::fmt;

/// The first record whose orders differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// Its number, from 0.
    pub index: usize,
    /// As it was recorded.
    pub recorded: Record,
    /// As the core decides now.
    pub replayed: Record,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |record: &Record| {
            let mut line = String::new();
            write_record(&mut line, record.at, &record.event, &record.actions);
            line.trim_end().to_owned()
        };
        write!(
            f,
            "record {} diverges\n  recorded: {}\n  replayed: {}",
            self.index,
            line(&self.recorded),
            line(&self.replayed)
        )
    }
}

/// Feeds `records` to `core` and compares its orders with those recorded; `observe` sees every record with the core after it.
///
/// It stops at the first difference: up to there the core has seen a history it ordered itself, so no recorded event can be illegal.
pub fn replay(
    core: &mut Core,
    records: &[Record],
    mut observe: impl FnMut(Time, &Event, &Core),
) -> Result<(), Box<Divergence>> {
    let mut actions = Actions::new();
    for (index, record) in records.iter().enumerate() {
        core.on(record.at, record.event, &mut actions);
        if actions.as_slice() != record.actions {
            let replayed = Record {
                actions: actions.as_slice().to_vec(),
                ..record.clone()
            };
            return Err(Box::new(Divergence {
                index,
                recorded: record.clone(),
                replayed,
            }));
        }
        actions.clear();
        observe(record.at, &record.event, core);
    }
    Ok(())
}
