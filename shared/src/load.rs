//! Devices at their power limit: what they save while they rest they spend afterwards.
//!
//! A GPU that computes without a pause lowers its clock until it draws no more than it may; one that waits for copies now and then
//! draws less on average and runs faster in between. Power goes about with the cube of the clock, so speed goes with the share of the
//! time in which it computes, to the power of -1/3 or so, up to the clock's highest step. What it is on a box is measured, for each kind
//! of work: some of it never draws that much.

use crate::time::Span;
use serde::{Deserialize, Serialize};

/// What work gains by rests of the device that it is done on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rest {
    /// Speed goes with the share of the time lately in which the device computed, to the power of minus this.
    pub exponent: f64,
    /// That share while the costs of the work were measured.
    pub busy: f64,
    /// Highest speed, as a share of that in the costs.
    pub speed_max: f64,
}

impl Rest {
    /// Speed on a device that computes for a share of the time, as a share of that in the costs.
    #[inline]
    pub fn speed(&self, busy: f64) -> f64 {
        (busy / self.busy).powf(-self.exponent).min(self.speed_max)
    }
}

/// What each kind of work gains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rests {
    /// Target forwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<Rest>,
    /// Drafter passes and optimizer steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train: Option<Rest>,
}

impl Rests {
    /// Whether nothing gains.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Speeds of forwards and of trainings on a device with this load, as shares of those in the costs.
    pub fn gains(&self, load: &Load) -> [f64; 2] {
        [self.forward, self.train].map(|rest| rest.map_or(1.0, |rest| rest.speed(load.busy())))
    }
}

/// The share of the time lately in which a device computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    busy: f64,
}

impl Default for Load {
    /// A device that has computed all the time.
    fn default() -> Self {
        Self { busy: 1.0 }
    }
}

impl Load {
    /// So much time passes, in all of which the device computes or rests.
    #[inline]
    pub fn pass(&mut self, span: Span, computes: bool) {
        let keep = (-(span.as_ns() as f64) / WINDOW_NS).exp();
        let now = f64::from(u8::from(computes));
        self.busy = now + keep * (self.busy - now);
    }

    /// The share. (1)
    #[inline]
    pub fn busy(&self) -> f64 {
        self.busy
    }
}

/// Time over which power is averaged: after it, a share of 1/e of what was before still counts. (ns) An H200's clock is down half a
/// second after it is put under load.
const WINDOW_NS: f64 = 250e6;

#[cfg(test)]
mod tests {
    use super::*;

    const REST: Rest = Rest {
        exponent: 0.5,
        busy: 1.0,
        speed_max: 1.3,
    };

    #[test]
    fn rests_speed_up_what_follows_and_work_slows_it_again() {
        let mut load = Load::default();
        let speed = |load: &Load| REST.speed(load.busy());
        assert_eq!(speed(&load), 1.0);
        load.pass(Span::from_ms(100), false);
        let rested = speed(&load);
        assert!(rested > 1.05 && rested < 1.3, "{rested}");
        load.pass(Span::from_ms(100), true);
        assert!(speed(&load) < rested && speed(&load) > 1.0);
        load.pass(Span::from_ms(60_000), false);
        assert_eq!(speed(&load), 1.3);
    }

    #[test]
    fn time_may_pass_in_pieces() {
        let (mut once, mut twice) = (Load::default(), Load::default());
        once.pass(Span::from_ms(90), false);
        twice.pass(Span::from_ms(30), false);
        twice.pass(Span::from_ms(60), false);
        assert!((once.busy() / twice.busy() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_load_that_alternates_gets_the_speed_of_its_share() {
        let mut load = Load::default();
        for _ in 0..500 {
            load.pass(Span::from_ms(15), true);
            load.pass(Span::from_ms(5), false);
        }
        assert!((load.busy() / 0.75 - 1.0).abs() < 0.02);
    }

    #[test]
    fn costs_hold_for_the_share_that_they_were_measured_at() {
        let drafter = Rest { busy: 0.7, ..REST };
        assert_eq!(drafter.speed(0.7), 1.0);
        assert!(drafter.speed(1.0) < 0.9 && drafter.speed(0.5) > 1.1);
    }
}
