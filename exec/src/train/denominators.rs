//! One denominator an optimizer step: the same update whatever the layout.
//!
//! Recorded samples are laid out over ranks and microbatches in every way that matters, in f64, so
//! that "the same" means to 1e-12. A trainer that divides on each rank by its own blocks is shown
//! next to it.

use candle_core::{DType, Tensor};
use serde::Deserialize;

use super::{AdamW, Contribution, Optimizer, Schedule, anchors};
use crate::model::fixture::{Row, microbatch, models};
use crate::model::{Drafter, HiddenStates, Tensors};

#[derive(Deserialize)]
struct Recorded {
    samples: Vec<Sample>,
    layouts: Vec<Layout>,
}

#[derive(Deserialize)]
struct Sample {
    input_ids: Vec<u32>,
    loss_mask: Vec<u8>,
    valid_anchors: usize,
}

#[derive(Deserialize)]
struct Layout {
    name: String,
    /// Samples of each rank.
    ranks: Vec<Vec<usize>>,
    rank_local_scale: f64,
}

struct Bench {
    drafter: Drafter,
    rows: Vec<Row>,
    /// Hidden states of each row alone: the target computes in f32, and rounds otherwise in batches.
    features: Vec<Tensor>,
    layouts: Vec<Layout>,
}

fn bench() -> Bench {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/data/denominator_parity.json"
    );
    let text = std::fs::read_to_string(path).unwrap();
    let recorded: Recorded = serde_json::from_str(&text).unwrap();
    let row = |(id, sample): (usize, &Sample)| {
        let loss_mask: Vec<bool> = sample.loss_mask.iter().map(|&flag| flag == 1).collect();
        let anchors = anchors::draw(1, 0, id as u64, &loss_mask, 100);
        assert_eq!(anchors.len(), sample.valid_anchors);
        Row {
            input_ids: sample.input_ids.clone(),
            loss_mask,
            anchors,
        }
    };
    let (target, drafter) = models();
    let rows: Vec<Row> = recorded.samples.iter().enumerate().map(row).collect();
    let features = |row: &Row| {
        let (batch, _) = microbatch(&[row], row.input_ids.len());
        target.forward(&batch).unwrap().features
    };
    Bench {
        drafter: drafter.to_dtype(DType::F64).unwrap(),
        features: rows.iter().map(features).collect(),
        rows,
        layouts: recorded.layouts,
    }
}

/// Microbatches of ranks, each a list of samples.
type Dealt = Vec<Vec<Vec<usize>>>;

impl Bench {
    fn contribution(&self, samples: &[usize]) -> Contribution {
        let rows: Vec<&Row> = samples.iter().map(|&n| &self.rows[n]).collect();
        // Pads differ between microbatches, as in buckets.
        let (batch, plan) = microbatch(&rows, 12 + samples.len());
        let features: Vec<Tensor> = samples
            .iter()
            .map(|&n| {
                let features = &self.features[n];
                let pads = batch.padded_tokens() - features.dim(1).unwrap();
                features.pad_with_zeros(1, 0, pads).unwrap()
            })
            .collect();
        let states = HiddenStates {
            features: Tensor::cat(&features, 0).unwrap(),
            last_hidden: None,
        };
        self.drafter.accumulate(&states, &plan).unwrap()
    }

    /// As the backend does it: each rank adds up its microbatches, then ranks are added in order.
    fn total(&self, dealt: &Dealt) -> Contribution {
        let add = |mut sum: Contribution, more: Contribution| {
            sum.add(more).unwrap();
            sum
        };
        let rank = |microbatches: &Vec<Vec<usize>>| {
            let parts = microbatches.iter().map(|m| self.contribution(m));
            parts.reduce(add)
        };
        dealt.iter().filter_map(rank).reduce(add).unwrap()
    }

    fn optimizer(&self) -> Optimizer {
        let settings = AdamW {
            // Noise in gradients of nearly nothing is no step of full length.
            eps: 1e-6,
            ..AdamW::default()
        };
        let weights = self.drafter.weights().clone();
        Optimizer::new(weights, settings, Schedule::constant(1e-3)).unwrap()
    }

    /// Gradient and weights after one step.
    fn update(&self, dealt: &Dealt) -> (Tensors, Tensors) {
        let total = self.total(dealt);
        let scale = 1.0 / total.weight_sum;
        let gradient = total.gradients.iter();
        let gradient = gradient.map(|(name, g)| (name.clone(), g.affine(scale, 0.0).unwrap()));
        let gradient = gradient.collect();
        let mut optimizer = self.optimizer();
        optimizer.apply(total).unwrap();
        (gradient, optimizer.weights().clone())
    }

    /// The mean over ranks of what each divides by its own blocks, padded ones included.
    fn rank_local(&self, layout: &Layout) -> Tensors {
        let parts = layout.ranks.iter().map(|samples| {
            let mut part = self.contribution(samples);
            let blocks = samples.len() * self.widest(samples);
            let scale = 1.0 / (blocks * layout.ranks.len()) as f64;
            for gradient in part.gradients.values_mut() {
                *gradient = gradient.affine(scale, 0.0).unwrap();
            }
            part
        });
        let sum = parts.reduce(|mut sum, part| {
            sum.add(part).unwrap();
            sum
        });
        sum.unwrap().gradients
    }

