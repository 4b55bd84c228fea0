//! One row computed again, alone, and compared.

use candle_core::{DType, Tensor};

use super::BadStates;
use crate::model::{HiddenStates, ModelError, PaddedBatch, Sample, Target};

/// A target that can be asked again.
pub trait Again {
    /// The layers that it captures, in order.
    fn captured(&self) -> &[usize];

    /// Hidden states of one row of `batch`, alone and unpadded [1, length, ..].
    ///
    /// # Errors
    /// Failures of the target.
    fn alone(&self, batch: &PaddedBatch, row: usize) -> Result<HiddenStates, ModelError>;
}

impl Again for Target {
    fn captured(&self) -> &[usize] {
        Self::captured(self)
    }

    fn alone(&self, batch: &PaddedBatch, row: usize) -> Result<HiddenStates, ModelError> {
        let length = batch.lengths[row];
        let sample = Sample {
            input_ids: &batch.input_ids[row][..length],
            loss_mask: &batch.loss_mask[row][..length],
        };
        self.forward(&PaddedBatch::new(&[sample], length)?)
    }
}

/// Runs `target` over one row of `batch`, alone and unpadded, and compares with what was handed
/// over.
///
/// Shapes must have been checked. `target` captures what the drafter reads, in its order.
///
/// # Errors
/// What is wrong with the row, as far as the numbers tell; other rows are computed again only to
/// find that out.
pub fn recomputed(
    target: &impl Again,
    states: &HiddenStates,
    batch: &PaddedBatch,
    row: usize,
) -> Result<(), BadStates> {
    let allowed = allowed(states.features.dtype());
    let right = target.alone(batch, row)?;
    let given = Row::of(&states.features, row, batch.lengths[row])?;
    let wanted = Row::of(&right.features, 0, batch.lengths[row])?;
    let error = given.distance(&wanted);
    if !is_within(error, allowed) {
        let case = Case {
            target,
            states,
            batch,
            row,
            given,
            wanted,
            allowed,
        };
        return Err(case.diagnosis(error)?);
    }
    if let (Some(given), Some(wanted)) = (&states.last_hidden, &right.last_hidden) {
        let given = Row::of(given, row, batch.lengths[row])?;
        let error = given.distance(&Row::of(wanted, 0, batch.lengths[row])?);
        if !is_within(error, allowed) {
            return Err(BadStates::LastHidden {
                row,
                error,
                allowed,
            });
        }
    }
    Ok(())
}

/// An error that is no number is within nothing.
fn is_within(error: f64, allowed: f64) -> bool {
    error <= allowed
}

/// Most that ‖given − recomputed‖ / ‖recomputed‖ may be for states stored in `dtype`.
pub fn allowed(dtype: DType) -> f64 {
    match dtype {
        DType::F32 | DType::F64 => ALLOWED_F32,
        _ => ALLOWED_BF16,
    }
}

/// Most that states stored in f32 may be off: batched and padded products round otherwise, by about
/// 1e-6.
const ALLOWED_F32: f64 = 1e-4;

/// The same for states stored, and perhaps computed, in bf16.
const ALLOWED_BF16: f64 = 3e-2;

/// The states of one row: features by token.
struct Row(Vec<Vec<f64>>);

impl Row {
    fn of(tensor: &Tensor, row: usize, length: usize) -> Result<Self, BadStates> {
        let length = length.min(tensor.dim(1)?);
        let tokens = tensor.narrow(0, row, 1)?.narrow(1, 0, length)?.squeeze(0)?;
        Ok(Self(tokens.to_dtype(DType::F64)?.to_vec2()?))
    }

    /// ‖self − other‖ / ‖other‖ over the tokens that both have.
    fn distance(&self, other: &Self) -> f64 {
        distance(self.0.iter().zip(&other.0).flat_map(pairs))
    }

    /// The same at one token.
    fn distance_at(&self, other: &Self, position: usize) -> f64 {
        distance(pairs((&self.0[position], &other.0[position])))
    }

    /// The tokens from `first` on.
    fn from(&self, first: usize) -> Self {
        Self(self.0[first.min(self.0.len())..].to_vec())
    }

    /// One of `count` equal parts of the features.
    fn layer(&self, n: usize, count: usize) -> Self {
        let part = |token: &Vec<f64>| {
            let width = token.len() / count;
            token[n * width..(n + 1) * width].to_vec()
        };
        Self(self.0.iter().map(part).collect())
    }

