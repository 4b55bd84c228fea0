//! Checkpoints on a real file system.

use std::collections::BTreeMap;
use std::fs;

use candle_core::Tensor;

use super::*;
use crate::model::fixture::{drafter_config, microbatch, models, row};
use crate::model::{Drafter, drafter_shapes};
use crate::train::{AdamW, Optimizer, Schedule};

/// A checkpoint after one real step, its number set to `step`.
fn checkpoint(step: u64) -> Checkpoint {
    let (target, drafter) = models();
    let (batch, plan) = microbatch(&[&row(1, 20, 5)], 20);
    let part = drafter
        .accumulate(&target.forward(&batch).unwrap(), &plan)
        .unwrap();
    let weights = drafter.weights().clone();
    let mut optimizer = Optimizer::new(weights, AdamW::default(), Schedule::constant(0.1)).unwrap();
    optimizer.apply(part).unwrap();
    Checkpoint {
        step,
        config: drafter_config(),
        trainer: optimizer.export(),
        run: r#"{"cursor": 7}"#.to_owned(),
    }
}

fn numbers(tensors: &Tensors) -> BTreeMap<String, Vec<f32>> {
    let flat = |t: &Tensor| t.flatten_all().unwrap().to_vec1().unwrap();
    tensors
        .iter()
        .map(|(name, t)| (name.clone(), flat(t)))
        .collect()
}

fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|e| {
            (
                e.file_name().into_string().unwrap(),
                fs::read(e.path()).unwrap(),
            )
        })
        .collect()
}

#[test]
fn what_was_written_comes_back_bit_for_bit() {
    let dir = tempfile::tempdir().unwrap();
    let written = checkpoint(3);
    let path = written.write(dir.path()).unwrap();
    assert_eq!(path, dir.path().join("step-3"));
    assert_eq!(
        fs::read_to_string(dir.path().join("latest")).unwrap(),
        "step-3\n"
    );
    let found = read_latest(dir.path()).unwrap();
    assert!(found.skipped.is_empty());
    let read = found.checkpoint.unwrap();
    assert_eq!(
        (read.step, &read.config, &read.run),
        (3, &written.config, &written.run)
    );
    assert_eq!(numbers(&read.trainer), numbers(&written.trainer));

    let (_, drafter) = models();
    let weights = drafter.weights().clone();
    let mut optimizer = Optimizer::new(weights, AdamW::default(), Schedule::constant(0.1)).unwrap();
    optimizer.import(&read.trainer, read.step).unwrap();
    assert_eq!(
        (optimizer.step(), numbers(optimizer.weights())),
        (3, numbers(&written.weights()))
    );
}

#[test]
fn the_drafter_has_exactly_its_tensors_and_loads_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = checkpoint(1).write(dir.path()).unwrap();
    let bytes = fs::read(path.join(MODEL)).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let found: BTreeMap<String, Vec<usize>> = file
        .iter()
        .map(|(name, view)| (name.to_owned(), view.shape().to_vec()))
        .collect();
    assert_eq!(found.len(), 3 + 11 * 2);
    assert_eq!(found, drafter_shapes(&drafter_config()));
    assert!(
        file.iter()
            .all(|(_, view)| view.dtype() == safetensors::Dtype::BF16)
    );
    let (target, _) = models();
    let loaded = Drafter::load(&path, &target).unwrap();
    let (a, b) = (numbers(loaded.weights()), numbers(&checkpoint(1).weights()));
    for (name, values) in a {
        let near = |(a, b): (&f32, &f32)| (a - b).abs() <= b.abs() / 256.0;
        assert!(values.iter().zip(&b[&name]).all(near), "{name}");
    }
}

#[test]
fn the_same_state_gives_the_same_bytes() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [a, b] = dirs
        .each_ref()
        .map(|dir| files(&checkpoint(2).write(dir.path()).unwrap()));
    assert_eq!(
        a.keys().collect::<Vec<_>>(),
        [CONFIG, MANIFEST, MODEL, RUN, TRAINER]
    );
    assert!(a == b);
}

