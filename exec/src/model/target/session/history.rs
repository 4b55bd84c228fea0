//! How a session whose target has a recurrent state goes back: states before the last extensions,
//! and the tokens to read again from there.

use std::collections::VecDeque;

use candle_core::{Result, Tensor};

use crate::model::target::LayerCache;
use crate::model::target::delta::DeltaState;

/// The recurrent states of all layers at one moment.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// Tokens of each row that the states hold; none where the row has gone back behind them since.
    lengths: Vec<Option<usize>>,
    /// A state for each layer that has one.
    states: Vec<Option<DeltaState>>,
}

impl Snapshot {
    pub(super) fn of(caches: &[LayerCache], lengths: &[usize]) -> Self {
        let state = |cache: &LayerCache| match cache {
            LayerCache::Recurrent(state) => Some(state.clone()),
            LayerCache::Keys(_) => None,
        };
        Self {
            lengths: lengths.iter().copied().map(Some).collect(),
            states: caches.iter().map(state).collect(),
        }
    }

    /// Puts the states of all rows back; keys behind a row's length need no restoring.
    pub(super) fn restore(self, caches: &mut [LayerCache]) {
        for (cache, state) in caches.iter_mut().zip(self.states) {
            if let (LayerCache::Recurrent(own), Some(state)) = (cache, state) {
                *own = state;
            }
        }
    }
}

/// Tokens of all rows and the last snapshots.
#[derive(Debug)]
pub(super) struct History {
    /// All tokens of each row, those to be read again included.
    tokens: Vec<Vec<u32>>,
    /// Tokens of each row that its state holds.
    held: Vec<usize>,
    /// From old to new.
    snapshots: VecDeque<Snapshot>,
}

/// Where a row's state goes back to.
pub(super) struct Back {
    /// Tokens that the state then holds.
    pub(super) length: usize,
    /// The snapshot to take it from; none is the state before any token.
    pub(super) snapshot: Option<usize>,
}

impl History {
    pub(super) fn new(rows: usize) -> Self {
        Self {
            tokens: vec![Vec::new(); rows],
            held: vec![0; rows],
            snapshots: VecDeque::new(),
        }
    }

    /// Tokens that the row counts and its state does not hold.
    pub(super) fn pending(&self, row: usize) -> &[u32] {
        &self.tokens[row][self.held[row]..]
    }

    pub(super) fn all_pending(&self) -> Vec<Vec<u32>> {
        let rows = 0..self.tokens.len();
        rows.map(|row| self.pending(row).to_vec()).collect()
    }

    /// Notes that the states have read `rows`, and what they were before.
    pub(super) fn read(&mut self, before: Snapshot, rows: &[&[u32]]) {
        for (row, new) in rows.iter().enumerate() {
            let held = self.held[row];
            // Pending tokens are noted already.
            if self.pending(row).is_empty() {
                self.tokens[row].extend_from_slice(new);
            }
            self.held[row] = held + new.len();
        }
        self.snapshots.push_back(before);
        if self.snapshots.len() > SNAPSHOTS_MAX {
            self.snapshots.pop_front();
        }
    }

    /// Forgets the tokens of `row` behind `len`; where its state must go if it holds more.
    pub(super) fn truncate(&mut self, row: usize, len: usize) -> Option<Back> {
        self.tokens[row].truncate(len);
        for snapshot in &mut self.snapshots {
            if snapshot.lengths[row].is_some_and(|length| length > len) {
                snapshot.lengths[row] = None;
            }
        }
        if self.held[row] <= len {
            return None;
        }
        let usable = |snapshot: &Snapshot| snapshot.lengths[row];
        let newest = (self.snapshots.iter().enumerate())
            .filter_map(|(at, snapshot)| Some((usable(snapshot)?, at)))
            .max();
        let back = Back {
            length: newest.map_or(0, |(length, _)| length),
            snapshot: newest.map(|(_, at)| at),
        };
        self.held[row] = back.length;
        Some(back)
    }

    /// The state of layer `n` in snapshot `at`, if the layer has one.
    pub(super) fn state(&self, at: usize, n: usize) -> Option<&DeltaState> {
        self.snapshots[at].states[n].as_ref()
    }

    /// Keeps these rows, in this order; `ids` are the same as a tensor.
    pub(super) fn keep(&mut self, rows: &[usize], ids: &Tensor) -> Result<()> {
        for snapshot in &mut self.snapshots {
            for state in snapshot.states.iter_mut().flatten() {
                *state = state.keep(ids)?;
            }
            snapshot.lengths = rows.iter().map(|&row| snapshot.lengths[row]).collect();
        }
        self.tokens = rows.iter().map(|&row| self.tokens[row].clone()).collect();
        self.held = rows.iter().map(|&row| self.held[row]).collect();
        Ok(())
    }
}

/// Two: what was read since the last extension began can be cut anywhere, and the next cut may reach
/// behind the tokens that were read again for it.
const SNAPSHOTS_MAX: usize = 2;
