//! What a run left in its files.

use serde_json::Value;
use std::path::Path;

/// What one training was worth. Groups are `all`, then the buckets by length.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    /// The value of the varied key.
    pub(super) value: String,
    pub(super) seed: u64,
    /// Acceptance length on the prompts. (tokens a target forward)
    pub(super) acceptance: Vec<(String, f64)>,
    /// Loss on held-out samples; empty where none were given. (nats)
    pub(super) loss: Vec<(String, f64)>,
    /// Optimizer steps trained.
    pub(super) steps: usize,
    /// Mean training loss over the last tenth of the steps. Steps of other mixes are other samples: compare held-out losses.
    pub(super) train_loss: f64,
}

impl Outcome {
    /// Reads `metrics.jsonl` and `eval/eval.json` of a run's directory.
    pub(super) fn read(value: &str, seed: u64, dir: &Path) -> Result<Self, String> {
        let metrics = dir.join("metrics.jsonl");
        let losses: Vec<f64> = text(&metrics)?
            .lines()
            .filter_map(|line| {
                serde_json::from_str::<Value>(line)
                    .ok()?
                    .get("loss")?
                    .as_f64()
            })
            .collect();
        let eval = dir.join("eval").join("eval.json");
        let report: Value =
            serde_json::from_str(&text(&eval)?).map_err(|e| format!("{}: {e}", eval.display()))?;
        let groups = |key: &str| -> Vec<(String, f64)> {
            let list = report.get(key).and_then(Value::as_array);
            let pair = |group: &Value| {
                let name = group.get("group")?.as_str()?.to_owned();
                Some((
                    name,
                    group
                        .get("value")
                        .and_then(Value::as_f64)
                        .unwrap_or(f64::NAN),
                ))
            };
            list.into_iter().flatten().filter_map(pair).collect()
        };
        let acceptance = groups("acceptance");
        if acceptance.is_empty() {
            return Err(format!(
                "{}: holds no acceptance; evaluate again",
                eval.display()
            ));
        }
        Ok(Self {
            value: value.to_owned(),
            seed,
            acceptance,
            loss: groups("loss"),
            steps: losses.len(),
            train_loss: crate::verbs::exec::ends(&losses).1,
        })
    }
}

fn text(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("{}: cannot be read: {e}", path.display()))
}
