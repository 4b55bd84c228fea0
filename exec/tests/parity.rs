//! The CPU models against a reference: one case computed by an independent PyTorch implementation.
//!
//! `data/parity` holds a tiny target and drafter, two microbatches of an optimizer step, and what
//! every quantity must be (f32 results, themselves within 1.4e-6 of f64). Tolerances are relative
//! L2 norms.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor, safetensors};
use exec::model::{Drafter, HiddenStates, PaddedBatch, Sample, Target};
use exec::train::{AdamW, BlockPlan, BlockSpec, Contribution, Optimizer, Schedule, StepReport};
use serde_json::Value;

const ACTIVATIONS: f64 = 1e-5;
const GRADIENTS: f64 = 2e-5;
const WEIGHTS: f64 = 5e-6;
const SCALARS: f64 = 5e-6;

struct Case {
    target: Target,
    drafter: Drafter,
    batches: Vec<(PaddedBatch, BlockPlan)>,
    expected: BTreeMap<String, Tensor>,
    json: Value,
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/parity")
        .join(name)
}

fn tensors(name: &str) -> BTreeMap<String, Tensor> {
    safetensors::load(data(name), &Device::Cpu)
        .unwrap()
        .into_iter()
        .collect()
}

fn case() -> Case {
    let json: Value =
        serde_json::from_str(&std::fs::read_to_string(data("case.json")).unwrap()).unwrap();
    let ids: Vec<usize> = serde_json::from_value(json["target_layer_ids"].clone()).unwrap();
    let target = Target::load(&data("target"), &ids, &Device::Cpu)
        .unwrap()
        .with_last_hidden(true);
    let drafter = Drafter::load(&data("drafter"), &target).unwrap();
    assert_eq!(drafter.config().target_layer_ids, ids);
    let spec = BlockSpec::of(drafter.config());
    assert_eq!(spec.gamma, json["gamma"].as_f64().unwrap());
    let inputs = tensors("batch.safetensors");
    let batches = (0..2).map(|m| batch(&inputs, m, &spec)).collect();
    Case {
        target,
        drafter,
        batches,
        expected: tensors("expected_f32.safetensors"),
        json,
    }
}

fn batch(
    inputs: &BTreeMap<String, Tensor>,
    m: usize,
    spec: &BlockSpec,
) -> (PaddedBatch, BlockPlan) {
    let rows = |name: &str| inputs[&format!("mb{m}.{name}")].to_vec2::<i64>().unwrap();
    let lengths = inputs[&format!("mb{m}.lengths")].to_vec1::<i64>().unwrap();
    let (ids, masks) = (rows("input_ids"), rows("loss_mask"));
    let padded = ids[0].len();
    let ids: Vec<Vec<u32>> = ids
        .iter()
        .map(|r| r.iter().map(|&t| t as u32).collect())
        .collect();
    let masks: Vec<Vec<bool>> = masks
        .iter()
        .map(|r| r.iter().map(|&m| m == 1).collect())
        .collect();
    let samples: Vec<Sample<'_>> = lengths
        .iter()
        .zip(ids.iter().zip(&masks))
        .map(|(&n, (ids, mask))| Sample {
            input_ids: &ids[..n as usize],
            loss_mask: &mask[..n as usize],
        })
        .collect();
    let batch = PaddedBatch::new(&samples, padded).unwrap();
    let anchors: Vec<Vec<u32>> = rows("anchors")
        .iter()
        .map(|row| row.iter().filter(|&&a| a >= 0).map(|&a| a as u32).collect())
        .collect();
    let plan = BlockPlan::new(&batch, &anchors, spec).unwrap();
    (batch, plan)
}

impl Case {
    fn states(&self) -> Vec<HiddenStates> {
        self.batches
            .iter()
            .map(|(batch, _)| self.target.forward(batch).unwrap())
            .collect()
    }

    /// One step from the given states, as a run would do it.
    fn step(&self, drafter: &Drafter, states: &[HiddenStates]) -> Contribution {
        let mut parts = self
            .batches
            .iter()
            .zip(states)
            .map(|((_, plan), states)| drafter.accumulate(states, plan).unwrap());
        let mut total = parts.next().unwrap();
        parts.for_each(|part| total.add(part).unwrap());
        total
    }
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    let flat = tensor.to_dtype(DType::F64).unwrap().flatten_all().unwrap();
    flat.to_vec1().unwrap()
}

/// ‖a − b‖ / ‖b‖.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let norm = |x: f64, y: f64| x + y * y;
    let apart = a.iter().zip(b).map(|(a, b)| a - b).fold(0.0, norm).sqrt();
    apart / b.iter().copied().fold(0.0, norm).sqrt()
}

#[track_caller]
fn close(name: &str, got: &[f64], want: &[f64], tolerance: f64) {
    let error = distance(got, want);
    assert!(
        error <= tolerance,
        "{name}: {error:.2e} apart, {tolerance:.0e} allowed"
    );
}

