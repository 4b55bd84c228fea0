//! Microbatches to a dispatch order.

use super::compose::compose;
use super::shuffle::shuffle;
use super::{FormError, FormSpec, Formation, Microbatch, Plan, PlannedStep, bucket_counts};
use crate::draw::{Seed, Stream};
use crate::id::{DrafterId, StepId};
use crate::time::Span;
use serde::{Deserialize, Serialize};

/// What happens to microbatches that fill no whole optimizer step at the end of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tail {
    /// They make one short step.
    Short,
    /// They join the next epoch's first steps; the last epoch ends with a short step.
    Carry,
    /// They are left out and listed.
    Drop,
}

/// How microbatches are put in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ordering {
    /// As they were formed: epoch by epoch, bucket by bucket.
    AsFormed,
    /// Shuffled within each epoch; steps form as microbatches arrive.
    Shuffled,
    /// Steps are composed ahead of dispatch.
    Composed(Fill),
}

/// Which buckets' microbatches meet in a composed step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fill {
    /// Each step holds the data's mix of buckets, as nearly as whole microbatches can.
    #[default]
    Even,
    /// Whatever a shuffle brings together, as in a loader that shuffles batches.
    Random,
    /// One bucket a step, steps in a shuffled order, as in a loader that groups by length. What fills no step of its own bucket
    /// makes mixed ones. It is there to measure what mixing is worth.
    OneBucket,
}

/// Fewest distinct buckets that a step or window must hold.
///
/// A rule that the data cannot meet in every step is met from the first step on, for as long as enough buckets hold work; the steps
/// after that are exceptions of the kind [`DryBucket`](super::Exception::DryBucket).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MixRule {
    /// In one optimizer step.
    pub step_min: u8,
    /// In one drafter's share of a step. It can be planned only where [`OrderSpec::assign`] is set.
    pub window_min: u8,
}

/// All that an order depends on besides the work itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OrderSpec {
    /// How.
    pub ordering: Ordering,
    /// Drafter workers.
    pub drafters: u16,
    /// Microbatches a drafter accumulates in one optimizer step.
    pub grad_accum: u32,
    /// What happens to the tail.
    pub tail: Tail,
    /// The mixing rule, which composed steps meet.
    pub mix: MixRule,
    /// Whether each microbatch of a composed step is given to a drafter ahead.
    pub assign: bool,
    /// Estimated drafter time of one full microbatch of each bucket, for packing; one a bucket. (ns)
    pub train_cost: Vec<Span>,
    /// Decides shuffles and ties.
    pub seed: Seed,
}

/// Why microbatches cannot be put in the order asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// Steps that hold nothing.
    #[error(
        "{drafters} drafters with grad_accum {grad_accum} make empty optimizer steps; set both to at least 1"
    )]
    EmptyStep {
        /// Drafters.
        drafters: u16,
        /// Microbatches a drafter accumulates.
        grad_accum: u32,
    },
    /// Steps that a plan cannot number.
    #[error(
        "{drafters} drafters x grad_accum {grad_accum} is more than the {max} microbatches a step can hold; \
         lower grad_accum",
        max = u32::MAX
    )]
    HugeStep {
        /// Drafters.
        drafters: u16,
        /// Microbatches a drafter accumulates.
        grad_accum: u32,
    },
    /// A step rule that no step can meet.
    #[error(
        "a step of {size} microbatches cannot hold {step_min} distinct buckets; \
         lower step_min to at most {size} or raise grad_accum"
    )]
    StepRule {
        /// The rule.
        step_min: u8,
        /// Microbatches in a step.
        size: u32,
    },
    /// A rule on drafters' shares that no step can meet.
    #[error(
        "a share of grad_accum {grad_accum} microbatches cannot hold {window_min} distinct buckets; \
         lower window_min to at most {grad_accum} or raise grad_accum"
    )]
    WindowRule {
        /// The rule.
        window_min: u8,
        /// Microbatches a drafter accumulates.
        grad_accum: u32,
    },
    /// Costs that do not fit the buckets.
    #[error("{costs} training costs were given for {buckets} buckets; give one a bucket")]
    Costs {
        /// How many were given.
        costs: usize,
        /// How many are needed.
        buckets: usize,
    },
}

impl OrderSpec {
    /// Microbatches in a full optimizer step.
    pub fn step_size(&self) -> u32 {
        u32::from(self.drafters) * self.grad_accum
    }

