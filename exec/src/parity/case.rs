//! The recorded case.

use std::path::{Path, PathBuf};

use candle_core::{Device, Tensor, safetensors};
use serde::Deserialize;

use super::ParityError;
use crate::model::{DrafterConfig, PaddedBatch, Sample, Tensors};
use crate::train::BlockSpec;

/// A recorded case.
#[derive(Debug)]
pub struct Case {
    dir: PathBuf,
    /// How its blocks are cut.
    pub blocks: BlockSpec,
    /// Its microbatches, all of one optimizer step.
    pub microbatches: Vec<Microbatch>,
    /// Everything recorded, by name.
    pub expected: Tensors,
    /// The rest of it.
    pub json: Json,
}

/// One microbatch of the case.
#[derive(Debug)]
pub struct Microbatch {
    /// Its rows.
    pub batch: PaddedBatch,
    /// The anchors of each row.
    pub anchors: Vec<Vec<u32>>,
}

/// What `case.json` says.
#[derive(Debug, Deserialize)]
pub struct Json {
    /// Captured layers.
    pub target_layer_ids: Vec<usize>,
    gamma: f64,
    microbatches: usize,
    /// Settings of the optimizer.
    pub optimizer: Settings,
    /// Scalars of each step.
    pub expected_f64: Scalars,
}

/// The optimizer's settings that are not its defaults.
#[derive(Debug, Deserialize)]
pub struct Settings {
    /// Constant learning rate.
    pub lr: f64,
}

/// Recorded scalars.
#[derive(Debug, Deserialize)]
pub struct Scalars {
    /// Of each step.
    pub steps: Vec<Step>,
    /// Sum of all weights of a step.
    pub denominator: f64,
}

/// Recorded scalars of one step; see [`crate::train::StepReport`] for their meanings.
#[derive(Debug, Deserialize)]
pub struct Step {
    /// The step's loss.
    pub loss: f64,
    /// The parts of it by microbatch.
    pub loss_per_microbatch: Vec<f64>,
    /// Before clipping.
    pub grad_norm: f64,
    /// Over all supervised slots.
    pub accuracy: f64,
    /// Slots 1 … T−1.
    pub accuracy_per_slot: Vec<f64>,
    /// Without bonus token.
    pub expected_accepted_length: f64,
    /// In tokens.
    pub mean_leading_run: f64,
}

impl Case {
    /// Reads the case in `dir`.
    ///
    /// # Errors
    /// Files that are missing, or other than written.
    pub fn load(dir: &Path) -> Result<Self, ParityError> {
        let path = dir.join("case.json");
        let wrong = |problem: String| ParityError::Case {
            path: path.clone(),
            problem,
        };
        let text = std::fs::read_to_string(&path).map_err(|e| wrong(e.to_string()))?;
        let json: Json = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        let config = DrafterConfig::load(&dir.join("drafter"))?;
        if config.target_layer_ids != json.target_layer_ids {
            return Err(wrong("names other layers than the drafter".into()));
        }
        let inputs = tensors(&dir.join("batch.safetensors"))?;
        Ok(Self {
            blocks: BlockSpec::of(&config).with_gamma(json.gamma),
            microbatches: (0..json.microbatches)
                .map(|m| Microbatch::read(&inputs, m))
                .collect::<Result<_, _>>()?,
            expected: tensors(&dir.join("expected_f32.safetensors"))?,
            dir: dir.to_owned(),
            json,
        })
    }

    /// The folder of the target.
    pub fn target_dir(&self) -> PathBuf {
        self.dir.join("target")
    }

    /// The folder of the drafter.
    pub fn drafter_dir(&self) -> PathBuf {
        self.dir.join("drafter")
    }

    /// A recorded tensor.
    pub(super) fn expected(&self, name: &str) -> Result<&Tensor, ParityError> {
        self.expected.get(name).ok_or_else(|| ParityError::Case {
            path: self.dir.join("expected_f32.safetensors"),
            problem: format!("holds no {name}"),
        })
    }
}

impl Microbatch {
    fn read(inputs: &Tensors, m: usize) -> Result<Self, ParityError> {
        let tensor = |name: &str| {
            let name = format!("mb{m}.{name}");
            inputs.get(&name).ok_or_else(|| ParityError::Case {
                path: "batch.safetensors".into(),
                problem: format!("holds no {name}"),
            })
        };
        let rows = |name: &str| Ok::<_, ParityError>(tensor(name)?.to_vec2::<i64>()?);
        let lengths = tensor("lengths")?.to_vec1::<i64>()?;
        let token = |&t: &i64| t as u32;
        let ids: Vec<Vec<u32>> = rows("input_ids")?
            .iter()
            .map(|row| row.iter().map(token).collect())
            .collect();
        let masks: Vec<Vec<bool>> = rows("loss_mask")?
            .iter()
            .map(|row| row.iter().map(|&m| m == 1).collect())
            .collect();
        let samples: Vec<Sample<'_>> = lengths
            .iter()
            .zip(ids.iter().zip(&masks))
            .map(|(&n, (ids, mask))| Sample {
                input_ids: &ids[..n as usize],
                loss_mask: &mask[..n as usize],
            })
            .collect();
        // −1 is a block that is dropped.
        let anchors = rows("anchors")?
            .iter()
            .map(|row| row.iter().filter(|&&a| a >= 0).map(token).collect())
            .collect();
        Ok(Self {
            batch: PaddedBatch::new(&samples, ids.first().map_or(0, Vec::len))?,
            anchors,
        })
    }
}

fn tensors(path: &Path) -> Result<Tensors, ParityError> {
    let loaded = safetensors::load(path, &Device::Cpu).map_err(|e| ParityError::Case {
        path: path.to_owned(),
        problem: e.to_string(),
    })?;
    Ok(loaded.into_iter().collect())
}
