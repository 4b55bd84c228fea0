//! Looks at hidden states on the GPU before a drafter trains on them: what [`crate::checks`] does on the CPU, with the same errors.
//!
//! Stamps and extents travel beside a slot and are compared on the host. Numbers are looked at where they are: one pass over the slot
//! finds what is not finite, and a row that is due is computed again by a target of its own and compared there. Only what is wrong is
//! brought to the host, to say how.

use super::hidden::{CudaHidden, Described};
use super::workers::on_device;
use super::{Shared, fatal, lock};
use crate::backend::WorkError;
use crate::checks::{Again, BadStates, Extent, allowed, described, recomputed};
use crate::cuda::target::{
    AttentionChoice, CudaTarget, HiddenPlace, TargetOptions, TargetShape, TokenRows,
};
use crate::cuda::{Buffer, CudaError, Gpu, HiddenCheck, Pool, Ptr, Stream, Tuning, piece_bytes};
use crate::model::{HiddenStates, ModelError, PaddedBatch};
use candle_core::{DType, Device, Tensor};
use half::bf16;
use shared::id::{Bytes, MicrobatchId};
use std::cell::RefCell;
use std::sync::Arc;

/// A target that computes single rows again, for all drafters of a run in turn.
#[derive(Debug)]
pub(super) struct Recomputer {
    target: CudaTarget,
    check: HiddenCheck,
    /// The index of its GPU.
    device: usize,
    /// The row as computed again: features, then the last hidden state where it is captured.
    again: Buffer<bf16>,
    /// The row as handed over, where it is on another GPU.
    given: Option<Buffer<bf16>>,
    hidden_size: usize,
}

/// Sizes that a [`Recomputer`] depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowSize {
    /// Tokens of the longest row.
    pub(super) width: usize,
    /// Elements of a token's hidden states.
    pub(super) per_token: usize,
    /// Whether some drafter is on another GPU.
    pub(super) travels: bool,
}

impl RowSize {
    fn buffers(self) -> usize {
        (1 + usize::from(self.travels)) * piece_bytes(2 * self.width * self.per_token)
    }

    /// Memory of a [`Recomputer`] on its GPU.
    pub(super) fn bytes(self, shape: &TargetShape) -> Bytes {
        let scratch = shape.scratch_bytes(self.width, self.width).0;
        let check = HiddenCheck::bytes_needed(1, self.width).0;
        Bytes(scratch + check + self.buffers() as u64)
    }
}

impl Recomputer {
    /// On the GPU of index `device`, which has the target's weights.
    pub(super) fn new(
        gpu: &Arc<Gpu>,
        device: usize,
        weights: &Arc<crate::cuda::target::TargetWeights>,
        options: TargetOptions,
        size: RowSize,
    ) -> Result<Self, CudaError> {
        let pool = Pool::new(gpu, Bytes(size.buffers() as u64), "rows computed again")?;
        let elements = size.width * size.per_token;
        let target = CudaTarget::new(
            weights,
            TargetOptions {
                tokens_max: size.width,
                width_max: size.width,
                // Rows are of all lengths: timing each would take longer than the rows, and so would a plan of cuDNN's for each.
                tuning: Tuning::Heuristic,
                attention: AttentionChoice::Own,
                ..options
            },
        )?;
        Ok(Self {
            check: HiddenCheck::new(target.stream(), 1, size.width)?,
            again: pool.buffer(elements)?,
            given: size.travels.then(|| pool.buffer(elements)).transpose()?,
            hidden_size: weights.shape().hidden,
            target,
            device,
        })
    }

    fn per_token(&self) -> usize {
        self.target.captures().elements_per_token(self.hidden_size)
    }

    /// Elements of a token's features, and of its last hidden state.
    fn parts(&self) -> [usize; 2] {
        let features = self.target.captures().layers.len() * self.hidden_size;
        [features, self.per_token() - features]
    }

    /// Puts one row's forward into its stream.
    fn compute(&mut self, batch: &PaddedBatch, row: usize) -> Result<(), CudaError> {
        let length = batch.lengths[row];
        let tokens = TokenRows {
            ids: batch.input_ids[row][..length].to_vec(),
            lengths: vec![length as u32],
            width: length,
        };
        let [features, last] = self.parts().map(|width| width * length);
        let again = self.again.ptr();
        let place = HiddenPlace {
            features: again.at(0..features),
            last_hidden: (last > 0).then(|| again.at(features..features + last)),
        };
        self.target.forward(&tokens, place)
    }

