//! What the drafter is trained to minimise.

/// The loss of one optimizer step, as a sum over its supervised slots divided once by one number.
///
/// Invariant: both the sum and the divisor add up over microbatches, so that a step's gradient does
/// not depend on how its samples were split over microbatches and drafters.
///
/// Notation: slot k of a block is asked for the token k behind the anchor; q_k is the drafter's
/// probability of the data's token there, CE_k = −ln q_k, and w_k = exp(−(k−1)/gamma).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Objective {
    /// Σ w_k · CE_k over Σ w_k, both over the step (DFlash, arXiv 2602.06036, A.3).
    #[default]
    CrossEntropy,
    /// Σ v_k · CE_k over the blocks of the step that have a supervised slot (D-PACE, arXiv
    /// 2605.18810).
    ///
    /// v_k = Σ_{i≥k} Π_{j≤i} ((1−alpha)·q_j + alpha) over supervised slots i and j, held fixed in
    /// the derivative: slot k counts for as many accepted tokens as hang on it. The position decay
    /// w_k has no part in it. The published code divides by the samples of a microbatch. Blocks are
    /// divided by here: their number is known from the data, adds up over microbatches, and keeps
    /// the gradient's length, and with it the clipping, the same whatever the anchors a sample.
    DPace {
        /// Floor of the probabilities in the products, from 0 to 1; 0.5 is published.
        alpha: f64,
    },
    /// Σ w_k · ((1−h)·τ²·KL(p_k ‖ d_k) + h·CE_k) over Σ w_k, both over the step.
    ///
    /// p_k is the target's distribution of the token at slot k, softmax(lm_head · s / τ) of its
    /// last hidden state s one position before; d_k is the drafter's at the same temperature. The
    /// factor τ² keeps gradients of one size at any temperature (Hinton et al. 2015).
    Distillation {
        /// Temperature τ of both distributions.
        temperature: f64,
        /// Share h of the cross entropy with the data's tokens, from 0 to 1.
        hard_share: f64,
    },
}

impl Objective {
    /// D-PACE as published.
    pub const D_PACE: Self = Self::DPace { alpha: 0.5 };

    /// The target's distribution alone, as it is.
    pub const DISTILLATION: Self = Self::Distillation {
        temperature: 1.0,
        hard_share: 0.0,
    };

    /// Whether the target must hand over its last hidden state too.
    pub fn needs_last_hidden(&self) -> bool {
        matches!(self, Self::Distillation { .. })
    }
}
