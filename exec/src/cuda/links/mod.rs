//! The links of a box: which GPUs reach each other, whether what is sent arrives, and how fast.
//!
//! A driver may say that two GPUs reach each other and still deliver wrong bytes (bridges that check addresses, or an IOMMU that
//! translates them, are the usual cause). So no pair is used directly before known numbers were sent over it in each direction, from
//! either side, and compared. A pair that fails is not an error: its copies go through the host, and the user is told.

mod measure;
mod sums;
mod wires;

use super::CudaError;

pub use measure::{Busy, Measured, Route, measure};
pub use sums::{SumRates, measure_sums};
pub use wires::Wires;

/// How one GPU's memory is reached from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Directly, and what was sent arrived.
    Direct,
    /// Not at all, says the driver.
    Unreachable,
    /// A call failed.
    Refused(CudaError),
    /// What arrived was not what was sent.
    Corrupt {
        /// Wrong numbers.
        wrong: usize,
        /// Numbers sent.
        sent: usize,
        /// The first wrong one.
        first: usize,
    },
}

/// Whose stream a copy is put into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The GPU that the numbers come from.
    Source,
    /// The GPU that they go to.
    Target,
}

/// What the survey asks of the machine: the driver, or a stand-in in tests.
pub trait Wiring {
    /// GPUs, numbered from 0.
    fn count(&self) -> usize;

    /// Whether the driver says that `from` can write to the memory of `to`.
    fn can_reach(&self, from: usize, to: usize) -> Result<bool, CudaError>;

    /// Lets `from` reach the memory of `to`.
    fn reach(&self, from: usize, to: usize) -> Result<(), CudaError>;

    /// Copies `sent` from one GPU's memory to the other's, where other numbers lie before, and gives what is there after.
    fn send(&self, from: usize, to: usize, side: Side, sent: &[u32])
    -> Result<Vec<u32>, CudaError>;
}

/// How each GPU reaches each other one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Links {
    count: usize,
    /// Row: from. Column: to. `None` on the diagonal.
    standings: Vec<Option<Standing>>,
}

impl Links {
    /// Asks, enables and probes every pair in both directions, with `numbers` numbers at a time.
    pub fn survey(wiring: &dyn Wiring, numbers: usize) -> Self {
        let count = wiring.count();
        let pairs = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
        // All pairs are let in before any is probed: a copy may be driven from either end.
        let opened: Vec<_> = pairs
            .map(|(from, to)| (from != to).then(|| (from, to, open(wiring, from, to))))
            .collect();
        let is_open =
            |from: usize, to: usize| matches!(opened[from * count + to], Some((.., Ok(()))));
        let standings = opened.iter().map(|entry| {
            let (from, to, state) = entry.as_ref()?;
            Some(match state {
                Err(standing) => standing.clone(),
                // One open direction is not enough for the side that would have to reach back.
                Ok(()) if !is_open(*to, *from) => Standing::Unreachable,
                Ok(()) => probe(wiring, *from, *to, numbers),
            })
        });
        Self {
            count,
            standings: standings.collect(),
        }
    }

    /// GPUs.
    pub fn count(&self) -> usize {
        self.count
    }

    /// How `from` reaches `to`; `None` for a GPU and itself.
    pub fn standing(&self, from: usize, to: usize) -> Option<&Standing> {
        self.standings[from * self.count + to].as_ref()
    }

    /// Whether copies from one to the other may go straight.
    pub fn is_direct(&self, from: usize, to: usize) -> bool {
        matches!(self.standing(from, to), None | Some(Standing::Direct))
    }

    /// What the user should hear, a line for each pair and direction that goes through the host. GPU i is called `ordinals[i]`.
    pub fn complaints(&self, ordinals: &[usize]) -> Vec<String> {
        let pairs = (0..self.count).flat_map(|from| (0..self.count).map(move |to| (from, to)));
        let line = |(from, to): (usize, usize)| {
            let standing = self.standing(from, to)?;
            let why = standing.why()?;
            let [a, b] = [from, to].map(|at| ordinals.get(at).copied().unwrap_or(at));
            Some(format!(
                "GPU {a} to GPU {b}: {why}; copies go through pinned host memory instead"
            ))
        };
        pairs.filter_map(line).collect()
    }
}

impl Standing {
    /// Why copies do not go straight; `None` where they do.
    pub fn why(&self) -> Option<String> {
        match self {
            Self::Direct => None,
            Self::Unreachable => Some("they cannot reach each other's memory".to_owned()),
            Self::Refused(error) => Some(error.to_string()),
            Self::Corrupt { wrong, sent, first } => Some(format!(
                "a direct copy came out wrong ({wrong} of {sent} numbers, the first at {first}): check the machine's IOMMU and ACS settings"
            )),
        }
    }
}

fn open(wiring: &dyn Wiring, from: usize, to: usize) -> Result<(), Standing> {
    match wiring.can_reach(from, to) {
        Ok(true) => wiring.reach(from, to).map_err(Standing::Refused),
        Ok(false) => Err(Standing::Unreachable),
        Err(error) => Err(Standing::Refused(error)),
    }
}

/// Sends known numbers and their complement, so that each bit is sent both ways, driven from either side.
fn probe(wiring: &dyn Wiring, from: usize, to: usize, numbers: usize) -> Standing {
    let plain = pattern(from, to, numbers);
    let turned: Vec<u32> = plain.iter().map(|number| !number).collect();
    for (side, sent) in [
        (Side::Source, &plain),
        (Side::Target, &turned),
        (Side::Source, &turned),
        (Side::Target, &plain),
    ] {
        let arrived = match wiring.send(from, to, side, sent) {
            Ok(arrived) => arrived,
            Err(error) => return Standing::Refused(error),
        };
        let differs = |at: &usize| arrived.get(*at) != Some(&sent[*at]);
        let wrong = (0..sent.len()).filter(differs).count();
        if wrong > 0 {
            return Standing::Corrupt {
                wrong,
                sent: sent.len(),
                first: (0..sent.len()).find(differs).unwrap_or(0),
            };
        }
    }
    Standing::Direct
}

/// Numbers that no two pairs and no two places share by chance (Knuth's multiplicative hash of the place, keyed by the pair).
fn pattern(from: usize, to: usize, numbers: usize) -> Vec<u32> {
    let key = ((from as u32) << 16 | to as u32).wrapping_mul(0x85eb_ca6b);
    (0..numbers as u32)
        .map(|at| at.wrapping_mul(2_654_435_769) ^ key)
        .collect()
}

#[cfg(test)]
mod tests;
