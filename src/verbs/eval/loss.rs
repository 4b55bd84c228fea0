//! The loss on samples that training did not see.

use super::setup::{Kind, Setup};
use crate::failure::{Failure, code};
use crate::terminal::bar;
use crate::verbs::data;
use exec::config::{DataSection, ExecSection};
use exec::data::Dataset;
use exec::model::{Drafter, DrafterConfig, Sample};
use exec::train::{BlockSpec, HeldOutBlocks, HeldOutLoss, held_out_loss};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Held-out samples and their blocks.
pub(super) struct Samples {
    data: Dataset,
    blocks: HeldOutBlocks,
}

/// The loss of one drafter: all samples, then each length bucket that has any.
pub(super) type Groups = Vec<(String, HeldOutLoss)>;

impl Samples {
    /// Loads the samples of `path` under the rules of the section's own data.
    pub(super) fn load(
        path: &Path,
        section: &ExecSection,
        config: &DrafterConfig,
        seed: u64,
    ) -> Result<Self, Failure> {
        let data = data::load(&DataSection {
            paths: vec![path.to_path_buf()],
            samples_max: 0,
            store: None,
            ..section.data.clone()
        })?;
        let spec = BlockSpec::of(config);
        let gamma = section.drafter.gamma;
        Ok(Self {
            data,
            blocks: HeldOutBlocks {
                spec: if gamma > 0.0 {
                    spec.with_gamma(gamma)
                } else {
                    spec
                },
                anchors_max: section.drafter.anchors,
                seed,
            },
        })
    }
}

/// The losses of all drafters with weights, in their order; `None` for those without, and for all once `stop` is set.
pub(super) fn measure(setup: &Setup, stop: &AtomicBool) -> Result<Vec<Option<Groups>>, Failure> {
    let nothing = || setup.drafters.iter().map(|_| None).collect();
    let Some(Samples { data, blocks }) = &setup.loss_on else {
        return Ok(nothing());
    };
    let weights = |kind: &'_ Kind| match kind {
        Kind::Trained { drafter, .. } | Kind::Untrained(drafter) => Some((**drafter).clone()),
        Kind::Ngram => None,
    };
    let drafters: Vec<Option<Drafter>> = setup.drafters.iter().map(|d| weights(&d.kind)).collect();
    let with_weights: Vec<&Drafter> = drafters.iter().flatten().collect();
    let mut sums = vec![vec![HeldOutLoss::default(); setup.edges.len() + 2]; with_weights.len()];
    let progress = bar(data.len() as u64, "measuring the loss");
    for i in 0..data.len() {
        if stop.load(Ordering::SeqCst) {
            progress.finish_and_clear();
            return Ok(nothing());
        }
        let loss_mask: Vec<bool> = data.mask(i).iter().map(|&loss| loss != 0).collect();
        let sample = Sample {
            input_ids: data.ids(i),
            loss_mask: &loss_mask,
        };
        let losses = held_out_loss(&setup.target, &with_weights, sample, i as u64, blocks)
            .map_err(|e| Failure::new(code::WORKER, format!("{}: {e}", data.place(i))))?;
        let bucket = setup.edges.partition_point(|&edge| edge < data.length(i));
        for (sums, loss) in sums.iter_mut().zip(losses) {
            sums[0].add(loss);
            sums[bucket + 1].add(loss);
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    let mut sums = sums.into_iter();
    let groups = drafters.iter().map(|drafter| {
        let sums = drafter.as_ref().and_then(|_| sums.next())?;
        Some(named(&setup.edges, &sums))
    });
    Ok(groups.collect())
}

fn named(edges: &[u32], sums: &[HeldOutLoss]) -> Groups {
    let mut groups = vec![("all".to_owned(), sums[0])];
    let buckets = sums[1..]
        .iter()
        .enumerate()
        .filter(|(_, loss)| loss.weight > 0.0);
    if !edges.is_empty() {
        groups.extend(buckets.map(|(i, loss)| (super::sums::bucket_name(edges, i), *loss)));
    }
    groups
}
