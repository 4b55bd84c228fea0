//! The two places of a layer where a product and what goes before and after it can be one kernel, and the choice of kernels for a size.
//!
//! The norm's weights are factors of the product's columns on GPUs that have such kernels (see `weights`), so what is left of it is a
//! scale for each row.

use super::attention::HeadNorms;
use super::ops::Rows;
use super::weights::{AttentionWeights, LayerWeights, Mixer};
use super::{CudaTarget, Residual, SET, norm_of};
use crate::cuda::gemm::fused::second_is_faster;
use crate::cuda::{Buffer, CudaError, FusedProducts, HeadTurn, Matrix, Ptr, Tuning};
use half::bf16;
use std::sync::Arc;

/// Which products are one kernel with what follows them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Fused {
    /// Gates and ups with SwiGLU.
    pub(super) gate_up: bool,
    /// Queries, keys and values with the norm and rotation of heads.
    pub(super) heads: bool,
}

impl CudaTarget {
    /// Which products the forwards so far took together with what follows them, by tokens of a microbatch.
    pub fn fused(&self) -> String {
        let one = |(tokens, fused): (&usize, &Fused)| {
            let names = [(fused.gate_up, "gate/up"), (fused.heads, "heads")];
            let names: Vec<&str> = names.iter().filter(|n| n.0).map(|n| n.1).collect();
            format!("{tokens}: {}", names.join(", "))
        };
        let all: Vec<String> = self.chosen.iter().map(one).collect();
        all.join("; ")
    }

    /// From now on takes products together with what goes before and after them wherever there are kernels for that, without timing.
    ///
    /// # Errors
    /// No compiler.
    pub fn fuse_always(&mut self) -> Result<(), CudaError> {
        self.fused = FusedProducts::load(self.stream.gpu())?;
        self.fuses_always = true;
        self.chosen.clear();
        Ok(())
    }

    /// The norm of the residual stream's rows, or with `scaled` only what their products are to be multiplied with; where `leaving` is
    /// given, the rows go there as they are.
    pub(super) fn normalise(
        &self,
        weight: &Buffer<bf16>,
        rows: &Residual,
        leaving: Option<Rows>,
        scaled: bool,
    ) -> Result<(), CudaError> {
        let (s, how) = (&self.stream, norm_of(&self.weights.shape));
        let (tokens, h) = (rows.tokens(), weight.len());
        match scaled {
            true => self
                .ops
                .rms_scales(s, rows.x, rows.scales, [tokens, h], how.0, leaving),
            false => {
                let norm = [rows.x, weight.ptr(), rows.y];
                self.ops.rms_norm(s, norm, tokens, how, leaving)
            }
        }
    }

    /// inner = silu(gate) · up of the normalised rows.
    pub(super) fn gate_up(
        &mut self,
        w: &LayerWeights,
        rows: &Residual,
        inner: Ptr<bf16>,
        fused: bool,
    ) -> Result<(), CudaError> {
        let shape = &self.weights.shape;
        let (tokens, h, width) = (rows.tokens(), shape.hidden, shape.inner);
        let gate_up = Matrix::new(w.gate_up.ptr(), 2 * width, h);
        if let (true, Some(kernels)) = (fused, &self.fused) {
            let x = Matrix::new(rows.x, tokens, h);
            let to = Matrix::new(inner, tokens, width);
            return kernels.gated(&self.stream, x, rows.scales, gate_up, to);
        }
        let y = Matrix::new(rows.y, tokens, h);
        let both = self.scratch.buffer::<bf16>(tokens * 2 * width)?;
        let to = Matrix::new(both.ptr(), tokens, 2 * width);
        self.gemm.multiply(&self.stream, y, gate_up.t(), to, SET)?;
        self.ops
            .swiglu(&self.stream, both.ptr(), inner, tokens, width)
    }

    /// Queries, keys and values of the normalised rows; heads normalised and turned.
    pub(super) fn project(
        &mut self,
        w: &AttentionWeights,
        rows: &Residual,
        qkv: Ptr<bf16>,
        fused: bool,
    ) -> Result<(), CudaError> {
        let shape = &self.weights.shape;
        let (tokens, h, pitch) = (rows.tokens(), shape.hidden, shape.attention_row());
        let all = Matrix::new(w.qkv.ptr(), pitch, h);
        let to = Matrix::new(qkv, tokens, pitch);
        let norms = w.head_norms.as_ref();
        if let (true, Some(kernels), Some(norms)) = (fused, &self.fused, norms) {
            let turn = HeadTurn {
                norms: [norms[0].ptr(), norms[1].ptr()],
                table: self.attention.table(),
                width: rows.extent.width,
                heads: [shape.heads, shape.kv_heads],
                eps: shape.eps,
            };
            let x = Matrix::new(rows.x, tokens, h);
            return kernels.turned(&self.stream, x, rows.scales, all, to, &turn);
        }
        let y = Matrix::new(rows.y, tokens, h);
        self.gemm.multiply(&self.stream, y, all.t(), to, SET)?;
        let norms = norms.map(|[query, key]| HeadNorms {
            query: query.ptr(),
            key: key.ptr(),
        });
        self.attention.turn(&self.stream, qkv, rows.extent, norms)
    }

