//! Many sequences that grow side by side.

use candle_core::Tensor;

use super::Extension;
use super::history::{History, Snapshot};
use crate::model::target::{LayerCache, Pass, Span};
use crate::model::{ModelError, Target};

/// B independent sequences of different lengths, read together.
///
/// Invariant: what a row computes depends on the tokens of that row alone, and equals what
/// a [`super::TargetSession`] computes for it up to rounding.
#[derive(Debug)]
pub struct BatchSession {
    target: Target,
    caches: Vec<LayerCache>,
    /// Tokens that the caches hold of each row.
    lengths: Vec<usize>,
    /// Only for targets with a recurrent state, which cannot be cut.
    history: Option<History>,
}

/// What a target computes for the new tokens of B rows, right-padded to S.
#[derive(Debug, Clone)]
pub struct BatchExtension {
    /// Outputs of the captured layers [B, S, K·H]; without meaning at pads.
    pub features: Tensor,
    /// The last hidden state after the final norm [B, S, H]; without meaning at pads.
    pub last_hidden: Tensor,
    /// New tokens of each row, padding not counted.
    pub counts: Vec<usize>,
}

impl BatchSession {
    pub(in crate::model::target) fn new(target: &Target, rows: usize) -> Result<Self, ModelError> {
        if rows == 0 {
            let problem = "a session needs at least one row".to_owned();
            return Err(ModelError::Batch { row: 0, problem });
        }
        let (config, device) = (target.config(), target.embed().device());
        let caches = (0..config.geometry.num_hidden_layers)
            .map(|n| LayerCache::new(rows, n, config, device))
            .collect::<candle_core::Result<Vec<_>>>()?;
        let recurrent = |cache: &LayerCache| matches!(cache, LayerCache::Recurrent(_));
        Ok(Self {
            target: target.clone(),
            history: caches.iter().any(recurrent).then(|| History::new(rows)),
            caches,
            lengths: vec![0; rows],
        })
    }

    /// Rows (B).
    pub fn rows(&self) -> usize {
        self.lengths.len()
    }

    /// Tokens that row `row` has read.
    ///
    /// # Panics
    /// There is no such row.
    pub fn len(&self, row: usize) -> usize {
        self.lengths[row] + self.history.as_ref().map_or(0, |h| h.pending(row).len())
    }

    /// Whether no row has read anything.
    pub fn is_empty(&self) -> bool {
        (0..self.rows()).all(|row| self.len(row) == 0)
    }

    /// Reads each row's tokens behind all that the row has read; a row may be given none.
    ///
    /// Errors: as many slices as rows are needed, at least one of them not empty; a token outside
    /// the vocabulary.
    pub fn extend(&mut self, rows: &[&[u32]]) -> Result<BatchExtension, ModelError> {
        let refuse = |problem: String| Err(ModelError::Batch { row: 0, problem });
        if rows.len() != self.rows() {
            let (have, want) = (rows.len(), self.rows());
            return refuse(format!(
                "{have} rows for a session of {want}; give one a row"
            ));
        }
        if rows.iter().all(|row| row.is_empty()) {
            return refuse("no row has a new token; give at least one".to_owned());
        }
        if let Some(history) = &self.history {
            let pending = history.all_pending();
            if pending.iter().any(|tokens| !tokens.is_empty()) {
                let slices: Vec<&[u32]> = pending.iter().map(Vec::as_slice).collect();
                self.read(&slices)?;
            }
        }
        self.read(rows)
    }

