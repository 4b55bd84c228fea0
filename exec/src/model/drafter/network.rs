//! The drafter's forward and backward passes.

use candle_core::{Result, Tensor};

use super::Drafter;
use super::attention::Extent;
use super::layer::{LayerTape, Surroundings};
use crate::model::ops::{Normed, linear, linear_weight_gradient, rms_norm};
use crate::model::{HiddenStates, ModelError, Tensors};
use crate::train::BlockPlan;

/// Everything that a backward pass needs from its forward pass.
pub(crate) struct Tape {
    surroundings: Surroundings,
    /// The context's captured features as rows [B·S, K·H].
    features: Tensor,
    context: Normed,
    layers: Vec<LayerTape>,
    norm: Normed,
}

impl Tape {
    /// Hidden states of all slots after the final norm [B·A·T, H].
    pub(crate) fn hidden(&self) -> &Tensor {
        &self.norm.y
    }
}

impl Drafter {
    /// Runs all slots of a plan with at least one block slot.
    ///
    /// Errors: hidden states of other rows or widths than the plan and the config say, or with
    /// fewer tokens than the last anchor needs.
    pub(crate) fn forward(
        &self,
        states: &HiddenStates,
        plan: &BlockPlan,
    ) -> std::result::Result<Tape, ModelError> {
        let (rows, blocks, slots) = plan.shape();
        // Nothing at or behind the last anchor is ever seen.
        let context = plan.reach().max(1);
        self.check_states(states, rows, context)?;
        let g = &self.config.geometry;
        let extent = Extent {
            rows,
            context,
            blocks,
            slots,
            kv_heads: g.num_key_value_heads,
            group: g.num_attention_heads / g.num_key_value_heads,
            head_dim: g.head_dim,
        };
        let (dtype, device) = (self.embed.dtype(), self.device());
        let surroundings = Surroundings::new(
            extent,
            plan.positions(),
            plan.starts(),
            &self.config,
            dtype,
            device,
        )?;
        let features = states.features.narrow(1, 0, context)?.to_dtype(dtype)?;
        let features = features.contiguous()?.reshape((rows * context, ()))?;
        let context = linear(&features, &self.weights["fc.weight"])?;
        let context = rms_norm(
            &context,
            &self.weights["hidden_norm.weight"],
            g.rms_norm_eps,
        )?;
        let tokens = Tensor::new(plan.tokens(), device)?;
        let mut x = self.embed.index_select(&tokens, 0)?;
        let mut layers = Vec::with_capacity(self.layers.len());
        for layer in &self.layers {
            let (y, tape) = layer.forward(&x, &context.y, &surroundings)?;
            layers.push(tape);
            x = y;
        }
        let norm = rms_norm(&x, &self.weights["norm.weight"], g.rms_norm_eps)?;
        Ok(Tape {
            surroundings,
            features,
            context,
            layers,
            norm,
        })
    }

    /// Gradients of all weights from the gradient g [B·A·T, H] of [`Tape::hidden`].
    pub(crate) fn backward(&self, tape: Tape, g: &Tensor) -> Result<Tensors> {
        let mut gradients = Tensors::new();
        let (mut g, norm) = tape.norm.backward(g, &self.weights["norm.weight"])?;
        gradients.insert("norm.weight".to_owned(), norm);
        let (c, s) = (&tape.context.y, &tape.surroundings);
        let mut for_context: Option<Tensor> = None;
        // Consuming the tapes frees each layer's activations as soon as they are used.
        for (n, layer_tape) in tape.layers.into_iter().enumerate().rev() {
            let of_layer = self.layers[n].backward(&layer_tape, c, &g, s)?;
            g = of_layer.x.clone();
            for_context = Some(match for_context {
                None => of_layer.context.clone(),
                Some(sum) => (sum + &of_layer.context)?,
            });
            of_layer.name_into(&mut gradients, n, &self.config.geometry);
        }
        let for_context = match for_context {
            Some(sum) => sum,
            None => c.zeros_like()?,
        };
        let (g_fused, hidden_norm) = tape
            .context
            .backward(&for_context, &self.weights["hidden_norm.weight"])?;
        gradients.insert("hidden_norm.weight".to_owned(), hidden_norm);
        let fc = linear_weight_gradient(&g_fused, &tape.features)?;
        gradients.insert("fc.weight".to_owned(), fc);
        Ok(gradients)
    }

    fn check_states(
        &self,
        states: &HiddenStates,
        rows: usize,
        context: usize,
    ) -> std::result::Result<(), ModelError> {
        let (have_rows, have_tokens, have_width) = states.features.dims3()?;
        let width = self.config.target_layer_ids.len() * self.config.geometry.hidden_size;
        let problem = if have_rows != rows {
            format!("hidden states of {have_rows} rows for a plan of {rows}")
        } else if have_width != width {
            format!("hidden states {have_width} wide, the drafter reads {width}")
        } else if have_tokens < context {
            format!("hidden states of {have_tokens} tokens, the last anchor needs {context}")
        } else {
            return Ok(());
        };
        Err(ModelError::Batch { row: 0, problem })
    }
}
