//! What goes wrong, and when.

use super::check::{Checks, Problem};
use serde::{Deserialize, Serialize};
use shared::id::{DrafterId, TargetId};
use std::fmt;

/// One thing that happens to one worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Whom it happens to: `"t1"` is target worker 1, `"d0"` drafter worker 0.
    pub worker: Worker,
    /// What happens.
    pub kind: FaultKind,
    /// When it begins, since the run began. (s)
    pub at_s: f64,
    /// When slowness ends; never when left out. (s)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_s: Option<f64>,
}

/// What happens to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum FaultKind {
    /// Its work takes longer.
    Slow {
        /// Times as long.
        factor: f64,
    },
    /// It is gone, with the work in its hands.
    Lost,
    /// It comes, or comes back.
    Joined,
}

/// A worker by kind and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Worker {
    /// A target worker.
    Target(TargetId),
    /// A drafter worker.
    Drafter(DrafterId),
}

/// A text that names no worker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no worker; write \"t1\" for target worker 1 or \"d0\" for drafter worker 0")]
pub struct WorkerError(pub String);

impl TryFrom<String> for Worker {
    type Error = WorkerError;

    fn try_from(name: String) -> Result<Self, WorkerError> {
        // A sign would pass as a number.
        let number = |digits: &str| match digits.bytes().all(|b| b.is_ascii_digit()) {
            true => digits.parse().ok(),
            false => None,
        };
        let target = name.strip_prefix('t').and_then(number);
        let drafter = name.strip_prefix('d').and_then(number);
        match (target, drafter) {
            (Some(id), _) => Ok(Self::Target(TargetId(id))),
            (_, Some(id)) => Ok(Self::Drafter(DrafterId(id))),
            (None, None) => Err(WorkerError(name)),
        }
    }
}

impl From<Worker> for String {
    fn from(worker: Worker) -> Self {
        worker.to_string()
    }
}

impl fmt::Display for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target(id) => id.fmt(f),
            Self::Drafter(id) => id.fmt(f),
        }
    }
}

impl Fault {
    /// What cannot be simulated; `at` is the path of this fault.
    pub fn validate(&self, at: &str) -> Vec<Problem> {
        let mut checks = Checks::new(at);
        checks.not_negative("at_s", self.at_s, "write seconds since the run began");
        if let FaultKind::Slow { factor } = self.kind {
            checks.positive("kind.slow.factor", factor, "write 2.0 for twice as long");
        }
        if let Some(until) = self.until_s {
            checks.require(
                until.is_finite() && until > self.at_s,
                "until_s",
                until,
                &format!("must be finite and after at_s {}", self.at_s),
                "leave it out for the rest of the run",
            );
            checks.require(
                matches!(self.kind, FaultKind::Slow { .. }),
                "until_s",
                until,
                "can only end slowness",
                "add a fault of the kind \"joined\" for a worker that comes back",
            );
        }
        checks.done()
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::lines;
    use super::*;

    fn fault(text: &str) -> Fault {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn faults_read_back() {
        for text in [
            "worker = 't1'\nat_s = 3.0\nuntil_s = 9.0\nkind = { slow = { factor = 2.5 } }",
            "worker = 'd0'\nat_s = 0\nkind = 'lost'",
            "worker = 'd12'\nat_s = 7.5\nkind = 'joined'",
        ] {
            let fault = fault(text);
            assert_eq!(fault.validate("fault[0]"), []);
            let text = toml::to_string(&fault).unwrap();
            assert_eq!(toml::from_str::<Fault>(&text).unwrap(), fault);
        }
    }

    #[test]
    fn a_worker_has_a_letter_and_a_number() {
        let worker = |name: &str| Worker::try_from(name.to_owned());
        assert_eq!(worker("t1"), Ok(Worker::Target(TargetId(1))));
        assert_eq!(worker("d0"), Ok(Worker::Drafter(DrafterId(0))));
        for name in ["", "t", "x1", "t-1", "t+1", "t65536", "d 0", "target1"] {
            assert_eq!(worker(name), Err(WorkerError(name.into())));
        }
        assert_eq!(
            worker("gpu3").unwrap_err().to_string(),
            r#""gpu3" names no worker; write "t1" for target worker 1 or "d0" for drafter worker 0"#
        );
    }

    #[test]
    fn times_and_factors_have_limits() {
        let slow = "worker = 't1'\nat_s = -1\nuntil_s = -2\nkind = { slow = { factor = 0 } }";
        assert_eq!(
            lines(&fault(slow).validate("fault[0]")),
            [
                "fault[0].at_s: -1 must be finite and at least 0; write seconds since the run began",
                "fault[0].kind.slow.factor: 0 must be finite and above 0; write 2.0 for twice as long",
                "fault[0].until_s: -2 must be finite and after at_s -1; leave it out for the rest of the run",
            ]
        );
        let lost = "worker = 't1'\nat_s = 1\nuntil_s = 2\nkind = 'lost'";
        assert_eq!(
            lines(&fault(lost).validate("fault[0]")),
            [
                "fault[0].until_s: 2 can only end slowness; add a fault of the kind \"joined\" for a worker that comes back"
            ]
        );
    }
}
