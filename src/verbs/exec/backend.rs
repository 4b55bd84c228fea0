//! Which backend runs a policy, and why another cannot.

use super::Ready;
use crate::cli::BackendArg;
use crate::failure::Failure;
use crate::terminal::note;
use shared::id::Bytes;
use sim::spec::Lengths;

/// The backend that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Waits as long as work would take.
    Emulated,
    /// Real models on the CPU.
    Cpu,
}

/// The backend asked for, or the best one that can run the policy here.
pub(crate) fn choose(asked: BackendArg, ready: &Ready) -> Result<Choice, Failure> {
    match asked {
        BackendArg::Emulated => Ok(Choice::Emulated),
        BackendArg::Cpu => can_run_on_cpu(ready).map(|()| Choice::Cpu),
        BackendArg::Auto => {
            can_run_on_cpu(ready)?;
            note("no GPU backend is built into this program: running on the CPU");
            Ok(Choice::Cpu)
        }
    }
}

/// Refuses a policy whose data or model this machine does not have, and says what would run instead.
fn can_run_on_cpu(ready: &Ready) -> Result<(), Failure> {
    let file = &ready.case.file;
    let instead = "`--backend emulated` runs its dispatch here without the model";
    let refuse = |why: String| {
        Err(Failure::usage(format!(
            "policy \"{}\" cannot run on the CPU: {why}; {instead}",
            file.name
        )))
    };
    let Some(section) = &file.exec else {
        let per_token = file.model.bytes_per_token().0;
        return refuse(format!(
            "it has no [exec] section, so it names no data and no model to run ({per_token} bytes of hidden states a token were simulated); add [exec.data], [exec.target] and [exec.drafter]"
        ));
    };
    if file.workload.lengths != Lengths::Data {
        return refuse("workload.lengths describes lengths that no data has; set workload.lengths = \"data\" and search again".into());
    }
    let needed = weights_bytes(section);
    match memory_available() {
        Some(there) if needed > there => refuse(format!(
            "its models need about {} and {} of memory are free",
            Bytes(needed),
            Bytes(there)
        )),
        Some(_) | None => Ok(()),
    }
}

/// fp32 weights of target and drafter, with gradients and optimizer state of the drafter. (bytes)
fn weights_bytes(section: &exec::config::ExecSection) -> u64 {
    let folder = |path: &std::path::Path| -> u64 {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        let files = entries.filter(|e| e.path().extension().is_some_and(|x| x == "safetensors"));
        files
            .filter_map(|e| e.metadata().ok())
            .map(|m| m.len())
            .sum()
    };
    let t = &section.target;
    let target = match &t.path {
        // bf16 on disk, fp32 here.
        Some(path) => 2.0 * folder(path) as f64,
        None => {
            let layer = layer_weights(
                t.hidden_size,
                t.intermediate_size,
                [t.attention_heads, t.key_value_heads],
                t.head_dim,
            );
            4.0 * layer * t.layers as f64
        }
    };
    let d = &section.drafter;
    let layer = layer_weights(
        t.hidden_size,
        d.intermediate_size,
        [d.attention_heads, d.key_value_heads],
        d.head_dim,
    );
    (target + 16.0 * layer * d.layers as f64) as u64
}

/// Weights of one decoder layer: attention's four projections and the feed-forward's three.
fn layer_weights(hidden: usize, inner: usize, heads: [usize; 2], head_dim: usize) -> f64 {
    let [hidden, inner, head_dim] = [hidden, inner, head_dim].map(|n| n as f64);
    let heads: f64 = heads.iter().map(|&n| n as f64).sum();
    2.0 * hidden * heads * head_dim + 3.0 * hidden * inner
}

/// Memory that can be had without swapping, where the system says. (bytes)
fn memory_available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find(|line| line.starts_with("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}
