//! Sliding layers of a new drafter.

use super::{DrafterSection, OutOfRange};
use crate::model::SlidingAttention;

impl DrafterSection {
    /// The layers that slide, if any.
    pub fn sliding(&self) -> Option<SlidingAttention> {
        (self.sliding_window > 0).then(|| {
            SlidingAttention::all_but_last(
                self.layers,
                self.full_layers,
                self.sliding_window,
                self.sliding_causal,
            )
        })
    }

    /// What is wrong with them, one entry a key.
    pub(super) fn sliding_problems(&self) -> impl Iterator<Item = OutOfRange> + use<> {
        let slides = self.sliding_window > 0;
        let narrow = (slides && self.sliding_window < self.block_size).then(|| OutOfRange {
            key: "exec.drafter.sliding_window",
            value: self.sliding_window.to_string(),
            limit: format!(
                "must hold a block of exec.drafter.block_size = {}",
                self.block_size
            ),
            way_out: "use 2048, or 0 for full attention in every layer",
        });
        let none = (slides && self.full_layers >= self.layers).then(|| OutOfRange {
            key: "exec.drafter.full_layers",
            value: self.full_layers.to_string(),
            limit: format!("must be below exec.drafter.layers = {}", self.layers),
            way_out: "lower it, or set exec.drafter.sliding_window = 0",
        });
        narrow.into_iter().chain(none)
    }
}