type Damage<'a> = &'a dyn Fn(&mut Vec<u8>);

#[test]
fn damage_in_the_newest_step_falls_back_to_the_one_before() {
    let truncated = |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() - 1);
    let flipped = |bytes: &mut Vec<u8>| *bytes.last_mut().unwrap() ^= 1;
    let damages: [(&str, Damage<'_>, &str); 5] = [
        (TRAINER, &truncated, "were written"),
        (MODEL, &flipped, "crc32"),
        (RUN, &flipped, "crc32"),
        (MANIFEST, &|bytes| bytes.truncate(40), "manifest.json"),
        (CONFIG, &|bytes| bytes.clear(), "config.json: 0 bytes"),
    ];
    for (file, damage, reason) in damages {
        let dir = tempfile::tempdir().unwrap();
        checkpoint(9).write(dir.path()).unwrap();
        let newest = checkpoint(10).write(dir.path()).unwrap();
        let mut bytes = fs::read(newest.join(file)).unwrap();
        damage(&mut bytes);
        fs::write(newest.join(file), bytes).unwrap();
        let found = read_latest(dir.path()).unwrap();
        assert_eq!(found.checkpoint.unwrap().step, 9, "{file}");
        assert_eq!(found.skipped.len(), 1);
        assert!(
            found.skipped[0].reason.contains(reason),
            "{}",
            found.skipped[0].reason
        );
        // Training goes on from step 9 and writes step 10 again.
        checkpoint(10).write(dir.path()).unwrap();
        assert_eq!(
            read_latest(dir.path()).unwrap().checkpoint.unwrap().step,
            10
        );
    }
}

#[test]
fn what_a_crash_leaves_is_not_a_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    assert!(
        read_latest(&dir.path().join("none"))
            .unwrap()
            .checkpoint
            .is_none()
    );
    let path = checkpoint(4).write(dir.path()).unwrap();
    fs::create_dir(dir.path().join("step-5.tmp")).unwrap();
    fs::copy(path.join(MODEL), dir.path().join("step-5.tmp").join(MODEL)).unwrap();
    let found = read_latest(dir.path()).unwrap();
    assert_eq!(
        (found.checkpoint.unwrap().step, found.skipped.len()),
        (4, 0)
    );
    let five = checkpoint(5).write(dir.path()).unwrap();
    assert_eq!(files(&five).len(), 5);
    assert!(!dir.path().join("step-5.tmp").exists());
}

#[test]
fn intact_steps_and_bad_state_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let first = checkpoint(4);
    first.write(dir.path()).unwrap();
    assert!(matches!(
        first.write(dir.path()),
        Err(CheckpointError::Exists { .. })
    ));
    let bad = Checkpoint {
        step: 5,
        run: "{".to_owned(),
        ..first.clone()
    };
    assert!(matches!(
        bad.write(dir.path()),
        Err(CheckpointError::Run { .. })
    ));
    let mut short = first;
    short.step = 6;
    short.trainer.remove("weight.layers.1.mlp.up_proj.weight");
    let error = short.write(dir.path()).unwrap_err().to_string();
    assert!(
        error.contains("layers.1.mlp.up_proj.weight: is missing"),
        "{error}"
    );
    assert_eq!(read_latest(dir.path()).unwrap().checkpoint.unwrap().step, 4);
}

#[test]
fn a_drafter_can_be_exported_alone() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("drafter");
    let (target, drafter) = models();
    write_drafter(&dir, drafter.config(), drafter.weights(), DType::F32).unwrap();
    assert_eq!(files(&dir).keys().collect::<Vec<_>>(), [CONFIG, MODEL]);
    let loaded = Drafter::load(&dir, &target).unwrap();
    assert_eq!(loaded.config(), drafter.config());
    assert_eq!(numbers(loaded.weights()), numbers(drafter.weights()));
    let again = write_drafter(&dir, drafter.config(), drafter.weights(), DType::F32);
    assert!(matches!(again, Err(CheckpointError::Exists { .. })));
}

