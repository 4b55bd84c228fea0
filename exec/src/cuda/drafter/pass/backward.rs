//! The backward pass.

use half::bf16;

use super::{After, CudaDrafter, Done};
use crate::cuda::drafter::attention::HeadGradients;
use crate::cuda::drafter::ops::{HeadRows, HeadSums, NormBackward};
use crate::cuda::drafter::plan::Plan;
use crate::cuda::{Matrix, Ptr};

impl CudaDrafter {
    pub(super) fn backward(&mut self, features: Ptr<bf16>, plan: &Plan) -> Done {
        let (s, norm) = (self.shape, self.layout.norm.clone());
        let a = &self.memory.activations;
        let (output, for_normed, partial) = (
            a.inputs[s.layers].ptr(),
            a.for_normed.ptr(),
            a.partial.ptr(),
        );
        // The output is not needed any more: its gradient takes its place.
        let of_norm = NormBackward {
            x: output,
            from: None,
            weight: self.weight(&norm),
            residual: None,
            dx: Some(output),
            y: None,
            rows: plan.supervised_padded,
        };
        self.ops.norm_backward(
            &of_norm,
            for_normed,
            partial,
            self.gradient(&norm),
            self.keep(),
        )?;
        for layer in (0..s.layers).rev() {
            self.feed_forward_backward(layer, plan)?;
            self.attend_backward(layer, plan)?;
        }
        self.fuse_backward(features, plan)
    }

    /// The gradient of the residual stream behind attention: of supervised slots in the last layer, of all in the others.
    fn stream_gradient(&self, last: bool) -> Ptr<bf16> {
        let a = &self.memory.activations;
        match last {
            true => a.inputs[self.shape.layers].ptr(),
            false => a.gradient.ptr(),
        }
    }

    fn feed_forward_backward(&mut self, layer: usize, plan: &Plan) -> Done {
        let (s, w, keep) = (self.shape, self.layout.layers[layer].clone(), self.keep());
        let After { rows, last } = self.after(layer, plan);
        let a = &self.memory.activations;
        let tape = &a.layers[layer];
        let (middle, gate_up) = (tape.middle.ptr(), tape.gate_up.ptr());
        let (normed, for_normed, inner) = (a.normed.ptr(), a.for_normed.ptr(), a.inner.ptr());
        let (g, partial) = (self.stream_gradient(last), a.partial.ptr());

        let gradient = Matrix::new(g, rows, s.hidden);
        let weight = Matrix::new(self.narrow(&w.down), s.hidden, s.inner);
        let product = Matrix::new(inner, rows, s.inner);
        self.gemm
            .multiply(&self.stream, gradient, weight, product, [1.0, 0.0])?;
        self.ops.swiglu_backward(gate_up, inner, rows)?;
        let to = Matrix::new(self.gradient(&w.down), s.hidden, s.inner);
        self.gemm
            .multiply(&self.stream, gradient.t(), product, to, [1.0, keep])?;

        let both = Matrix::new(gate_up, rows, 2 * s.inner);
        let weight = Matrix::new(self.narrow(&w.gate_up), 2 * s.inner, s.hidden);
        let to = Matrix::new(for_normed, rows, s.hidden);
        self.gemm
            .multiply(&self.stream, both, weight, to, [1.0, 0.0])?;
        let norm = NormBackward {
            x: middle,
            from: None,
            weight: self.weight(&w.post_norm),
            residual: Some(g),
            dx: Some(g),
            y: Some(normed),
            rows,
        };
        self.ops.norm_backward(
            &norm,
            for_normed,
            partial,
            self.gradient(&w.post_norm),
            keep,
        )?;
        let to = Matrix::new(self.gradient(&w.gate_up), 2 * s.inner, s.hidden);
        let normed = Matrix::new(normed, rows, s.hidden);
        self.gemm
            .multiply(&self.stream, both.t(), normed, to, [1.0, keep])
    }

    /// Output projection, attention and its inputs. Leaves the gradient of the layer's input in `gradient`, and adds that of the context.
    fn attend_backward(&mut self, layer: usize, plan: &Plan) -> Done {
        self.output_backward(layer, plan)?;
        let a = &self.memory.activations;
        let to = HeadGradients {
            of_slots: a.for_qkv.ptr(),
            of_context: a.for_context_kv.ptr(),
            means: a.means.ptr(),
        };
        self.turn(layer, plan)?;
        let (heads, sights, attended) = (
            self.heads(layer, plan),
            self.sights(plan),
            self.attended(layer),
        );
        self.attention
            .backward(layer, &heads, &sights, &attended, a.for_attended.ptr(), &to)?;
        self.turn_backward(layer, plan)?;
        self.context_backward(layer, plan)?;
        if layer == 0 {
            self.first_inputs_backward(plan)
        } else {
            self.inputs_backward(layer, plan)
        }
    }

