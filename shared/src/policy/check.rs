//! Whether a policy can work at all, known before anything runs.

use super::standstill::standstill;
use super::{Assignment, Barrier, Enforce, Placement, Policy, Queue, Transport};
use crate::id::Bytes;
use crate::plan::{Fill, Microbatch};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The run works, though perhaps not as meant.
    Warning,
    /// The run cannot make progress or contradicts itself.
    Error,
}

/// One thing found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The policy's key it is about.
    pub key: &'static str,
    /// What is wrong with which value, the limit, and the way out. One line.
    pub message: String,
}

/// A policy that cannot work: its first error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy.{key}: {message}")]
pub struct PolicyError {
    /// The policy's key.
    pub key: &'static str,
    /// What is wrong, the limit, and the way out.
    pub message: String,
}

/// What the check must know of the work.
#[derive(Clone, Copy, Debug)]
pub struct RunFacts {
    /// Microbatches a drafter accumulates in one optimizer step.
    pub grad_accum: u32,
    /// The largest microbatch's hidden states. (bytes)
    pub bytes_max: Bytes,
    /// Its key.
    pub largest: u32,
    /// The most samples in one microbatch.
    pub samples_max: u32,
    /// Buckets that hold work.
    pub buckets: u32,
}

impl RunFacts {
    /// The facts of a formation's or a plan's microbatches.
    pub fn of(microbatches: &[Microbatch], grad_accum: u32) -> Self {
        let largest = microbatches
            .iter()
            .max_by_key(|m| (m.bytes, std::cmp::Reverse(m.key)));
        let samples = microbatches.iter().map(|m| m.sample_count()).max();
        let mut holds_work = [false; 1 << u8::BITS];
        for microbatch in microbatches {
            holds_work[microbatch.bucket.index()] = true;
        }
        Self {
            grad_accum,
            bytes_max: largest.map(|m| m.bytes).unwrap_or_default(),
            largest: largest.map_or(0, |m| m.key),
            samples_max: samples.unwrap_or(0),
            buckets: holds_work.iter().filter(|&&holds| holds).count() as u32,
        }
    }

    /// Microbatches in one optimizer step of all drafters.
    pub(super) fn step_size(&self, policy: &Policy) -> u32 {
        self.grad_accum.saturating_mul(policy.drafters.into())
    }
}

impl Policy {
    /// Refuses a policy that cannot work, by its first error.
    pub fn ensure(&self, facts: &RunFacts) -> Result<(), PolicyError> {
        match check(self, facts)
            .into_iter()
            .find(|f| f.severity == Severity::Error)
        {
            Some(Finding { key, message, .. }) => Err(PolicyError { key, message }),
            None => Ok(()),
        }
    }
}

/// Everything that is wrong or doubtful, errors first.
pub fn check(policy: &Policy, facts: &RunFacts) -> Vec<Finding> {
    let mut found = Found(Vec::new());
    counts(policy, facts, &mut found);
    caps(policy, facts, &mut found);
    choices(policy, &mut found);
    gates(policy, facts, &mut found);
    mixing(policy, facts, &mut found);
    standstill(policy, facts, &mut found);
    found.0.sort_by_key(|f| std::cmp::Reverse(f.severity));
    found.0
}

pub(super) struct Found(Vec<Finding>);

impl Found {
    pub(super) fn error(&mut self, key: &'static str, message: String) {
        self.0.push(Finding {
            severity: Severity::Error,
            key,
            message,
        });
    }

    pub(super) fn warn(&mut self, key: &'static str, message: String) {
        self.0.push(Finding {
            severity: Severity::Warning,
            key,
            message,
        });
    }
}

fn counts(policy: &Policy, facts: &RunFacts, found: &mut Found) {
    if policy.targets == 0 {
        found.error(
            "targets",
            "0 target workers compute nothing; set at least 1".into(),
        );
    }
    if policy.drafters == 0 {
        found.error(
            "drafters",
            "0 drafter workers train nothing; set at least 1".into(),
        );
    }
    if facts.grad_accum == 0 {
        found.error(
            "grad_accum",
            "0 microbatches make no step; set training.grad_accum to at least 1".into(),
        );
    }
}

