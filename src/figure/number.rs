//! Numbers as a reader wants them: few digits, SI prefixes, one form along an axis.

/// A value with about three significant digits and an SI prefix from ten thousand on: `21.5k`, `0.199`, `3`.
pub(crate) fn short(value: f64) -> String {
    if !value.is_finite() {
        return "n/a".to_owned();
    }
    let magnitude = value.abs();
    if magnitude == 0.0 {
        return "0".to_owned();
    }
    if !(1e-4..1e15).contains(&magnitude) {
        return format!("{value:.1e}");
    }
    let (divisor, prefix) = prefix_of(magnitude);
    let scaled = value / divisor;
    let decimals = (2.0 - scaled.abs().log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{}{prefix}", trim_zeros(format!("{scaled:.decimals$}")))
}

/// A share as a percentage: `97.3 %`, `0.5 %`, `100 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{} %", percent_number(share))
}

/// A share in percent without the sign, with one decimal where that says something.
pub(crate) fn percent_number(share: f64) -> String {
    if !share.is_finite() {
        return "n/a".to_owned();
    }
    let percent = share * 100.0;
    if percent != 0.0 && percent.abs() < 0.05 {
        return "<0.1".to_owned();
    }
    if percent.abs() >= 1e4 {
        return short(percent);
    }
    // Nearly all is not all: 99.6 stays apart from 100.
    let is_nearly_all = (99.05..99.95).contains(&percent);
    let decimals = usize::from(percent.abs() < 9.95 || is_nearly_all);
    trim_zeros(format!("{percent:.decimals$}"))
}

/// The labels of evenly spaced ticks, all with the same prefix and the same number of decimals.
pub(crate) fn tick_labels(ticks: &[f64], step: f64) -> Vec<String> {
    let largest = ticks
        .iter()
        .fold(0.0_f64, |most, tick| most.max(tick.abs()));
    if largest != 0.0 && !(1e-3..1e15).contains(&largest) {
        return ticks.iter().map(|tick| scientific(*tick)).collect();
    }
    let (divisor, prefix) = prefix_of(largest);
    let decimals = decimals_of(step.abs() / divisor);
    let label = |tick: &f64| {
        if *tick == 0.0 {
            return "0".to_owned();
        }
        format!("{:.decimals$}{prefix}", tick / divisor)
    };
    ticks.iter().map(label).collect()
}

fn prefix_of(magnitude: f64) -> (f64, &'static str) {
    match magnitude {
        m if m >= 1e12 => (1e12, "T"),
        m if m >= 1e9 => (1e9, "G"),
        m if m >= 1e6 => (1e6, "M"),
        m if m >= 1e4 => (1e3, "k"),
        _ => (1.0, ""),
    }
}

/// Decimals needed to write multiples of `step` exactly, at most six.
fn decimals_of(step: f64) -> usize {
    (0..6)
        .find(|decimals| is_whole(step * 10_f64.powi(*decimals as i32)))
        .unwrap_or(6)
}

fn is_whole(value: f64) -> bool {
    (value - value.round()).abs() < 1e-6 * value.abs().max(1e-3)
}

fn scientific(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    format!("{:.2e}", value)
        .replace(".00e", "e")
        .replace("0e", "e")
}

fn trim_zeros(text: String) -> String {
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_numbers_keep_three_digits() {
        let shown = [
            0.0,
            21_534.0,
            12_000.0,
            3.0,
            0.0931,
            1_234.0,
            2.5e6,
            7.2e-9,
            f64::NAN,
        ]
        .map(short);
        assert_eq!(
            shown,
            [
                "0", "21.5k", "12k", "3", "0.0931", "1234", "2.5M", "7.2e-9", "n/a"
            ]
        );
    }

    #[test]
    fn percentages_show_small_shares() {
        assert_eq!(percent(0.9734), "97 %");
        assert_eq!(percent(0.005), "0.5 %");
        assert_eq!(percent(0.0001), "<0.1 %");
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(percent(0.996), "99.6 %");
        assert_eq!(percent(-0.021), "-2.1 %");
        assert_eq!(percent(6.2e28), "6.2e30 %");
        assert_eq!(percent(f64::INFINITY), "n/a %");
    }

    #[test]
    fn ticks_share_prefix_and_decimals() {
        assert_eq!(
            tick_labels(&[20_000.0, 20_500.0, 21_000.0], 500.0),
            ["20.0k", "20.5k", "21.0k"]
        );
        assert_eq!(tick_labels(&[0.0, 0.05, 0.1], 0.05), ["0", "0.05", "0.10"]);
        assert_eq!(tick_labels(&[0.0, 2e-7, 4e-7], 2e-7), ["0", "2e-7", "4e-7"]);
    }
}
