//! Checks that a type cannot make: ranges, finite numbers, shares that sum to one.

use std::fmt;

/// One value that cannot be simulated, in the parts of its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Dotted path of the key in its file.
    pub key: String,
    /// The value found, as a file would write it.
    pub value: String,
    /// What it must be.
    pub limit: String,
    /// What to do about it.
    pub way_out: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} {}; {}",
            self.key, self.value, self.limit, self.way_out
        )
    }
}

/// How far shares may sum from one.
const SHARES_TOLERANCE: f64 = 1e-6;

/// Collects the problems of one section.
pub(super) struct Checks<'a> {
    at: &'a str,
    problems: Vec<Problem>,
}

impl<'a> Checks<'a> {
    /// No problems yet, in the section at path `at`.
    pub(super) const fn new(at: &'a str) -> Self {
        Self {
            at,
            problems: Vec::new(),
        }
    }

    /// What was found.
    pub(super) fn done(self) -> Vec<Problem> {
        self.problems
    }

    /// Adds the problems of a section inside this one.
    pub(super) fn extend(&mut self, problems: Vec<Problem>) {
        self.problems.extend(problems);
    }

    /// The path of `key` in this section.
    pub(super) fn path(&self, key: &str) -> String {
        join(self.at, key)
    }

    /// A problem with `key`, unless `fine`.
    pub(super) fn require(
        &mut self,
        fine: bool,
        key: &str,
        value: impl fmt::Display,
        limit: &str,
        way_out: &str,
    ) {
        if !fine {
            self.problems.push(Problem {
                key: self.path(key),
                value: value.to_string(),
                limit: limit.into(),
                way_out: way_out.into(),
            });
        }
    }

    /// A count of one or more.
    pub(super) fn at_least_one(&mut self, key: &str, value: impl Into<u64>, way_out: &str) {
        let value = value.into();
        self.require(value > 0, key, value, "must be at least 1", way_out);
    }

    /// A finite number of zero or more.
    pub(super) fn not_negative(&mut self, key: &str, value: f64, way_out: &str) {
        let fine = value.is_finite() && value >= 0.0;
        self.require(fine, key, value, "must be finite and at least 0", way_out);
    }

    /// A finite number above zero.
    pub(super) fn positive(&mut self, key: &str, value: f64, way_out: &str) {
        let fine = value.is_finite() && value > 0.0;
        self.require(fine, key, value, "must be finite and above 0", way_out);
    }

    /// A share of a whole.
    pub(super) fn share(&mut self, key: &str, value: f64, way_out: &str) {
        let fine = (0.0..=1.0).contains(&value);
        self.require(fine, key, value, "must be from 0 to 1", way_out);
    }

    /// Shares of one whole, each not negative.
    pub(super) fn shares(&mut self, key: &str, shares: &[f64]) {
        for (index, share) in shares.iter().enumerate() {
            let key = format!("{key}[{index}]");
            self.share(&key, *share, "write a share of the whole, such as 0.25");
        }
        let sum: f64 = shares.iter().sum();
        self.require(
            (sum - 1.0).abs() <= SHARES_TOLERANCE,
            key,
            format!("sum {sum}"),
            "must be 1 within 0.000001",
            "change the shares so that they sum to 1",
        );
    }
}

/// `key` inside `at`; either may be empty.
pub(super) fn join(at: &str, key: &str) -> String {
    match (at, key) {
        ("", key) => key.into(),
        (at, "") => at.into(),
        (at, key) => format!("{at}.{key}"),
    }
}

/// What [`Problem`]s say, one a line, for tests.
#[cfg(test)]
pub(super) fn lines(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_key_value_limit_and_way_out() {
        let mut checks = Checks::new("training");
        checks.at_least_one("grad_accum", 0_u32, "write 1 or more");
        checks.at_least_one("batch_max", 1_u32, "write 1 or more");
        assert_eq!(
            lines(&checks.done()),
            ["training.grad_accum: 0 must be at least 1; write 1 or more"]
        );
    }

    #[test]
    fn numbers_must_be_finite() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0] {
            let mut checks = Checks::new("");
            checks.not_negative("a", value, "");
            checks.positive("b", value, "");
            checks.share("c", value, "");
            assert_eq!(checks.done().len(), 3, "{value}");
        }
        let mut checks = Checks::new("");
        checks.not_negative("a", 0.0, "");
        checks.share("c", 1.0, "");
        assert_eq!(checks.done(), []);
    }

    #[test]
    fn shares_sum_to_one() {
        let sums = |shares: &[f64]| {
            let mut checks = Checks::new("");
            checks.shares("mix", shares);
            lines(&checks.done())
        };
        assert_eq!(sums(&[0.3, 0.7]), [""; 0]);
        assert_eq!(sums(&[0.3, 0.700_000_5]), [""; 0]);
        assert_eq!(
            sums(&[0.25, 0.5]),
            ["mix: sum 0.75 must be 1 within 0.000001; change the shares so that they sum to 1"]
        );
        assert_eq!(sums(&[1.5, -0.5]).len(), 2);
        assert_eq!(sums(&[f64::NAN]).len(), 2);
        assert_eq!(sums(&[]).len(), 1);
    }
}
