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
    fn one_replication_has_no_interval() {
        assert_eq!(half_width(&Estimate::of(&[5.0])), "–");
        assert_eq!(half_width(&Estimate::of(&[5.0, 5.0])), "0");
        assert_eq!(count(1, "point"), "1 point");
        assert_eq!(count(1200, "point"), "1,200 points");
    }
}
