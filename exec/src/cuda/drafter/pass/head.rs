//! Head and loss of the supervised slots, a chunk at a time: the logits of all slots never exist together.

use half::bf16;

use super::{CudaDrafter, Done};
use crate::cuda::drafter::ops::{Chunk, Soft};
use crate::cuda::drafter::plan::{List, Plan};
use crate::cuda::{CudaError, Matrix, Ptr};
use crate::train::Objective;

/// Slots whose logits exist together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    first: usize,
    /// Slots whose logits are formed.
    count: usize,
    /// Those of them that count; the others come again with the next chunk.
    whole: usize,
}

impl CudaDrafter {
    /// Losses and hits of the supervised slots; leaves the gradient of the norm's output in `for_normed`.
    pub(super) fn head(&mut self, last_hidden: Option<Ptr<bf16>>, plan: &Plan) -> Done {
        let a = &self.memory.activations;
        let (losses, hits) = (a.losses.ptr(), a.hits.ptr());
        let (loss, counts) = (self.memory.state.loss.ptr(), self.memory.state.counts.ptr());
        self.stream.zero(hits.at(0..plan.slots))?;
        for span in self.spans(plan)? {
            self.chunk(span, last_hidden, plan)?;
        }
        self.ops
            .add_sums_of(losses, plan.supervised, loss, hits, plan.blocks, counts)
    }

    /// Chunks of all supervised slots.
    fn spans(&self, plan: &Plan) -> Result<Vec<Span>, CudaError> {
        let rows = plan.supervised_padded;
        match self.objective {
            Objective::CrossEntropy => Ok(spans(rows, self.limits.logits_max)),
            // The target's logits stand beside the drafter's.
            Objective::Distillation { .. } => {
                let half = self.memory.activations.logits.len() / self.shape.logits_pitch() / 2;
                Ok(spans(rows, half.max(1)))
            }
            // Slots of a block depend on each other.
            Objective::DPace { .. } => whole_blocks(&plan.bounds, rows, self.limits.logits_max),
        }
    }

    fn chunk(&mut self, span: Span, last_hidden: Option<Ptr<bf16>>, plan: &Plan) -> Done {
        let s = self.shape;
        let a = &self.memory.activations;
        let (normed, gradient, hits) = (a.normed.ptr(), a.for_normed.ptr(), a.hits.ptr());
        let (logits, losses) = (a.logits.ptr(), a.losses.ptr());
        let (peaks, values) = (a.peaks.ptr(), a.values.ptr());
        let Span {
            first,
            count,
            whole,
        } = span;
        let part = |list: List| self.list(list).at(first..first + whole);
        let chunk = Chunk {
            targets: part(plan.targets),
            labels: part(plan.labels),
            weights: part(plan.weights).cast(),
            losses: losses.at(first..first + whole),
            rows: whole,
        };
        let teachers = self.list(plan.teachers).at(first..first + count);
        let head = Matrix::new(self.frozen.lm_head.ptr(), s.vocab, s.hidden);
        let of_chunk = |all: Ptr<bf16>| {
            let from = all.at(first * s.hidden..(first + count) * s.hidden);
            Matrix::new(from, count, s.hidden)
        };
        let scores = Matrix::new(logits, count, s.vocab).with_pitch(s.logits_pitch());
        self.gemm
            .multiply(&self.stream, of_chunk(normed), head.t(), scores, [1.0, 0.0])?;
        match self.objective {
            Objective::CrossEntropy => self.ops.cross_entropy(logits, &chunk, hits)?,
            Objective::DPace { alpha } => {
                self.ops
                    .d_pace(logits, &chunk, hits, [peaks, values], alpha as f32)?;
            }
            Objective::Distillation {
                temperature,
                hard_share,
            } => {
                let last_hidden = last_hidden.ok_or_else(|| {
                    CudaError::Shape("distillation without a last hidden state".to_owned())
                })?;
                // The residual stream's gradient is formed in the backward pass: its place is free.
                let rows = self.memory.activations.gradient.ptr();
                self.ops
                    .gather(last_hidden, teachers, rows, count, s.hidden)?;
                let theirs = logits.at(count * s.logits_pitch()..logits.len());
                let from = Matrix::new(rows, count, s.hidden);
                let to = Matrix::new(theirs, count, s.vocab).with_pitch(s.logits_pitch());
                self.gemm
                    .multiply(&self.stream, from, head.t(), to, [1.0, 0.0])?;
                let soft = Soft {
                    temperature: temperature as f32,
                    hard_share: hard_share as f32,
                };
                self.ops.distil(logits, theirs, &chunk, hits, soft)?;
            }
        }
        self.gemm
            .multiply(&self.stream, scores, head, of_chunk(gradient), [1.0, 0.0])
    }
}

/// `rows` slots, `step` at a time.
fn spans(rows: usize, step: usize) -> Vec<Span> {
    let span = |first: usize| Span {
        first,
        count: step.min(rows - first),
        whole: step.min(rows - first),
    };
    (0..rows).step_by(step).map(span).collect()
}

/// The same, cut between blocks, where block b has slots `bounds[b]` … `bounds[b + 1]`; what stands behind the last block has no weight.
///
/// Errors: a block that alone has more slots than `step`.
fn whole_blocks(bounds: &[usize], rows: usize, step: usize) -> Result<Vec<Span>, CudaError> {
    let mut spans = Vec::new();
    let mut first = 0;
    while first < rows {
        let count = step.min(rows - first);
        let last = bounds.last().copied().unwrap_or(0);
        let end = match first + count == rows || first >= last {
            true => first + count,
            false => bounds[bounds.partition_point(|&bound| bound <= first + count) - 1],
        };
        if end == first {
            return Err(CudaError::Shape(format!(
                "a block of more than {step} supervised slots; raise the slots whose logits exist at a time"
            )));
        }
        spans.push(Span {
            first,
            count,
            whole: end - first,
        });
        first = end;
    }
    Ok(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_end_between_blocks() {
        let cut = |step| -> Vec<(usize, usize, usize)> {
            let spans = whole_blocks(&[0, 3, 6, 9, 12], 16, step).unwrap();
            spans.iter().map(|s| (s.first, s.count, s.whole)).collect()
        };
        assert_eq!(cut(100), [(0, 16, 16)]);
        assert_eq!(cut(8), [(0, 8, 6), (6, 8, 6), (12, 4, 4)]);
        assert_eq!(cut(6), [(0, 6, 6), (6, 6, 6), (12, 4, 4)]);
        assert_eq!(cut(3)[3..], [(9, 3, 3), (12, 3, 3), (15, 1, 1)]);
        let refused = whole_blocks(&[0, 3, 6], 6, 2).unwrap_err().to_string();
        assert!(refused.starts_with("a block of more than 2"), "{refused}");
        assert_eq!(spans(5, 2).last().map(|s| (s.first, s.count)), Some((4, 1)));
    }
}
