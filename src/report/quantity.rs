//! Numbers in sentences and tables: thousands apart, memory in GiB, shares in percent.

use sim::Estimate;

/// A whole number with its thousands apart: `22,227`.
pub(crate) fn whole(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 && digits != "0" {
        text.insert(0, '-');
    }
    text
}

/// Memory in GiB: one decimal, more where that would say nothing.
pub(crate) fn gib(bytes: u64) -> String {
    let gib = gib_of(bytes);
    let decimals = match gib {
        0.0 | 1.0.. => 1,
        0.1..1.0 => 2,
        _ => 4,
    };
    format!("{gib:.decimals$}")
}

/// Memory in GiB.
pub(crate) fn gib_of(bytes: u64) -> f64 {
    bytes as f64 / (1_u64 << 30) as f64
}

/// A share in percent with one decimal, without the sign.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

/// Half the width of an interval, or a dash where a single replication has none.
pub(crate) fn half_width(estimate: &Estimate) -> String {
    if estimate.count > 1 {
        whole(estimate.half_width.ceil())
    } else {
        "–".to_owned()
    }
}

/// A value with three significant digits and its thousands apart: `22,200`, `5.79`, `0.0123`.
pub(crate) fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value:.0}");
    }
    let digits = 2 - value.abs().log10().floor() as i32;
    if digits <= 0 {
        let scale = 10_f64.powi(-digits);
        return whole((value / scale).round() * scale);
    }
    format!("{value:.*}", digits as usize)
}

/// A large number with three significant digits: `812`, `12.3 k`, `475 M`, `1.02 G`.
pub(crate) fn amount(value: f64) -> String {
    let (size, unit) = match value.abs() {
        ..1e3 => (1.0, ""),
        ..1e6 => (1e3, " k"),
        ..1e9 => (1e6, " M"),
        _ => (1e9, " G"),
    };
    format!("{}{unit}", significant(value / size))
}

/// Memory in GiB with three significant digits, for sentences.
pub(crate) fn gib_short(bytes: u64) -> String {
    significant(gib_of(bytes))
}

/// A mean and half the width of its interval, both to the second digit of the latter: `22,227 ± 13`, `8.13 ± 0.05`. Without an
/// interval, the mean with three significant digits.
pub(crate) fn plus_minus(mean: f64, half_width: f64) -> String {
    if half_width <= 0.0 || !half_width.is_finite() {
        return significant(mean);
    }
    let decimals = (1 - half_width.log10().floor() as i32).clamp(0, 2) as usize;
    if decimals == 0 {
        return format!("{} ± {}", whole(mean), whole(half_width.ceil()));
    }
    let step = 10_f64.powi(-(decimals as i32));
    let half_width = (half_width / step).ceil() * step;
    format!("{mean:.decimals$} ± {half_width:.decimals$}")
}

/// A change in percent with its sign and interval: `+8.13 ± 0.05 %`, `−3.1 ± 0.2 %`.
pub(crate) fn change(share: &Estimate) -> String {
    let sign = if share.mean < 0.0 { "−" } else { "+" };
    let mean = 100.0 * share.mean.abs();
    format!("{sign}{} %", plus_minus(mean, 100.0 * share.half_width))
}

/// A span of time in the unit that suits it: `34.5 s`, `12.3 min`, `5.79 h`, `2.41 days`, with its interval.
pub(crate) fn duration(seconds: &Estimate) -> String {
    let (unit, size) = match seconds.mean {
        ..120.0 => ("s", 1.0),
        ..7_200.0 => ("min", 60.0),
        ..172_800.0 => ("h", 3_600.0),
        _ => ("days", 86_400.0),
    };
    let shown = plus_minus(seconds.mean / size, seconds.half_width / size);
    format!("{shown} {unit}")
}

/// `1 point`, `3 points`.
pub(crate) fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {what}{plural}", whole(number as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        let shown = [0.0, 999.4, 1000.0, 22_227.4, 1_234_567.0, -1500.0, -0.2].map(whole);
        assert_eq!(
            shown,
            ["0", "999", "1,000", "22,227", "1,234,567", "-1,500", "0"]
        );
    }

    #[test]
    fn memory_keeps_digits_that_say_something() {
        let shown = [0, 4 << 20, 300 << 20, 36 << 30].map(gib);
        assert_eq!(shown, ["0.0", "0.0039", "0.29", "36.0"]);
    }

    #[test]
    fn three_digits_say_something() {
        let shown = [22_227.4, 999.6, 5.786, 0.012_345, 0.0, -1_234.0].map(significant);
        assert_eq!(shown, ["22,200", "1,000", "5.79", "0.0123", "0", "-1,230"]);
    }

    #[test]
    fn a_mean_ends_where_its_interval_begins() {
        assert_eq!(plus_minus(22_227.4, 12.6), "22,227 ± 13");
        assert_eq!(plus_minus(8.126, 0.051), "8.13 ± 0.06");
        assert_eq!(plus_minus(8.126, 2.3), "8.1 ± 2.3");
        assert_eq!(plus_minus(8.126, 0.0), "8.13");
        let estimate = |mean, half_width| Estimate {
            mean,
            half_width,
            count: 5,
        };
        assert_eq!(change(&estimate(-0.283, 0.0012)), "−28.30 ± 0.12 %");
        assert_eq!(duration(&estimate(20_844.0, 30.0)), "5.79 ± 0.01 h");
        assert_eq!(duration(&estimate(34.5, 0.0)), "34.5 s");
    }

    #[test]
    fn one_replication_has_no_interval() {
        assert_eq!(half_width(&Estimate::of(&[5.0])), "–");
        assert_eq!(half_width(&Estimate::of(&[5.0, 5.0])), "0");
        assert_eq!(count(1, "point"), "1 point");
        assert_eq!(count(1200, "point"), "1,200 points");
    }
}
