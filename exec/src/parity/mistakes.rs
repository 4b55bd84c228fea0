//! Would the comparison notice? Every mistake that trainers of drafters are known to have made,
//! planted on purpose.

use std::path::Path;

use candle_core::{DType, Tensor};

use super::*;
use crate::model::Drafter;
use crate::model::drafter::dense::{Key, Looking, sees};
use crate::train::{AdamW, Parts};

/// So many times what is allowed: no rounding.
const FAR: f64 = 10.0;

fn case() -> Case {
    Case::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/parity")).unwrap()
}

type Rule = fn(&Case, &Drafter, Looking, Key) -> bool;

/// The models with one mistake.
struct Mistaken<'a> {
    case: &'a Case,
    right: CpuSubject,
    plan: fn(&Case, Parts<'_>),
    features: fn(Tensor) -> Tensor,
    last_hidden: fn(&mut CpuSubject, &PaddedBatch) -> Option<Tensor>,
    /// The mask of a dense computation instead of the drafter's own.
    mask: Option<Rule>,
    contribution: fn(Contribution) -> Contribution,
}

impl<'a> Mistaken<'a> {
    /// No mistake so far.
    fn none(case: &'a Case) -> Self {
        Self::over(case, CpuSubject::load(case).unwrap())
    }

    fn over(case: &'a Case, right: CpuSubject) -> Self {
        Self {
            case,
            right,
            plan: |_, _| (),
            features: |features| features,
            last_hidden: |right, batch| right.target.forward(batch).unwrap().last_hidden,
            mask: None,
            contribution: |part| part,
        }
    }

    fn compared(mut self) -> Comparison {
        let case = self.case;
        compare(case, &mut self, &Tolerances::F32).unwrap()
    }

    /// Asserts that quantities of each kind are far off.
    fn shows_in(self, kinds: &[Kind]) {
        let found = self.compared();
        for kind in kinds {
            let excess = found.excess(*kind);
            assert!(excess > FAR, "{kind:?} {excess:.1} times allowed\n{found}");
        }
    }
}

impl Subject for Mistaken<'_> {
    fn plan(&mut self, case: &Case, microbatch: &Microbatch) -> Result<BlockPlan, ParityError> {
        let mut plan = self.right.plan(case, microbatch)?;
        (self.plan)(case, plan.parts_mut());
        Ok(plan)
    }

    fn states(&mut self, batch: &PaddedBatch) -> Result<HiddenStates, ParityError> {
        let states = self.right.states(batch)?;
        Ok(HiddenStates {
            features: (self.features)(states.features),
            last_hidden: (self.last_hidden)(&mut self.right, batch),
        })
    }

    fn outputs(
        &mut self,
        batch: &PaddedBatch,
        plan: &BlockPlan,
    ) -> Result<[Tensor; 2], ParityError> {
        let states = self.states(batch)?;
        let drafter = &self.right.drafter;
        let hidden = match self.mask {
            None => drafter.hidden(&states, plan)?,
            Some(rule) => {
                let sees = |q, key| rule(self.case, drafter, q, key);
                drafter
                    .dense_hidden(&states, plan, &sees)?
                    .to_dtype(DType::F32)?
            }
        };
        let logits = drafter.logits(&hidden)?;
        Ok([hidden, logits])
    }

    fn contribution(
        &mut self,
        batch: &PaddedBatch,
        plan: &BlockPlan,
    ) -> Result<Contribution, ParityError> {
        let states = self.states(batch)?;
        let part = self.right.drafter.accumulate(&states, plan)?;
        Ok((self.contribution)(part))
    }

    fn step(&mut self, work: &[(PaddedBatch, BlockPlan)]) -> Result<StepReport, ParityError> {
        let mut total: Option<Contribution> = None;
        for (batch, plan) in work {
            let part = self.contribution(batch, plan)?;
            match &mut total {
                Some(total) => total.add(part)?,
                None => total = Some(part),
            }
        }
        let report = self.right.optimizer.apply(total.unwrap())?;
        self.right
            .drafter
            .set_weights(self.right.optimizer.weights())?;
        Ok(report)
    }

    fn weights(&mut self) -> Result<Tensors, ParityError> {
        self.right.weights()
    }
}

#[test]
fn without_a_mistake_nothing_is_off() {
    let case = case();
    let found = Mistaken::none(&case).compared();
    assert_eq!(found.failures().count(), 0, "{found}");
    // The dense computation with the right mask neither.
    let mut dense = Mistaken::none(&case);
    dense.mask = Some(|_, drafter, q, key| sees(drafter, q, key));
    let found = dense.compared();
    assert_eq!(found.failures().count(), 0, "{found}");
}

