//! Sliding-window layers of a drafter.

use super::fields::Fields;
use super::{ModelError, refuse};

/// Which layers of a drafter see a window of the context only, and how.
///
/// In such a layer slot k of a block at anchor a sees context p with a + k − (window − 1) ≤ p < a.
/// Engines differ on the slots of the block itself, so the rule is part of the config: vLLM and
/// SGLang draft causally in sliding layers unless the config says otherwise, and SGLang always.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlidingAttention {
    /// Window (W), the slot's own position included, in tokens; no shorter than a block.
    pub window: usize,
    /// Whether a slot sees only itself and the slots before it in its block. Full layers always see
    /// the whole block.
    pub causal: bool,
    /// One entry a layer: whether it slides. At least one does.
    pub layers: Vec<bool>,
}

impl SlidingAttention {
    /// All of `layers` layers slide but the last `full`, as in the published drafters.
    pub fn all_but_last(layers: usize, full: usize, window: usize, causal: bool) -> Self {
        let slides = |n: usize| n + full < layers;
        Self {
            window,
            causal,
            layers: (0..layers).map(slides).collect(),
        }
    }

    /// Reads `layer_types`, `sliding_window` and the in-block rule; none when every layer is full.
    ///
    /// The rule is the first there is of `is_causal`, `dflash_config.causal` and the engines'
    /// default, causal.
    pub(super) fn read(f: &Fields, dflash: &Fields) -> Result<Option<Self>, ModelError> {
        let layers = f.sliding_layers()?;
        let slides = layers.contains(&true);
        let said = match (f.flag("is_causal")?, dflash.flag("causal")?) {
            (Some(causal), _) | (None, Some(causal)) => Some(causal),
            (None, None) => None,
        };
        if said == Some(true) && layers.contains(&false) {
            let problem = "would make full layers causal; leave it out, sliding layers are causal \
                           by default";
            return Err(refuse(f.file(), "is_causal", true, problem));
        }
        if !slides {
            return Ok(None);
        }
        Ok(Some(Self {
            window: f.size("sliding_window")?,
            causal: said.unwrap_or(true),
            layers,
        }))
    }

    /// Refuses windows that no block fits in, and lists that do not fit the drafter.
    pub(super) fn check(
        &self,
        file: &str,
        layers: usize,
        block_size: usize,
    ) -> Result<(), ModelError> {
        if self.window < block_size {
            let problem = format!("a block of block_size = {block_size} must fit in");
            return Err(refuse(file, "sliding_window", self.window, problem));
        }
        if self.layers.len() != layers {
            let problem = format!("expected {layers} entries, one a layer");
            return Err(refuse(file, "layer_types", self.layers.len(), problem));
        }
        if !self.layers.contains(&true) {
            let problem = "no layer slides; make it fewer than the drafter's layers";
            return Err(refuse(file, "full_layers", layers, problem));
        }
        Ok(())
    }
}
