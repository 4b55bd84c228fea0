//! Recorded outputs of an independent implementation, and distances to them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor, safetensors};
use exec::model::{HiddenStates, PaddedBatch, Sample, Target};

/// A folder of recorded data.
pub(crate) fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

/// What was recorded: `input_ids`, `layer.N`, `last_hidden`, `logits`.
pub(crate) fn expected(name: &str) -> BTreeMap<String, Tensor> {
    safetensors::load(data(name).join("expected.safetensors"), &Device::Cpu)
        .unwrap()
        .into_iter()
        .collect()
}

/// The recorded token rows.
pub(crate) fn rows(expected: &BTreeMap<String, Tensor>) -> Vec<Vec<u32>> {
    let rows = expected["input_ids"].to_vec2::<i64>().unwrap();
    rows.into_iter()
        .map(|row| row.into_iter().map(|id| id as u32).collect())
        .collect()
}

/// Rows right-padded to the longest.
pub(crate) fn batch(rows: &[Vec<u32>]) -> PaddedBatch {
    let tokens = rows.iter().map(Vec::len).max().unwrap();
    let mask = vec![true; tokens];
    let samples: Vec<Sample<'_>> = rows
        .iter()
        .map(|row| Sample {
            input_ids: row,
            loss_mask: &mask[..row.len()],
        })
        .collect();
    PaddedBatch::new(&samples, tokens).unwrap()
}

pub(crate) fn forward(target: &Target, rows: &[Vec<u32>]) -> HiddenStates {
    target.forward(&batch(rows)).unwrap()
}

/// [B, S, width] as rows [B·S, width].
pub(crate) fn states(x: &Tensor) -> Tensor {
    let width = x.dims()[2];
    x.reshape(((), width)).unwrap()
}

/// ‖a − b‖ / ‖b‖.
pub(crate) fn distance(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!(a.dims(), b.dims());
    let norm = |x: &Tensor| {
        let x = x.to_dtype(DType::F64).unwrap();
        let square = x.sqr().unwrap().sum_all().unwrap();
        square.to_scalar::<f64>().unwrap().sqrt()
    };
    norm(&(a - b).unwrap()) / norm(b)
}

#[track_caller]
pub(crate) fn close(name: &str, got: &Tensor, want: &Tensor, tolerance: f64) {
    let apart = distance(got, want);
    assert!(
        apart <= tolerance,
        "{name}: {apart:.2e} apart, {tolerance:.0e} allowed"
    );
}