    /// The output projection: the gradient of attention's output goes to `for_attended`, that of the residual to `gradient`.
    fn output_backward(&mut self, layer: usize, plan: &Plan) -> Done {
        let (s, w, keep) = (self.shape, self.layout.layers[layer].clone(), self.keep());
        let After { rows, last } = self.after(layer, plan);
        let a = &self.memory.activations;
        let (for_attended, turned, gradient) =
            (a.for_attended.ptr(), a.turned.ptr(), a.gradient.ptr());
        let g = Matrix::new(self.stream_gradient(last), rows, s.hidden);
        // In the last layer the rows of supervised slots are formed apart and then put among the others, whose gradient is zero.
        let to = if last { turned } else { for_attended };
        let weight = Matrix::new(self.narrow(&w.output), s.hidden, s.queries());
        self.gemm.multiply(
            &self.stream,
            g,
            weight,
            Matrix::new(to, rows, s.queries()),
            [1.0, 0.0],
        )?;
        if last {
            let (targets, count) = (self.list(plan.targets), plan.supervised);
            self.stream
                .zero(for_attended.at(0..plan.slots * s.queries()))?;
            self.ops
                .scatter(turned, targets, for_attended, count, s.queries())?;
            self.stream.zero(gradient.at(0..plan.slots * s.hidden))?;
            self.ops.scatter(
                self.stream_gradient(last),
                targets,
                gradient,
                count,
                s.hidden,
            )?;
        }
        let attended = Matrix::new(self.attended_rows(layer, plan)?, rows, s.queries());
        let to = Matrix::new(self.gradient(&w.output), s.hidden, s.queries());
        self.gemm
            .multiply(&self.stream, g.t(), attended, to, [1.0, keep])
    }

    /// Norm and rope of heads, in place over their gradients.
    fn turn_backward(&self, layer: usize, plan: &Plan) -> Done {
        let (s, a, w) = (
            &self.shape,
            &self.memory.activations,
            &self.layout.layers[layer],
        );
        let weights = self.head_weights(layer);
        let sums = HeadSums {
            partial: a.partial.ptr(),
            for_q: Some(self.gradient(&w.q_norm)),
            for_k: self.gradient(&w.k_norm),
            keep: self.keep(),
        };
        let slots = HeadRows {
            values: 0,
            ..self.slot_heads(layer, plan)
        };
        self.ops
            .turn_back(&slots, &weights, a.for_qkv.ptr(), s.qkv(), &sums)?;
        let context = self.context_heads(layer, plan);
        let onto = HeadSums {
            for_q: None,
            keep: 1.0,
            ..sums
        };
        self.ops.turn_back(
            &context,
            &weights,
            a.for_context_kv.ptr(),
            2 * s.keys(),
            &onto,
        )
    }

    /// Keys and values of the context. The slots' share of these weights is added by what follows.
    fn context_backward(&mut self, layer: usize, plan: &Plan) -> Done {
        let (s, w, keep) = (self.shape, self.layout.layers[layer].clone(), self.keep());
        let a = &self.memory.activations;
        let kv = Matrix::new(a.for_context_kv.ptr(), plan.context, 2 * s.keys());
        let to = Matrix::new(a.for_context.ptr(), plan.context, s.hidden);
        let context = Matrix::new(a.context.ptr(), plan.context, s.hidden);
        let first = if layer + 1 == s.layers { 0.0 } else { 1.0 };
        self.gemm
            .multiply(&self.stream, kv, self.key_weights(&w), to, [1.0, first])?;
        let all = self.gradient(&w.qkv);
        let keys = Matrix::new(
            all.at(s.queries() * s.hidden..all.len()),
            2 * s.keys(),
            s.hidden,
        );
        self.gemm
            .multiply(&self.stream, kv.t(), context, keys, [1.0, keep])?;
        if keep == 0.0 {
            // What follows adds to queries, keys and values alike.
            self.stream.zero(all.at(0..s.queries() * s.hidden))?;
        }
        Ok(())
    }

