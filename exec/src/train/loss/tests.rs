//! Each loss against finite differences in f64 and against PyTorch.

use candle_core::{DType, Device, Tensor};

use super::*;
use crate::model::fixture::{Row, microbatch, models, row};
use crate::model::{Drafter, Tensors};
use crate::train::Contribution;

const OBJECTIVES: [Objective; 5] = [
    Objective::CrossEntropy,
    Objective::D_PACE,
    Objective::DISTILLATION,
    Objective::Distillation {
        temperature: 2.5,
        hard_share: 0.3,
    },
    Objective::DPace { alpha: 0.1 },
];

fn numbers(tensor: &Tensor) -> Vec<f64> {
    let flat = tensor.to_dtype(DType::F64).unwrap().flatten_all().unwrap();
    flat.to_vec1().unwrap()
}

/// Models in f64, the states of some rows and their blocks.
fn wide() -> (Drafter, HiddenStates, BlockPlan) {
    let (target, drafter) = models();
    let target = target.with_last_hidden(true);
    let rows: Vec<Row> = [(1, 20, 5), (2, 9, 5), (3, 31, 3), (4, 14, 5)]
        .map(|(id, tokens, anchors)| row(id, tokens, anchors))
        .into();
    let (batch, plan) = microbatch(&rows.iter().collect::<Vec<_>>(), 32);
    let states = target.forward(&batch).unwrap();
    (drafter.to_dtype(DType::F64).unwrap(), states, plan)
}

fn moved(drafter: &Drafter, name: &str, at: usize, h: f64) -> Drafter {
    let mut weights: Tensors = drafter.weights().clone();
    let mut values = numbers(&weights[name]);
    values[at] += h;
    let shape = weights[name].dims().to_vec();
    let tensor = Tensor::from_vec(values, shape, &Device::Cpu).unwrap();
    weights.insert(name.into(), tensor);
    let mut moved = drafter.clone();
    moved.set_weights(&weights).unwrap();
    moved
}

/// The sum that an objective's gradient is the derivative of: D-PACE holds its values fixed.
fn frozen(
    objective: &Objective,
    drafter: &Drafter,
    states: &HiddenStates,
    plan: &BlockPlan,
) -> Frozen {
    let Objective::DPace { alpha } = *objective else {
        return Frozen(*objective, plan.clone());
    };
    let hidden = drafter.hidden(states, plan).unwrap();
    let hidden = hidden.reshape(((), hidden.dims()[3])).unwrap();
    let mut valued = plan.clone();
    for slots in chunks(plan, usize::MAX / 2) {
        let chunk = Chunk::new(slots.clone(), plan, &hidden, drafter.lm_head()).unwrap();
        let softmax = Softmax::of(&chunk.logits).unwrap();
        let entropies = softmax.entropies(&chunk.labels).unwrap();
        let values = d_pace::values(&slots, &entropies, plan.shape().2, alpha);
        for (slot, value) in slots.iter().zip(values) {
            valued.parts_mut().weights[*slot as usize] = value;
        }
    }
    Frozen(Objective::CrossEntropy, valued)
}

struct Frozen(Objective, BlockPlan);

impl Frozen {
    fn sum(&self, drafter: &Drafter, states: &HiddenStates) -> f64 {
        let Self(objective, plan) = self;
        drafter
            .accumulate_for(objective, states, plan)
            .unwrap()
            .loss_sum
    }
}

#[test]
fn every_gradient_matches_central_differences_in_f64() {
    let (drafter, states, plan) = wide();
    for objective in OBJECTIVES {
        let contribution = drafter.accumulate_for(&objective, &states, &plan).unwrap();
        let frozen = frozen(&objective, &drafter, &states, &plan);
        let same = frozen.sum(&drafter, &states);
        assert!((same - contribution.loss_sum).abs() < 1e-10 * same.abs());
        assert_eq!(contribution.gradients.len(), 25);
        for (name, gradient) in &contribution.gradients {
            let gradient = numbers(gradient);
            // The steepest entry and one in the middle.
            let steepest = (0..gradient.len())
                .max_by(|&a, &b| gradient[a].abs().total_cmp(&gradient[b].abs()))
                .unwrap();
            for at in [steepest, gradient.len() / 2] {
                let h = 1e-5;
                let ahead = frozen.sum(&moved(&drafter, name, at, h), &states);
                let behind = frozen.sum(&moved(&drafter, name, at, -h), &states);
                let (slope, difference) = (gradient[at], (ahead - behind) / (2.0 * h));
                let error = (difference - slope).abs();
                assert!(
                    error < 1e-6 * slope.abs() + 1e-8,
                    "{objective:?} {name}[{at}]: {slope} {difference}"
                );
            }
        }
    }
}

#[test]
fn sliding_layers_have_right_gradients_too() {
    use crate::model::SlidingAttention;
    let (target, drafter) = models();
    let rows: Vec<Row> = [(1, 20, 5), (3, 31, 3)]
        .map(|(id, n, a)| row(id, n, a))
        .into();
    let (batch, plan) = microbatch(&rows.iter().collect::<Vec<_>>(), 32);
    let states = target.forward(&batch).unwrap();
    for causal in [true, false] {
        let sliding = SlidingAttention::all_but_last(2, 1, 6, causal);
        let config = drafter.config().clone().with_sliding(sliding).unwrap();
        let weights = drafter.weights().clone();
        let drafter = Drafter::from_weights(config, weights, &target, "test").unwrap();
        let drafter = drafter.to_dtype(DType::F64).unwrap();
        let gradients = drafter.accumulate(&states, &plan).unwrap().gradients;
        let frozen = Frozen(Objective::CrossEntropy, plan.clone());
        for (name, gradient) in &gradients {
            let gradient = numbers(gradient);
            let at = (0..gradient.len())
                .max_by(|&a, &b| gradient[a].abs().total_cmp(&gradient[b].abs()))
                .unwrap();
            let h = 1e-5;
            let ahead = frozen.sum(&moved(&drafter, name, at, h), &states);
            let behind = frozen.sum(&moved(&drafter, name, at, -h), &states);
            let (slope, difference) = (gradient[at], (ahead - behind) / (2.0 * h));
            let error = (difference - slope).abs();
            assert!(
                error < 1e-6 * slope.abs() + 1e-8,
                "{name}: {slope} {difference}"
            );
        }
    }
}