fn caps(policy: &Policy, facts: &RunFacts, found: &mut Found) {
    let depths = [
        ("depth_total", policy.depth_total),
        ("depth_per_bucket", policy.depth_per_bucket),
        ("depth_per_drafter", policy.depth_per_drafter),
    ];
    for (key, _) in depths.iter().filter(|(_, depth)| *depth == Some(0)) {
        found.error(
            key,
            "0 slots let nothing pass; set at least 1, or leave the key out for no cap".into(),
        );
    }
    let bytes = [
        ("bytes_total", policy.bytes_total),
        ("bytes_per_bucket", policy.bytes_per_bucket),
        ("bytes_per_drafter", policy.bytes_per_drafter),
    ];
    for (key, cap) in bytes {
        let Some(cap) = cap.filter(|&cap| cap < facts.bytes_max) else {
            continue;
        };
        let largest = facts.bytes_max;
        found.error(
            key,
            format!(
                "{} bytes ({cap}) is smaller than the largest microbatch, number {}, with {} bytes ({largest}); raise it to at least that, or lower training.token_budget",
                cap.0, facts.largest, largest.0
            ),
        );
    }
    let step = facts.step_size(policy);
    if policy.queue == Queue::Dealt
        && let Some(depth) = policy
            .depth_total
            .filter(|&depth| depth > 0 && depth < step)
    {
        found.error(
            "depth_total",
            format!("{depth} slots never hold a whole window of {step} (grad_accum {} x {} drafters); set at least {step}", facts.grad_accum, policy.drafters),
        );
    }
    if policy.queue == Queue::Bucketed
        && let Some(depth) = policy.depth_total.filter(|&depth| depth < facts.buckets)
    {
        let needed = facts.buckets;
        found.warn(
            "depth_total",
            format!("{depth} slots in all are fewer than the {needed} buckets, so a drafter seldom has them all to choose from; {needed} would do"),
        );
    }
}

fn choices(policy: &Policy, found: &mut Found) {
    if policy.placement == Placement::Drafter && !policy.knows_drafter() {
        found.error(
            "placement",
            "\"drafter\" needs a queue that knows the drafter beforehand (per-drafter, or composed with fixed assignment); choose \"target\" or \"host\"".into(),
        );
    }
    let by_host = matches!(
        policy.transport,
        Transport::HostPageable | Transport::HostPinned
    );
    if by_host != (policy.placement == Placement::Host) {
        found.error(
            "transport",
            format!(
                "{:?} does not fit placement {:?}: host transports need placement \"host\", \"p2p\" and \"local\" need \"target\" or \"drafter\"",
                policy.transport, policy.placement
            ),
        );
    }
    if policy.prefetch > 0 && !policy.overlap {
        found.error(
            "prefetch",
            format!("{} microbatches ahead cannot arrive while copies stop compute; set overlap = true or prefetch = 0", policy.prefetch),
        );
    }
    if policy.copies_beside == u8::MAX {
        found.error(
            "copies_beside",
            "255 copies beside a forward and its own are more than are counted; set at most 254"
                .into(),
        );
    }
    if policy.barrier == Barrier::None && policy.queue == Queue::Composed {
        found.error(
            "barrier",
            "a composed step is one weight update for all drafters; set barrier = \"all\"".into(),
        );
    }
    if policy.barrier == Barrier::None && policy.assignment == Assignment::Shared {
        found.error("assignment", "\"shared\" shares one step among drafters; with barrier = \"none\" each has its own: set \"fixed\"".into());
    }
    if policy.queue == Queue::PerDrafter && policy.assignment == Assignment::Shared {
        found.error(
            "assignment",
            "\"shared\" cannot hold where each drafter has its own queue; set \"fixed\"".into(),
        );
    }
    if policy.queue == Queue::Dealt && policy.assignment == Assignment::Shared {
        found.error(
            "assignment",
            "\"shared\" cannot hold where windows are dealt; set \"fixed\"".into(),
        );
    }
}

fn gates(policy: &Policy, facts: &RunFacts, found: &mut Found) {
    match (policy.gate_high, policy.gate_low) {
        (Some(high), low) => {
            let step = facts.step_size(policy).saturating_mul(facts.samples_max);
            if high < step {
                found.error("gate_high", format!("{high} samples in flight never complete a step of {step}, training.grad_accum {} x {} drafters x {} samples; set at least {step}", facts.grad_accum, policy.drafters, facts.samples_max));
            } else {
                room_ahead(policy, facts, high, found);
            }
            if let Some(low) = low.filter(|&low| low > high) {
                found.error(
                    "gate_low",
                    format!("{low} samples is above gate_high = {high}; set it below"),
                );
            }
        }
        (None, Some(_)) => found.error(
            "gate_low",
            "a low mark without gate_high does nothing; set gate_high too, or leave it out".into(),
        ),
        (None, None) => {}
    }
}