    fn inputs_backward(&mut self, layer: usize, plan: &Plan) -> Done {
        let (s, w, keep) = (self.shape, self.layout.layers[layer].clone(), self.keep());
        let a = &self.memory.activations;
        let (g, normed, for_normed, partial) = (
            a.gradient.ptr(),
            a.normed.ptr(),
            a.for_normed.ptr(),
            a.partial.ptr(),
        );
        let input = a.inputs[layer].ptr();
        let qkv = Matrix::new(a.for_qkv.ptr(), plan.slots, s.qkv());
        let weight = Matrix::new(self.narrow(&w.qkv), s.qkv(), s.hidden);
        let to = Matrix::new(for_normed, plan.slots, s.hidden);
        self.gemm
            .multiply(&self.stream, qkv, weight, to, [1.0, 0.0])?;
        let norm = NormBackward {
            x: input,
            from: None,
            weight: self.weight(&w.input_norm),
            residual: Some(g),
            dx: Some(g),
            y: Some(normed),
            rows: plan.slots,
        };
        self.ops.norm_backward(
            &norm,
            for_normed,
            partial,
            self.gradient(&w.input_norm),
            keep,
        )?;
        let to = Matrix::new(self.gradient(&w.qkv), s.qkv(), s.hidden);
        let normed = Matrix::new(normed, plan.slots, s.hidden);
        self.gemm
            .multiply(&self.stream, qkv.t(), normed, to, [1.0, 1.0])
    }

    /// The first layer's inputs are frozen rows of the embedding, one for all masks: the gradients of the slots that share a row are
    /// summed, and none flows on.
    fn first_inputs_backward(&mut self, plan: &Plan) -> Done {
        let (s, w, keep) = (self.shape, self.layout.layers[0].clone(), self.keep());
        let a = &self.memory.activations;
        let (normed, for_normed, partial) = (a.normed.ptr(), a.for_normed.ptr(), a.partial.ptr());
        let (embed, distinct) = (self.frozen.embed.ptr(), self.list(plan.distinct));
        let (merged, rows) = (a.turned.ptr(), plan.blocks + 1);
        let first_slots = self.list(plan.first_slots);
        self.ops.merge_masked(
            a.for_qkv.ptr(),
            first_slots,
            partial,
            merged,
            plan.blocks,
            s.qkv(),
        )?;
        let qkv = Matrix::new(merged, rows, s.qkv());
        let weight = Matrix::new(self.narrow(&w.qkv), s.qkv(), s.hidden);
        let to = Matrix::new(for_normed, rows, s.hidden);
        self.gemm
            .multiply(&self.stream, qkv, weight, to, [1.0, 0.0])?;
        let norm = NormBackward {
            x: embed,
            from: Some(distinct),
            weight: self.weight(&w.input_norm),
            residual: None,
            dx: None,
            y: Some(normed),
            rows,
        };
        self.ops.norm_backward(
            &norm,
            for_normed,
            partial,
            self.gradient(&w.input_norm),
            keep,
        )?;
        let to = Matrix::new(self.gradient(&w.qkv), s.qkv(), s.hidden);
        let normed = Matrix::new(normed, rows, s.hidden);
        self.gemm
            .multiply(&self.stream, qkv.t(), normed, to, [1.0, 1.0])
    }

    /// The context's norm and the projection of the features, which are frozen.
    fn fuse_backward(&mut self, features: Ptr<bf16>, plan: &Plan) -> Done {
        let (s, keep) = (self.shape, self.keep());
        let (fuse, hidden_norm) = (self.layout.fuse.clone(), self.layout.hidden_norm.clone());
        let a = &self.memory.activations;
        let (fused, partial) = (a.fused.ptr(), a.partial.ptr());
        // The normalised context is not needed any more.
        let for_fused = a.context.ptr();
        let norm = NormBackward {
            x: fused,
            from: None,
            weight: self.weight(&hidden_norm),
            residual: None,
            dx: Some(for_fused),
            y: None,
            rows: plan.context,
        };
        self.ops.norm_backward_wide(
            &norm,
            a.for_context.ptr(),
            for_fused,
            partial,
            self.gradient(&hidden_norm),
            keep,
        )?;
        let to = Matrix::new(self.gradient(&fuse), s.hidden, s.features);
        let g = Matrix::new(for_fused, plan.context, s.hidden);
        let features = Matrix::new(features, plan.context, s.features);
        self.gemm
            .multiply(&self.stream, g.t(), features, to, [1.0, keep])
    }
}