    /// Whether a formation of this many buckets can be put in this order.
    ///
    /// # Errors
    /// When a step would be empty or too large, a mixing rule cannot be met by any step, or costs are missing. A rule that only
    /// the data at hand cannot meet is no error: its steps are exceptions.
    pub fn check(&self, buckets: usize) -> Result<(), OrderError> {
        let Self {
            drafters,
            grad_accum,
            mix,
            ..
        } = *self;
        if drafters == 0 || grad_accum == 0 {
            return Err(OrderError::EmptyStep {
                drafters,
                grad_accum,
            });
        }
        let Some(size) = u32::from(drafters).checked_mul(grad_accum) else {
            return Err(OrderError::HugeStep {
                drafters,
                grad_accum,
            });
        };
        if !matches!(self.ordering, Ordering::Composed(_)) {
            return Ok(());
        }
        if u32::from(mix.step_min) > size {
            return Err(OrderError::StepRule {
                step_min: mix.step_min,
                size,
            });
        }
        if self.assign && u32::from(mix.window_min) > grad_accum {
            return Err(OrderError::WindowRule {
                window_min: mix.window_min,
                grad_accum,
            });
        }
        if self.assign && self.train_cost.len() != buckets {
            return Err(OrderError::Costs {
                costs: self.train_cost.len(),
                buckets,
            });
        }
        Ok(())
    }
}

impl Plan {
    /// Puts a formation's microbatches in order.
    ///
    /// Samples keep the formation's layout, so ranges stay valid. Orders without composed steps have no steps in the plan; of the
    /// tail rules only [`Tail::Drop`] shows in them, as the last microbatches of each epoch that fill no whole step are left out.
    /// A plan can be empty when the tail is dropped and no epoch fills a step.
    ///
    /// # Panics
    /// When [`OrderSpec::check`] finds fault.
    pub fn order(formation: &Formation, spec: &OrderSpec) -> Self {
        if let Err(fault) = spec.check(formation.edges.len()) {
            panic!("the order was checked: {fault}");
        }
        let order = match spec.ordering {
            Ordering::AsFormed | Ordering::Shuffled => stream(formation, spec),
            Ordering::Composed(fill) => compose(formation, spec, fill),
        };
        let microbatches = |rows: Vec<u32>| -> Vec<Microbatch> {
            rows.into_iter()
                .map(|row| formation.microbatches[row as usize].clone())
                .collect()
        };
        let planned = microbatches(order.rows);
        Self {
            samples: formation.samples.clone(),
            bucket_counts: bucket_counts(&planned, formation.edges.len()),
            microbatches: planned,
            steps: order.steps,
            step_of: order.step_of,
            drafter_of: order.drafter_of,
            dropped: microbatches(order.dropped),
            over_long: formation.over_long.clone(),
        }
    }

    /// Forms microbatches and puts them in order.
    ///
    /// # Errors
    /// When no microbatches can be formed.
    ///
    /// # Panics
    /// When [`OrderSpec::check`] finds fault.
    pub fn form_and_order(
        lengths: &[u32],
        form: &FormSpec,
        order: &OrderSpec,
    ) -> Result<Self, FormError> {
        Ok(Self::order(&Formation::form(lengths, form)?, order))
    }
}

/// An order of a formation's rows.
#[derive(Default)]
pub(super) struct Order {
    pub(super) rows: Vec<u32>,
    pub(super) steps: Vec<PlannedStep>,
    pub(super) step_of: Vec<StepId>,
    pub(super) drafter_of: Vec<DrafterId>,
    pub(super) dropped: Vec<u32>,
}

/// The rows of each epoch, in the order formed.
pub(super) fn epochs(formation: &Formation) -> impl Iterator<Item = Vec<u32>> {
    let mut row = 0;
    formation
        .microbatches
        .chunk_by(|a, b| a.epoch == b.epoch)
        .map(move |epoch| {
            let first = row;
            row += epoch.len() as u32;
            (first..row).collect()
        })
}