#[test]
fn chunks_change_nothing_and_hold_whole_blocks() {
    let (_, _, plan) = wide();
    let slots = plan.shape().2;
    let whole = chunks(&plan, usize::MAX / 2);
    assert_eq!(whole.len(), 1);
    for least in [1, 7, 20] {
        let parts = chunks(&plan, least);
        assert!(parts.len() > 1);
        assert_eq!(parts.concat(), whole[0]);
        let block = |slot: &u32| *slot as usize / slots;
        let ends = parts.windows(2).map(|w| (w[0].last().unwrap(), &w[1][0]));
        assert!(ends.into_iter().all(|(a, b)| block(a) < block(b)));
    }
}

#[test]
fn every_objective_adds_up_over_microbatches() {
    let (target, drafter) = models();
    let target = target.with_last_hidden(true);
    let rows: Vec<Row> = [(1, 20, 5), (2, 9, 5), (3, 31, 3)]
        .map(|(id, n, a)| row(id, n, a))
        .into();
    for objective in OBJECTIVES {
        let part = |members: &[usize], padded: usize| -> Contribution {
            let members: Vec<&Row> = members.iter().map(|&n| &rows[n]).collect();
            let (batch, plan) = microbatch(&members, padded);
            let states = target.forward(&batch).unwrap();
            drafter.accumulate_for(&objective, &states, &plan).unwrap()
        };
        let whole = part(&[0, 1, 2], 32);
        let mut sum = part(&[1], 9);
        sum.add(part(&[2, 0], 40)).unwrap();
        assert!((sum.weight_sum - whole.weight_sum).abs() < 1e-12 * whole.weight_sum);
        assert!((sum.loss_sum - whole.loss_sum).abs() < 2e-6 * whole.loss_sum);
        for (name, gradient) in &whole.gradients {
            let (a, b) = (numbers(&sum.gradients[name]), numbers(gradient));
            let apart: f64 = a.iter().zip(&b).map(|(a, b)| (a - b) * (a - b)).sum();
            let length: f64 = b.iter().map(|b| b * b).sum();
            assert!((apart / length).sqrt() < 1e-5, "{objective:?} {name}");
        }
    }
}

#[test]
fn a_distillation_without_last_hidden_states_says_what_is_missing() {
    let (drafter, mut states, plan) = wide();
    states.last_hidden = None;
    let error = drafter
        .accumulate_for(&Objective::DISTILLATION, &states, &plan)
        .unwrap_err()
        .to_string();
    assert!(error.contains("have the target capture it"), "{error}");
}

#[test]
fn sums_and_gradients_are_those_of_an_independent_computation() {
    use crate::parity::{Case, CpuSubject, Subject};
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let case = Case::load(&data.join("parity")).unwrap();
    let recorded = data.join("losses/expected.safetensors");
    let recorded = candle_core::safetensors::load(recorded, &Device::Cpu).unwrap();
    let mut subject = CpuSubject::load(&case).unwrap();
    let lm_head = subject.target.lm_head().to_dtype(DType::F64).unwrap();
    let mixed = OBJECTIVES[3];
    let named = [
        ("cross_entropy", Objective::CrossEntropy),
        ("d_pace", Objective::D_PACE),
        ("d_pace_low", Objective::DPace { alpha: 0.1 }),
        ("distillation", Objective::DISTILLATION),
        ("distillation_mixed", mixed),
    ];
    let mut compared = 0;
    for (m, microbatch) in case.microbatches.iter().enumerate() {
        let plan = subject.plan(&case, microbatch).unwrap();
        let given = |name: &str| case.expected[&format!("mb{m}.{name}")].to_dtype(DType::F64);
        let hidden = given("hidden").unwrap();
        let hidden = hidden.reshape(((), hidden.dims()[3])).unwrap();
        let states = HiddenStates {
            features: given("features").unwrap(),
            last_hidden: Some(given("last_hidden").unwrap()),
        };
        for (name, objective) in &named {
            let loss = evaluate(objective, &hidden, &lm_head, &plan, &states).unwrap();
            let want = |part: &str| numbers(&recorded[&format!("{name}.mb{m}.{part}")]);
            for (got, want) in [loss.sum, loss.weight_sum].iter().zip(want("sums")) {
                assert!(
                    (got - want).abs() < 1e-11 * want,
                    "{name} {m}: {got} {want}"
                );
            }
            let (got, want) = (numbers(&loss.for_hidden), want("for_hidden"));
            let apart: f64 = got.iter().zip(&want).map(|(a, b)| (a - b) * (a - b)).sum();
            let length: f64 = want.iter().map(|b| b * b).sum();
            let error = (apart / length).sqrt();
            assert!(error < 1e-11, "{name} {m}: {error:.1e}");
            compared += 1;
        }
    }
    assert_eq!(2 * compared, recorded.len());
}
