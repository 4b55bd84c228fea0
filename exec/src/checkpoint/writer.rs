//! Writes checkpoints beside the run: a thread of its own, so that workers go on while a disk is slow.
//!
//! The state of a step is handed over as tensors that nobody changes any more; the workers are let go at once. One checkpoint is
//! written at a time: whoever comes with the next one while the disk is still busy waits for it, so that no more than two states
//! are in memory.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Checkpoint, CheckpointError, clear_leftovers, retention};
use crate::clock::Clock;

/// What stays of what is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Retention {
    /// Newest steps kept; 0 keeps all.
    pub keep: usize,
    /// The best score so far, where a run is continued.
    pub best: Option<f64>,
}

/// A checkpoint that is on the disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// Its step.
    pub step: u64,
    /// Its folder.
    pub path: PathBuf,
    /// How long writing took, beside the run.
    pub took: Duration,
    /// Whether it is the best one now.
    pub is_best: bool,
    /// Steps that were removed for it.
    pub removed: Vec<u64>,
}

/// The thread that writes.
#[derive(Debug)]
pub struct Writer {
    orders: Option<SyncSender<(Checkpoint, Option<f64>)>>,
    results: Receiver<Result<Written, CheckpointError>>,
    thread: Option<JoinHandle<()>>,
    dir: PathBuf,
}

impl Writer {
    /// Begins to write into `dir`, which is made with the first checkpoint. What a killed run left half written there is removed.
    ///
    /// # Errors
    /// When the disk or the system refuses.
    pub fn start(dir: &Path, retention: Retention) -> Result<Self, CheckpointError> {
        clear_leftovers(dir)?;
        let (orders, receiver) = sync_channel::<(Checkpoint, Option<f64>)>(0);
        let (sender, results) = channel();
        let folder = dir.to_owned();
        let mut best = retention.best;
        let write = move || {
            for (checkpoint, score) in receiver {
                let result = write(&folder, &checkpoint, score, retention.keep, &mut best);
                if sender.send(result).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("checkpoint".into())
            .spawn(write)
            .map_err(|source| CheckpointError::Io {
                action: "begin to write",
                path: dir.to_owned(),
                source,
            })?;
        Ok(Self {
            orders: Some(orders),
            results,
            thread: Some(thread),
            dir: dir.to_owned(),
        })
    }

    /// Hands a checkpoint over; `score` is higher for better ones, `None` never makes it the best. Waits while the one before is
    /// being written.
    pub fn submit(&self, checkpoint: Checkpoint, score: Option<f64>) {
        if let Some(orders) = &self.orders {
            // A writer that is gone has said why: its last result is an error.
            let _ = orders.send((checkpoint, score));
        }
    }

    /// What was written since the last call.
    ///
    /// # Errors
    /// The first checkpoint that could not be written.
    pub fn written(&self) -> Result<Vec<Written>, CheckpointError> {
        self.results.try_iter().collect()
    }

    /// Waits for the last one and returns what was written since the last call of [`Writer::written`].
    ///
    /// # Errors
    /// The first checkpoint that could not be written.
    pub fn finish(mut self) -> Result<Vec<Written>, CheckpointError> {
        self.close();
        self.results.try_iter().collect()
    }

    /// The folder of all steps.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn close(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was printed; nothing is published by halves.
            let _ = thread.join();
        }
    }
}

impl Drop for Writer {
    /// What was handed over is written, however the run ends.
    fn drop(&mut self) {
        self.close();
    }
}

/// Publishes, marks the best, and only then removes old ones.
fn write(
    dir: &Path,
    checkpoint: &Checkpoint,
    score: Option<f64>,
    keep: usize,
    best: &mut Option<f64>,
) -> Result<Written, CheckpointError> {
    let clock = Clock::start();
    let path = checkpoint.write(dir)?;
    let score = score.filter(|score| score.is_finite());
    let is_best = score.is_some_and(|score| best.is_none_or(|best| score > best));
    if is_best {
        *best = score;
        retention::point_best(dir, checkpoint.step)?;
    }
    let removed = retention::rotate(dir, keep)?;
    Ok(Written {
        step: checkpoint.step,
        path,
        took: clock.wall(),
        is_best,
        removed,
    })
}
