//! The binary from outside: what it prints, what it writes, and its exit codes.

#[path = "cli/ablate.rs"]
mod ablate;
#[path = "cli/check.rs"]
mod check;
#[path = "cli/compare.rs"]
mod compare;
#[path = "cli/desk.rs"]
mod desk;
#[path = "cli/eval.rs"]
mod eval;
#[path = "cli/exec.rs"]
mod exec;
#[path = "cli/explain.rs"]
mod explain;
#[path = "cli/inspect.rs"]
mod inspect;
#[path = "cli/prepare.rs"]
mod prepare;
#[path = "cli/refusals.rs"]
mod refusals;
#[path = "cli/regenerate.rs"]
mod regenerate;
#[path = "cli/replay.rs"]
mod replay;
#[path = "cli/report.rs"]
mod report;
#[path = "cli/resume.rs"]
mod resume;
#[path = "cli/sim.rs"]
mod sim;
#[path = "cli/trace.rs"]
mod trace;
#[path = "cli/twin.rs"]
mod twin;
#[path = "cli/validate.rs"]
mod validate;
