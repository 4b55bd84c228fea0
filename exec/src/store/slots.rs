//! Slots as the records show them: granted, released, and never more than the policy allows.

use shared::core::{Action, Event, Outcome};
use shared::id::{BucketId, Bytes, MicrobatchId};
use shared::plan::Plan;
use shared::policy::{Admission, Placement, Policy, Release, Transport};
use std::collections::BTreeSet;

/// What is occupied of a cap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupied {
    /// Slots.
    pub slots: u32,
    /// Bytes of the hidden states that the slots are for.
    pub bytes: Bytes,
}

/// Who holds a slot, told from events and actions alone: the core's own count is not asked, so a breach of a cap shows.
///
/// Records do not say whether a slot stays reserved after a failed attempt; until the next attempt it is not counted.
///
/// Invariant: slots and bytes are within the policy's caps after every record.
#[derive(Clone, Debug)]
pub struct Slots {
    sizes: Vec<(BucketId, Bytes)>,
    policy: Policy,
    held: BTreeSet<MicrobatchId>,
    total: Occupied,
    buckets: Vec<Occupied>,
    peak: Occupied,
}

impl Slots {
    /// No slot is held.
    pub fn new(plan: &Plan, policy: &Policy) -> Self {
        let sizes = plan.microbatches.iter().map(|m| (m.bucket, m.bytes));
        Self {
            sizes: sizes.collect(),
            policy: policy.clone(),
            held: BTreeSet::new(),
            total: Occupied::default(),
            buckets: vec![Occupied::default(); usize::from(plan.buckets())],
            peak: Occupied::default(),
        }
    }

    /// Takes in an event and the actions it caused.
    pub fn record(&mut self, event: &Event, actions: &[Action]) {
        self.on_event(event);
        actions.iter().for_each(|action| self.on_action(action));
        self.peak.slots = self.peak.slots.max(self.total.slots);
        self.peak.bytes = self.peak.bytes.max(self.total.bytes);
    }

    /// Releases all slots but those that `keep` says: records do not tell which slots fall free by a lost worker.
    pub fn retain(&mut self, keep: impl Fn(MicrobatchId) -> bool) {
        let held: Vec<MicrobatchId> = self.held.iter().copied().collect();
        for id in held.into_iter().filter(|id| !keep(*id)) {
            self.release(id);
        }
    }

    /// What is occupied now, in all.
    pub fn total(&self) -> Occupied {
        self.total
    }

    /// What is occupied now, by bucket.
    pub fn bucket(&self, bucket: BucketId) -> Occupied {
        self.buckets[bucket.index()]
    }

    /// The most that was occupied after any record; slots and bytes need not have peaked together.
    pub fn peak(&self) -> Occupied {
        self.peak
    }

    /// The policy's cap on all slots, if it has one.
    pub fn slots_max(&self) -> Option<u32> {
        let drafters = u32::from(self.policy.drafters);
        let by_drafter = self.policy.depth_per_drafter.map(|depth| depth * drafters);
        least(self.policy.depth_total, by_drafter)
    }

    /// The first cap that is exceeded, in words.
    ///
    /// Caps per drafter are checked for all drafters together: records do not say whose slot one is. Nor do they say when a drafter
    /// takes what needs no fetch, so caps on slots released by taking are not checked there.
    pub fn breach(&self) -> Option<String> {
        let policy = &self.policy;
        let is_fetched =
            policy.transport != Transport::Local && policy.placement != Placement::Drafter;
        if !is_fetched && policy.release != Release::Trained {
            return None;
        }
        let bytes_by_drafter = policy
            .bytes_per_drafter
            .map(|bytes| Bytes(bytes.0.saturating_mul(policy.drafters.into())));
        let slots_max = self.slots_max();
        let bytes_max = least(policy.bytes_total, bytes_by_drafter);
        if let Some(breach) = exceeds(
            || "all buckets".to_owned(),
            self.total,
            slots_max,
            bytes_max,
        ) {
            return Some(breach);
        }
        self.buckets.iter().enumerate().find_map(|(index, used)| {
            let (slots, bytes) = (policy.depth_per_bucket, policy.bytes_per_bucket);
            let name = || format!("bucket {}", BucketId::from_index(index));
            exceeds(name, *used, slots, bytes)
        })
    }

    fn on_event(&mut self, event: &Event) {
        use Outcome::Failed;
        let lasts = self.policy.release == Release::Trained;
        match *event {
            Event::ForwardEnded {
                microbatch,
                outcome: Failed,
                ..
            }
            | Event::StageEnded {
                microbatch,
                outcome: Failed,
            }
            | Event::FetchEnded {
                microbatch,
                outcome: Failed,
                ..
            }
            | Event::TrainEnded { microbatch, .. } => self.release(microbatch),
            Event::FetchEnded { microbatch, .. } if !lasts => self.release(microbatch),
            _ => {}
        }
    }

    fn on_action(&mut self, action: &Action) {
        let Policy {
            admission, release, ..
        } = self.policy;
        match *action {
            Action::Forward { microbatch, .. } if admission == Admission::Reserve => {
                self.grant(microbatch);
            }
            Action::Admit { microbatch } => self.grant(microbatch),
            Action::Fetch { microbatch, .. } if release == Release::Taken => {
                self.release(microbatch)
            }
            Action::Train { microbatch, .. } if release != Release::Trained => {
                self.release(microbatch);
            }
            Action::Discard { microbatch } => self.release(microbatch),
            _ => {}
        }
    }

