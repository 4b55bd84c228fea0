//! Axes: the range that shows all values, and round ticks in it.

use super::number::{short, tick_labels};
use super::sheet::Text;

/// How values are spread along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spacing {
    Linear,
    Logarithmic,
}

/// One axis: title with unit, range and ticks.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) title: String,
    pub(crate) ticks: Vec<(f64, String)>,
    spacing: Spacing,
    low: f64,
    high: f64,
}

impl Axis {
    /// A linear axis over the finite `values`, from zero if these are closer to zero than to each other.
    pub(crate) fn linear(title: &str, values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = range_of(values);
        let from_zero = low > 0.0 && low < 0.6 * high;
        Self::padded(title, if from_zero { 0.0 } else { low }, high)
    }

    /// A linear axis from zero over the finite `values`.
    pub(crate) fn from_zero(title: &str, values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = range_of(values);
        Self::padded(title, low.min(0.0), high.max(0.0))
    }

    /// A logarithmic axis if all values are positive and spread over a factor of 30, else a linear one.
    pub(crate) fn spread(title: &str, values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = range_of(values);
        if low > 0.0 && high / low >= 30.0 {
            return Self::logarithmic(title, low, high);
        }
        Self::linear(title, [low, high])
    }

    /// A linear axis over exactly `low` to `high`, with ticks at round values inside.
    pub(crate) fn exact(title: &str, low: f64, high: f64) -> Self {
        Self::between(title, low, high)
    }

    /// A time axis over the finite `values`, from zero if the first is near it.
    pub(crate) fn time(title: &str, values: impl IntoIterator<Item = f64>) -> Self {
        let (first, last) = range_of(values);
        let from_zero = first > 0.0 && first < 0.05 * last;
        Self::between(title, if from_zero { 0.0 } else { first }, last)
    }

    /// Keeps the ticks at whole numbers only.
    pub(crate) fn whole_ticks(mut self) -> Self {
        self.ticks.retain(|(at, _)| at.fract() == 0.0);
        for (at, label) in &mut self.ticks {
            if at.abs() < 1e4 {
                *label = format!("{at:.0}");
            }
        }
        self
    }

    /// Keeps every second tick until there are at most `ticks_max`.
    pub(crate) fn sparse(mut self, ticks_max: usize) -> Self {
        while self.ticks.len() > ticks_max.max(1) {
            let mut is_kept = false;
            self.ticks.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
        }
        self
    }

    /// Place of a value along the axis: 0 at the low end, 1 at the high end.
    pub(crate) fn share(&self, value: f64) -> f64 {
        match self.spacing {
            Spacing::Linear => (value - self.low) / (self.high - self.low),
            Spacing::Logarithmic => (value / self.low).ln() / (self.high / self.low).ln(),
        }
    }

    /// A linear axis with some space beyond the values, except at zero.
    fn padded(title: &str, low: f64, high: f64) -> Self {
        let (low, high) = widened(low, high);
        let pad = 0.04 * (high - low);
        let beyond = |end: f64, pad: f64| if end == 0.0 { 0.0 } else { end + pad };
        Self::between(title, beyond(low, -pad), beyond(high, pad))
    }

    /// A linear axis from `low` to `high`, with ticks at the round values between.
    fn between(title: &str, low: f64, high: f64) -> Self {
        let (low, high) = widened(low, high);
        let step = round_step((high - low) / 6.0);
        let first = (low / step - 1e-6).ceil();
        let last = (high / step + 1e-6).floor();
        let ticks: Vec<f64> = (0..=(last - first) as u32)
            .map(|i| (first + f64::from(i)) * step)
            .collect();
        let labels = tick_labels(&ticks, step);
        let ticks = ticks.into_iter().zip(labels).collect();
        Self {
            title: title.to_owned(),
            spacing: Spacing::Linear,
            low,
            high,
            ticks,
        }
    }