/// Rows of a tensor whose leading dimensions are `keep`, in order.
fn kept(tensor: &Tensor, keep: &[bool]) -> Vec<f64> {
    let flat = numbers(tensor);
    let width = flat.len() / keep.len();
    flat.chunks(width)
        .zip(keep)
        .filter(|(_, keep)| **keep)
        .flat_map(|(row, _)| row.to_vec())
        .collect()
}

#[test]
fn hidden_states_of_real_tokens_match() {
    let case = case();
    for (m, states) in case.states().iter().enumerate() {
        let batch = &case.batches[m].0;
        let real: Vec<bool> = batch
            .lengths
            .iter()
            .flat_map(|&n| (0..batch.padded_tokens()).map(move |p| p < n))
            .collect();
        let last = states.last_hidden.as_ref().unwrap();
        for (name, got) in [("features", &states.features), ("last_hidden", last)] {
            let want = &case.expected[&format!("mb{m}.{name}")];
            assert_eq!(got.dims(), want.dims());
            close(name, &kept(got, &real), &kept(want, &real), ACTIVATIONS);
        }
    }
}

#[test]
fn slot_weights_and_drafter_outputs_match() {
    let case = case();
    for (m, states) in case.states().iter().enumerate() {
        let plan = &case.batches[m].1;
        let want = numbers(&case.expected[&format!("mb{m}.slot_weights")]);
        close("slot weights", plan.weights(), &want, 1e-7);
        let hidden = case.drafter.hidden(states, plan).unwrap();
        let logits = case.drafter.logits(&hidden).unwrap();
        // Anchor 0 is never drawn in this case, so a block at 0 is a dropped one.
        let keep: Vec<bool> = plan.starts().iter().map(|&start| start > 0).collect();
        for (name, got) in [("hidden", &hidden), ("logits", &logits)] {
            let want = &case.expected[&format!("mb{m}.{name}")];
            assert_eq!(got.dims(), want.dims());
            close(name, &kept(got, &keep), &kept(want, &keep), ACTIVATIONS);
        }
    }
}

#[test]
fn losses_and_every_gradient_match() {
    let case = case();
    let states = case.states();
    let total = case.step(&case.drafter, &states);
    let expected = &case.json["expected_f64"];
    let first = &expected["steps"][0];
    let denominator = expected["denominator"].as_f64().unwrap();
    close("denominator", &[total.weight_sum], &[denominator], 1e-12);
    for (m, states) in states.iter().enumerate() {
        let part = case.drafter.accumulate(states, &case.batches[m].1).unwrap();
        let want = first["loss_per_microbatch"][m].as_f64().unwrap();
        close(
            "microbatch loss",
            &[part.loss_sum / denominator],
            &[want],
            SCALARS,
        );
    }
    assert_eq!(total.gradients.len(), 25);
    for (name, gradient) in &total.gradients {
        let want = numbers(&case.expected[&format!("grad.{name}")]);
        let got: Vec<f64> = numbers(gradient).iter().map(|g| g / denominator).collect();
        close(name, &got, &want, GRADIENTS);
    }
}

#[test]
fn three_optimizer_steps_match() {
    let case = case();
    let states = case.states();
    let settings = AdamW::default();
    let schedule = Schedule::constant(case.json["optimizer"]["lr"].as_f64().unwrap());
    let mut drafter = case.drafter.clone();
    let mut optimizer = Optimizer::new(drafter.weights().clone(), settings, schedule).unwrap();
    for want in case.json["expected_f64"]["steps"].as_array().unwrap() {
        let report = optimizer.apply(case.step(&drafter, &states)).unwrap();
        check_report(&report, want);
        drafter.set_weights(optimizer.weights()).unwrap();
    }
    for (name, weight) in optimizer.weights() {
        let (got, want) = (
            numbers(weight),
            numbers(&case.expected[&format!("after.{name}")]),
        );
        close(name, &got, &want, WEIGHTS);
        let worst = got
            .iter()
            .zip(&want)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f64::max);
        assert!(worst < 5e-5, "{name}: {worst:.2e}");
    }
}

fn check_report(report: &StepReport, want: &Value) {
    let number = |key: &str| want[key].as_f64().unwrap();
    close("loss", &[report.loss], &[number("loss")], SCALARS);
    close(
        "gradient norm",
        &[report.grad_norm],
        &[number("grad_norm")],
        SCALARS,
    );
    let per_slot: Vec<f64> = serde_json::from_value(want["accuracy_per_slot"].clone()).unwrap();
    assert_eq!(report.accuracy_per_slot, per_slot);
    for (got, key) in [
        (report.accuracy, "accuracy"),
        (report.expected_accepted_length, "expected_accepted_length"),
        (report.mean_leading_run, "mean_leading_run"),
    ] {
        assert!((got - number(key)).abs() < 1e-12, "{key}: {got}");
    }
}

#[test]
fn two_computations_give_the_same_bits() {
    let case = case();
    let states = case.states();
    let (a, b) = (
        case.step(&case.drafter, &states),
        case.step(&case.drafter, &case.states()),
    );
    assert_eq!(a.loss_sum.to_bits(), b.loss_sum.to_bits());
    for (name, gradient) in &a.gradients {
        assert_eq!(numbers(gradient), numbers(&b.gradients[name]), "{name}");
    }
}
