//! A line of targets, hidden states that wait, and drafters, as queueing theory knows it: what one run of it is made of.

use crate::links::Links;
use crate::service::{ServiceTimes, draw_stage};
use crate::spec::{Distribution, Formula, Link, Rate, StageCost};
use shared::core::Core;
use shared::draw::{Seed, Stream};
use shared::id::{BucketId, Bytes};
use shared::plan::{Edges, Formation, FormationBuilder, MixRule, OrderSpec, Ordering, Plan, Tail};
use shared::policy::{
    Admission, Barrier, Input, Placement, Policy, Queue, Release, Take, Transport, preset,
};
use shared::time::Span;
use std::sync::Arc;

/// The law of a stage's service times: means by bucket. (ms)
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Law {
    pub(super) means_ms: Vec<f64>,
    pub(super) distribution: Distribution,
    pub(super) spread: f64,
}

impl Law {
    pub(super) fn exponential(mean_ms: f64) -> Self {
        Self {
            means_ms: vec![mean_ms],
            distribution: Distribution::Exponential,
            spread: 0.0,
        }
    }

    pub(super) fn constant(mean_ms: f64) -> Self {
        Self {
            distribution: Distribution::Deterministic,
            ..Self::exponential(mean_ms)
        }
    }

    /// Lognormal, by the sigma of its logarithm.
    pub(super) fn lognormal(mean_ms: f64, sigma: f64) -> Self {
        Self {
            distribution: Distribution::Lognormal,
            spread: ((sigma * sigma).exp() - 1.0).sqrt(),
            ..Self::exponential(mean_ms)
        }
    }

    /// The same law with a mean for each bucket. (ms)
    pub(super) fn by_bucket(self, means_ms: &[f64]) -> Self {
        Self {
            means_ms: means_ms.to_vec(),
            ..self
        }
    }

    fn mean_ms(&self, bucket: usize) -> f64 {
        self.means_ms[bucket.min(self.means_ms.len() - 1)]
    }

    /// The moments of one draw over a mix of buckets.
    pub(super) fn cumulants(&self, mix: &[f64]) -> Cumulants {
        let raw = |power: i32| -> f64 {
            let shape = match self.distribution {
                Distribution::Exponential => f64::from((1..=power).product::<i32>()),
                Distribution::Deterministic => 1.0,
                Distribution::Lognormal => {
                    (1.0 + self.spread * self.spread).powf(f64::from(power * (power - 1)) / 2.0)
                }
            };
            let means = (0..mix.len()).map(|bucket| self.mean_ms(bucket).powi(power));
            shape * mix.iter().zip(means).map(|(p, m)| p * m).sum::<f64>()
        };
        let (mean, square, cube, fourth) = (raw(1), raw(2), raw(3), raw(4));
        let variance = square - mean * mean;
        let third = cube - 3.0 * mean * square + 2.0 * mean.powi(3);
        let central = fourth - 4.0 * mean * cube + 6.0 * mean * mean * square - 3.0 * mean.powi(4);
        Cumulants([mean, variance, third, central - 3.0 * variance * variance])
    }

    fn cost(&self) -> StageCost {
        let mut rows = self.means_ms.iter().map(|&base_ms| Formula {
            base_ms,
            ..Formula::default()
        });
        match rows.len() {
            1 => StageCost::Formula(rows.next().expect("one row")),
            _ => StageCost::Table(rows.collect()),
        }
    }

    fn draw(&self, formation: &Formation, seed: Seed, stream: Stream) -> Vec<Span> {
        let law = (self.distribution, self.spread);
        draw_stage(&self.cost(), law, formation, seed, stream)
    }
}

/// Mean, variance, and the third and fourth cumulants: those of a sum of independent draws are the sums of theirs. (ms to ms^4)
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cumulants(pub(super) [f64; 4]);

