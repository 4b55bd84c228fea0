//! Cheap checks of every microbatch.

use candle_core::{DType, Tensor};

use super::{BadStates, RowStamp, Stamp, Stamped};
use crate::model::{DrafterConfig, PaddedBatch};

/// Refuses hidden states that do not fit the microbatch or the drafter by shape or stamp, and such
/// as are not finite at a real token.
///
/// # Errors
/// What is wrong, each in its own variant.
pub fn arrived(
    stamped: &Stamped,
    batch: &PaddedBatch,
    drafter: &DrafterConfig,
) -> Result<(), BadStates> {
    let Stamped { states, stamp } = stamped;
    let extent = |tensor: &Tensor| -> Result<Extent, BadStates> {
        let (rows, tokens, width) = tensor.dims3()?;
        Ok(Extent {
            rows,
            tokens,
            width,
        })
    };
    let last_hidden = states.last_hidden.as_ref();
    described(
        stamp,
        extent(&states.features)?,
        last_hidden.map(extent).transpose()?,
        batch,
        drafter,
    )?;
    finite(&states.features, batch)?;
    last_hidden.map_or(Ok(()), |tensor| finite(tensor, batch))
}

/// How far some hidden states reach: [rows, tokens, width].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Rows of the microbatch.
    pub rows: usize,
    /// Tokens a row, padding included.
    pub tokens: usize,
    /// Features a token.
    pub width: usize,
}

/// What can be told without looking at a number: extents of features and last hidden state, and stamp.
///
/// # Errors
/// What is wrong, each in its own variant.
pub fn described(
    stamp: &Stamp,
    features: Extent,
    last_hidden: Option<Extent>,
    batch: &PaddedBatch,
    drafter: &DrafterConfig,
) -> Result<(), BadStates> {
    layers(stamp, &drafter.target_layer_ids)?;
    let hidden = drafter.geometry.hidden_size;
    fits(features, batch, drafter.target_layer_ids.len() * hidden)?;
    if let Some(last_hidden) = last_hidden {
        fits(last_hidden, batch, hidden)?;
    }
    rows(stamp, batch)
}

fn layers(stamp: &Stamp, want: &[usize]) -> Result<(), BadStates> {
    if stamp.layer_ids == want {
        return Ok(());
    }
    let sorted = |ids: &[usize]| {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids
    };
    let (have, want) = (stamp.layer_ids.clone(), want.to_vec());
    Err(match sorted(&have) == sorted(&want) {
        true => BadStates::LayerOrder { have, want },
        false => BadStates::OtherLayers { have, want },
    })
}

fn fits(extent: Extent, batch: &PaddedBatch, width: usize) -> Result<(), BadStates> {
    let have = (extent.rows, extent.width);
    if have != (batch.rows(), width) {
        return Err(BadStates::Shape {
            have,
            want: (batch.rows(), width),
        });
    }
    let cut = |&length: &usize| length > extent.tokens;
    match batch.lengths.iter().position(cut) {
        None => Ok(()),
        Some(row) => Err(BadStates::Truncated {
            row,
            have: extent.tokens,
            want: batch.lengths[row],
        }),
    }
}

fn rows(stamp: &Stamp, batch: &PaddedBatch) -> Result<(), BadStates> {
    let want = RowStamp::all(batch);
    if stamp.rows.len() != want.len() {
        let width = 0;
        return Err(BadStates::Shape {
            have: (stamp.rows.len(), width),
            want: (want.len(), width),
        });
    }
    for (row, (have, right)) in stamp.rows.iter().zip(&want).enumerate() {
        if have == right {
            continue;
        }
        if let Some(holds) = want.iter().position(|other| other == have) {
            return Err(BadStates::SwappedRows { row, holds });
        }
        if have.tokens < right.tokens {
            return Err(BadStates::Truncated {
                row,
                have: have.tokens,
                want: right.tokens,
            });
        }
        return Err(BadStates::OtherTokens { row, from: 0 });
    }
    Ok(())
}

/// Adds all numbers up: one that is not finite makes the sum so. Only then is it looked for.
fn finite(tensor: &Tensor, batch: &PaddedBatch) -> Result<(), BadStates> {
    let sum = tensor.sum_all()?.to_dtype(DType::F64)?.to_scalar::<f64>()?;
    if sum.is_finite() {
        return Ok(());
    }
    for (row, &length) in batch.lengths.iter().enumerate() {
        let real = tensor.narrow(0, row, 1)?.narrow(1, 0, length)?.squeeze(0)?;
        let tokens = real.to_dtype(DType::F64)?.to_vec2::<f64>()?;
        for (position, features) in tokens.iter().enumerate() {
            if let Some(&value) = features.iter().find(|value| !value.is_finite()) {
                return Err(BadStates::NotFinite {
                    row,
                    position,
                    value,
                });
            }
        }
    }
    Ok(())
}