    /// Blocks a row of a rank's batch: those of its richest sample.
    fn widest(&self, samples: &[usize]) -> usize {
        let anchors = samples.iter().map(|&n| self.rows[n].anchors.len());
        anchors.max().unwrap()
    }
}

fn distance(a: &Tensors, b: &Tensors) -> f64 {
    let numbers = |t: &Tensor| -> Vec<f64> { t.flatten_all().unwrap().to_vec1().unwrap() };
    let (mut apart, mut length) = (0.0, 0.0);
    for (name, tensor) in a {
        for (a, b) in numbers(tensor).iter().zip(numbers(&b[name])) {
            apart += (a - b) * (a - b);
            length += b * b;
        }
    }
    (apart / length).sqrt()
}

/// Samples dealt to so many ranks in turn, each rank's in microbatches of so many.
fn dealt(samples: &[usize], ranks: usize, batch: usize) -> Dealt {
    let mut dealt = vec![Vec::new(); ranks];
    for (n, &sample) in samples.iter().enumerate() {
        dealt[n % ranks].push(sample);
    }
    let rank = |samples: Vec<usize>| samples.chunks(batch).map(<[usize]>::to_vec).collect();
    dealt.into_iter().map(rank).collect()
}

#[test]
fn one_denominator_gives_the_same_update_for_every_layout() {
    let bench = bench();
    let whole = bench.update(&vec![vec![vec![0, 1, 2, 3]]]);
    let mut ways: Vec<Dealt> = Vec::new();
    for layout in &bench.layouts {
        // Each rank's samples in one microbatch, and each alone.
        ways.push(
            layout
                .ranks
                .iter()
                .map(|samples| vec![samples.clone()])
                .collect(),
        );
        let alone = |samples: &Vec<usize>| samples.iter().map(|&n| vec![n]).collect();
        ways.push(layout.ranks.iter().map(alone).collect());
    }
    for ranks in 1..=4 {
        for batch in 1..=4 {
            ways.push(dealt(&[0, 1, 2, 3], ranks, batch));
            ways.push(dealt(&[3, 0, 2, 1], ranks, batch));
        }
    }
    assert_eq!(ways.len(), 36);
    for way in &ways {
        let (gradient, weights) = bench.update(way);
        let error = distance(&gradient, &whole.0);
        assert!(error < 1e-12, "{way:?}: gradients {error:.1e} apart");
        let error = distance(&weights, &whole.1);
        assert!(error < 1e-12, "{way:?}: weights {error:.1e} apart");
    }
}

#[test]
fn denominators_of_each_rank_give_the_published_scales_and_other_gradients() {
    let bench = bench();
    for layout in &bench.layouts {
        // A loss of 1 in every block, as the source counts it.
        let local = layout.ranks.iter().map(|samples| {
            let valid: usize = samples.iter().map(|&n| bench.rows[n].anchors.len()).sum();
            valid as f64 / (samples.len() * bench.widest(samples)) as f64
        });
        let mean = local.sum::<f64>() / layout.ranks.len() as f64;
        assert_eq!(mean, layout.rank_local_scale, "{}", layout.name);
    }
    let [sorted, mixed] = [0, 1].map(|n| bench.rank_local(&bench.layouts[n]));
    let apart = distance(&sorted, &mixed);
    assert!(apart > 0.2, "{apart}");
}

#[test]
fn a_short_last_step_divides_by_its_own_weights() {
    let bench = bench();
    let after_two = |last: &Dealt| {
        let mut optimizer = bench.optimizer();
        optimizer
            .apply(bench.total(&dealt(&[0, 1, 2, 3], 2, 2)))
            .unwrap();
        optimizer.apply(bench.total(last)).unwrap();
        optimizer.weights().clone()
    };
    // Two samples are left: for one rank, for two, or in one microbatch.
    let whole = after_two(&vec![vec![vec![0, 2]]]);
    for last in [
        dealt(&[0, 2], 1, 1),
        dealt(&[0, 2], 2, 1),
        dealt(&[2, 0], 4, 2),
    ] {
        let error = distance(&after_two(&last), &whole);
        assert!(error < 1e-12, "{last:?}: {error:.1e}");
    }
    // Divided by a full step's weights it would be another update.
    let mut scaled = bench.total(&dealt(&[0, 2], 2, 1));
    scaled.weight_sum = bench.total(&dealt(&[0, 1, 2, 3], 2, 2)).weight_sum;
    let mut right = bench.total(&dealt(&[0, 2], 2, 1));
    let weight_sum = right.weight_sum;
    let [a, b] = [&mut scaled, &mut right].map(|total| {
        let mut optimizer = bench.optimizer();
        optimizer.apply(total.clone()).unwrap().loss
    });
    assert!((a / b - weight_sum / scaled.weight_sum).abs() < 1e-12 && a < 0.8 * b);
}
