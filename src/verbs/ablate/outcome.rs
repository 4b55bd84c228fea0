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
    /// Reads `metrics.jsonl` of a run's directory, and what `eval.json` in `eval` says of its drafter.
    pub(super) fn read(value: &str, seed: u64, dir: &Path, eval: &Path) -> Result<Self, String> {
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
        let eval = eval.join("eval.json");
        let report: Value =
            serde_json::from_str(&text(&eval)?).map_err(|e| format!("{}: {e}", eval.display()))?;
        let is_mine = |drafter: &&Value| {
            let path = drafter["checkpoint"].as_str();
            path.is_some_and(|path| Path::new(path).starts_with(dir))
        };
        let drafters = report["drafters"].as_array();
        let mine = drafters.and_then(|list| list.iter().find(is_mine));
        let mine = mine.ok_or_else(|| {
            format!(
                "{}: says nothing of {}; evaluate again",
                eval.display(),
                dir.display()
            )
        })?;
        let groups = |list: &Value, value: fn(&Value) -> &Value| -> Vec<(String, f64)> {
            let pair = |group: &Value| {
                let name = group["group"].as_str()?.to_owned();
                Some((name, value(group).as_f64().unwrap_or(f64::NAN)))
            };
            list.as_array()
                .into_iter()
                .flatten()
                .filter_map(pair)
                .collect()
        };
        let all = mine["acceptance_length"]["mean"]
            .as_f64()
            .unwrap_or(f64::NAN);
        let by_length = groups(
            &mine["by_length"],
            |group| &group["acceptance_length"]["mean"],
        );
        let acceptance = std::iter::once(("all".to_owned(), all))
            .chain(by_length)
            .collect();
        Ok(Self {
            value: value.to_owned(),
            seed,
            acceptance,
            loss: groups(&mine["held_out_loss"], |group| &group["value"]),
            steps: losses.len(),
            train_loss: crate::verbs::exec::ends(&losses).1,
        })
    }
}

fn text(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("{}: cannot be read: {e}", path.display()))
}
