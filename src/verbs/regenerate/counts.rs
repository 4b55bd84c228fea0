//! How answers ended.

use super::setup::Setup;
use crate::report::quantity::{count, percent, whole};
use exec::decode::{Ended, Finished, Refused};
use std::collections::BTreeMap;

/// Counts of one call.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Prompts that the file had answered before.
    pub(super) there: usize,
    answered: usize,
    tokens: usize,
    itself: usize,
    limit: usize,
    looping: usize,
    /// Answers without a word, which are not written.
    empty: usize,
    /// Answers whose text is encoded in other tokens than it was said in.
    respelled: usize,
    /// User turns written by the target.
    pub(super) turns: usize,
    /// Those of them that are no prompts.
    pub(super) refused: BTreeMap<Refused, usize>,
}

impl Counts {
    pub(super) fn add(&mut self, finished: &Finished, is_empty: bool, is_same: bool) {
        self.answered += 1;
        self.tokens += finished.tokens.len();
        match finished.ended {
            Ended::Itself => self.itself += 1,
            Ended::Limit => self.limit += 1,
            Ended::Loop => self.looping += 1,
        }
        self.empty += usize::from(is_empty);
        self.respelled += usize::from(!is_same);
    }

    /// What was done, a sentence a line.
    pub(super) fn lines(&self, setup: &Setup) -> Vec<String> {
        let share = |part: usize| percent(part as f64 / self.answered.max(1) as f64);
        let mut lines = Vec::new();
        if self.turns > 0 {
            let refused: usize = self.refused.values().sum();
            let reasons = self
                .refused
                .iter()
                .map(|(why, n)| format!("{n} {}", why.name()));
            let reasons: Vec<String> = reasons.collect();
            let dropped = match refused {
                0 => "all are prompts".to_owned(),
                _ => format!("{refused} are dropped ({})", reasons.join(", ")),
            };
            lines.push(format!(
                "The target wrote {}: {dropped}.",
                count(self.turns, "user turn")
            ));
        }
        let mut answered = format!(
            "Answered {} with {} tokens",
            count(self.answered, "prompt"),
            whole(self.tokens as f64)
        );
        if self.there > 0 {
            answered.push_str(&format!(", {} were answered before", self.there));
        }
        lines.push(format!(
            "{answered}: {} ended by themselves, {} were cut at {} tokens ({} %), {} stopped in a loop.",
            self.itself,
            self.limit,
            setup.limits.new_tokens_max,
            share(self.limit),
            self.looping
        ));
        let [long, repeated] = setup.left_out;
        for (number, what) in [
            (self.empty, "said nothing and are left out"),
            (
                self.respelled,
                "are encoded in other tokens than the target said (--with-tokens keeps its own)",
            ),
            (long, "prompts were too long and are left out"),
            (repeated, "prompts were repeated and are left out"),
        ] {
            if number > 0 {
                lines.push(format!("{number} {what}."));
            }
        }
        lines
    }
}
