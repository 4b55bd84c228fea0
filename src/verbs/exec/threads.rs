//! One thread for each worker's tensors: the workers are the parallelism here, and a tensor library that takes all cores for each
//! of them makes them wait for one another.

use crate::failure::{Failure, code};

/// The variable by which the tensor library is told its number of threads, once, at its start.
const VARIABLE: &str = "RAYON_NUM_THREADS";

/// Starts this process again with one thread a worker, unless the user chose a number.
pub(crate) fn one_for_tensors() -> Result<(), Failure> {
    if std::env::var_os(VARIABLE).is_some() {
        return Ok(());
    }
    let program = std::env::current_exe().map_err(|e| {
        Failure::new(
            code::WORKER,
            format!("this program cannot be found again: {e}; set {VARIABLE}=1"),
        )
    })?;
    let mut again = std::process::Command::new(program);
    again.args(std::env::args_os().skip(1)).env(VARIABLE, "1");
    replace(again)
}

#[cfg(unix)]
fn replace(mut again: std::process::Command) -> Result<(), Failure> {
    use std::os::unix::process::CommandExt;
    let error = again.exec();
    Err(Failure::new(
        code::WORKER,
        format!("cannot start again: {error}; set {VARIABLE}=1"),
    ))
}

#[cfg(not(unix))]
fn replace(mut again: std::process::Command) -> Result<(), Failure> {
    let status = again.status().map_err(|e| {
        Failure::new(
            code::WORKER,
            format!("cannot start again: {e}; set {VARIABLE}=1"),
        )
    })?;
    std::process::exit(status.code().unwrap_or(i32::from(code::WORKER)));
}