    fn read(&mut self, rows: &[&[u32]]) -> Result<BatchExtension, ModelError> {
        let tokens = rows.iter().map(|row| row.len()).max().unwrap_or(0);
        let padded: Vec<Vec<u32>> = rows
            .iter()
            .map(|row| {
                let mut row = row.to_vec();
                row.resize(tokens, 0);
                row
            })
            .collect();
        let spans: Vec<Span> = (rows.iter().zip(&self.lengths))
            .map(|(row, &past)| Span {
                past,
                new: row.len(),
            })
            .collect();
        let target = &self.target;
        let pass = Pass::new(&target.config, spans, tokens, target.embed.device())?;
        let before = Snapshot::of(&self.caches, &self.lengths);
        let depth = target.layers.len();
        let (features, x) = match target.run(&padded, &pass, Some(&mut self.caches), depth) {
            Ok(outputs) => outputs,
            Err(error) => {
                // Some layers may have read the tokens, others not.
                before.restore(&mut self.caches);
                return Err(error);
            }
        };
        let last_hidden = target.normed(&x, &pass)?;
        for (length, span) in self.lengths.iter_mut().zip(&pass.spans) {
            *length = span.end();
        }
        if let Some(history) = &mut self.history {
            history.read(before, rows);
        }
        Ok(BatchExtension {
            features,
            last_hidden,
            counts: rows.iter().map(|row| row.len()).collect(),
        })
    }

    /// Forgets all tokens of `row` behind its first `len`.
    ///
    /// A recurrent state cannot be cut: it goes back to what it was before one of the last
    /// extensions, or to the row's beginning, and the next extension first reads the tokens between.
    ///
    /// # Panics
    /// There is no such row.
    pub fn truncate(&mut self, row: usize, len: usize) -> Result<(), ModelError> {
        let Some(history) = &mut self.history else {
            self.lengths[row] = self.lengths[row].min(len);
            return Ok(());
        };
        if let Some(back) = history.truncate(row, len) {
            self.lengths[row] = back.length;
            for (n, cache) in self.caches.iter_mut().enumerate() {
                if let LayerCache::Recurrent(state) = cache {
                    let from = back.snapshot.and_then(|at| history.state(at, n));
                    *state = state.with_row(row, from)?;
                }
            }
        }
        Ok(())
    }

    /// Keeps these rows, in this order, such as those that go on; a row may be kept twice.
    ///
    /// Errors: no rows, or one that there is not.
    pub fn keep(&mut self, rows: &[usize]) -> Result<(), ModelError> {
        let count = self.rows();
        if let Some(&row) = rows.iter().find(|&&row| row >= count) {
            let problem = format!("there are {count} rows, from 0");
            return Err(ModelError::Batch { row, problem });
        }
        if rows.is_empty() {
            let problem = "a session needs at least one row; drop the session instead".to_owned();
            return Err(ModelError::Batch { row: 0, problem });
        }
        let ids: Vec<u32> = rows.iter().map(|&row| row as u32).collect();
        let ids = Tensor::from_vec(ids, rows.len(), self.target.embed.device())?;
        for cache in &mut self.caches {
            cache.keep(&ids)?;
        }
        if let Some(history) = &mut self.history {
            history.keep(rows, &ids)?;
        }
        self.lengths = rows.iter().map(|&row| self.lengths[row]).collect();
        Ok(())
    }
}

impl BatchExtension {
    /// One row without its padding.
    ///
    /// Errors: there is no such row.
    pub fn row(&self, row: usize) -> Result<Extension, ModelError> {
        let Some(&count) = self.counts.get(row) else {
            let problem = format!("there are {} rows, from 0", self.counts.len());
            return Err(ModelError::Batch { row, problem });
        };
        Ok(Extension {
            features: self.features.get(row)?.narrow(0, 0, count)?,
            last_hidden: self.last_hidden.get(row)?.narrow(0, 0, count)?,
        })
    }

    /// The last hidden state of each row's last new token [B, H]; that of the first place where a
    /// row was given none.
    pub fn last(&self) -> Result<Tensor, ModelError> {
        let (rows, tokens, width) = self.last_hidden.dims3()?;
        let flat = self.last_hidden.reshape((rows * tokens, width))?;
        let ids: Vec<u32> = (self.counts.iter().enumerate())
            .map(|(row, count)| (row * tokens + count.saturating_sub(1)) as u32)
            .collect();
        let ids = Tensor::from_vec(ids, rows, flat.device())?;
        Ok(flat.index_select(&ids, 0)?)
    }
}
