//! What the layers of a session remember of the tokens that it has read.

use candle_core::{DType, Device, Result, Tensor};

use super::delta::DeltaState;
use super::pass::{Pass, even_past};
use crate::model::config::{Family, LayerKind, TargetConfig};

/// What one layer remembers of B rows.
#[derive(Debug)]
pub(super) enum LayerCache {
    /// Of every token.
    Keys(KeyCache),
    /// Of all tokens together.
    Recurrent(DeltaState),
}

impl LayerCache {
    /// An empty memory for layer `n`.
    pub(super) fn new(
        rows: usize,
        n: usize,
        config: &TargetConfig,
        device: &Device,
    ) -> Result<Self> {
        Ok(match (&config.family, config.layer_kind(n)) {
            (Family::Qwen3_5(hybrid), LayerKind::GatedDelta) => {
                Self::Recurrent(DeltaState::new(rows, hybrid, device)?)
            }
            _ => Self::Keys(KeyCache::new(rows, config, device)?),
        })
    }

    /// Invariant: a cache is made for its layer, [`Self::new`].
    pub(super) fn keys(&mut self) -> &mut KeyCache {
        match self {
            Self::Keys(keys) => keys,
            Self::Recurrent(_) => unreachable!("an attention layer with a recurrent state"),
        }
    }

    /// Invariant: a cache is made for its layer, [`Self::new`].
    pub(super) fn recurrent(&mut self) -> &mut DeltaState {
        match self {
            Self::Recurrent(state) => state,
            Self::Keys(_) => unreachable!("a recurrent layer with keys"),
        }
    }

    /// Keeps these rows, in this order.
    pub(super) fn keep(&mut self, rows: &Tensor) -> Result<()> {
        match self {
            Self::Keys(keys) => keys.keep(rows),
            Self::Recurrent(state) => {
                *state = state.keep(rows)?;
                Ok(())
            }
        }
    }
}

/// Keys and values of each token of B rows.
#[derive(Debug)]
pub(super) struct KeyCache {
    keys: Tensor,
    values: Tensor,
}

impl KeyCache {
    /// Room for nothing yet, for `rows` rows.
    fn new(rows: usize, config: &TargetConfig, device: &Device) -> Result<Self> {
        let g = &config.geometry;
        let shape = (rows, g.num_key_value_heads, 0, g.head_dim);
        let empty = Tensor::zeros(shape, DType::F32, device)?;
        Ok(Self {
            keys: empty.clone(),
            values: empty,
        })
    }

    /// Writes the new keys and values [B, kv, S, D] behind each row's past and gives all of them
    /// [B, kv, capacity, D]; what stands behind a row's end has no meaning but is finite.
    pub(super) fn append(
        &mut self,
        keys: &Tensor,
        values: &Tensor,
        pass: &Pass<'_>,
    ) -> Result<(Tensor, Tensor)> {
        let past_max = pass.spans.iter().map(|span| span.past).max().unwrap_or(0);
        self.reserve(past_max + pass.tokens)?;
        for (store, new) in [(&self.keys, keys), (&self.values, values)] {
            match even_past(&pass.spans) {
                Some(past) => store.slice_set(new, 2, past)?,
                None => {
                    for (row, span) in pass.spans.iter().enumerate().filter(|(_, s)| s.new > 0) {
                        let new = new.narrow(0, row, 1)?.narrow(2, 0, span.new)?;
                        let row = store.narrow(0, row, 1)?;
                        row.slice_set(&new.contiguous()?, 2, span.past)?;
                    }
                }
            }
        }
        Ok((self.keys.clone(), self.values.clone()))
    }

    fn keep(&mut self, rows: &Tensor) -> Result<()> {
        self.keys = self.keys.index_select(rows, 0)?;
        self.values = self.values.index_select(rows, 0)?;
        Ok(())
    }

    fn reserve(&mut self, tokens: usize) -> Result<()> {
        let (rows, heads, capacity, width) = self.keys.dims4()?;
        if tokens <= capacity {
            return Ok(());
        }
        // By halves, so that a long session copies each token a few times only.
        let wanted = tokens.max(capacity + capacity / 2).next_multiple_of(CHUNK);
        for store in [&mut self.keys, &mut self.values] {
            let wider = Tensor::zeros((rows, heads, wanted, width), DType::F32, store.device())?;
            if capacity > 0 {
                wider.slice_set(store, 2, 0)?;
            }
            *store = wider;
        }
        Ok(())
    }
}

/// Tokens by which a cache grows at least.
const CHUNK: usize = 128;