/// One line. Its targets never lack input.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) targets: (u16, Law),
    pub(super) drafters: (u16, Law),
    /// Slots, or `None` for as many as it takes.
    pub(super) slots: Option<u32>,
    pub(super) admission: Admission,
    pub(super) release: Release,
    /// Share of the microbatches that each bucket has.
    pub(super) mix: Vec<f64>,
    /// Microbatches a drafter accumulates, whether all wait for one another then, and what a step takes.
    pub(super) steps: Option<(u32, Barrier, Span)>,
    pub(super) prefetch: u8,
    pub(super) queue: Queue,
    pub(super) take: Take,
    /// Hidden states travel to the one drafter over a link that all share: time of a transfer alone, by bucket. (ms)
    pub(super) link_ms: Option<Vec<f64>>,
}

impl Line {
    /// N targets and M drafters with a store of so many slots, which an item leaves when it is taken; no optimizer steps.
    pub(super) fn new(targets: (u16, Law), slots: Option<u32>, drafters: (u16, Law)) -> Self {
        Self {
            targets,
            drafters,
            slots,
            admission: Admission::Block,
            release: Release::Taken,
            mix: vec![1.0],
            steps: None,
            prefetch: 0,
            queue: Queue::Fifo,
            take: Take::RoundRobin,
            link_ms: None,
        }
    }

    /// The same with so many credits: a target needs one before it begins, and it comes back once the item is trained.
    pub(super) fn with_credits(self, credits: u32) -> Self {
        Self {
            slots: Some(credits),
            admission: Admission::Reserve,
            release: Release::Trained,
            ..self
        }
    }

    fn policy(&self) -> Policy {
        let over_link = self.link_ms.is_some();
        Policy {
            targets: self.targets.0,
            drafters: self.drafters.0,
            input: Input::Shared,
            queue: if over_link {
                Queue::PerDrafter
            } else {
                self.queue
            },
            take: self.take,
            depth_total: self.slots,
            admission: self.admission,
            release: self.release,
            placement: if over_link {
                Placement::Drafter
            } else {
                Placement::Target
            },
            transport: if over_link {
                Transport::P2p
            } else {
                Transport::Local
            },
            copies_beside: u8::MAX - 1,
            prefetch: self.prefetch,
            barrier: self.steps.map_or(Barrier::None, |(_, barrier, _)| barrier),
            ..preset("bucketed").expect("a preset")
        }
    }

    /// The shared link, on which a millisecond alone is a thousand bytes.
    fn links(&self, policy: &Policy) -> Links {
        if self.link_ms.is_none() {
            return Links::none();
        }
        let link = Link {
            compute_rate: None,
            bandwidth: Rate::new(1e6).expect("above zero"),
            bandwidth_in: None,
            latency_ms: 0.0,
            shared: true,
            duplex: true,
            both_ways_rate: None,
        };
        Links::of(&link, policy)
    }

    /// Tokens of an item of each bucket: bytes on the link, and 1 where nothing travels, so that sums count items.
    fn tokens(&self, bucket: usize) -> u32 {
        let link_ms = self.link_ms.as_ref();
        link_ms.map_or(1, |ms| (ms[bucket] * 1e3).round() as u32)
    }

    fn formation(&self, items: u32, seed: Seed) -> Formation {
        let buckets = self.mix.len() as u32;
        let longest = (0..self.mix.len()).map(|b| self.tokens(b)).max();
        let base = longest.expect("a bucket");
        let edges = Edges::given((base..base + buckets).collect()).expect("rising edges");
        let mut builder = FormationBuilder::new(edges, Bytes(1));
        for i in 0..items {
            let bucket = bucket_of(&self.mix, seed.draw(Stream::Length, i.into()));
            builder
                .push(BucketId::from_index(bucket), 1, self.tokens(bucket))
                .expect("fits its bucket");
        }
        builder.build().expect("work")
    }

