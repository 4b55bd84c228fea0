//! The only place that reads a clock.
//!
//! A [`Clock`] turns the machine's monotonic clock into [`Time`] of a run. It may run at a scale: at a scale of 200, one second on
//! the wall is 200 seconds of the run, so that an emulated run is recorded in the time it emulates.

use shared::time::Time;
use std::time::{Duration, Instant};

/// The clock of one run; a copy reads the same time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    scale: f64,
}

impl Clock {
    /// A clock that starts now at real speed.
    pub fn start() -> Self {
        Self::scaled(1.0)
    }

    /// A clock that starts now; one second on the wall is `scale` seconds of the run.
    ///
    /// # Panics
    /// When `scale` is not a positive number.
    pub fn scaled(scale: f64) -> Self {
        assert!(
            scale.is_finite() && scale > 0.0,
            "a clock's scale is a positive number"
        );
        Self {
            origin: Instant::now(),
            scale,
        }
    }

    /// The time of the run.
    pub fn now(&self) -> Time {
        let wall = self.origin.elapsed();
        Time::from_ns((wall.as_nanos() as f64 * self.scale) as u64)
    }

    /// Wall time since the clock was started, whatever its scale.
    pub fn wall(&self) -> Duration {
        self.origin.elapsed()
    }

    /// How long to wait on the wall until the run's clock shows `at`; zero when it has.
    pub fn until(&self, at: Time) -> Duration {
        self.instant(at).saturating_duration_since(Instant::now())
    }

    /// Returns when the run's clock shows `at`, late by a few microseconds while the machine has a core to spare.
    ///
    /// Sleeping alone is late by the kernel's timer slack and a wake-up, some 50 microseconds, which a scale multiplies. So the sleep
    /// ends early and the rest is spent spinning, `SPIN` of one core a wait at most. To yield instead would hand the core to
    /// whoever else wants it, for milliseconds.
    pub fn wait_until(&self, at: Time) {
        let instant = self.instant(at);
        loop {
            let left = instant.saturating_duration_since(Instant::now());
            match left.checked_sub(SPIN) {
                Some(bulk) if !bulk.is_zero() => std::thread::sleep(bulk),
                _ if left.is_zero() => return,
                _ => std::hint::spin_loop(),
            }
        }
    }

    fn instant(&self, at: Time) -> Instant {
        let wall = Duration::from_nanos((at.as_ns() as f64 / self.scale).ceil() as u64);
        // A wake-up further away than the clock can count is as good as never.
        self.origin
            .checked_add(wall)
            .unwrap_or_else(|| self.origin + Duration::from_secs(u32::MAX.into()))
    }
}

/// The part of a wait that is spent spinning rather than asleep.
const SPIN: Duration = Duration::from_micros(60);

#[cfg(test)]
mod tests {
    use super::*;
    use shared::time::Span;

    #[test]
    fn a_wait_never_ends_early_at_any_scale() {
        for scale in [1.0, 7.3, 200.0, 1e6] {
            let clock = Clock::scaled(scale);
            let at = clock.now() + Span::from_ns((300_000.0 * scale) as u64);
            clock.wait_until(at);
            assert!(clock.now() >= at, "scale {scale}");
            assert_eq!(clock.until(at), Duration::ZERO);
        }
    }

    #[test]
    fn the_far_future_can_be_asked_for() {
        let clock = Clock::start();
        assert!(clock.until(Time::from_ns(u64::MAX)) > Duration::from_secs(1 << 30));
    }
}
