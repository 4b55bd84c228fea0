//! Measured times that are not known well enough to predict with.

use super::measure::transport_name;
use super::{Calibrated, Measure};
use exec::calibrate::Stage;

/// Twins are held to a throughput within 3 %: an error of this share of a forward may use that up.
const TOLERATED: f64 = 0.03;

impl Calibrated {
    /// A warning of the stages whose times varied so much that predictions which hang on them may be off, if there are any.
    pub(crate) fn unsteady(&self) -> Option<String> {
        let forwards = self.measures.iter().filter(|m| m.stage == Stage::Forward);
        let forwards: Vec<f64> = forwards.map(|m| m.mean).collect();
        let pace = forwards.iter().sum::<f64>() / forwards.len().max(1) as f64;
        let matters = |m: &&Measure| m.error_ms() > TOLERATED * pace;
        // The worst of each stage and transport, in the order in which they were measured.
        let mut worst: Vec<&Measure> = Vec::new();
        for measure in self.measures.iter().filter(matters) {
            let is_same =
                |m: &&mut &Measure| (m.stage, m.transport) == (measure.stage, measure.transport);
            match worst.iter_mut().find(is_same) {
                Some(known) if known.error_ms() < measure.error_ms() => *known = measure,
                Some(_) => {}
                None => worst.push(measure),
            }
        }
        let named = worst.iter().map(|m| {
            let by = m
                .transport
                .map_or_else(String::new, |t| format!(" by {}", transport_name(t)));
            let percent = 100.0 * m.error_ms() / m.median;
            format!("{}{by} {:.1} ms ± {percent:.0} %", m.stage.name(), m.median)
        });
        let named: Vec<String> = named.collect();
        (!named.is_empty()).then(|| {
            format!(
                "warning: times were unsteady ({}): predictions that hang on them may be off as much; measure again while nothing else runs, or longer (--per-bucket, --window-ms)",
                named.join(", ")
            )
        })
    }
}

impl Measure {
    /// Standard error of the middle of its pieces. (ms)
    fn error_ms(&self) -> f64 {
        self.median * self.spread / (self.count.max(1) as f64).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::measurement;
    use super::super::{Calibrated, summed};
    use crate::verbs::exec::backend::Choice;
    use exec::calibrate::Stage;

    fn with_spread(of: Stage, spread: f64) -> Calibrated {
        let mut found = summed(&[measurement()], Choice::Cpu, Some(1));
        for measure in found.measures.iter_mut().filter(|m| m.stage == of) {
            (measure.spread, measure.count) = (spread, 4);
        }
        found
    }

    #[test]
    fn what_varies_is_named_where_it_can_move_a_prediction() {
        assert_eq!(with_spread(Stage::Forward, 0.05).unsteady(), None);
        let told = with_spread(Stage::Forward, 0.4).unsteady().unwrap();
        assert!(
            told.contains("target forward") && told.contains("± 20 %"),
            "{told}"
        );
        // It is five times as long as a forward here.
        assert_eq!(with_spread(Stage::Apply, 0.01).unsteady(), None);
        let told = with_spread(Stage::Apply, 0.02).unsteady().unwrap();
        assert!(told.contains("optimizer step 5.0 ms ± 1 %"), "{told}");
    }
}