    /// All that one run of `items` microbatches needs.
    pub(super) fn set_up(&self, items: u32, seed: Seed) -> SetUp {
        let formation = self.formation(items, seed);
        let (grad_accum, _, apply) = self.steps.unwrap_or((items, Barrier::None, Span::ZERO));
        let plan = Arc::new(Plan::order(
            &formation,
            &OrderSpec {
                ordering: Ordering::AsFormed,
                drafters: self.drafters.0,
                grad_accum,
                tail: Tail::Short,
                mix: MixRule::default(),
                assign: false,
                train_cost: vec![Span::ZERO; self.mix.len()],
                seed,
            },
        ));
        let forwards = self.targets.1.draw(&formation, seed, Stream::Forward);
        let trainings = self.drafters.1.draw(&formation, seed, Stream::Train);
        let policy = self.policy();
        SetUp {
            links: self.links(&policy),
            core: Core::new(Arc::clone(&plan), policy, grad_accum, seed),
            service: ServiceTimes::given(forwards.clone(), trainings.clone(), apply),
            step_size: grad_accum.saturating_mul(self.drafters.0.into()),
            plan,
            forwards,
            trainings,
        }
    }
}

/// A run that has not begun.
#[derive(Debug)]
pub(super) struct SetUp {
    pub(super) core: Core,
    pub(super) plan: Arc<Plan>,
    pub(super) service: ServiceTimes,
    pub(super) links: Links,
    pub(super) step_size: u32,
    /// Service times in dispatch order.
    pub(super) forwards: Vec<Span>,
    pub(super) trainings: Vec<Span>,
}

fn bucket_of(mix: &[f64], word: u64) -> usize {
    let mut left = (word >> 11) as f64 / (1_u64 << 53) as f64;
    let hit = mix.iter().position(|share| {
        left -= share;
        left < 0.0
    });
    hit.unwrap_or(mix.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn cumulants_are(law: &Law, mix: &[f64], expected: [f64; 4]) {
        let Cumulants(found) = law.cumulants(mix);
        let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * b.abs().max(1.0);
        assert!(found.iter().zip(&expected).all(near), "{found:?}");
    }

    #[test]
    fn laws_have_the_moments_that_books_give_them() {
        cumulants_are(&Law::exponential(2.0), &[1.0], [2.0, 4.0, 16.0, 96.0]);
        cumulants_are(&Law::constant(3.0), &[1.0], [3.0, 0.0, 0.0, 0.0]);
        // Variance e^0.04 - 1; skewness (w + 2) sqrt(w - 1), excess w^4 + 2 w^3 + 3 w^2 - 6 with w = e^0.04.
        let w: f64 = 0.04_f64.exp();
        let variance = w - 1.0;
        let third = (w + 2.0) * variance.powi(2);
        let fourth = (w.powi(4) + 2.0 * w.powi(3) + 3.0 * w * w - 6.0) * variance * variance;
        let lognormal = Law::lognormal(1.0, 0.2);
        cumulants_are(&lognormal, &[1.0], [1.0, variance, third, fourth]);
        // 1 with probability 3/4, 5 with 1/4: a Bernoulli variable times 4.
        let law = Law::constant(1.0).by_bucket(&[1.0, 5.0]);
        let p = 0.25 * 0.75;
        let bernoulli = [2.0, 16.0 * p, 64.0 * p * 0.5, 256.0 * p * (1.0 - 6.0 * p)];
        cumulants_are(&law, &[0.75, 0.25], bernoulli);
    }

    #[test]
    fn draws_follow_the_law_and_the_mix() {
        let mut line = Line::new(
            (1, Law::exponential(2.0)),
            None,
            (1, Law::constant(1.0).by_bucket(&[1.0, 3.0])),
        );
        line.mix = vec![0.25, 0.75];
        line.targets.1 = line.targets.1.by_bucket(&[2.0, 2.0]);
        let set_up = line.set_up(40_000, Seed(5));
        let mean = |spans: &[Span]| {
            spans.iter().map(|s| s.as_ns() as f64).sum::<f64>() / spans.len() as f64 / 1e6
        };
        assert!((mean(&set_up.forwards) - 2.0).abs() < 0.03);
        assert!((mean(&set_up.trainings) - 2.5).abs() < 0.02);
    }
}