    fn is_zero_from(&self, first: usize) -> bool {
        let mut rest = self.0[first..].iter().flatten();
        rest.all(|value| *value == 0.0)
    }
}

fn pairs<'a>((a, b): (&'a Vec<f64>, &'a Vec<f64>)) -> impl Iterator<Item = (f64, f64)> + 'a {
    a.iter().copied().zip(b.iter().copied())
}

fn distance(pairs: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (apart, length) = pairs.fold((0.0, 0.0), |(apart, length), (a, b)| {
        (apart + (a - b) * (a - b), length + b * b)
    });
    if apart == 0.0 {
        return 0.0;
    }
    (apart / length).sqrt()
}

/// A row that is not what it should be.
struct Case<'a, T> {
    target: &'a T,
    states: &'a HiddenStates,
    batch: &'a PaddedBatch,
    row: usize,
    given: Row,
    wanted: Row,
    allowed: f64,
}

impl<T: Again> Case<'_, T> {
    /// The first explanation that fits, the most telling ones first.
    fn diagnosis(&self, error: f64) -> Result<BadStates, BadStates> {
        let row = self.row;
        if let Some(holds) = self.other_row()? {
            return Ok(BadStates::SwappedRows { row, holds });
        }
        if let Some(have) = self.other_order() {
            let want = self.target.captured().to_vec();
            return Ok(BadStates::LayerOrder { have, want });
        }
        if let Some(by) = self.shift() {
            return Ok(BadStates::Shifted { row, by });
        }
        let tokens = 0..self.given.0.len();
        let off = |&position: &usize| {
            let error = self.given.distance_at(&self.wanted, position);
            !is_within(error, FAR * self.allowed)
        };
        // A target is causal: states are right up to the first token that is another one, and none
        // behind it is.
        if let Some(from) = tokens.clone().find(off) {
            if self.given.is_zero_from(from) {
                return Ok(BadStates::Truncated {
                    row,
                    have: from,
                    want: self.given.0.len(),
                });
            }
            let all_behind = (from..self.given.0.len()).all(|position| off(&position));
            if from > 0 && all_behind {
                return Ok(BadStates::OtherTokens { row, from });
            }
        }
        let at = |position: usize| self.given.distance_at(&self.wanted, position);
        let position = tokens.max_by(|&a, &b| at(a).total_cmp(&at(b)));
        Ok(BadStates::Drift {
            row,
            error,
            allowed: self.allowed,
            position: position.unwrap_or(0),
        })
    }

    /// The row whose states stand here.
    fn other_row(&self) -> Result<Option<usize>, BadStates> {
        let length = |row: usize| self.batch.lengths[row].min(self.given.0.len());
        for other in (0..self.batch.rows()).filter(|&other| other != self.row) {
            let theirs = self.target.alone(self.batch, other)?;
            let theirs = Row::of(&theirs.features, 0, length(other))?;
            let here = Row::of(&self.states.features, self.row, length(other))?;
            if here.distance(&theirs) <= self.allowed {
                return Ok(Some(other));
            }
        }
        Ok(None)
    }

    /// The order of layers that stands here, when each is there but not where it should be.
    fn other_order(&self) -> Option<Vec<usize>> {
        let ids = self.target.captured();
        let count = ids.len();
        let layer_at = |place: usize| {
            let here = self.given.layer(place, count);
            (0..count).find(|&n| here.distance(&self.wanted.layer(n, count)) <= self.allowed)
        };
        let order: Option<Vec<usize>> = (0..count).map(layer_at).collect();
        let have: Vec<usize> = order?.into_iter().map(|n| ids[n]).collect();
        (have != ids).then_some(have)
    }

    /// By how many tokens states stand beside their own.
    fn shift(&self) -> Option<isize> {
        let length = self.given.0.len();
        (1..=SHIFT_MAX.min(length.saturating_sub(2))).find_map(|by| {
            let fits = |a: Row, b: &Row| a.distance(b) <= self.allowed;
            let cut = |row: &Row| Row(row.0[..length - by].to_vec());
            if fits(cut(&self.given), &self.wanted.from(by)) {
                return Some(by as isize);
            }
            fits(self.given.from(by), &cut(&self.wanted)).then_some(-(by as isize))
        })
    }
}

/// Shifts that are looked for: by one is the classic, by two when both ends of a hand-over count
/// from one.
const SHIFT_MAX: usize = 2;

/// How many times what is allowed over a row a single token is off when something is wrong with it.
const FAR: f64 = 10.0;
