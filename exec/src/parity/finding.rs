//! What a comparison finds.

use std::collections::BTreeSet;
use std::fmt;

use super::compare::{distance, worse};

/// How far each kind of quantity may be off: ‖a − b‖ / ‖b‖ of a tensor, and the same of a scalar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerances {
    /// Hidden states and outputs.
    pub activations: f64,
    /// Gradients of step 1.
    pub gradients: f64,
    /// Weights after the last step.
    pub weights: f64,
    /// The same as the largest difference of one number.
    pub weights_absolute: f64,
    /// Loss of step 1.
    pub loss: f64,
    /// Gradient norm of step 1.
    pub grad_norm: f64,
    /// Loss and gradient norm of later steps.
    pub later: f64,
    /// Metrics; none: they are not compared, a rounded logit may flip a hit.
    pub metrics: Option<f64>,
}

impl Tolerances {
    /// Computing in f32. PyTorch's own f32 is within a tenth of these.
    pub const F32: Self = Self {
        activations: 1e-5,
        gradients: 2e-5,
        weights: 5e-6,
        weights_absolute: 5e-5,
        loss: 5e-6,
        grad_norm: 5e-6,
        later: 5e-6,
        metrics: Some(1e-12),
    };

    /// Computing in bf16 with f32 masters. PyTorch's own is within a half of these.
    pub const BF16: Self = Self {
        activations: 3e-2,
        gradients: 6e-2,
        weights: 4e-3,
        weights_absolute: f64::INFINITY,
        loss: 5e-3,
        grad_norm: 1e-2,
        later: 3e-2,
        metrics: None,
    };
}

/// Kinds of quantities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Outputs of the captured layers.
    Features,
    /// The last hidden state after the final norm.
    LastHidden,
    /// Loss weights of slots.
    SlotWeights,
    /// What a step divides by.
    Denominator,
    /// The drafter's output.
    Hidden,
    /// Its logits.
    Logits,
    /// Loss of a microbatch.
    MicrobatchLoss,
    /// Gradients of step 1.
    Gradients,
    /// Loss of a step.
    Loss,
    /// Gradient norm of a step.
    GradNorm,
    /// Accuracy and lengths.
    Metrics,
    /// Weights after the last step.
    Weights,
}

/// One comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Of what kind.
    pub kind: Kind,
    /// Of what.
    pub name: String,
    /// How far off.
    pub error: f64,
    /// How far off it may be.
    pub allowed: f64,
}

/// All comparisons.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Comparison {
    /// In the order in which they were made.
    pub findings: Vec<Finding>,
}

impl Comparison {
    /// Those that are off by more than they may be.
    pub fn failures(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| !finding.is_within())
    }

    /// The largest multiple of what is allowed, over quantities of one kind; 0 when there are none.
    pub fn excess(&self, kind: Kind) -> f64 {
        let of_kind = self.findings.iter().filter(|f| f.kind == kind);
        of_kind.map(Finding::excess).fold(0.0, worse)
    }

    pub(super) fn note(&mut self, kind: Kind, name: impl Into<String>, error: f64, allowed: f64) {
        self.findings.push(Finding {
            kind,
            name: name.into(),
            error,
            allowed,
        });
    }

    pub(super) fn scalar(
        &mut self,
        kind: Kind,
        name: impl Into<String>,
        got: f64,
        want: f64,
        allowed: f64,
    ) {
        self.note(kind, name, distance(&[got], &[want]), allowed);
    }
}

impl Finding {
    /// Whether it is off by no more than it may be; an error that is no number never is.
    pub fn is_within(&self) -> bool {
        self.error <= self.allowed
    }

    fn excess(&self) -> f64 {
        self.error / self.allowed
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            name,
            error,
            allowed,
        } = self;
        write!(f, "{kind:?} {name}: {error:.2e} off, {allowed:.0e} allowed")
    }
}

impl fmt::Display for Comparison {
    /// The worst of each kind, a line each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: BTreeSet<Kind> = self.findings.iter().map(|f| f.kind).collect();
        for kind in kinds {
            let of_kind = || self.findings.iter().filter(|f| f.kind == kind);
            let worst = of_kind().max_by(|a, b| a.excess().total_cmp(&b.excess()));
            if let Some(worst) = worst {
                writeln!(f, "{worst} (worst of {})", of_kind().count())?;
            }
        }
        Ok(())
    }
}
