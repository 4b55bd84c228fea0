//! How workers that share a GPU slow each other.

use super::check::{Checks, Problem};
use serde::{Deserialize, Serialize};

/// Measured speeds of workers that compute on one GPU at the same time.
///
/// Where this is given, the workers of a policy are placed on `hardware.gpus` GPUs as the executor places them, several to one if need
/// be. Where it is not, each worker has a GPU of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sharing {
    /// Speeds by what is under way. Workers in a state that is not listed share the GPU evenly: n of them go at 1/n.
    #[serde(default)]
    pub rates: Vec<SharedRate>,
    /// Kernels of a training for each kernel of a forward, where a GPU takes turns by kernels: then what the rates sum up to is shared in
    /// proportion to the length of kernels, and a short training beside a long forward goes slower than a long one. Without it, rates are
    /// those of every microbatch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_ratio: Option<f64>,
    /// Speed of an optimizer step while forwards are under way, as a share of its speed alone: it has few kernels, each a long one. Without
    /// it an optimizer step goes as fast as a training there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_rate: Option<f64>,
}

/// The speeds at which work goes on while so many forwards and trainings are under way on one GPU, as shares of the speed alone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedRate {
    /// Target forwards under way.
    pub forwards: u16,
    /// Drafter passes and optimizer steps under way.
    pub trains: u16,
    /// Speed of each forward; 1 is its speed alone.
    #[serde(default = "alone")]
    pub forward_rate: f64,
    /// Speed of each training; 1 is its speed alone.
    #[serde(default = "alone")]
    pub train_rate: f64,
}

const fn alone() -> f64 {
    1.0
}

/// No work gets faster by company by so much; more is a mistake in the file.
const RATE_MAX: f64 = 2.0;

impl Sharing {
    /// Speed of a forward and of a training while so many of each are under way.
    pub fn rates(&self, forwards: u16, trains: u16) -> (f64, f64) {
        let listed = self
            .rates
            .iter()
            .find(|rate| (rate.forwards, rate.trains) == (forwards, trains));
        match listed {
            Some(rate) => (rate.forward_rate, rate.train_rate),
            None => {
                let even = 1.0 / f64::from(forwards + trains).max(1.0);
                (even, even)
            }
        }
    }

    /// What cannot be simulated; `at` is the path of this section.
    pub fn validate(&self, at: &str) -> Vec<Problem> {
        let mut checks = Checks::new(at);
        if let Some(ratio) = self.kernel_ratio {
            checks.positive(
                "kernel_ratio",
                ratio,
                "leave it out for rates that hold for all sizes",
            );
        }
        let rate = |checks: &mut Checks<'_>, key: &str, speed: f64| {
            checks.require(
                speed > 0.0 && speed <= RATE_MAX,
                key,
                speed,
                "must be above 0 and at most 2",
                "write the speed as a share of the speed alone, such as 0.5",
            );
        };
        if let Some(speed) = self.step_rate {
            rate(&mut checks, "step_rate", speed);
        }
        for (row, listed) in self.rates.iter().enumerate() {
            let key = |name: &str| format!("rates[{row}].{name}");
            checks.require(
                listed.forwards + listed.trains > 0,
                &key("forwards"),
                "no work",
                "must be at least one forward or training",
                "say how many forwards and trains are under way",
            );
            for (name, speed) in [
                ("forward_rate", listed.forward_rate),
                ("train_rate", listed.train_rate),
            ] {
                rate(&mut checks, &key(name), speed);
            }
        }
        checks.done()
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::lines;
    use super::*;

    #[test]
    fn states_that_are_not_listed_share_evenly() {
        let sharing: Sharing = toml::from_str(
            "rates = [ { forwards = 1, trains = 1, forward_rate = 0.6, train_rate = 0.45 } ]",
        )
        .unwrap();
        assert_eq!(sharing.validate("hardware.sharing"), []);
        assert_eq!(sharing.rates(1, 1), (0.6, 0.45));
        assert_eq!(sharing.rates(1, 0), (1.0, 1.0));
        assert_eq!(sharing.rates(2, 2), (0.25, 0.25));
    }

    #[test]
    fn rates_are_shares_of_the_speed_alone() {
        let text = "step_rate = 3\nrates = [ { forwards = 0, trains = 0 }, { forwards = 1, trains = 1, forward_rate = 0, train_rate = 55 } ]";
        let sharing: Sharing = toml::from_str(text).unwrap();
        assert_eq!(
            lines(&sharing.validate("hardware.sharing")),
            [
                "hardware.sharing.step_rate: 3 must be above 0 and at most 2; write the speed as a share of the speed alone, such as 0.5",
                "hardware.sharing.rates[0].forwards: no work must be at least one forward or training; say how many forwards and trains are under way",
                "hardware.sharing.rates[1].forward_rate: 0 must be above 0 and at most 2; write the speed as a share of the speed alone, such as 0.5",
                "hardware.sharing.rates[1].train_rate: 55 must be above 0 and at most 2; write the speed as a share of the speed alone, such as 0.5",
            ]
        );
    }
}
