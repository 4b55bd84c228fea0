//! Sliding and full layers against the mask spelled out pair by pair.

use candle_core::{DType, Tensor};

use super::dense::sees;
use super::*;
use crate::model::SlidingAttention;
use crate::model::fixture::{Row, microbatch, models, row};

fn error(a: &Tensor, b: &Tensor) -> f64 {
    let numbers = |t: &Tensor| -> Vec<f64> {
        let flat = t.to_dtype(DType::F64).unwrap().flatten_all().unwrap();
        flat.to_vec1().unwrap()
    };
    let (a, b) = (numbers(a), numbers(b));
    let apart: f64 = a.iter().zip(&b).map(|(a, b)| (a - b) * (a - b)).sum();
    let length: f64 = b.iter().map(|b| b * b).sum();
    (apart / length).sqrt()
}

/// A drafter of two layers with other config, over some rows.
fn outputs(sliding: Option<SlidingAttention>) -> [Tensor; 2] {
    let (target, drafter) = models();
    let mut config = drafter.config().clone();
    if let Some(sliding) = sliding {
        config = config.with_sliding(sliding).unwrap();
    }
    let drafter = Drafter::from_weights(config, drafter.weights().clone(), &target, "test");
    let drafter = drafter.unwrap();
    let rows: Vec<Row> = [(1, 20, 4), (2, 9, 4), (3, 31, 4)]
        .map(|(id, tokens, anchors)| row(id, tokens, anchors))
        .into();
    assert!(rows.iter().all(|row| row.anchors.len() == 4));
    let (batch, plan) = microbatch(&rows.iter().collect::<Vec<_>>(), 32);
    let states = target.forward(&batch).unwrap();
    let rule = |q, key| sees(&drafter, q, key);
    let dense = drafter.dense_hidden(&states, &plan, &rule).unwrap();
    [drafter.hidden(&states, &plan).unwrap(), dense]
}

#[test]
fn every_kind_of_layers_is_the_dense_computation() {
    let [full, dense] = outputs(None);
    let off = error(&full, &dense);
    assert!(off < 2e-6, "full: {off:.1e}");
    for causal in [true, false] {
        for (stay, window) in [(0, 4), (0, 9), (1, 6), (1, 100)] {
            let sliding = SlidingAttention::all_but_last(2, stay, window, causal);
            let [sparse, dense] = outputs(Some(sliding.clone()));
            let off = error(&sparse, &dense);
            assert!(off < 2e-6, "{sliding:?}: {off:.1e}");
            // A window longer than every row leaves only causality inside the block.
            let apart = error(&sparse, &full);
            let same = window == 100 && !causal;
            assert_eq!(apart > 1e-4, !same, "{sliding:?}: {apart:.1e} from full");
        }
    }
}
