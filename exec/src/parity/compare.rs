//! Everything recorded against everything computed.

use std::collections::BTreeSet;

use candle_core::{DType, Tensor};

use super::case::Step;
use super::finding::{Comparison, Kind, Tolerances};
use super::{Case, ParityError, Subject};
use crate::model::PaddedBatch;
use crate::train::{BlockPlan, Contribution, StepReport};

/// Weights of slots are formed on the host in f64, whatever the device computes in.
const SLOT_WEIGHTS: f64 = 1e-7;

/// Compares everything that the case records. The subject's weights are trained by it.
///
/// # Errors
/// What the subject or the case's files refuse, and a recorded tensor that nothing was compared with.
pub fn compare(
    case: &Case,
    subject: &mut dyn Subject,
    tolerances: &Tolerances,
) -> Result<Comparison, ParityError> {
    let mut body = Body {
        case,
        tolerances,
        used: BTreeSet::new(),
        found: Comparison::default(),
    };
    let mut work = Vec::new();
    for (m, microbatch) in case.microbatches.iter().enumerate() {
        let plan = subject.plan(case, microbatch)?;
        body.forward(m, &microbatch.batch, &plan, subject)?;
        work.push((microbatch.batch.clone(), plan));
    }
    body.first_gradient(&work, subject)?;
    body.steps(&work, subject)?;
    let unused = case.expected.keys().find(|name| !body.used.contains(*name));
    match unused {
        Some(name) => Err(ParityError::Case {
            path: "expected_f32.safetensors".into(),
            problem: format!("{name} is compared with nothing"),
        }),
        None => Ok(body.found),
    }
}

struct Body<'a> {
    case: &'a Case,
    tolerances: &'a Tolerances,
    /// Recorded tensors that were compared.
    used: BTreeSet<String>,
    found: Comparison,
}