    /// How far a row that was handed over is from what is computed again: features, and the last hidden state.
    fn distances(
        &mut self,
        shared: &Shared,
        slot: Ptr<bf16>,
        from: usize,
        said: &Described,
        batch: &PaddedBatch,
        row: usize,
    ) -> Result<[f64; 2], CudaError> {
        self.compute(batch, row)?;
        let length = batch.lengths[row];
        let stream = self.target.stream().clone();
        let mut distances = [0.0; 2];
        let (mut at, mut again) = (0, 0);
        for (part, width) in self.parts().into_iter().enumerate() {
            if width == 0 {
                continue;
            }
            let first = at + row * said.tokens * width;
            let here = slot.at(first..first + length * width);
            let here = match &self.given {
                Some(given) if from != self.device => {
                    stream.copy_from(&shared.devices[from].gpu, here, given.ptr())?;
                    given.ptr()
                }
                Some(_) | None => here,
            };
            let wanted = self.again.ptr().at(again..again + length * width);
            distances[part] = self.check.distance(here, wanted, length, width)?;
            at += said.rows * said.tokens * width;
            again += length * width;
        }
        Ok(distances)
    }
}

/// A [`Recomputer`] as the checks ask it.
struct Asked<'a> {
    recomputer: RefCell<&'a mut Recomputer>,
    captured: Vec<usize>,
}

impl Again for Asked<'_> {
    fn captured(&self) -> &[usize] {
        &self.captured
    }

    fn alone(&self, batch: &PaddedBatch, row: usize) -> Result<HiddenStates, ModelError> {
        let mut recomputer = self.recomputer.borrow_mut();
        let said = Described {
            rows: 1,
            tokens: batch.lengths[row],
            ..Described::default()
        };
        recomputer
            .compute(batch, row)
            .and_then(|()| recomputer.target.stream().download(recomputer.again.ptr()))
            .map_err(|error| candle_core::Error::msg(error).into())
            .and_then(|values| on_host(&values, &said, recomputer.parts()))
    }
}

/// A slot's elements as tensors.
fn on_host(
    values: &[bf16],
    said: &Described,
    [features, last]: [usize; 2],
) -> Result<HiddenStates, ModelError> {
    let tokens = said.rows * said.tokens;
    let tensor = |first: usize, width: usize| {
        let part = &values[first..first + tokens * width];
        Tensor::from_slice(part, (said.rows, said.tokens, width), &Device::Cpu)
    };
    Ok(HiddenStates {
        features: tensor(0, features)?,
        last_hidden: match last {
            0 => None,
            _ => Some(tensor(tokens * features, last)?),
        },
    })
}

impl Shared {
    /// Refuses hidden states that are not those of the microbatch, before a drafter on `stream` trains on them. Waits for the stream.
    pub(super) fn look_at(
        &self,
        hidden: &CudaHidden,
        id: MicrobatchId,
        check: &HiddenCheck,
        stream: &Stream,
        device: usize,
    ) -> Result<(), WorkError> {
        let batch = self.batches.batch(id).map_err(fatal)?;
        let said = &hidden.said;
        let [features, last] = said.widths;
        let extent = |width: usize| Extent {
            rows: said.rows,
            tokens: said.tokens,
            width,
        };
        let last_hidden = (last > 0).then(|| extent(last));
        described(
            &said.stamp,
            extent(features),
            last_hidden,
            &batch,
            &self.drafter_config,
        )
        .map_err(fatal)?;
        if said.widths != self.widths() {
            return Err(fatal(BadStates::Shape {
                have: (said.rows, features + last),
                want: (said.rows, self.per_token()),
            }));
        }
        let slot = on_device(&hidden.at)?.at(0..hidden.elements);
        stream.wait(&hidden.ready).map_err(fatal)?;
        let lengths: Vec<u32> = batch.lengths.iter().map(|&n| n as u32).collect();
        let behind = said.rows * said.tokens * features;
        for (part, width) in [(0..behind, features), (behind..slot.len(), last)] {
            if width == 0 {
                continue;
            }
            let bad = check.not_finite(slot.at(part), &lengths, said.tokens, width);
            if let Some(bad) = bad.map_err(fatal)? {
                return Err(fatal(BadStates::NotFinite {
                    row: bad.row,
                    position: bad.position,
                    value: bad.value,
                }));
            }
        }
        let bucket = self.batches.plan.microbatch(id).bucket.index();
        let rows = lock(&self.turns).next(bucket, batch.rows());
        if rows.is_empty() {
            return Ok(());
        }
        let mut recomputer = lock(&self.recomputer);
        recomputer
            .target
            .stream()
            .wait(&hidden.ready)
            .map_err(fatal)?;
        for row in rows {
            let distances = recomputer
                .distances(self, slot, device, said, &batch, row)
                .map_err(fatal)?;
            // A distance that is no number is within nothing.
            if distances.iter().all(|&d| d <= allowed(DType::BF16)) {
                continue;
            }
            let values = stream.download(slot).map_err(fatal)?;
            let states = on_host(&values, said, [features, last]).map_err(fatal)?;
            let asked = Asked {
                captured: self.captures.layers.clone(),
                recomputer: RefCell::new(&mut recomputer),
            };
            recomputed(&asked, &states, &batch, row).map_err(fatal)?;
        }
        Ok(())
    }

    /// Elements of a token's features, and of its last hidden state.
    pub(super) fn widths(&self) -> [usize; 2] {
        let features = self.captures.layers.len() * self.hidden_size;
        [features, self.per_token() - features]
    }
}