fn stream(formation: &Formation, spec: &OrderSpec) -> Order {
    let mut order = Order::default();
    for (epoch, mut rows) in epochs(formation).enumerate() {
        if spec.ordering == Ordering::Shuffled {
            shuffle(&mut rows, spec.seed.derive(epoch as u64), Stream::Order);
        }
        if spec.tail == Tail::Drop {
            let whole = rows.len() - rows.len() % spec.step_size() as usize;
            order.dropped.extend(rows.drain(whole..));
        }
        order.rows.extend(rows);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Bytes;
    use crate::plan::{Edges, Limits, MixRule, OverLong, packing_bound};

    fn formation(epochs: u16) -> Formation {
        let lengths: Vec<u32> = (0..230)
            .map(|i| 1 + Seed(8).below(Stream::Length, i, 60) as u32)
            .collect();
        let spec = FormSpec {
            edges: Edges::given(vec![20, 40, 60]).unwrap(),
            limits: Limits {
                token_budget: 240,
                batch_max: 8,
            },
            over_long: OverLong::Refuse,
            epochs,
            bytes_per_token: Bytes(2),
            seed: Seed(1),
        };
        Formation::form(&lengths, &spec).unwrap()
    }

    fn spec(ordering: Ordering, tail: Tail) -> OrderSpec {
        OrderSpec {
            ordering,
            drafters: 3,
            grad_accum: 4,
            tail,
            mix: MixRule::default(),
            assign: false,
            train_cost: Vec::new(),
            seed: Seed(1),
        }
    }

    #[test]
    fn the_formed_order_is_kept() {
        let formation = formation(2);
        let plan = Plan::order(&formation, &spec(Ordering::AsFormed, Tail::Carry));
        assert_eq!(plan.microbatches, formation.microbatches);
        assert_eq!(
            (plan.samples.len(), plan.buckets(), plan.is_composed()),
            (460, 3, false)
        );
    }

    #[test]
    fn a_shuffle_stays_within_its_epoch_and_differs_between_epochs() {
        let formation = formation(2);
        let plan = Plan::order(&formation, &spec(Ordering::Shuffled, Tail::Short));
        let half = formation.microbatches.len() / 2;
        let keys: Vec<usize> = plan.microbatches.iter().map(|m| m.key as usize).collect();
        assert_ne!(keys, (0..2 * half).collect::<Vec<_>>());
        assert_ne!(
            keys[..half],
            keys[half..]
                .iter()
                .map(|key| key - half)
                .collect::<Vec<_>>()
        );
        let mut sorted = keys.clone();
        sorted[..half].sort_unstable();
        sorted[half..].sort_unstable();
        assert_eq!(sorted, (0..2 * half).collect::<Vec<_>>());
    }

    #[test]
    fn a_dropped_tail_is_listed() {
        let formation = formation(2);
        let half = formation.microbatches.len() / 2;
        let tail = half % 12;
        assert!(tail > 0, "the case has a tail");
        for ordering in [
            Ordering::AsFormed,
            Ordering::Shuffled,
            Ordering::Composed(Fill::Even),
        ] {
            let plan = Plan::order(&formation, &spec(ordering, Tail::Drop));
            assert_eq!(
                (plan.microbatches.len(), plan.dropped.len()),
                (2 * (half - tail), 2 * tail)
            );
            let mut keys: Vec<u32> = plan
                .microbatches
                .iter()
                .chain(&plan.dropped)
                .map(|m| m.key)
                .collect();
            keys.sort_unstable();
            assert!(keys.into_iter().eq(0..2 * half as u32));
        }
    }

    #[test]
    fn one_spec_gives_one_digest_and_another_seed_another() {
        let formation = formation(1);
        for ordering in [Ordering::Shuffled, Ordering::Composed(Fill::Even)] {
            let spec = spec(ordering, Tail::Short);
            let digest = Plan::order(&formation, &spec).digest();
            assert_eq!(digest, Plan::order(&formation, &spec).digest());
            let other = OrderSpec {
                seed: Seed(2),
                ..spec
            };
            assert_ne!(digest, Plan::order(&formation, &other).digest());
        }
    }

    #[test]
    fn each_planned_step_has_a_bound() {
        let formation = formation(1);
        let plan = Plan::order(
            &formation,
            &spec(Ordering::Composed(Fill::Even), Tail::Short),
        );
        let costs = vec![Span::from_ns(10); plan.microbatches.len()];
        let bound = packing_bound(&plan, &costs, 3);
        let (last, full) = bound.split_last().unwrap();
        assert!(full.iter().all(|&span| span == Span::from_ns(40)));
        let tail = 10 * (plan.microbatches.len() as u64 % 12);
        assert_eq!(*last, Span::from_ns(tail.div_ceil(3)));
    }

    #[test]
    fn orders_that_no_step_can_meet_are_refused() {
        let good = OrderSpec {
            assign: true,
            ..spec(Ordering::Composed(Fill::Even), Tail::Short)
        };
        let refused = |spec: OrderSpec| spec.check(3).unwrap_err().to_string();
        assert_eq!(
            refused(good.clone()),
            "0 training costs were given for 3 buckets; give one a bucket"
        );
        assert!(
            refused(OrderSpec {
                drafters: 0,
                ..good.clone()
            })
            .contains("empty")
        );
        let huge = OrderSpec {
            grad_accum: u32::MAX,
            ..good.clone()
        };
        assert!(refused(huge).contains("can hold"));
        let mix = MixRule {
            step_min: 13,
            window_min: 0,
        };
        assert!(
            refused(OrderSpec {
                mix,
                ..good.clone()
            })
            .contains("step_min to at most 12")
        );
        let mix = MixRule {
            step_min: 0,
            window_min: 5,
        };
        assert!(refused(OrderSpec { mix, ..good }).contains("window_min to at most 4"));
    }
}