    fn logarithmic(title: &str, low: f64, high: f64) -> Self {
        let decades = (high / low).log10();
        let mantissas: &[f64] = if decades < 3.0 {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0]
        };
        let stride = (decades / 8.0).ceil().max(1.0) as usize;
        let first = low.log10().floor() as i32;
        let last = high.log10().ceil() as i32;
        let ticks = (first..=last)
            .step_by(stride)
            .flat_map(|exponent| mantissas.iter().map(move |m| m * 10_f64.powi(exponent)))
            .filter(|tick| (low * 0.999..=high * 1.001).contains(tick))
            .map(|tick| (tick, short(tick)))
            .collect();
        let (low, high) = (low / 1.08, high * 1.08);
        Self {
            title: title.to_owned(),
            spacing: Spacing::Logarithmic,
            low,
            high,
            ticks,
        }
    }

    /// Width of the longest tick label in logical pixels.
    pub(super) fn widest_label(&self) -> f64 {
        let widths = self
            .ticks
            .iter()
            .map(|(_, label)| Text::new((0.0, 0.0), label).width());
        widths.fold(0.0, f64::max)
    }
}

/// The least and the greatest finite value; 0 to 1 if there is none.
fn range_of(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values
        .into_iter()
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
            (low.min(v), high.max(v))
        });
    if low > high { (0.0, 1.0) } else { (low, high) }
}

/// A range of some width around `low` to `high`, also if both are equal or too large to subtract.
fn widened(low: f64, high: f64) -> (f64, f64) {
    let (low, high) = (low.clamp(-1e300, 1e300), high.clamp(-1e300, 1e300));
    let magnitude = low.abs().max(high.abs());
    if magnitude < 1e-300 {
        return (0.0, 1.0);
    }
    if high - low > 1e-9 * magnitude {
        return (low, high);
    }
    (low - 0.1 * magnitude, high + 0.1 * magnitude)
}

/// The least of 1, 2, 5 × 10ⁿ that is not much below `step`.
fn round_step(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    let mantissa = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|m| m * power >= step * 0.75);
    mantissa.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_and_lie_between_the_ends() {
        let axis = Axis::linear("", [0.0, 60.0]);
        assert_eq!(labels(&axis), ["0", "10", "20", "30", "40", "50", "60"]);
        assert_eq!(axis.share(31.2), 0.5);
        assert_eq!(axis.share(0.0), 0.0);
    }

    #[test]
    fn narrow_ranges_do_not_start_at_zero() {
        let axis = Axis::linear("", [20_100.0, 21_500.0]);
        assert_eq!(
            labels(&axis),
            [
                "20.2k", "20.4k", "20.6k", "20.8k", "21.0k", "21.2k", "21.4k"
            ]
        );
        assert_eq!(
            labels(&Axis::from_zero("", [3.0, 5.0])),
            ["0", "1", "2", "3", "4", "5"]
        );
    }

    #[test]
    fn sparse_ticks_start_at_the_first() {
        let axis = Axis::linear("", [0.0, 60.0]).sparse(4);
        assert_eq!(labels(&axis), ["0", "20", "40", "60"]);
    }

    #[test]
    fn any_values_make_an_axis() {
        let nan = f64::NAN;
        for values in [
            vec![],
            vec![nan],
            vec![0.0],
            vec![5.0, 5.0],
            vec![1e-300],
            vec![1e308, -1e308],
        ] {
            let axis = Axis::linear("", values.clone());
            assert!(
                axis.high > axis.low && axis.ticks.len() < 30,
                "{values:?}: {axis:?}"
            );
            assert!(axis.ticks.len() > 1, "{values:?}: {axis:?}");
            let axis = Axis::spread("", values.clone());
            assert!(axis.high > axis.low, "{values:?}: {axis:?}");
        }
    }

    #[test]
    fn wide_ranges_are_logarithmic() {
        let axis = Axis::spread("", [1.0, 100.0]);
        assert_eq!(labels(&axis), ["1", "2", "5", "10", "20", "50", "100"]);
        assert_eq!(Axis::spread("", [4.0, 64.0]).spacing, Spacing::Linear);
    }
}
