//! A run's status as one line.

use shared::core::Use;
use shared::id::BucketId;
use shared::time::Span;
use std::fmt;

/// What holds a run up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bottleneck {
    /// The targets: drafters wait for hidden states.
    Targets,
    /// The drafters: targets wait for slots.
    Drafters,
    /// Copies of hidden states.
    Copies,
    /// Drafters that wait for each other at the end of each optimizer step.
    Barrier,
}

impl Bottleneck {
    /// It in one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Targets => "targets",
            Self::Drafters => "drafters",
            Self::Copies => "copies",
            Self::Barrier => "barrier",
        }
    }
}

/// How a run is doing. Tokens are trained tokens, without padding.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Recently. [tokens/s]
    pub throughput: Option<f64>,
    /// Since the beginning. [tokens/s]
    pub throughput_overall: Option<f64>,
    /// What the targets that are there would do if they never waited. [tokens/s]
    pub target_capacity: Option<f64>,
    /// What the drafters that are there would do if they never waited. [tokens/s]
    pub drafter_capacity: Option<f64>,
    /// Share of the drafters' time that they wait: for hidden states, copies or each other.
    pub waiting: f64,
    /// Slots in use by bucket.
    pub pool: Vec<Use>,
    /// Slots in use.
    pub slots: Use,
    /// The cap on slots, if the policy has one.
    pub slots_max: Option<u32>,
    /// What holds the run up.
    pub bottleneck: Option<Bottleneck>,
    /// Share of the planned tokens that are trained.
    pub done: f64,
    /// Optimizer steps applied.
    pub steps: u32,
    /// Optimizer steps in all, as planned.
    pub steps_planned: u32,
    /// Time left at the recent throughput.
    pub eta: Option<Span>,
}

impl fmt::Display for Status {
    /// One line: `thru 12.0k tok/s | I 21.7k | T 25.1k | wait 3% | pool b0 2 b1 7 9/12 27.1 GiB | targets | step 41/230 | ETA 0:03:12`.
    /// I is what the targets could do (inference), T what the drafters could do (training).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "thru {} tok/s | I {} | T {} | wait {:.0}% | pool",
            Short(self.throughput),
            Short(self.target_capacity),
            Short(self.drafter_capacity),
            self.waiting * 100.0
        )?;
        for (index, used) in self
            .pool
            .iter()
            .enumerate()
            .filter(|(_, used)| used.count > 0)
        {
            write!(f, " {} {}", BucketId::from_index(index), used.count)?;
        }
        match self.slots_max {
            Some(max) => write!(f, " {}/{max}", self.slots.count)?,
            None => write!(f, " {}", self.slots.count)?,
        }
        let bottleneck = self.bottleneck.map_or("-", Bottleneck::name);
        write!(
            f,
            " {} | {bottleneck} | step {}/{}",
            self.slots.bytes, self.steps, self.steps_planned
        )?;
        match self.eta {
            Some(eta) => write!(f, " | ETA {}", Hours(eta)),
            None => write!(f, " | ETA -"),
        }
    }
}

/// A rate in three digits.
struct Short(Option<f64>);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("-"),
            Some(rate) if rate >= 999_950.0 => write!(f, "{:.1}M", rate / 1e6),
            Some(rate) if rate >= 999.5 => write!(f, "{:.1}k", rate / 1e3),
            Some(rate) => write!(f, "{rate:.0}"),
        }
    }
}

/// Hours, minutes and seconds.
struct Hours(Span);

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_ns() / 1_000_000_000;
        write!(
            f,
            "{}:{:02}:{:02}",
            seconds / 3_600,
            seconds / 60 % 60,
            seconds % 60
        )
    }
}