/// Samples in flight are those of the step under way, those that consumers hold beside it, and what is worked ahead. A gate that leaves less
/// than a step for the last makes targets pause until drafters have nothing left.
fn room_ahead(policy: &Policy, facts: &RunFacts, high: u32, found: &mut Found) {
    let step = facts.step_size(policy).saturating_mul(facts.samples_max);
    let prefetched = u32::from(policy.drafters) * u32::from(policy.prefetch);
    let lagging = step.saturating_mul(policy.gate_lag.into());
    let held = lagging.saturating_add(prefetched.saturating_mul(facts.samples_max));
    let room = high.saturating_sub(step).saturating_sub(held);
    if room < step {
        let enough = step.saturating_mul(2).saturating_add(held);
        found.warn("gate_high", format!(
            "{high} samples in flight leave {room} to work ahead: a step takes {step} and consumers may hold {held} beside it ({lagging} counted out gate_lag steps late, the rest prefetched), so targets pause while drafters run dry; set at least {enough}"
        ));
    }
}

fn mixing(policy: &Policy, facts: &RunFacts, found: &mut Found) {
    let window = facts.grad_accum;
    let step = facts.step_size(policy);
    let asked = [
        ("mix_step_min", u32::from(policy.mix_step_min), step),
        ("mix_window_min", u32::from(policy.mix_window_min), window),
    ];
    for (key, asked, size) in asked {
        if asked > size {
            found.error(key, format!("{asked} distinct buckets do not fit into {size} microbatches; set at most {size}"));
        } else if asked > facts.buckets {
            found.warn(key, format!("{asked} distinct buckets are asked for and {} hold work: every step will be an exception", facts.buckets));
        }
    }
    if policy.mix_enforce == Enforce::Plan && policy.queue != Queue::Composed {
        found.error(
            "mix_enforce",
            "\"plan\" needs queue = \"composed\"; set \"record\", or \"take\" (which can deadlock)"
                .into(),
        );
    }
    if policy.fill != Fill::Even {
        if policy.queue != Queue::Composed {
            found.error(
                "fill",
                "only composed steps are filled ahead; set queue = \"composed\", or fill = \"even\"".into(),
            );
        } else if policy.mix_step_min.max(policy.mix_window_min) > 1 {
            found.error(
                "fill",
                "this fill keeps no mixing rule; set mix_step_min = 0 and mix_window_min = 0, or fill = \"even\"".into(),
            );
        }
    }
    if policy.mix_enforce == Enforce::Take
        && policy.mix_window_min > 1
        && policy.assignment == Assignment::Shared
    {
        found.error("mix_enforce", "\"take\" watches each drafter's window, and with assignment = \"shared\" there is none; set \"fixed\", or mix_enforce = \"record\"".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::preset;

    /// Four drafters that each accumulate four microbatches of two samples: a step is 32 samples.
    const FACTS: RunFacts = RunFacts {
        grad_accum: 4,
        bytes_max: Bytes(1_000),
        largest: 17,
        samples_max: 2,
        buckets: 1,
    };

    fn gate(high: u32, low: u32) -> Policy {
        Policy {
            targets: 4,
            drafters: 4,
            gate_high: Some(high),
            gate_low: Some(low),
            ..preset("watermark").expect("a preset")
        }
    }

    #[test]
    fn a_gate_needs_room_for_a_step_ahead_of_what_is_held() {
        let room = |policy: &Policy| {
            let found = check(policy, &FACTS).into_iter();
            let mut rooms = found.filter(|f| f.message.contains("to work ahead"));
            rooms.next().map(|f| (f.severity, f.message))
        };
        // A step under way (32), one counted out late (32) and four prefetched microbatches (8) are 72.
        let (severity, message) = room(&gate(96, 48)).expect("24 samples are less than a step");
        assert_eq!(severity, Severity::Warning);
        assert!(message.starts_with("96 samples in flight leave 24 to work ahead"));
        assert!(message.ends_with("set at least 104"), "{message}");
        assert_eq!(room(&gate(104, 96)), None);
        // What leaves the count at once and is not prefetched is not held.
        let prompt = Policy {
            gate_lag: 0,
            prefetch: 0,
            ..gate(64, 48)
        };
        assert_eq!(room(&prompt), None);
    }

    #[test]
    fn a_cap_that_the_largest_microbatch_exceeds_names_it() {
        let policy = Policy {
            bytes_total: Some(Bytes(999)),
            ..gate(200, 100)
        };
        let error = policy.ensure(&FACTS).expect_err("it never fits");
        assert_eq!(error.key, "bytes_total");
        assert!(
            error.message.contains("number 17, with 1000 bytes"),
            "{error}"
        );
    }
}
