//! What the environment must say before a run's process begins: it is read once, by libraries, at their start.

use crate::failure::{Failure, code};
use exec::cuda::nccl::MULTICAST;

/// The variable by which the tensor library is told its number of threads.
const THREADS: &str = "RAYON_NUM_THREADS";

/// Starts this process again with what libraries must be told, unless it is so already.
///
/// One thread for each worker's tensors, unless the user chose a number: the workers are the parallelism here, and a tensor library that
/// takes all cores for each of them makes them wait for one another. And NVLink multicast is off, whatever the user chose: it can put GPUs
/// that others share out of service.
pub(crate) fn for_libraries() -> Result<(), Failure> {
    let threads = std::env::var_os(THREADS);
    if threads.is_some() && std::env::var_os(MULTICAST).is_some_and(|value| value == "0") {
        return Ok(());
    }
    let program = std::env::current_exe().map_err(|e| {
        Failure::new(
            code::WORKER,
            format!("this program cannot be found again: {e}; set {THREADS}=1 and {MULTICAST}=0"),
        )
    })?;
    let mut again = std::process::Command::new(program);
    again
        .args(std::env::args_os().skip(1))
        .env(THREADS, threads.unwrap_or_else(|| "1".into()))
        .env(MULTICAST, "0");
    replace(again)
}

#[cfg(unix)]
fn replace(mut again: std::process::Command) -> Result<(), Failure> {
    use std::os::unix::process::CommandExt;
    let error = again.exec();
    Err(Failure::new(
        code::WORKER,
        format!("cannot start again: {error}; set {THREADS}=1 and {MULTICAST}=0"),
    ))
}

#[cfg(not(unix))]
fn replace(mut again: std::process::Command) -> Result<(), Failure> {
    let status = again.status().map_err(|e| {
        Failure::new(
            code::WORKER,
            format!("cannot start again: {e}; set {THREADS}=1 and {MULTICAST}=0"),
        )
    })?;
    std::process::exit(status.code().unwrap_or(i32::from(code::WORKER)));
}