impl Body<'_> {
    fn expected(&mut self, name: String) -> Result<Tensor, ParityError> {
        let tensor = self.case.expected(&name)?.clone();
        self.used.insert(name);
        Ok(tensor)
    }

    /// Hidden states, weights of slots, outputs.
    fn forward(
        &mut self,
        m: usize,
        batch: &PaddedBatch,
        plan: &BlockPlan,
        subject: &mut dyn Subject,
    ) -> Result<(), ParityError> {
        let states = subject.states(batch)?;
        let real: Vec<bool> = batch
            .lengths
            .iter()
            .flat_map(|&n| (0..batch.padded_tokens()).map(move |p| p < n))
            .collect();
        let last = states.last_hidden.as_ref();
        let parts = [
            (Kind::Features, "features", Some(&states.features)),
            (Kind::LastHidden, "last_hidden", last),
        ];
        for (kind, name, got) in parts {
            self.rows(kind, format!("mb{m}.{name}"), got, &real)?;
        }
        let name = format!("mb{m}.slot_weights");
        let want = numbers(&self.expected(name.clone())?)?;
        let error = distance(plan.weights(), &want);
        self.found
            .note(Kind::SlotWeights, name, error, SLOT_WEIGHTS);

        let [hidden, logits] = subject.outputs(batch, plan)?;
        // What stands in dropped blocks has no meaning.
        let (_, blocks, slots) = plan.shape();
        let anchors = &self.case.microbatches[m].anchors;
        let is_kept = |row: &Vec<u32>| {
            let anchors = row.len();
            (0..blocks * slots).map(move |slot| slot / slots < anchors)
        };
        let kept = anchors.iter().flat_map(is_kept);
        let computed = subject.computed_slots(plan);
        let kept: Vec<bool> = kept.zip(computed).map(|(a, b)| a && b).collect();
        let parts = [
            (Kind::Hidden, "hidden", &hidden),
            (Kind::Logits, "logits", &logits),
        ];
        for (kind, name, got) in parts {
            self.rows(kind, format!("mb{m}.{name}"), Some(got), &kept)?;
        }
        Ok(())
    }

    /// Compares the rows to keep of a tensor whose leading dimensions are those of `keep`.
    fn rows(
        &mut self,
        kind: Kind,
        name: String,
        got: Option<&Tensor>,
        keep: &[bool],
    ) -> Result<(), ParityError> {
        let want = self.expected(name.clone())?;
        let error = match got {
            Some(got) if got.dims() == want.dims() => {
                distance(&kept(got, keep)?, &kept(&want, keep)?)
            }
            _ => f64::INFINITY,
        };
        self.found
            .note(kind, name, error, self.tolerances.activations);
        Ok(())
    }

    /// Losses of microbatches, what the step divides by, gradients.
    fn first_gradient(
        &mut self,
        work: &[(PaddedBatch, BlockPlan)],
        subject: &mut dyn Subject,
    ) -> Result<(), ParityError> {
        let scalars = &self.case.json.expected_f64;
        let mut total: Option<Contribution> = None;
        for (m, (batch, plan)) in work.iter().enumerate() {
            let part = subject.contribution(batch, plan)?;
            let want = scalars.steps[0].loss_per_microbatch[m];
            let (name, got) = (format!("mb{m}.loss"), part.loss_sum / scalars.denominator);
            self.found
                .scalar(Kind::MicrobatchLoss, name, got, want, self.tolerances.loss);
            match &mut total {
                Some(total) => total.add(part)?,
                None => total = Some(part),
            }
        }
        let Some(total) = total else {
            return Ok(());
        };
        let (got, want) = (total.weight_sum, scalars.denominator);
        self.found
            .scalar(Kind::Denominator, "weight_sum", got, want, 1e-12);
        for (name, gradient) in &total.gradients {
            let want = numbers(&self.expected(format!("grad.{name}"))?)?;
            let got = numbers(gradient)?;
            let got: Vec<f64> = got.iter().map(|g| g / total.weight_sum).collect();
            let allowed = self.tolerances.gradients;
            let error = distance(&got, &want);
            self.found.note(Kind::Gradients, name, error, allowed);
        }
        Ok(())
    }

    /// Scalars of all steps and the weights after them.
    fn steps(
        &mut self,
        work: &[(PaddedBatch, BlockPlan)],
        subject: &mut dyn Subject,
    ) -> Result<(), ParityError> {
        for (n, want) in self.case.json.expected_f64.steps.iter().enumerate() {
            self.report(n + 1, &subject.step(work)?, want);
        }
        for (name, weight) in &subject.weights()? {
            let want = numbers(&self.expected(format!("after.{name}"))?)?;
            let got = numbers(weight)?;
            let allowed = self.tolerances.weights;
            let error = distance(&got, &want);
            self.found.note(Kind::Weights, name, error, allowed);
            let apart = got.iter().zip(&want).map(|(a, b)| (a - b).abs());
            let (name, allowed) = (
                format!("{name} (one number)"),
                self.tolerances.weights_absolute,
            );
            self.found
                .note(Kind::Weights, name, apart.fold(0.0, worse), allowed);
        }
        Ok(())
    }

    fn report(&mut self, step: usize, got: &StepReport, want: &Step) {
        let t = self.tolerances;
        let (loss, grad_norm) = match step {
            1 => (t.loss, t.grad_norm),
            _ => (t.later, t.later),
        };
        let name = |what: &str| format!("step {step} {what}");
        let found = &mut self.found;
        found.scalar(Kind::Loss, name("loss"), got.loss, want.loss, loss);
        let norms = (got.grad_norm, want.grad_norm);
        found.scalar(Kind::GradNorm, name("norm"), norms.0, norms.1, grad_norm);
        let Some(allowed) = t.metrics else {
            return;
        };
        let error = distance(&got.accuracy_per_slot, &want.accuracy_per_slot);
        found.note(Kind::Metrics, name("accuracy_per_slot"), error, allowed);
        for (what, got, want) in [
            ("accuracy", got.accuracy, want.accuracy),
            (
                "expected_accepted_length",
                got.expected_accepted_length,
                want.expected_accepted_length,
            ),
            (
                "mean_leading_run",
                got.mean_leading_run,
                want.mean_leading_run,
            ),
        ] {
            found.scalar(Kind::Metrics, name(what), got, want, allowed);
        }
    }
}

/// ‖a − b‖ / ‖b‖; infinite for other numbers of numbers.
pub(super) fn distance(a: &[f64], b: &[f64]) -> f64 {
    if a.len() != b.len() {
        return f64::INFINITY;
    }
    let norm = |x: f64, y: f64| x + y * y;
    let apart = a.iter().zip(b).map(|(a, b)| a - b).fold(0.0, norm).sqrt();
    let length = b.iter().copied().fold(0.0, norm).sqrt();
    if apart == 0.0 { 0.0 } else { apart / length }
}

/// The larger one, or the one that is no number.
pub(super) fn worse(a: f64, b: f64) -> f64 {
    if b.is_nan() || b > a { b } else { a }
}

fn numbers(tensor: &Tensor) -> candle_core::Result<Vec<f64>> {
    tensor.to_dtype(DType::F64)?.flatten_all()?.to_vec1()
}

/// The numbers of the rows to keep, in order.
fn kept(tensor: &Tensor, keep: &[bool]) -> candle_core::Result<Vec<f64>> {
    let flat = numbers(tensor)?;
    let width = (flat.len() / keep.len().max(1)).max(1);
    let rows = flat.chunks(width).zip(keep).filter(|(_, keep)| **keep);
    Ok(rows.flat_map(|(row, _)| row.to_vec()).collect())
}
