//! Going on from a checkpoint: what is done stays done, and every other sample is trained once.

use super::Ready;
use crate::failure::Failure;
use crate::output::{OutputDir, OutputError};
use crate::terminal::note;
use exec::checkpoint::{Checkpoint, best_step, read_latest, run_of};
use exec::config::{BestBy, ExecSection};
use serde_json::{Map, Value, json};
use shared::core::{Core, Status};
use shared::plan::{Done, Plan};
use shared::policy::Barrier;
use std::path::Path;
use std::sync::Arc;

/// Where a run goes on.
#[derive(Clone, Debug)]
pub(crate) struct Resumed {
    /// What was saved.
    pub(crate) checkpoint: Checkpoint,
    /// Microbatches that are part of its weights.
    pub(crate) done: Done,
    /// The metric of the best checkpoint there.
    pub(crate) best: Option<f64>,
}

impl Resumed {
    /// Facts for the header of the trace: by these a replay cuts the plan as this run did.
    pub(crate) fn facts(&self) -> Vec<(String, String)> {
        vec![
            (
                "resumed_after_step".into(),
                self.checkpoint.step.to_string(),
            ),
            (DONE.into(), self.done.to_string()),
        ]
    }

    /// Lines of the metrics so far, up to the checkpoint's step.
    pub(crate) fn lines(&self, dir: &OutputDir) -> Vec<String> {
        let is_before = |line: &String| {
            let line: Option<Value> = serde_json::from_str(line).ok();
            let step = line.and_then(|line| line["step"].as_u64());
            step.is_some_and(|step| step <= self.checkpoint.step)
        };
        let lines = dir.lines_left("metrics.jsonl");
        lines.into_iter().take_while(is_before).collect()
    }
}

impl Resumed {
    /// Step, loss and learning rate of the steps so far.
    pub(super) fn curve(&self, dir: &OutputDir) -> Vec<[f64; 3]> {
        let point = |line: &String| {
            let line: Value = serde_json::from_str(line).ok()?;
            let [step, loss, rate] =
                ["step", "loss", "learning_rate"].map(|key| line[key].as_f64());
            Some([step?, loss?, rate?])
        };
        self.lines(dir).iter().filter_map(point).collect()
    }
}

/// The trace's fact that lists what an earlier run trained.
pub(crate) const DONE: &str = "done";

/// Takes up the newest whole checkpoint in `out` and cuts the plan to what is left.
///
/// # Errors
/// Usage: nothing there to go on from, drafters that are independent, or a run that was another one.
pub(crate) fn resume(ready: &mut Ready, out: &Path) -> Result<(), Failure> {
    if ready.case.file.policy.barrier == Barrier::None {
        return Err(Failure::usage(
            "--resume: under policy.barrier = \"none\" each drafter has weights of its own and a checkpoint holds those of drafter 0 alone; start anew without --resume",
        ));
    }
    let folder = out.join("checkpoint");
    let found = read_latest(&folder).map_err(|e| Failure::new(OutputError::CODE, e))?;
    for skipped in &found.skipped {
        note(format!(
            "{}: damaged, the one before is taken: {}",
            skipped.path.display(),
            skipped.reason
        ));
    }
    let Some(checkpoint) = found.checkpoint else {
        return from_the_beginning(out, &folder);
    };
    let run: Value = serde_json::from_str(&checkpoint.run).unwrap_or_default();
    let place = folder.join(format!("step-{}", checkpoint.step));
    let place = place.display();
    if let Some(difference) = difference(&run, &facts(ready)) {
        return Err(Failure::usage(format!(
            "{place}: {difference}; set it back, or start anew without --resume"
        )));
    }
    let done = run[DONE].as_str().map(str::parse::<Done>);
    let done = done.and_then(Result::ok).ok_or_else(|| {
        Failure::usage(format!(
            "{place}: its run.json does not say what was trained; start anew without --resume"
        ))
    })?;
    ready.plan = Arc::new(ready.whole.remaining(&done));
    note(format!(
        "going on after step {}: {} of {} microbatches are trained",
        checkpoint.step,
        done.count(),
        ready.whole.microbatches.len()
    ));
    let section = ready.case.file.exec.as_ref();
    let by = section.and_then(|section| section.checkpoint.best_by());
    ready.resumed = Some(Resumed {
        best: by.and_then(|by| best_so_far(&folder, by)),
        checkpoint,
        done,
    });
    Ok(())
}

/// A run that was killed before its first checkpoint has trained nothing that counts.
fn from_the_beginning(out: &Path, folder: &Path) -> Result<(), Failure> {
    let is_begun = out.is_dir() && OutputDir::create(out)?.has_partial("trace.txt");
    if is_begun {
        note("the run was interrupted before its first checkpoint; it begins anew");
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{}: holds no whole checkpoint to resume from; check --out, or start anew without --resume",
        folder.display()
    )))
}

