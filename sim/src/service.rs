//! Service times: what each microbatch costs at each stage, drawn once for a seed and shared by all policies.

use crate::spec::{Costs, Distribution, StageCost};
use rand_distr::{Distribution as _, Exp1, StandardNormal};
use shared::draw::{Seed, Stream};
use shared::plan::{Formation, Microbatch, Plan};
use shared::time::Span;

/// Service times by [`Microbatch::key`], so every order of the same work costs the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceTimes {
    costs: Vec<Cost>,
    apply: Span,
}

/// What a microbatch costs: who has looked one up has the other at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cost {
    forward: Span,
    train: Span,
}

impl ServiceTimes {
    /// Draws the service times of all of a formation's microbatches.
    ///
    /// Noise has mean 1, so means are those of the formulas. A lognormal of relative spread s has sigma^2 = ln(1 + s^2).
    ///
    /// # Panics
    /// When a cost table has fewer rows than there are buckets; the scenario was validated against that.
    pub fn draw(costs: &Costs, formation: &Formation, seed: Seed) -> Self {
        let law = (costs.distribution, costs.spread);
        let forward = draw_stage(&costs.target, law, formation, seed, Stream::Forward);
        let train = draw_stage(&costs.drafter, law, formation, seed, Stream::Train);
        Self::given(forward, train, span_ms(costs.step_ms + costs.all_reduce_ms))
    }

    /// Service times given directly, by key.
    ///
    /// # Panics
    /// When there are not as many of one stage as of the other.
    pub fn given(forward: Vec<Span>, train: Vec<Span>, apply: Span) -> Self {
        assert_eq!(forward.len(), train.len(), "each microbatch has both");
        let costs = forward.into_iter().zip(train);
        Self {
            costs: costs
                .map(|(forward, train)| Cost { forward, train })
                .collect(),
            apply,
        }
    }

    /// A target's forward over this microbatch.
    pub fn forward(&self, microbatch: &Microbatch) -> Span {
        self.costs[microbatch.key as usize].forward
    }

    /// A drafter's forward and backward over this microbatch.
    pub fn train(&self, microbatch: &Microbatch) -> Span {
        self.costs[microbatch.key as usize].train
    }

    /// An optimizer step: gradient sum and weight update.
    pub fn apply(&self) -> Span {
        self.apply
    }

    /// Forwards in the plan's order.
    pub fn forwards(&self, plan: &Plan) -> Vec<Span> {
        plan.microbatches.iter().map(|m| self.forward(m)).collect()
    }

    /// Trainings in the plan's order.
    pub fn trainings(&self, plan: &Plan) -> Vec<Span> {
        plan.microbatches.iter().map(|m| self.train(m)).collect()
    }
}

/// One stage's service times by key, under a law and its spread.
pub(crate) fn draw_stage(
    cost: &StageCost,
    (distribution, spread): (Distribution, f64),
    formation: &Formation,
    seed: Seed,
    stream: Stream,
) -> Vec<Span> {
    let times = formation.microbatches.iter().map(|microbatch| {
        let word = seed.draw(stream, u64::from(microbatch.key));
        span_ms(mean_ms(cost, microbatch) * noise(distribution, spread, word))
    });
    times.collect()
}

/// Expected time of a stage on a microbatch. (ms)
pub(crate) fn mean_ms(cost: &StageCost, microbatch: &Microbatch) -> f64 {
    let formula = cost
        .formula(microbatch.bucket.index())
        .expect("a cost a bucket");
    let samples = microbatch.sample_count().max(1);
    let longest = microbatch.padded.0 / u64::from(samples);
    formula.ms(
        microbatch.padded.0,
        samples,
        u32::try_from(longest).unwrap_or(u32::MAX),
    )
}

/// Expected drafter time of each bucket's largest microbatch, by which composed steps are packed. (ns)
pub fn train_costs(costs: &Costs, formation: &Formation) -> Vec<Span> {
    let mut spans = vec![Span::ZERO; formation.edges.len()];
    for microbatch in &formation.microbatches {
        let span = span_ms(mean_ms(&costs.drafter, microbatch));
        let slot = &mut spans[microbatch.bucket.index()];
        *slot = (*slot).max(span);
    }
    spans
}

pub(crate) fn span_ms(ms: f64) -> Span {
    Span::from_ns((ms * 1e6).round().max(0.0) as u64)
}

fn noise(distribution: Distribution, spread: f64, word: u64) -> f64 {
    let mut words = Words(word);
    match distribution {
        Distribution::Deterministic => 1.0,
        Distribution::Exponential => Exp1.sample(&mut words),
        Distribution::Lognormal if spread == 0.0 => 1.0,
        Distribution::Lognormal => {
            let sigma2 = (1.0 + spread * spread).ln();
            let normal: f64 = StandardNormal.sample(&mut words);
            (sigma2.sqrt() * normal - sigma2 / 2.0).exp()
        }
    }
}

/// The words that follow from one keyed draw, for samplers that may need several.
pub(crate) struct Words(pub(crate) u64);

impl rand::TryRng for Words {
    type Error = std::convert::Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        Ok((self.try_next_u64()? >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        self.0 = Seed(self.0).draw(Stream::Decision, 0);
        Ok(self.0)
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
        for chunk in bytes.chunks_mut(8) {
            let word = self.try_next_u64()?.to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(distribution: Distribution, spread: f64) -> (f64, f64) {
        let n = 100_000;
        let draws: Vec<_> = (0..n)
            .map(|i| noise(distribution, spread, Seed(3).draw(Stream::Forward, i)))
            .collect();
        let mean = draws.iter().sum::<f64>() / n as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
        (mean, variance.sqrt())
    }

    #[test]
    fn noise_has_mean_one_and_the_spread_asked_for() {
        let (mean, spread) = moments(Distribution::Lognormal, 0.2);
        assert!(
            (mean - 1.0).abs() < 0.003 && (spread - 0.2).abs() < 0.003,
            "{mean} {spread}"
        );
        let (mean, spread) = moments(Distribution::Exponential, 0.0);
        assert!(
            (mean - 1.0).abs() < 0.01 && (spread - 1.0).abs() < 0.02,
            "{mean} {spread}"
        );
        assert_eq!(moments(Distribution::Deterministic, 0.0), (1.0, 0.0));
    }
}
