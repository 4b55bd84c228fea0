//! Small plans for a policy.

use shared::core::Core;
use shared::draw::Seed;
use shared::id::{BucketId, Bytes};
use shared::plan::{Edges, FormationBuilder, MixRule, OrderSpec, Ordering, Plan};
use shared::policy::{Assignment, Finding, Policy, Queue, RunFacts, check};
use shared::time::Span;
use std::sync::Arc;

/// Microbatches by bucket, epoch by epoch. One of bucket b holds `samples` samples of b + 1 tokens, a byte each.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) epochs: Vec<Vec<u8>>,
    pub(crate) samples: u32,
    pub(crate) grad_accum: u32,
    pub(crate) seed: u64,
    pub(crate) shuffled: bool,
}

impl Work {
    /// One epoch, dispatched in the order given unless steps are composed.
    pub(crate) fn new(buckets: &[u8], grad_accum: u32) -> Self {
        Self {
            epochs: vec![buckets.to_vec()],
            samples: 1,
            grad_accum,
            seed: 1,
            shuffled: false,
        }
    }

    /// `count` microbatches that go round through `buckets`.
    pub(crate) fn round(count: usize, buckets: u8, grad_accum: u32) -> Self {
        let all: Vec<u8> = (0..buckets).cycle().take(count).collect();
        Self::new(&all, grad_accum)
    }

    pub(crate) fn plan(&self, policy: &Policy) -> Plan {
        let buckets = 1 + self.epochs.iter().flatten().copied().max().unwrap_or(0);
        let edges = Edges::given((1..=u32::from(buckets)).collect()).expect("edges rise");
        let mut builder = FormationBuilder::new(edges, Bytes(1));
        for (epoch, microbatches) in self.epochs.iter().enumerate() {
            if epoch > 0 {
                builder.next_epoch().expect("few epochs");
            }
            for &bucket in microbatches {
                let tokens = u32::from(bucket) + 1;
                builder
                    .push(BucketId(bucket), self.samples, tokens)
                    .expect("it fits its bucket");
            }
        }
        let ordering = match policy.queue {
            Queue::Composed => Ordering::Composed(policy.fill),
            _ if self.shuffled => Ordering::Shuffled,
            _ => Ordering::AsFormed,
        };
        let spec = OrderSpec {
            ordering,
            drafters: policy.drafters,
            grad_accum: self.grad_accum,
            tail: policy.tail,
            mix: MixRule {
                step_min: policy.mix_step_min,
                window_min: policy.mix_window_min,
            },
            assign: policy.assignment == Assignment::Fixed,
            train_cost: vec![Span::from_ns(1); usize::from(buckets)],
            seed: Seed(self.seed),
        };
        Plan::order(&builder.build().expect("there is work"), &spec)
    }

    /// The core for this work under a policy.
    pub(crate) fn core(&self, policy: &Policy) -> Core {
        let plan = Arc::new(self.plan(policy));
        Core::new(plan, policy.clone(), self.grad_accum, Seed(self.seed))
    }

    /// What the check says of this work under a policy.
    pub(crate) fn findings(&self, policy: &Policy) -> Vec<Finding> {
        check(
            policy,
            &RunFacts::of(&self.plan(policy).microbatches, self.grad_accum),
        )
    }
}
