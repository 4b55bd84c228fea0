//! A folder with a scenario in it, and the program to run there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A small box and a small workload; policies follow.
pub(crate) const SCENARIO: &str = r#"
name = "small"
seed = 3

[workload]
samples = 600
lengths = { uniform = { min = 16, max = 512 } }
buckets = { edges = [128, 256, 384, 512] }

[training]
grad_accum = 2
token_budget = 4096
batch_max = 16

[model]
captured_layers = 2
hidden_size = 64
target_weights = "1 GB"
target_activations = "100 MB"
drafter_state = "500 MB"
drafter_activations = "200 MB"

[hardware]
gpus = 4
gpu_memory = "8 GB"
host_memory = "32 GB"
host_pageable = { bandwidth = "2 GB/s", shared = true }
p2p = { bandwidth = "50 GB/s" }

[costs]
target = { per_token_us = 100.0 }
drafter = { base_ms = 5.0, per_token_us = 80.0 }
step_ms = 20.0
spread = 0.1

[search]
replications = 2
"#;

pub(crate) const COMPOSED: &str = r#"
[[policy]]
preset = "composed"
targets = 2
drafters = 2
mix_step_min = 3
"#;

/// What a run of the program gave.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Asserts the exit code.
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    /// Asserts that the complaint holds every one of `parts`.
    pub(crate) fn complains(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.err.contains(part), "{part:?} is not in {self:#?}");
        }
        self
    }

    /// Asserts that the answer holds every one of `parts`.
    pub(crate) fn says(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.out.contains(part), "{part:?} is not in {self:#?}");
        }
        self
    }
}

/// A folder of its own for each test.
pub(crate) struct Desk {
    folder: TempDir,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder for the test"),
        }
    }

    /// A desk with `s.toml`: the small scenario and these policies.
    pub(crate) fn with(policies: &str) -> Self {
        let desk = Self::new();
        desk.write("s.toml", format!("{SCENARIO}{policies}"));
        desk
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("inside the folder")).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Runs the program in the folder with these arguments, split at blanks.
    pub(crate) fn run(&self, line: &str) -> Ran {
        self.run_args(&line.split_whitespace().collect::<Vec<_>>())
    }

    pub(crate) fn run_args(&self, args: &[&str]) -> Ran {
        let output = Command::new(env!("CARGO_BIN_EXE_dflash"))
            .args(args)
            .current_dir(self.folder.path())
            .output()
            .expect("the program starts");
        Ran {
            code: output.status.code().expect("it exits by itself"),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// All files below `name` with their bytes.
    pub(crate) fn files(&self, name: &str) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        gather(&self.path(name), &mut files);
        files
    }

    /// The rows of a results file, each by column.
    pub(crate) fn rows(&self, name: &str) -> Vec<BTreeMap<String, String>> {
        let mut reader = csv::Reader::from_path(self.path(name)).unwrap();
        reader.deserialize().map(|row| row.unwrap()).collect()
    }
}

fn gather(path: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            gather(&path, files);
        } else {
            files.insert(path.clone(), std::fs::read(path).unwrap());
        }
    }
}