/// The score of the step that `best` names, higher for better.
fn best_so_far(folder: &Path, by: BestBy) -> Option<f64> {
    let run = run_of(folder, best_step(folder)?)?;
    let run: Value = serde_json::from_str(&run).ok()?;
    score(by, &run["since_last"])
}

/// The metric of a checkpoint, higher for better.
pub(super) fn score(by: BestBy, since_last: &Value) -> Option<f64> {
    match by {
        BestBy::Loss => since_last["loss"].as_f64().map(|loss| -loss),
        BestBy::AcceptedLength => since_last["accepted_length"].as_f64(),
    }
}

/// What must be the same for a run to go on as it was.
pub(super) fn facts(ready: &Ready) -> Value {
    let file = &ready.case.file;
    json!({
        "seed": file.seed,
        "policy": file.policy.name,
        "plan": format!("{:016x}", ready.whole.digest()),
        "epochs": file.workload.epochs,
        "settings": settings(file.exec.as_ref()),
    })
}

/// The keys of `[exec]` by which weights come out differently. Data are compared by their digest; who watches and what is kept
/// makes no difference.
fn settings(section: Option<&ExecSection>) -> Value {
    let all = serde_json::to_value(section).unwrap_or_default();
    let Value::Object(mut all) = all else {
        return Value::Null;
    };
    for key in ["data", "checkpoint", "observe", "devices"] {
        all.remove(key);
    }
    // Through text, as what it is compared with: numbers round the same way.
    serde_json::from_str(&Value::Object(all).to_string()).unwrap_or_default()
}

/// The first fact that is another one than what the checkpoint was trained with. The plan comes last: it follows from the others,
/// and from what is not listed.
pub(super) fn difference(saved: &Value, now: &Value) -> Option<String> {
    let keys = ["seed", "policy", "epochs", "settings", "plan"];
    let found = keys.into_iter().find_map(|key| {
        let of = |facts: &Value| facts.get(key).cloned().unwrap_or(Value::Null);
        first_difference(key, &of(saved), &of(now))
    });
    let (path, saved, now) = found?;
    Some(match path.strip_prefix("settings") {
        Some(key) => format!("was trained with exec{key} = {saved}, it is {now} now"),
        None if path == "plan" => format!(
            "was trained by plan {saved}, it is {now} now: lengths, buckets, [training] or [policy] are others"
        ),
        None => format!("was trained with {path} = {saved}, it is {now} now"),
    })
}

fn first_difference(path: &str, saved: &Value, now: &Value) -> Option<(String, Value, Value)> {
    match (saved, now) {
        (Value::Object(a), Value::Object(b)) => {
            let keys = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)));
            let of = |map: &Map<String, Value>, key: &String| {
                map.get(key).cloned().unwrap_or(Value::Null)
            };
            keys.into_iter().find_map(|key| {
                first_difference(&format!("{path}.{key}"), &of(a, key), &of(b, key))
            })
        }
        (a, b) if a == b => None,
        (a, b) => Some((path.to_owned(), a.clone(), b.clone())),
    }
}

/// Everything that is part of the weights after the core's last step.
pub(super) fn done(core: &Core, before: Option<&Done>) -> Done {
    let lives = core.state().lives.statuses().zip(&core.plan().microbatches);
    let committed = lives.filter(|(status, _)| *status == Status::Committed);
    let here = Done::of(committed.map(|(_, microbatch)| microbatch.key));
    before.map_or_else(|| here.clone(), |before| before.union(&here))
}

/// Samples of the microbatches that are done.
pub(super) fn samples(plan: &Plan, done: &Done) -> u64 {
    let trained = plan.microbatches.iter().filter(|m| done.contains(m.key));
    trained.map(|m| u64::from(m.sample_count())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_named_by_its_key() {
        let saved = json!({
            "seed": 1, "more": true, "settings": {"optimizer": {"learning_rate": 0.1, "beta1": 0.9}},
        });
        let mut now = json!({
            "seed": 1, "settings": {"optimizer": {"learning_rate": 0.1, "beta1": 0.9}},
        });
        assert_eq!(difference(&saved, &now), None);
        now["settings"]["optimizer"]["learning_rate"] = json!(0.2);
        assert_eq!(
            difference(&saved, &now).unwrap(),
            "was trained with exec.optimizer.learning_rate = 0.1, it is 0.2 now"
        );
        now["seed"] = json!(2);
        assert_eq!(
            difference(&saved, &now).unwrap(),
            "was trained with seed = 1, it is 2 now"
        );
    }

    #[test]
    fn lower_loss_and_longer_runs_score_higher() {
        let since = json!({"loss": 2.0, "accepted_length": 1.5});
        assert_eq!(score(BestBy::Loss, &since), Some(-2.0));
        assert_eq!(score(BestBy::AcceptedLength, &since), Some(1.5));
        assert_eq!(score(BestBy::Loss, &json!({})), None);
    }
}