    fn grant(&mut self, id: MicrobatchId) {
        if self.held.insert(id) {
            let (bucket, bytes) = self.sizes[id.index()];
            for used in [&mut self.total, &mut self.buckets[bucket.index()]] {
                used.slots += 1;
                used.bytes += bytes;
            }
        }
    }

    fn release(&mut self, id: MicrobatchId) {
        if self.held.remove(&id) {
            let (bucket, bytes) = self.sizes[id.index()];
            for used in [&mut self.total, &mut self.buckets[bucket.index()]] {
                used.slots -= 1;
                used.bytes -= bytes;
            }
        }
    }
}

fn least<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn exceeds(
    what: impl Fn() -> String,
    used: Occupied,
    slots_max: Option<u32>,
    bytes_max: Option<Bytes>,
) -> Option<String> {
    if let Some(max) = slots_max.filter(|max| used.slots > *max) {
        return Some(format!("{}: {} slots, at most {max}", what(), used.slots));
    }
    let max = bytes_max.filter(|max| used.bytes > *max)?;
    Some(format!(
        "{}: {} of hidden states, at most {max}",
        what(),
        used.bytes
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::id::{DrafterId, StepId, TargetId};
    use shared::plan::{Edges, FormationBuilder, MixRule, OrderSpec, Ordering, Tail};
    use shared::policy::preset;

    /// Four microbatches of 100 bytes, in buckets 0 1 0 1.
    fn slots(policy: &Policy) -> Slots {
        let edges = Edges::given(vec![10, 20]).unwrap();
        let mut builder = FormationBuilder::new(edges, Bytes(10));
        for row in 0..4 {
            builder.push(BucketId(row % 2), 1, 10).unwrap();
        }
        let spec = OrderSpec {
            ordering: Ordering::AsFormed,
            drafters: 1,
            grad_accum: 1,
            tail: Tail::Short,
            mix: MixRule::default(),
            assign: false,
            train_cost: Vec::new(),
            seed: shared::draw::Seed(0),
        };
        Slots::new(&Plan::order(&builder.build().unwrap(), &spec), policy)
    }

    fn forward(id: u32) -> Action {
        Action::Forward {
            target: TargetId(0),
            microbatch: MicrobatchId(id),
        }
    }

    fn fetch_ended(id: u32, outcome: Outcome) -> Event {
        Event::FetchEnded {
            drafter: DrafterId(0),
            microbatch: MicrobatchId(id),
            outcome,
        }
    }

    fn reserving(release: Release) -> Policy {
        Policy {
            admission: Admission::Reserve,
            release,
            depth_total: Some(3),
            depth_per_bucket: Some(2),
            bytes_total: None,
            ..preset("bucketed").unwrap()
        }
    }

    #[test]
    fn a_slot_lasts_from_its_grant_to_its_release() {
        for (release, after_fetch) in [(Release::Fetched, 1), (Release::Trained, 2)] {
            let mut slots = slots(&reserving(release));
            slots.record(&Event::Started, &[forward(0), forward(1)]);
            assert_eq!(
                slots.total(),
                Occupied {
                    slots: 2,
                    bytes: Bytes(200)
                }
            );
            slots.record(&fetch_ended(0, Outcome::Done), &[]);
            assert_eq!(slots.total().slots, after_fetch);
            let (drafter, microbatch) = (DrafterId(0), MicrobatchId(0));
            let trained = Event::TrainEnded {
                drafter,
                microbatch,
                outcome: Outcome::Done,
            };
            slots.record(&trained, &[]);
            assert_eq!(slots.total().slots, 1);
            assert_eq!(slots.bucket(BucketId(1)).slots, 1);
            assert_eq!(
                slots.peak(),
                Occupied {
                    slots: 2,
                    bytes: Bytes(200)
                }
            );
        }
    }

    #[test]
    fn a_target_that_blocks_holds_no_slot_before_it_is_admitted() {
        let mut slots = slots(&preset("bucketed").unwrap());
        slots.record(&Event::Started, &[forward(0), forward(1)]);
        assert_eq!(slots.total().slots, 0);
        slots.record(
            &Event::WakeDue,
            &[Action::Admit {
                microbatch: MicrobatchId(1),
            }],
        );
        assert_eq!(
            (slots.total().slots, slots.bucket(BucketId(1)).slots),
            (1, 1)
        );
        slots.record(&fetch_ended(1, Outcome::Failed), &[]);
        assert_eq!(slots.total(), Occupied::default());
    }

    #[test]
    fn a_breach_is_told_in_words() {
        let mut slots = slots(&reserving(Release::Trained));
        slots.record(&Event::Started, &[forward(0), forward(1), forward(2)]);
        assert_eq!(slots.breach(), None);
        slots.record(&Event::WakeDue, &[forward(3)]);
        assert_eq!(slots.breach().unwrap(), "all buckets: 4 slots, at most 3");
        let tight = Policy {
            bytes_per_bucket: Some(Bytes(150)),
            ..reserving(Release::Trained)
        };
        let mut slots = self::slots(&tight);
        slots.record(&Event::Started, &[forward(0), forward(2)]);
        let expected = "bucket b0: 200 B of hidden states, at most 150 B";
        assert_eq!(slots.breach().unwrap(), expected);
    }

    #[test]
    fn training_gives_back_what_no_fetch_gave_back() {
        let mut slots = slots(&reserving(Release::Taken));
        slots.record(&Event::Started, &[forward(0)]);
        let train = Action::Train {
            drafter: DrafterId(0),
            microbatch: MicrobatchId(0),
            step: StepId(0),
        };
        slots.record(&Event::WakeDue, &[train]);
        assert_eq!(slots.total().slots, 0);
    }
}
