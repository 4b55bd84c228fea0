//! `dflash trace`: a recorded run, simulated or executed, as a file for Perfetto.

use super::recorded::Recorded;
use super::retrace::retrace_watched;
use crate::cli::TraceArgs;
use crate::failure::Failure;
use crate::output::write_atomic;
use crate::report::named_buckets;
use crate::terminal::say;
use crate::trace_events::{TRACE_EVENTS, TraceEvents};
use shared::metrics::Detail;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) fn run(args: &TraceArgs) -> Result<(), Failure> {
    let path = trace_at(&args.run);
    let recorded = Recorded::read(&path)?;
    if let Some(mismatch) = recorded.plan_mismatch() {
        return Err(Failure::no(mismatch));
    }
    let buckets = named_buckets(&recorded.file.workload.buckets, &recorded.lengths);
    let mut picture = TraceEvents::new(&recorded.file, buckets, recorded.fact("driver"));
    let plan = Arc::clone(&recorded.plan);
    let detail = Detail::default();
    let retraced = retrace_watched(&recorded, &recorded.file, &plan, detail, &mut picture)
        .map_err(|divergence| Failure::no(format!("{}: {divergence}", path.display())))?;
    let out = args.out.clone();
    let out = out.unwrap_or_else(|| path.with_file_name(TRACE_EVENTS));
    let bytes = picture.finish();
    write_atomic(&out, &bytes)?;
    say(format!(
        "{}: {} records, {} steps, {} bytes; open it in Perfetto or at chrome://tracing",
        out.display(),
        recorded.records.len(),
        retraced.metrics.steps,
        bytes.len()
    ));
    Ok(())
}

/// The trace itself, or that of a run's folder.
fn trace_at(run: &Path) -> PathBuf {
    if run.is_dir() {
        run.join("trace.txt")
    } else {
        run.to_path_buf()
    }
}