    /// Chooses the kernels for a microbatch's size when it is first met; overwrites the residual stream then.
    ///
    /// Timing takes a while: it pays for the sizes that most microbatches have, not for the tails of buckets.
    pub(super) fn choose(&mut self, rows: &Residual) -> Result<Fused, CudaError> {
        let tokens = rows.tokens();
        if let Some(known) = self.chosen.get(&tokens) {
            return Ok(*known);
        }
        let is_full = TUNED_SHARE * tokens as f64 >= self.tokens_max as f64;
        let tuning = if is_full {
            self.tuning
        } else {
            Tuning::Heuristic
        };
        self.gemm.set_tuning(tuning);
        self.choose_sums(rows)?;
        let fused = match tuning {
            _ if self.fuses_always => self.all_fused(),
            Tuning::Timed => self.choose_fused(rows)?,
            Tuning::Heuristic => Fused::default(),
        };
        self.chosen.insert(tokens, fused);
        Ok(fused)
    }

    /// Runs the products that add to their result once without adding, so that the library's kernels for them can be timed: what they
    /// write is overwritten.
    fn choose_sums(&mut self, rows: &Residual) -> Result<(), CudaError> {
        let weights = Arc::clone(&self.weights);
        let (shape, tokens) = (&weights.shape, rows.tokens());
        let Some(w) = weights.layers.first() else {
            return Ok(());
        };
        let x = Matrix::new(rows.x, tokens, shape.hidden);
        let mixed = match &w.mixer {
            Mixer::Attention(w) => (&w.output, shape.queries()),
            Mixer::Delta(w) => (&w.out, w.out.len() / shape.hidden),
        };
        for (matrix, inner) in [mixed, (&w.down, shape.inner)] {
            let input = self.scratch.buffer::<bf16>(tokens * inner)?;
            self.ops.normals(&self.stream, input.ptr(), 1, 1.0)?;
            let input = Matrix::new(input.ptr(), tokens, inner);
            let matrix = Matrix::new(matrix.ptr(), shape.hidden, inner);
            self.gemm
                .multiply(&self.stream, input, matrix.t(), x, SET)?;
        }
        Ok(())
    }

    /// Everything that there are kernels for.
    fn all_fused(&self) -> Fused {
        let here = self.fused.is_some();
        Fused {
            gate_up: here,
            heads: here && self.weights.shape.turns_in_pairs(),
        }
    }

    /// Times products with what goes before and after them, both ways.
    fn choose_fused(&mut self, rows: &Residual) -> Result<Fused, CudaError> {
        let weights = Arc::clone(&self.weights);
        let (shape, tokens) = (&weights.shape, rows.tokens());
        let mut fused = Fused::default();
        let Some(w) = weights.layers.first().filter(|_| self.fused.is_some()) else {
            return Ok(fused);
        };
        let stream = self.stream.clone();
        let inner = self.scratch.buffer::<bf16>(tokens * shape.inner)?;
        let sizes = [tokens, shape.inner, shape.hidden];
        let mut way = |way| {
            self.normalise(&w.feed_forward_norm, rows, None, way == 1)?;
            self.gate_up(w, rows, inner.ptr(), way == 1)
        };
        fused.gate_up = second_is_faster(&stream, "gate and up", sizes, &mut way)?;
        drop(inner);
        let attention = weights.layers.iter().find_map(|w| match &w.mixer {
            Mixer::Attention(mixer) => Some((&w.input_norm, mixer)),
            Mixer::Delta(_) => None,
        });
        if let Some((norm, w)) = attention.filter(|_| shape.turns_in_pairs()) {
            let qkv = self
                .scratch
                .buffer::<bf16>(tokens * shape.attention_row())?;
            let sizes = [tokens, shape.attention_row(), shape.hidden];
            let mut way = |way| {
                self.normalise(norm, rows, None, way == 1)?;
                self.project(w, rows, qkv.ptr(), way == 1)
            };
            fused.heads = second_is_faster(&stream, "heads", sizes, &mut way)?;
        }
        Ok(fused)
    }
}

/// Microbatches of at least one part in this many of the largest have their products timed.
const TUNED_SHARE: f64 = 2.0;
