//! Devices at their power limit: what they save while they rest they spend afterwards.
//!
//! A GPU that computes without a pause lowers its clock until it draws no more than it may; one that waits for copies now and then
//! draws less on average and runs faster in between. Power goes about with the cube of the clock, so speed goes with the share of the
//! time in which it computes, to the power of -1/3 or so; how much it is on a box is measured.

use crate::time::Span;

/// The share of the time lately in which a device computed, and what follows for its speed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    busy: f64,
    exponent: f64,
}

impl Load {
    /// A device that has computed all the time. Its speed is the share of the time in which it computes, to the power of minus
    /// `exponent`; 0: rests change nothing.
    pub const fn new(exponent: f64) -> Self {
        Self {
            busy: 1.0,
            exponent,
        }
    }

    /// So much time passes, in all of which the device computes or rests.
    #[inline]
    pub fn pass(&mut self, span: Span, computes: bool) {
        if self.exponent > 0.0 {
            let keep = (-(span.as_ns() as f64) / WINDOW_NS).exp();
            let now = f64::from(u8::from(computes));
            self.busy = now + keep * (self.busy - now);
        }
    }

    /// Its speed, as a share of that without rests: at least 1.
    #[inline]
    pub fn speed(&self) -> f64 {
        if self.exponent > 0.0 {
            speed(self.busy, self.exponent)
        } else {
            1.0
        }
    }
}

/// Speed of a device that computes for a share of the time, as a share of its speed without rests.
pub fn speed(busy: f64, exponent: f64) -> f64 {
    busy.powf(-exponent).min(SPEED_MAX)
}

/// Time over which power is averaged: after it, a share of 1/e of what was before still counts. (ns) An H200's clock is down half a
/// second after it is put under load.
const WINDOW_NS: f64 = 250e6;

/// The clock has a highest step: on an H200 1980 MHz, beside some 1500 under load at 690 W.
const SPEED_MAX: f64 = 1.3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_speed_up_what_follows_and_work_slows_it_again() {
        let mut load = Load::new(0.5);
        assert_eq!(load.speed(), 1.0);
        load.pass(Span::from_ms(100), false);
        let rested = load.speed();
        assert!(rested > 1.05 && rested < SPEED_MAX, "{rested}");
        load.pass(Span::from_ms(100), true);
        assert!(load.speed() < rested && load.speed() > 1.0);
        load.pass(Span::from_ms(60_000), false);
        assert_eq!(load.speed(), SPEED_MAX);
    }

    #[test]
    fn time_may_pass_in_pieces() {
        let (mut once, mut twice) = (Load::new(0.3), Load::new(0.3));
        once.pass(Span::from_ms(90), false);
        twice.pass(Span::from_ms(30), false);
        twice.pass(Span::from_ms(60), false);
        assert!((once.speed() / twice.speed() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_load_that_alternates_gets_the_speed_of_its_share() {
        let mut load = Load::new(0.4);
        for _ in 0..500 {
            load.pass(Span::from_ms(15), true);
            load.pass(Span::from_ms(5), false);
        }
        assert!((load.speed() / speed(0.75, 0.4) - 1.0).abs() < 0.02);
    }

    #[test]
    fn without_an_exponent_nothing_changes() {
        let mut load = Load::new(0.0);
        load.pass(Span::from_ms(1000), false);
        assert_eq!(load, Load::new(0.0));
        assert_eq!(load.speed(), 1.0);
    }
}