#[test]
fn a_block_that_sees_its_anchor_s_own_state() {
    let case = case();
    let mut mistaken = Mistaken::none(&case);
    // Dropped blocks start at 0 and see nothing.
    mistaken.plan = |_, parts| {
        let kept = parts.starts.iter_mut().filter(|start| **start > 0);
        kept.for_each(|start| *start += 1);
    };
    mistaken.shows_in(&[Kind::Hidden, Kind::Logits, Kind::Gradients, Kind::Weights]);
}

#[test]
fn labels_one_token_late() {
    let case = case();
    let mut mistaken = Mistaken::none(&case);
    mistaken.plan = |_, parts| parts.labels.rotate_left(1);
    mistaken.shows_in(&[Kind::Loss, Kind::Metrics, Kind::Gradients, Kind::Weights]);
}

#[test]
fn positions_one_too_high() {
    let case = case();
    let mut mistaken = Mistaken::none(&case);
    mistaken.plan = |_, parts| parts.positions.iter_mut().for_each(|p| *p += 1);
    mistaken.shows_in(&[Kind::Hidden, Kind::Gradients]);
}

#[test]
fn a_mask_that_leaks_over_samples() {
    let case = case();
    let mut mistaken = Mistaken::none(&case);
    mistaken.mask = Some(|_, drafter, q, key| match key {
        Key::Context { position, .. } => sees(
            drafter,
            q,
            Key::Context {
                row: q.row,
                position,
            },
        ),
        Key::Slot { .. } => sees(drafter, q, key),
    });
    mistaken.shows_in(&[Kind::Hidden, Kind::Logits]);
}

#[test]
fn a_mask_that_leaks_over_blocks() {
    let case = case();
    let mut mistaken = Mistaken::none(&case);
    mistaken.mask = Some(|_, drafter, q, key| match key {
        Key::Slot { row, block, .. } => row == q.row && (block == 0 || block == q.block),
        Key::Context { .. } => sees(drafter, q, key),
    });
    mistaken.shows_in(&[Kind::Hidden, Kind::Logits]);
}

#[test]
fn a_block_that_is_causal_where_it_should_see_all_of_itself() {
    let case = case();
    let mut mistaken = Mistaken::none(&case);
    mistaken.mask = Some(|_, drafter, q, key| match key {
        Key::Slot { slot, .. } => sees(drafter, q, key) && slot <= q.slot,
        Key::Context { .. } => sees(drafter, q, key),
    });
    mistaken.shows_in(&[Kind::Hidden, Kind::Logits]);
}

#[test]
fn padding_that_is_attended() {
    let case = case();
    let mut mistaken = Mistaken::none(&case);
    mistaken.mask = Some(|case, drafter, q, key| match key {
        Key::Context { row, position } => {
            // Rows of the two microbatches are told apart by their padded lengths elsewhere: a pad
            // of either is one too many.
            let lengths = case.microbatches.iter().map(|m| m.batch.lengths.get(row));
            let is_pad = lengths.flatten().any(|&length| position >= length);
            (is_pad && row == q.row) || sees(drafter, q, key)
        }
        Key::Slot { .. } => sees(drafter, q, key),
    });
    mistaken.shows_in(&[Kind::Hidden, Kind::Logits]);
}

#[test]
fn a_denominator_of_each_microbatch_or_rank() {
    // Each microbatch is a rank's whole share here: the mean of local means, either way.
    let case = case();
    let mut mistaken = Mistaken::none(&case);
    mistaken.contribution = |part| {
        let scale = |(name, gradient): (&String, &Tensor)| {
            let gradient = gradient.affine(1.0 / part.weight_sum, 0.0);
            (name.clone(), gradient.unwrap())
        };
        Contribution {
            gradients: part.gradients.iter().map(scale).collect(),
            loss_sum: part.loss_sum / part.weight_sum,
            weight_sum: 1.0,
            tally: part.tally.clone(),
        }
    };
    mistaken.shows_in(&[
        Kind::Loss,
        Kind::Gradients,
        Kind::Weights,
        Kind::Denominator,
    ]);
}

#[test]
fn layers_captured_one_too_late_or_in_another_order() {
    let case = case();
    let later: Vec<usize> = case.json.target_layer_ids.iter().map(|id| id + 1).collect();
    let right = CpuSubject::with(&case, &later, AdamW::default()).unwrap();
    Mistaken::over(&case, right).shows_in(&[Kind::Features, Kind::Hidden, Kind::Gradients]);

    let mut swapped = case.json.target_layer_ids.clone();
    swapped.swap(0, 1);
    let right = CpuSubject::with(&case, &swapped, AdamW::default()).unwrap();
    Mistaken::over(&case, right).shows_in(&[Kind::Features, Kind::Hidden, Kind::Gradients]);
}

