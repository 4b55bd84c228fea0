//! One drafter layer and its derivative.

use candle_core::{DType, Device, Result, Tensor};

use super::attention::{AttentionTape, Extent, Heads, attend};
use super::sight::Sight;
use crate::model::Tensors;
use crate::model::config::{DrafterConfig, Geometry};
use crate::model::layer::{FeedForwardTape, LayerWeights, feed_forward};
use crate::model::ops::{Normed, Rope, linear, linear_weight_gradient, rms_norm};

/// What all layers of one forward share.
pub(super) struct Surroundings {
    pub(super) extent: Extent,
    /// Rotary tables of the context [1, 1, S, D].
    context_rope: Rope,
    /// Rotary tables of keys inside blocks [B, 1, A, T, D].
    key_rope: Rope,
    /// Rotary tables of queries [B, 1, A, 1, T, D].
    query_rope: Rope,
    /// What slots see in full layers.
    full: Sight,
    /// What they see in sliding layers, and which layers those are.
    sliding: Option<(Sight, Vec<bool>)>,
    eps: f64,
    scale: f64,
}

impl Surroundings {
    /// `positions` are those of all slots [B·A·T], `starts` those of all anchors [B·A]; a dropped
    /// block starts at 0 and so sees no context. `dtype` is that of the computation.
    pub(super) fn new(
        extent: Extent,
        positions: &[u32],
        starts: &[u32],
        config: &DrafterConfig,
        dtype: DType,
        device: &Device,
    ) -> Result<Self> {
        let g = &config.geometry;
        let Extent {
            rows,
            context,
            blocks,
            slots,
            head_dim,
            ..
        } = extent;
        let rope = |at: &[u32], shape: &[usize]| {
            Rope::new(at, shape, head_dim, g.rope_theta, device)?.to_dtype(dtype)
        };
        let reach: Vec<u32> = (0..context as u32).collect();
        let sliding = match &config.sliding {
            None => None,
            Some(s) => {
                let (window, causal) = (s.window, s.causal);
                let sight =
                    Sight::sliding(&extent, starts, positions, window, causal, dtype, device)?;
                Some((sight, s.layers.clone()))
            }
        };
        Ok(Self {
            context_rope: rope(&reach, &[1, 1, context])?,
            key_rope: rope(positions, &[rows, 1, blocks, slots])?,
            query_rope: rope(positions, &[rows, 1, blocks, 1, slots])?,
            full: Sight::full(&extent, starts, dtype, device)?,
            sliding,
            eps: g.rms_norm_eps,
            scale: (g.head_dim as f64).powf(-0.5),
            extent,
        })
    }

    /// What slots see in layer n.
    fn sight(&self, n: usize) -> &Sight {
        match &self.sliding {
            Some((sight, layers)) if layers.get(n) == Some(&true) => sight,
            _ => &self.full,
        }
    }

    /// Context rows [B·S, kv·D] as [B, kv, S, D].
    fn context_heads(&self, x: &Tensor) -> Result<Tensor> {
        let e = &self.extent;
        let split = (e.rows, e.context, e.kv_heads, e.head_dim);
        x.reshape(split)?.transpose(1, 2)?.contiguous()
    }

    fn context_rows(&self, x: &Tensor) -> Result<Tensor> {
        x.transpose(1, 2)?
            .contiguous()?
            .reshape(((), self.extent.kv_heads * self.extent.head_dim))
    }

    /// Slot rows [B·A·T, kv·D] as [B, kv, A, T, D].
    fn key_heads(&self, x: &Tensor) -> Result<Tensor> {
        let e = &self.extent;
        let split = (e.rows, e.blocks, e.slots, e.kv_heads, e.head_dim);
        x.reshape(split)?.permute((0, 3, 1, 2, 4))?.contiguous()
    }

    fn key_rows(&self, x: &Tensor) -> Result<Tensor> {
        let rows = x.permute((0, 2, 3, 1, 4))?.contiguous()?;
        rows.reshape(((), self.extent.kv_heads * self.extent.head_dim))
    }

    /// Slot rows [B·A·T, kv·G·D] as [B, kv, A, G, T, D].
    fn query_heads(&self, x: &Tensor) -> Result<Tensor> {
        let e = &self.extent;
        let split = [e.rows, e.blocks, e.slots, e.kv_heads, e.group, e.head_dim];
        x.reshape(&split)?
            .permute(vec![0, 3, 1, 4, 2, 5])?
            .contiguous()
    }

    fn query_rows(&self, x: &Tensor) -> Result<Tensor> {
        let rows = x.permute(vec![0, 2, 4, 1, 3, 5])?.contiguous()?;
        rows.reshape((
            (),
            self.extent.kv_heads * self.extent.group * self.extent.head_dim,
        ))
    }
}

/// The weights of one layer.
#[derive(Debug, Clone)]
pub(super) struct DrafterLayer {
    /// Its number, from 0.
    n: usize,
    w: LayerWeights,
}

/// What the derivative of one layer needs.
pub(super) struct LayerTape {
    norm: Normed,
    q_norm: Normed,
    context_k_norm: Normed,
    block_k_norm: Normed,
    attention: AttentionTape,
    /// Attention's output as rows [N, heads·D].
    mixed: Tensor,
    feed_forward: FeedForwardTape,
}

/// Gradients of one layer.
pub(super) struct LayerGradients {
    /// Of the slots [N, H].
    pub(super) x: Tensor,
    /// Of the context [B·S, H].
    pub(super) context: Tensor,
    weights: LayerWeights,
}

