//! Forward and backward pass of one microbatch, written out.
//!
//! Two shortcuts change no result. The first layer's input rows are few: the anchors' tokens and one mask token, so its projections
//! work on those and attention's inputs are spread over the slots afterwards. What follows the last layer's attention is needed in
//! supervised slots only.

mod backward;
mod forward;
mod head;

use half::bf16;

use super::attention::{Attended, Heads, Rows, Sights};
use super::layout::LayerLayout;
use super::ops::{HeadRows, HeadWeights};
use super::plan::Plan;
use super::{CudaDrafter, Given};
use crate::cuda::{CudaError, Matrix, Ptr};

type Done = Result<(), CudaError>;

/// Rows of a layer after its attention: all slots, or the supervised ones in the last layer.
#[derive(Debug, Clone, Copy)]
struct After {
    rows: usize,
    last: bool,
}

impl CudaDrafter {
    /// Gradients of one microbatch are added to those of the step.
    pub(super) fn pass(&mut self, given: Given, plan: &Plan) -> Done {
        self.final_hidden(given.features, plan)?;
        self.head(given.last_hidden, plan)?;
        self.backward(given.features, plan)
    }

    /// Attention's output in the rows that follow it. In the last layer they are gathered into the gradients' place, which is free until
    /// attention's backward pass.
    fn attended_rows(&self, layer: usize, plan: &Plan) -> Result<Ptr<bf16>, CudaError> {
        let a = &self.memory.activations;
        let attended = a.layers[layer].attended.ptr();
        let After { rows, last } = self.after(layer, plan);
        if !last {
            return Ok(attended);
        }
        let gathered = a.for_qkv.ptr();
        self.ops.gather(
            attended,
            self.list(plan.targets),
            gathered,
            rows,
            self.shape.queries(),
        )?;
        Ok(gathered)
    }

    fn after(&self, layer: usize, plan: &Plan) -> After {
        let last = layer + 1 == self.shape.layers;
        let rows = if last {
            plan.supervised_padded
        } else {
            plan.slots
        };
        After { rows, last }
    }

    fn slot_heads(&self, layer: usize, plan: &Plan) -> HeadRows {
        let s = &self.shape;
        HeadRows {
            raw: self.memory.activations.layers[layer].qkv.ptr(),
            raw_pitch: s.qkv(),
            from: (layer == 0).then(|| self.list(plan.distinct_of)),
            positions: self.list(plan.positions),
            rows: plan.slots,
            queries: s.heads,
            keys: s.key_heads,
            // Only the first layer's values are not in the slots' own rows.
            values: if layer == 0 { s.key_heads } else { 0 },
        }
    }

    fn context_heads(&self, layer: usize, plan: &Plan) -> HeadRows {
        HeadRows {
            raw: self.memory.activations.layers[layer].context_kv.ptr(),
            raw_pitch: 2 * self.shape.keys(),
            from: None,
            positions: self.list(plan.context_positions),
            rows: plan.context,
            queries: 0,
            keys: self.shape.key_heads,
            values: 0,
        }
    }

    fn heads(&self, layer: usize, plan: &Plan) -> Heads {
        let (s, a) = (&self.shape, &self.memory.activations);
        let slots = |ptr: Ptr<bf16>, first: usize| Rows {
            ptr: ptr.at(first..ptr.len()),
            pitch: s.qkv(),
            rows: plan.slots,
        };
        let context = |ptr: Ptr<bf16>, first: usize, pitch: usize| Rows {
            ptr: ptr.at(first..ptr.len()),
            pitch,
            rows: plan.context,
        };
        let (turned, raw) = (a.turned.ptr(), a.layers[layer].qkv.ptr());
        let values = if layer == 0 { turned } else { raw };
        Heads {
            queries: slots(turned, 0),
            slot_keys: slots(turned, s.queries()),
            slot_values: slots(values, s.queries() + s.keys()),
            context_keys: context(a.context_keys.ptr(), 0, s.keys()),
            context_values: context(a.layers[layer].context_kv.ptr(), s.keys(), 2 * s.keys()),
        }
    }

    fn attended(&self, layer: usize) -> Attended {
        let tape = &self.memory.activations.layers[layer];
        Attended {
            out: tape.attended.ptr(),
            log_sum: tape.log_sum.ptr(),
        }
    }

    fn sights(&self, plan: &Plan) -> Sights {
        Sights {
            shares: self.list(plan.shares),
            key_shares: self.list(plan.key_shares),
            anchors: self.list(plan.anchors),
            sights: self.list(plan.sights),
            slots: plan.slots,
        }
    }

    fn head_weights(&self, layer: usize) -> HeadWeights {
        let w = &self.layout.layers[layer];
        HeadWeights {
            q: self.weight(&w.q_norm),
            k: self.weight(&w.k_norm),
            turns: self.memory.activations.turns.ptr(),
        }
    }

    /// The part of the joint weights that makes keys and values [2 · keys, H].
    fn key_weights(&self, w: &LayerLayout) -> Matrix<bf16> {
        let s = &self.shape;
        let all = self.narrow(&w.qkv);
        Matrix::new(
            all.at(s.queries() * s.hidden..all.len()),
            2 * s.keys(),
            s.hidden,
        )
    }
}
