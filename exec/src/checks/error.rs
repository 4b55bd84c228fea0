//! What can be wrong with hidden states.

use crate::model::ModelError;

/// Why hidden states were refused. Nothing was trained from them.
#[derive(Debug, thiserror::Error)]
pub enum BadStates {
    /// Other rows than the microbatch has, or other features than the drafter reads.
    #[error(
        "hidden states of {have:?} rows and features, the microbatch and the drafter need {want:?}; \
         look at what packs them"
    )]
    Shape {
        /// Rows and features a token.
        have: (usize, usize),
        /// What they must be.
        want: (usize, usize),
    },
    /// Fewer tokens than a row holds.
    #[error(
        "hidden states of row {row} end after {have} of its {want} tokens; raise what limits the \
         target's context"
    )]
    Truncated {
        /// The row, from 0.
        row: usize,
        /// Tokens there are.
        have: usize,
        /// Tokens of the row.
        want: usize,
    },
    /// A number that is none.
    #[error(
        "hidden states of row {row} hold {value} at token {position}; look at the target's weights \
         and at its dtype"
    )]
    NotFinite {
        /// The row, from 0.
        row: usize,
        /// The token, from 0.
        position: usize,
        /// NaN or an infinity.
        value: f64,
    },
    /// The states of another row.
    #[error(
        "hidden states of row {row} are those of row {holds}; the target or the way from it mixes \
         rows up"
    )]
    SwappedRows {
        /// The row, from 0.
        row: usize,
        /// Whose states it holds.
        holds: usize,
    },
    /// States of other text.
    #[error(
        "hidden states of row {row} were computed from other token ids than the microbatch's, from \
         token {from} on or before; look at the target's tokenizer, template and prefix cache"
    )]
    OtherTokens {
        /// The row, from 0.
        row: usize,
        /// The first token whose states differ; 0 where only the stamp is known.
        from: usize,
    },
    /// The right layers in another order.
    #[error(
        "hidden states of target layers {have:?}, the drafter reads them in the order {want:?}; \
         concatenate them in that order"
    )]
    LayerOrder {
        /// Layers in the order found.
        have: Vec<usize>,
        /// The order of the drafter's config.
        want: Vec<usize>,
    },
    /// Other layers.
    #[error(
        "hidden states of target layers {have:?}, the drafter reads {want:?}; capture the layers of \
         its config, counted from 0 after the embedding"
    )]
    OtherLayers {
        /// Layers found.
        have: Vec<usize>,
        /// Those of the drafter's config.
        want: Vec<usize>,
    },
    /// States that stand at neighbouring positions.
    #[error(
        "hidden states of row {row} stand {} token {}, so that the context of a block {}; look at \
         how positions are counted",
        by.unsigned_abs(),
        if *by > 0 { "too early" } else { "too late" },
        if *by > 0 { "holds its anchor's own state" } else { "lacks the state before its anchor" }
    )]
    Shifted {
        /// The row, from 0.
        row: usize,
        /// State p is that of token p + by.
        by: isize,
    },
    /// A last hidden state that the head does not fit, with right features beside it.
    #[error(
        "last hidden states of row {row} are {error:.1e} off, {allowed:.0e} allowed, beside right \
         features; they must be taken after the target's final norm"
    )]
    LastHidden {
        /// The row, from 0.
        row: usize,
        /// ‖given − recomputed‖ / ‖recomputed‖.
        error: f64,
        /// The most of it.
        allowed: f64,
    },
    /// None of the above.
    #[error(
        "hidden states of row {row} are {error:.1e} off what the target gives for it alone, \
         {allowed:.0e} allowed, worst at token {position}; look at dtypes and at what padding is \
         attended"
    )]
    Drift {
        /// The row, from 0.
        row: usize,
        /// ‖given − recomputed‖ / ‖recomputed‖.
        error: f64,
        /// The most of it.
        allowed: f64,
        /// The token that is farthest off, from 0.
        position: usize,
    },
    /// The check itself could not be made.
    #[error(transparent)]
    Model(#[from] ModelError),
}

impl From<candle_core::Error> for BadStates {
    fn from(error: candle_core::Error) -> Self {
        Self::Model(error.into())
    }
}
