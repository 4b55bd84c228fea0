//! Forward and backward pass of one microbatch, written out.
//!
//! Two shortcuts change no result. The first layer's input rows are few: the anchors' tokens and one mask token, so its projections
//! work on those and attention's inputs are spread over the slots afterwards. What follows the last layer's attention is needed in
//! supervised slots only.

use half::bf16;

use super::CudaDrafter;
use super::attention::{Attended, HeadGradients, Heads, Rows, Sights};
use super::layout::LayerLayout;
use super::ops::{Chunk, HeadRows, HeadWeights, NormBackward};
use super::plan::{List, Plan};
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
    pub(super) fn pass(&mut self, features: Ptr<bf16>, plan: &Plan) -> Done {
        self.final_hidden(features, plan)?;
        self.head(plan)?;
        self.backward(features, plan)
    }

    /// Hidden states of the supervised slots after the final norm.
    pub(super) fn final_hidden(
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
            &self.heads(layer, plan),
            &self.sights(plan),
            &self.attended(layer),
        )
    }

    /// Turned queries and keys of a layer, from what its projections gave.
    fn turn(&self, layer: usize, plan: &Plan) -> Done {
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

    /// Head and loss of the supervised slots; leaves the gradient of the norm's output in `for_normed`.
    fn head(&mut self, plan: &Plan) -> Done {
        let s = self.shape;
        let a = &self.memory.activations;
        let (normed, gradient, logits) = (a.normed.ptr(), a.for_normed.ptr(), a.logits.ptr());
        let (losses, hits) = (a.losses.ptr(), a.hits.ptr());
        let (loss, counts) = (self.memory.state.loss.ptr(), self.memory.state.counts.ptr());
        let rows = plan.supervised_padded;
        self.stream.zero(hits.at(0..plan.slots))?;
        let head = Matrix::new(self.frozen.lm_head.ptr(), s.vocab, s.hidden);
        let step = self.limits.logits_max;
        for first in (0..rows).step_by(step) {
            let count = step.min(rows - first);
            let part = |list: List| self.list(list).at(first..first + count);
            let chunk = Chunk {
                targets: part(plan.targets),
                labels: part(plan.labels),
                weights: part(plan.weights).cast(),
                losses: losses.at(first..first + count),
                rows: count,
            };
            let of_chunk = |all: Ptr<bf16>| {
                let from = all.at(first * s.hidden..(first + count) * s.hidden);
                Matrix::new(from, count, s.hidden)
            };
            let scores = Matrix::new(logits, count, s.vocab).with_pitch(s.logits_pitch());
            self.gemm
                .multiply(&self.stream, of_chunk(normed), head.t(), scores, [1.0, 0.0])?;
            self.ops.cross_entropy(logits, &chunk, hits)?;
            self.gemm
                .multiply(&self.stream, scores, head, of_chunk(gradient), [1.0, 0.0])?;
        }
        self.ops
            .add_sums_of(losses, plan.supervised, loss, hits, plan.blocks, counts)
    }

    fn backward(&mut self, features: Ptr<bf16>, plan: &Plan) -> Done {
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
            .backward(&heads, &sights, &attended, a.for_attended.ptr(), &to)?;
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
        let (weights, partial, keep) = (self.head_weights(layer), a.partial.ptr(), self.keep());
        let (q, k) = (self.gradient(&w.q_norm), self.gradient(&w.k_norm));
        let slots = HeadRows {
            values: 0,
            ..self.slot_heads(layer, plan)
        };
        self.ops.turn_back(
            &slots,
            &weights,
            a.for_qkv.ptr(),
            s.qkv(),
            partial,
            [Some(q), Some(k)],
            keep,
        )?;
        let context = self.context_heads(layer, plan);
        self.ops.turn_back(
            &context,
            &weights,
            a.for_context_kv.ptr(),
            2 * s.keys(),
            partial,
            [None, Some(k)],
            1.0,
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
