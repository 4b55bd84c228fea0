//! The forward pass.

use half::bf16;

use super::{After, CudaDrafter, Done};
use crate::cuda::drafter::plan::Plan;
use crate::cuda::{CudaError, Matrix, Ptr};

impl CudaDrafter {
    /// Hidden states of the supervised slots after the final norm.
    pub(in crate::cuda::drafter) fn final_hidden(
        &mut self,
        features: Ptr<bf16>,
        plan: &Plan,
    ) -> Result<Ptr<bf16>, CudaError> {
        self.forward(features, plan)?;
        let (s, a) = (&self.shape, &self.memory.activations);
        let (output, normed) = (a.inputs[s.layers].ptr(), a.normed.ptr());
        self.ops.norm(
            output,
            None,
            self.weight(&self.layout.norm),
            normed,
            plan.supervised_padded,
        )?;
        Ok(normed)
    }

    fn forward(&mut self, features: Ptr<bf16>, plan: &Plan) -> Done {
        let (s, c) = (self.shape, plan.context);
        let (fuse, hidden_norm) = (self.layout.fuse.clone(), self.layout.hidden_norm.clone());
        let fused = self.activations().fused.ptr();
        let weight = Matrix::new(self.narrow(&fuse), s.hidden, s.features);
        let features = Matrix::new(features, c, s.features);
        let to = Matrix::new(fused, c, s.hidden);
        self.gemm
            .multiply(&self.stream, features, weight.t(), to, [1.0, 0.0])?;
        let context = self.activations().context.ptr();
        self.ops
            .norm(fused, None, self.weight(&hidden_norm), context, c)?;

        let (tokens, input) = (self.list(plan.tokens), self.activations().inputs[0].ptr());
        let embed = self.frozen.embed.ptr();
        self.ops
            .gather(embed, tokens, input, plan.slots, s.hidden)?;
        for layer in 0..s.layers {
            self.attend(layer, plan)?;
            self.feed_forward(layer, plan)?;
        }
        Ok(())
    }

    /// From a layer's input to attention's output.
    fn attend(&mut self, layer: usize, plan: &Plan) -> Done {
        let (s, w) = (self.shape, self.layout.layers[layer].clone());
        let a = &self.memory.activations;
        let tape = &a.layers[layer];
        let (normed, qkv, context_kv) = (a.normed.ptr(), tape.qkv.ptr(), tape.context_kv.ptr());
        let (input, context) = (a.inputs[layer].ptr(), a.context.ptr());
        let rows = if layer == 0 {
            let (embed, distinct) = (self.frozen.embed.ptr(), self.list(plan.distinct));
            self.ops.norm(
                embed,
                Some(distinct),
                self.weight(&w.input_norm),
                normed,
                plan.blocks + 1,
            )?;
            plan.blocks + 1
        } else {
            self.ops
                .norm(input, None, self.weight(&w.input_norm), normed, plan.slots)?;
            plan.slots
        };
        let weight = Matrix::new(self.narrow(&w.qkv), s.qkv(), s.hidden);
        let from = Matrix::new(normed, rows, s.hidden);
        let to = Matrix::new(qkv, rows, s.qkv());
        self.gemm
            .multiply(&self.stream, from, weight.t(), to, [1.0, 0.0])?;
        let from = Matrix::new(context, plan.context, s.hidden);
        let to = Matrix::new(context_kv, plan.context, 2 * s.keys());
        self.gemm
            .multiply(&self.stream, from, self.key_weights(&w).t(), to, [1.0, 0.0])?;
        self.turn(layer, plan)?;
        self.attention.forward(
            layer,
            &self.heads(layer, plan),
            &self.sights(plan),
            &self.attended(layer),
        )
    }

    /// Turned queries and keys of a layer, from what its projections gave.
    pub(super) fn turn(&self, layer: usize, plan: &Plan) -> Done {
        let (s, a) = (&self.shape, &self.memory.activations);
        let weights = self.head_weights(layer);
        self.ops.turn(
            &self.slot_heads(layer, plan),
            &weights,
            a.turned.ptr(),
            s.qkv(),
        )?;
        self.ops.turn(
            &self.context_heads(layer, plan),
            &weights,
            a.context_keys.ptr(),
            s.keys(),
        )
    }

    /// From attention's output to the layer's.
    fn feed_forward(&mut self, layer: usize, plan: &Plan) -> Done {
        let (s, w) = (self.shape, self.layout.layers[layer].clone());
        let After { rows, last } = self.after(layer, plan);
        let a = &self.memory.activations;
        let tape = &a.layers[layer];
        let (middle, gate_up) = (tape.middle.ptr(), tape.gate_up.ptr());
        let (normed, inner) = (a.normed.ptr(), a.inner.ptr());
        let (input, output) = (a.inputs[layer].ptr(), a.inputs[layer + 1].ptr());
        let attended = self.attended_rows(layer, plan)?;
        let onto = Matrix::new(self.narrow(&w.output), s.hidden, s.queries()).t();
        let from = Matrix::new(attended, rows, s.queries());
        let to = Matrix::new(middle, rows, s.hidden);
        if last {
            self.ops
                .gather(input, self.list(plan.targets), middle, rows, s.hidden)?;
            self.gemm
                .multiply(&self.stream, from, onto, to, [1.0, 1.0])?;
        } else {
            let residual = Matrix::new(input, rows, s.hidden);
            self.gemm
                .multiply_onto(&self.stream, from, onto, residual, to)?;
        }
        self.ops
            .norm(middle, None, self.weight(&w.post_norm), normed, rows)?;
        let weight = Matrix::new(self.narrow(&w.gate_up), 2 * s.inner, s.hidden);
        let from = Matrix::new(normed, rows, s.hidden);
        let both = Matrix::new(gate_up, rows, 2 * s.inner);
        self.gemm
            .multiply(&self.stream, from, weight.t(), both, [1.0, 0.0])?;
        self.ops.swiglu(gate_up, inner, rows)?;
        let weight = Matrix::new(self.narrow(&w.down), s.hidden, s.inner);
        let from = Matrix::new(inner, rows, s.inner);
        let output = Matrix::new(output, rows, s.hidden);
        self.gemm
            .multiply_onto(&self.stream, from, weight.t(), to, output)
    }
}
