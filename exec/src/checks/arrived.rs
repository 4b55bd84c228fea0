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
    layers(stamp, &drafter.target_layer_ids)?;
    let hidden = drafter.geometry.hidden_size;
    let width = drafter.target_layer_ids.len() * hidden;
    let parts = [
        (Some(&states.features), width),
        (states.last_hidden.as_ref(), hidden),
    ];
    for (tensor, width) in parts {
        if let Some(tensor) = tensor {
            shape(tensor, batch, width)?;
        }
    }
    rows(stamp, batch)?;
    for (tensor, _) in parts {
        if let Some(tensor) = tensor {
            finite(tensor, batch)?;
        }
    }
    Ok(())
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

fn shape(tensor: &Tensor, batch: &PaddedBatch, width: usize) -> Result<(), BadStates> {
    let (rows, tokens, have) = tensor.dims3()?;
    if (rows, have) != (batch.rows(), width) {
        return Err(BadStates::Shape {
            have: (rows, have),
            want: (batch.rows(), width),
        });
    }
    match batch.lengths.iter().position(|&length| length > tokens) {
        None => Ok(()),
        Some(row) => Err(BadStates::Truncated {
            row,
            have: tokens,
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
