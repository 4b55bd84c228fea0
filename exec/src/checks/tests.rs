//! Right hidden states pass, and each kind of wrong ones is told from the others.

use candle_core::{DType, Tensor};

use super::*;
use crate::model::fixture::{microbatch, models, row};
use crate::model::{DrafterConfig, PaddedBatch, Target};

struct Right {
    target: Target,
    config: DrafterConfig,
    batch: PaddedBatch,
    stamped: Stamped,
}

fn right() -> Right {
    let (target, drafter) = models();
    let target = target.with_last_hidden(true);
    let rows = [(1, 12), (2, 9), (3, 7)].map(|(id, tokens)| row(id, tokens, 2));
    let (batch, _) = microbatch(&rows.iter().collect::<Vec<_>>(), 12);
    let stamped = Stamped {
        states: target.forward(&batch).unwrap(),
        stamp: Stamp::of(&target, &batch),
    };
    Right {
        config: drafter.config().clone(),
        target,
        batch,
        stamped,
    }
}

impl Right {
    fn arrived(&self) -> Result<(), BadStates> {
        arrived(&self.stamped, &self.batch, &self.config)
    }

    fn recomputed(&self, row: usize) -> Result<(), BadStates> {
        recomputed(&self.target, &self.stamped.states, &self.batch, row)
    }

    fn change(&mut self, change: impl FnOnce(Tensor) -> candle_core::Result<Tensor>) {
        let features = &mut self.stamped.states.features;
        *features = change(features.clone()).unwrap();
    }
}

#[test]
fn right_ones_pass_in_f32_and_in_bf16() {
    let mut right = right();
    right.arrived().unwrap();
    (0..3).for_each(|row| right.recomputed(row).unwrap());
    right.target = right.target.with_storage(DType::BF16);
    right.stamped.states = right.target.forward(&right.batch).unwrap();
    right.arrived().unwrap();
    (0..3).for_each(|row| right.recomputed(row).unwrap());
}

#[test]
fn stamps_tell_rows_tokens_and_layers() {
    let stamped = |change: fn(&mut Stamp)| {
        let mut right = right();
        change(&mut right.stamped.stamp);
        right.arrived().unwrap_err()
    };
    let swapped = stamped(|stamp| stamp.rows.swap(0, 2));
    assert!(matches!(
        swapped,
        BadStates::SwappedRows { row: 0, holds: 2 }
    ));
    let other = stamped(|stamp| stamp.rows[1].digest ^= 1);
    assert!(matches!(other, BadStates::OtherTokens { row: 1, .. }));
    let short = stamped(|stamp| stamp.rows[1] = RowStamp::of(&[1, 2]));
    assert!(matches!(
        short,
        BadStates::Truncated {
            row: 1,
            have: 2,
            want: 9
        }
    ));
    let order = stamped(|stamp| stamp.layer_ids.reverse());
    assert!(matches!(order, BadStates::LayerOrder { .. }), "{order}");
    let later = stamped(|stamp| stamp.layer_ids.iter_mut().for_each(|id| *id += 1));
    assert!(matches!(later, BadStates::OtherLayers { .. }), "{later}");
}

#[test]
fn pads_may_hold_anything() {
    let mut right = right();
    let nan = Tensor::full(f32::NAN, (1, 2, 64), &candle_core::Device::Cpu).unwrap();
    right.change(|f| f.slice_assign(&[2..3, 8..10, 0..64], &nan));
    right.arrived().unwrap();
    right.change(|f| f.slice_assign(&[2..3, 6..8, 0..64], &nan));
    let error = right.arrived().unwrap_err();
    assert!(
        matches!(
            error,
            BadStates::NotFinite {
                row: 2,
                position: 6,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn numbers_tell_what_no_stamp_says() {
    let found = |change: fn(Tensor) -> candle_core::Result<Tensor>| {
        let mut right = right();
        right.change(change);
        right.arrived().unwrap();
        right.recomputed(0).unwrap_err()
    };
    let swapped = found(|f| Tensor::cat(&[f.narrow(0, 1, 2)?, f.narrow(0, 0, 1)?], 0));
    assert!(
        matches!(swapped, BadStates::SwappedRows { row: 0, holds: 1 }),
        "{swapped}"
    );
    let order = found(|f| Tensor::cat(&[f.narrow(2, 32, 32)?, f.narrow(2, 0, 32)?], 2));
    assert!(matches!(order, BadStates::LayerOrder { .. }), "{order}");
    let early = found(|f| Tensor::cat(&[f.narrow(1, 1, 11)?, f.narrow(1, 0, 1)?], 1));
    assert!(
        matches!(early, BadStates::Shifted { row: 0, by: 1 }),
        "{early}"
    );
    let late = found(|f| Tensor::cat(&[f.narrow(1, 11, 1)?, f.narrow(1, 0, 11)?], 1));
    assert!(
        matches!(late, BadStates::Shifted { row: 0, by: -1 }),
        "{late}"
    );
    let ended = found(|f| Tensor::cat(&[f.narrow(1, 0, 5)?, f.narrow(1, 5, 7)?.zeros_like()?], 1));
    assert!(
        matches!(
            ended,
            BadStates::Truncated {
                have: 5,
                want: 12,
                ..
            }
        ),
        "{ended}"
    );
    let drift = found(|f| f.affine(1.001, 0.0));
    assert!(matches!(drift, BadStates::Drift { row: 0, .. }), "{drift}");
}

#[test]
fn a_token_that_was_another_one_is_found_by_what_stands_behind_it() {
    let mut right = right();
    let mut other = right.batch.clone();
    other.input_ids[0][4] = (other.input_ids[0][4] + 1) % 40;
    right.stamped.states = right.target.forward(&other).unwrap();
    right.arrived().unwrap();
    right.recomputed(1).unwrap();
    let error = right.recomputed(0).unwrap_err();
    assert!(
        matches!(error, BadStates::OtherTokens { row: 0, from: 4 }),
        "{error}"
    );
}

#[test]
fn a_last_hidden_state_before_the_norm_is_refused() {
    let mut right = right();
    let last = right.target.config().geometry.num_hidden_layers - 1;
    let raw = right
        .target
        .clone()
        .capturing(&[last])
        .unwrap()
        .forward(&right.batch)
        .unwrap();
    right.stamped.states.last_hidden = Some(raw.features);
    right.arrived().unwrap();
    let error = right.recomputed(0).unwrap_err();
    assert!(matches!(error, BadStates::LastHidden { .. }), "{error}");
}
