//! The drafter's attention: each block sees context strictly before its anchor, and itself.
//!
//! A dense mask over [Q, S + Q] would be nearly empty. Scores are formed in two pieces instead, the
//! context's [Q, S] and the block's own [Q, T], and normalised together: memory grows with S + T a
//! slot, never with the number of other blocks.

use candle_core::{D, Result, Tensor};

use super::sight::Sight;

/// Sizes of one attention call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    /// Rows (B).
    pub(super) rows: usize,
    /// Context tokens a row (S).
    pub(super) context: usize,
    /// Blocks a row (A).
    pub(super) blocks: usize,
    /// Slots a block (T).
    pub(super) slots: usize,
    /// Key and value heads.
    pub(super) kv_heads: usize,
    /// Query heads that share a key head (G).
    pub(super) group: usize,
    /// Width of a head (D).
    pub(super) head_dim: usize,
}

/// Queries, keys and values, all contiguous, with rope and scale applied.
pub(super) struct Heads {
    /// [B, kv, A, G, T, D], scaled by D^-½.
    pub(super) q: Tensor,
    /// [B, kv, S, D].
    pub(super) context_k: Tensor,
    /// [B, kv, S, D].
    pub(super) context_v: Tensor,
    /// [B, kv, A, T, D].
    pub(super) block_k: Tensor,
    /// [B, kv, A, T, D].
    pub(super) block_v: Tensor,
}

/// Probabilities and inputs of one call, kept for its derivative.
pub(super) struct AttentionTape {
    heads: Heads,
    /// Probabilities over the context [B·kv, A·G·T, S].
    p_context: Tensor,
    /// Probabilities inside the block [B·kv·A, G·T, T].
    p_block: Tensor,
    /// What the call gave, [B, kv, A, G, T, D].
    pub(super) out: Tensor,
}

impl Extent {
    /// Shape of queries against the context, width last.
    fn over_context(&self, width: usize) -> (usize, usize, usize) {
        (
            self.rows * self.kv_heads,
            self.blocks * self.group * self.slots,
            width,
        )
    }

    /// Shape of queries inside their blocks, width last.
    fn over_block(&self, width: usize) -> (usize, usize, usize) {
        (
            self.rows * self.kv_heads * self.blocks,
            self.group * self.slots,
            width,
        )
    }

    fn context_keys(&self) -> (usize, usize, usize) {
        (self.rows * self.kv_heads, self.context, self.head_dim)
    }

    fn block_keys(&self) -> (usize, usize, usize) {
        (
            self.rows * self.kv_heads * self.blocks,
            self.slots,
            self.head_dim,
        )
    }
}

/// Joint softmax attention. A slot always sees itself, so no row of scores is empty.
pub(super) fn attend(heads: Heads, sight: &Sight, e: &Extent) -> Result<AttentionTape> {
    let d = e.head_dim;
    let context_k = heads.context_k.reshape(e.context_keys())?;
    let block_k = heads.block_k.reshape(e.block_keys())?;
    let s_context = heads
        .q
        .reshape(e.over_context(d))?
        .matmul(&context_k.transpose(1, 2)?)?;
    let s_block = heads
        .q
        .reshape(e.over_block(d))?
        .matmul(&block_k.transpose(1, 2)?)?;
    let by_slot = [e.rows, e.kv_heads, e.blocks, e.group, e.slots, e.context];
    let s_context = s_context.reshape(&by_slot)?.broadcast_add(&sight.context)?;
    let s_block = match &sight.block {
        Some(bias) => s_block
            .reshape(((), e.slots, e.slots))?
            .broadcast_add(bias)?
            .reshape(e.over_block(e.slots))?,
        None => s_block,
    };
    // One number a query, shaped for either piece: the order of queries is the same in both.
    let one_context = |x: &Tensor| x.reshape(e.over_context(1));
    let one_block = |x: &Tensor| x.reshape(e.over_block(1));
    let s_context = s_context.reshape(e.over_context(e.context))?;
    let top = s_block
        .max_keepdim(D::Minus1)?
        .flatten_all()?
        .maximum(&s_context.max_keepdim(D::Minus1)?.flatten_all()?)?;
    let p_context = s_context.broadcast_sub(&one_context(&top)?)?.exp()?;
    let p_block = s_block.broadcast_sub(&one_block(&top)?)?.exp()?;
    let total = (p_context.sum_keepdim(D::Minus1)?.flatten_all()?
        + p_block.sum_keepdim(D::Minus1)?.flatten_all()?)?
    .recip()?;
    let p_context = p_context.broadcast_mul(&one_context(&total)?)?;
    let p_block = p_block.broadcast_mul(&one_block(&total)?)?;
    let from_context = p_context.matmul(&heads.context_v.reshape(e.context_keys())?)?;
    let from_block = p_block.matmul(&heads.block_v.reshape(e.block_keys())?)?;
    let shape = heads.q.shape().clone();
    let out = (from_context.reshape(&shape)? + from_block.reshape(&shape)?)?;
    Ok(AttentionTape {
        heads,
        p_context,
        p_block,
        out,
    })
}

impl AttentionTape {
    /// Gradients of queries, keys and values from the gradient of the output, in the shapes of
    /// [`Heads`].
    pub(super) fn backward(&self, g: &Tensor, e: &Extent) -> Result<Heads> {
        let d = e.head_dim;
        let h = &self.heads;
        let (context_k, context_v) = (
            h.context_k.reshape(e.context_keys())?,
            h.context_v.reshape(e.context_keys())?,
        );
        let (block_k, block_v) = (
            h.block_k.reshape(e.block_keys())?,
            h.block_v.reshape(e.block_keys())?,
        );
        let (g_context, g_block) = (g.reshape(e.over_context(d))?, g.reshape(e.over_block(d))?);
        let (q_context, q_block) = (
            h.q.reshape(e.over_context(d))?,
            h.q.reshape(e.over_block(d))?,
        );
        // Σ_keys p·dp equals Σ_d g·out, which is far smaller to form.
        let mean = (g * &self.out)?.sum_keepdim(D::Minus1)?;
        let s_context = (g_context
            .matmul(&context_v.transpose(1, 2)?)?
            .broadcast_sub(&mean.reshape(e.over_context(1))?)?
            * &self.p_context)?;
        let s_block = (g_block
            .matmul(&block_v.transpose(1, 2)?)?
            .broadcast_sub(&mean.reshape(e.over_block(1))?)?
            * &self.p_block)?;
        let q = (s_context.matmul(&context_k)?.reshape(g.shape())?
            + s_block.matmul(&block_k)?.reshape(g.shape())?)?;
        let keys = |scores: &Tensor, queries: &Tensor, like: &Tensor| {
            scores
                .transpose(1, 2)?
                .matmul(queries)?
                .reshape(like.shape())
        };
        Ok(Heads {
            q,
            context_k: keys(&s_context, &q_context, &h.context_k)?,
            context_v: keys(&self.p_context, &g_context, &h.context_v)?,
            block_k: keys(&s_block, &q_block, &h.block_k)?,
            block_v: keys(&self.p_block, &g_block, &h.block_v)?,
        })
    }
}
