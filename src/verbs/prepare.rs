//! `dflash prepare`: tokenise once, so that every later run maps the tokens.

use super::data::{Source, of_data, store_among};
use super::sim::stop_on_signal;
use crate::cli::PrepareArgs;
use crate::config::POINTS_MAX;
use crate::failure::Failure;
use crate::scenario::{data_section, open};
use crate::terminal::{byte_bar, note, say};
use exec::data::Watch;
use exec::data::token_store::{self, StoreError, Summary};
use indicatif::ProgressBar;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) fn run(args: &PrepareArgs) -> Result<(), Failure> {
    let input = open(&args.files, &args.sets, POINTS_MAX)?;
    let section = data_section(&input)?;
    if let Some(store) = store_among(&section.paths) {
        let dir = store.to_path_buf();
        return Err(of_data(StoreError::Mixed { dir }.into()));
    }
    let dir = destination(args, section.store.as_deref())?;
    let source = Source::of(&section)?;
    let recipe = source.recipe(&source.inputs);
    let watched = Watched::new(if args.verify {
        "verifying"
    } else {
        "tokenising"
    });
    if args.verify {
        let whole = token_store::verify(&dir, &recipe, &watched);
        watched.bar.finish_and_clear();
        say(shown(&dir, "whole", &whole.map_err(of_data)?));
        return Ok(());
    }
    if !args.force && token_store::is_store(&dir) {
        match token_store::summary(&dir, &recipe) {
            Ok(summary) => {
                say(shown(&dir, "up to date", &summary));
                return Ok(());
            }
            Err(error) => note(format!("making it anew: {error}")),
        }
    }
    let made = token_store::prepare(&dir, &recipe, &watched);
    watched.bar.finish_and_clear();
    let summary = made.map_err(of_data)?;
    say(format!("data: {}", summary.counts));
    say(shown(&dir, "written", &summary));
    if section.store.is_none() {
        note(format!(
            "set exec.data.store = {:?} to read from it",
            dir.display().to_string()
        ));
    }
    Ok(())
}

/// Where the store goes: `--out`, else what the files say.
fn destination(args: &PrepareArgs, said: Option<&Path>) -> Result<PathBuf, Failure> {
    let dir = args.out.clone().or_else(|| said.map(Path::to_path_buf));
    dir.ok_or_else(|| {
        Failure::usage("exec.data.store: is not set; set it, or give the store's folder with --out")
    })
}

fn shown(dir: &Path, how: &str, summary: &Summary) -> String {
    format!(
        "store {} is {how}: {} samples, {} tokens, {} with loss, digest {}",
        dir.display(),
        summary.samples,
        summary.tokens,
        summary.loss_tokens,
        summary.digest
    )
}

/// A progress bar over bytes, and the signal to stop.
struct Watched {
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
}

impl Watched {
    fn new(what: &str) -> Self {
        Self {
            bar: byte_bar(what),
            stop: stop_on_signal(),
        }
    }
}

impl Watch for Watched {
    fn total(&self, bytes: u64) {
        self.bar.set_length(bytes);
    }

    fn advanced(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}