#[test]
fn features_one_position_early() {
    let case = case();
    let mut mistaken = Mistaken::none(&case);
    mistaken.features = |features| {
        let tokens = features.dim(1).unwrap();
        let rest = features.narrow(1, 1, tokens - 1).unwrap();
        let last = features.narrow(1, tokens - 1, 1).unwrap();
        Tensor::cat(&[rest, last], 1).unwrap()
    };
    mistaken.shows_in(&[Kind::Features, Kind::Hidden, Kind::Gradients]);
}

#[test]
fn a_last_hidden_state_before_the_norm() {
    let case = case();
    let mut mistaken = Mistaken::none(&case);
    mistaken.last_hidden = |right, batch| {
        let last = right.target.config().geometry.num_hidden_layers - 1;
        let raw = right
            .target
            .clone()
            .capturing(&[last])
            .unwrap()
            .forward(batch)
            .unwrap();
        Some(raw.features)
    };
    mistaken.shows_in(&[Kind::LastHidden]);
}

#[test]
fn a_supervised_anchor() {
    let case = case();
    let mut mistaken = Mistaken::none(&case);
    mistaken.plan = |case, parts| {
        let slots = case.blocks.block_size;
        let blocks = parts.weights.chunks_mut(slots).zip(&*parts.starts);
        for (weights, _) in blocks.filter(|(_, start)| **start > 0) {
            weights[0] = (1.0 / case.blocks.gamma).exp();
        }
    };
    mistaken.shows_in(&[Kind::SlotWeights, Kind::Denominator, Kind::Gradients]);
}

#[test]
fn a_decay_that_begins_one_slot_late() {
    let case = case();
    let mut mistaken = Mistaken::none(&case);
    // One factor for all weights: it leaves the gradient as it is and shows in the weights alone.
    mistaken.plan = |case, parts| {
        let factor = (-1.0 / case.blocks.gamma).exp();
        parts
            .weights
            .iter_mut()
            .for_each(|weight| *weight *= factor);
    };
    mistaken.shows_in(&[Kind::SlotWeights, Kind::Denominator]);

    let mut flat = Mistaken::none(&case);
    flat.plan = |_, parts| {
        let supervised = parts.weights.iter_mut().filter(|weight| **weight > 0.0);
        supervised.for_each(|weight| *weight = 1.0);
    };
    flat.shows_in(&[Kind::SlotWeights, Kind::Denominator, Kind::Gradients]);
}

#[test]
fn supervision_that_ends_at_the_first_gap() {
    let case = case();
    let mut mistaken = Mistaken::none(&case);
    mistaken.plan = |case, parts| {
        for block in parts.weights.chunks_mut(case.blocks.block_size) {
            let mut ended = false;
            for weight in &mut block[1..] {
                ended |= *weight == 0.0;
                *weight *= if ended { 0.0 } else { 1.0 };
            }
        }
    };
    mistaken.shows_in(&[Kind::SlotWeights, Kind::Denominator, Kind::Gradients]);
}

#[test]
fn an_optimizer_that_does_not_clip_or_decays_otherwise() {
    let case = case();
    let trained_with = |settings: AdamW| {
        let right = CpuSubject::with(&case, &case.json.target_layer_ids, settings).unwrap();
        Mistaken::over(&case, right)
            .compared()
            .excess(Kind::Weights)
    };
    let usual = AdamW::default();
    let right = trained_with(usual);
    assert!(right < 1.0, "{right}");
    for (what, settings, least) in [
        (
            "no clipping",
            AdamW {
                norm_max: 1e9,
                ..usual
            },
            FAR,
        ),
        (
            "beta2 0.95",
            AdamW {
                beta2: 0.95,
                ..usual
            },
            FAR,
        ),
        (
            "beta1 0.8",
            AdamW {
                beta1: 0.8,
                ..usual
            },
            FAR,
        ),
        // The smallest trace of all: 1.8e-5 of the weights' norm in three steps, against an own
        // error below 1e-7.
        (
            "weight decay",
            AdamW {
                weight_decay: 0.01,
                ..usual
            },
            3.0,
        ),
    ] {
        let excess = trained_with(settings);
        assert!(excess > least, "{what}: {excess} times allowed");
        assert!(excess > 30.0 * right, "{what}: {excess} against {right}");
    }
}