impl LayerGradients {
    /// Files the gradients of the weights of layer n under their names.
    pub(super) fn name_into(self, gradients: &mut Tensors, n: usize, g: &Geometry) {
        self.weights.name_into(gradients, &prefix(n), g);
    }
}

impl DrafterLayer {
    pub(super) fn of(weights: &Tensors, n: usize, g: &Geometry) -> Self {
        Self {
            n,
            w: LayerWeights::of(weights, &prefix(n), g),
        }
    }

    /// Slots x [N, H] and context c [B·S, H] to slots [N, H]. The context gets no input norm and no
    /// query: it enters as keys and values through the same projections as the slots.
    pub(super) fn forward(
        &self,
        x: &Tensor,
        c: &Tensor,
        s: &Surroundings,
    ) -> Result<(Tensor, LayerTape)> {
        let w = &self.w;
        let per_head =
            |x: Tensor, norm: &Tensor| rms_norm(&x.reshape(((), s.extent.head_dim))?, norm, s.eps);
        let norm = rms_norm(x, &w.input_layernorm, s.eps)?;
        let q_norm = per_head(linear(&norm.y, &w.q_proj)?, &w.q_norm)?;
        let context_k_norm = per_head(linear(c, &w.k_proj)?, &w.k_norm)?;
        let block_k_norm = per_head(linear(&norm.y, &w.k_proj)?, &w.k_norm)?;
        let q = s.query_rope.rotate(&s.query_heads(&q_norm.y)?)?;
        let heads = Heads {
            q: q.affine(s.scale, 0.0)?,
            context_k: s
                .context_rope
                .rotate(&s.context_heads(&context_k_norm.y)?)?,
            context_v: s.context_heads(&linear(c, &w.v_proj)?)?,
            block_k: s.key_rope.rotate(&s.key_heads(&block_k_norm.y)?)?,
            block_v: s.key_heads(&linear(&norm.y, &w.v_proj)?)?,
        };
        let attention = attend(heads, s.sight(self.n), &s.extent)?;
        let mixed = s.query_rows(&attention.out)?;
        let x = (x + linear(&mixed, &w.o_proj)?)?;
        let (y, feed_forward) = feed_forward(&x, w, s.eps)?;
        let tape = LayerTape {
            norm,
            q_norm,
            context_k_norm,
            block_k_norm,
            attention,
            mixed,
            feed_forward,
        };
        Ok((y, tape))
    }

    /// Gradients from the gradient g [N, H] of the output.
    pub(super) fn backward(
        &self,
        tape: &LayerTape,
        c: &Tensor,
        g: &Tensor,
        s: &Surroundings,
    ) -> Result<LayerGradients> {
        let w = &self.w;
        let ff = tape.feed_forward.backward(g, w)?;
        let o_proj = linear_weight_gradient(&ff.x, &tape.mixed)?;
        let heads = s.query_heads(&ff.x.matmul(&w.o_proj)?)?;
        let heads = tape.attention.backward(&heads, &s.extent)?;

        let width = s.extent.head_dim;
        let per_head = |rows: Tensor, norm: &Normed, weight: &Tensor| -> Result<_> {
            let (g, for_weight) = norm.backward(&rows.reshape(((), width))?, weight)?;
            Ok((g, for_weight))
        };
        let q = s.query_rows(&s.query_rope.rotate_back(&heads.q.affine(s.scale, 0.0)?)?)?;
        let (g_q, q_norm) = per_head(q, &tape.q_norm, &w.q_norm)?;
        let k = s.context_rows(&s.context_rope.rotate_back(&heads.context_k)?)?;
        let (g_ck, context_k_norm) = per_head(k, &tape.context_k_norm, &w.k_norm)?;
        let k = s.key_rows(&s.key_rope.rotate_back(&heads.block_k)?)?;
        let (g_bk, block_k_norm) = per_head(k, &tape.block_k_norm, &w.k_norm)?;
        let kv_width = s.extent.kv_heads * width;
        let g_q = g_q.reshape(((), kv_width * s.extent.group))?;
        let (g_ck, g_bk) = (g_ck.reshape(((), kv_width))?, g_bk.reshape(((), kv_width))?);
        let (g_cv, g_bv) = (
            s.context_rows(&heads.context_v)?,
            s.key_rows(&heads.block_v)?,
        );

        let y = &tape.norm.y;
        let shared = |context: &Tensor, block: &Tensor| {
            linear_weight_gradient(context, c)? + linear_weight_gradient(block, y)?
        };
        let for_context = (g_ck.matmul(&w.k_proj)? + g_cv.matmul(&w.v_proj)?)?;
        let g_y =
            ((g_q.matmul(&w.q_proj)? + g_bk.matmul(&w.k_proj)?)? + g_bv.matmul(&w.v_proj)?)?;
        let (g_x, input_layernorm) = tape.norm.backward(&g_y, &w.input_layernorm)?;
        let weights = LayerWeights {
            input_layernorm,
            q_proj: linear_weight_gradient(&g_q, y)?,
            k_proj: shared(&g_ck, &g_bk)?,
            v_proj: shared(&g_cv, &g_bv)?,
            o_proj,
            q_norm,
            k_norm: (context_k_norm + block_k_norm)?,
            post_attention_layernorm: ff.norm,
            gate_proj: ff.gate,
            up_proj: ff.up,
            down_proj: ff.down,
        };
        Ok(LayerGradients {
            x: (ff.x + g_x)?,
            context: for_context,
            weights,
        })
    }
}

fn prefix(n: usize) -> String {
    format!("layers.{n}.")
}