/// Names in a checkpoint directory, in order.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn the_newest_stay_and_the_best_is_never_rotated_away() {
    let dir = tempfile::tempdir().unwrap();
    let retention = Retention {
        keep: 2,
        best: None,
    };
    let writer = Writer::start(dir.path(), retention).unwrap();
    let one = checkpoint(1);
    for (step, score) in [(1, 0.5), (2, 0.9), (3, f64::NAN), (4, 0.7), (5, 0.8)] {
        let next = Checkpoint {
            step,
            ..one.clone()
        };
        writer.submit(next, Some(score));
    }
    let written = writer.finish().unwrap();
    let best: Vec<u64> = written
        .iter()
        .filter(|w| w.is_best)
        .map(|w| w.step)
        .collect();
    assert_eq!(best, [1, 2]);
    let removed: Vec<u64> = written.iter().flat_map(|w| w.removed.clone()).collect();
    assert_eq!(removed, [1, 3]);
    assert_eq!(best_step(dir.path()), Some(2));
    assert_eq!(
        names(dir.path()),
        ["best", "latest", "step-2", "step-4", "step-5"]
    );
    assert_eq!(run_of(dir.path(), 2).as_deref(), Some(r#"{"cursor": 7}"#));
}

#[cfg(unix)]
#[test]
fn who_may_read_the_config_may_read_the_weights() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let step = checkpoint(7).write(dir.path()).unwrap();
    let mode = |name: &str| fs::metadata(step.join(name)).unwrap().permissions().mode();
    for name in [MODEL, TRAINER, RUN, MANIFEST] {
        assert_eq!(mode(name), mode(CONFIG), "{name}");
    }
}

#[test]
fn a_run_that_goes_on_knows_the_best_so_far_and_clears_what_a_kill_left() {
    let dir = tempfile::tempdir().unwrap();
    checkpoint(7).write(dir.path()).unwrap();
    fs::create_dir(dir.path().join("step-8.tmp")).unwrap();
    fs::write(dir.path().join("step-8.tmp").join(MODEL), "half").unwrap();
    fs::write(dir.path().join("latest.tmp"), "ste").unwrap();
    fs::write(dir.path().join("theirs.tmp"), "kept").unwrap();
    let retention = Retention {
        keep: 0,
        best: Some(0.6),
    };
    let writer = Writer::start(dir.path(), retention).unwrap();
    assert_eq!(names(dir.path()), ["latest", "step-7", "theirs.tmp"]);
    writer.submit(checkpoint(8), Some(0.5));
    writer.submit(checkpoint(9), Some(0.7));
    let written = writer.finish().unwrap();
    assert_eq!(
        written.iter().map(|w| w.is_best).collect::<Vec<_>>(),
        [false, true]
    );
    assert_eq!(best_step(dir.path()), Some(9));
    assert_eq!(names(dir.path()).len(), 6);
}

#[test]
fn a_writer_says_what_the_disk_refused_and_keeps_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let retention = Retention {
        keep: 1,
        best: None,
    };
    let writer = Writer::start(dir.path(), retention).unwrap();
    writer.submit(checkpoint(3), None);
    writer.submit(checkpoint(3), None);
    let error = writer.finish().unwrap_err().to_string();
    assert!(error.contains("step-3 exists already"), "{error}");
    assert_eq!(read_latest(dir.path()).unwrap().checkpoint.unwrap().step, 3);
}

#[test]
fn a_pointer_that_is_missing_or_torn_hides_nothing() {
    let dir = tempfile::tempdir().unwrap();
    checkpoint(4).write(dir.path()).unwrap();
    checkpoint(5).write(dir.path()).unwrap();
    for torn in [None, Some("step-"), Some("step-77\n")] {
        match torn {
            None => fs::remove_file(dir.path().join("latest")).unwrap(),
            Some(text) => fs::write(dir.path().join("latest"), text).unwrap(),
        }
        assert_eq!(read_latest(dir.path()).unwrap().checkpoint.unwrap().step, 5);
    }
}
