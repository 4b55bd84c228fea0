//! Which backend runs a policy, and why another cannot.

use super::Ready;
use crate::cli::BackendArg;
use crate::failure::{Failure, code};
use crate::scenario::{Case, PolicyFile};
use crate::terminal::note;
use exec::cuda::Gpu;
use shared::id::Bytes;
use sim::spec::Lengths;

/// The backend that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Waits as long as work would take.
    Emulated,
    /// Real models on the CPU.
    Cpu,
    /// Real models on NVIDIA GPUs.
    Cuda,
}

/// The backend asked for, or the best one that can run the policy here.
pub(crate) fn choose(asked: BackendArg, ready: &Ready) -> Result<Choice, Failure> {
    choose_for(asked, &ready.case)
}

/// The same for a case that has no plan yet.
pub(crate) fn choose_for(asked: BackendArg, case: &Case) -> Result<Choice, Failure> {
    let file = &case.file;
    match asked {
        BackendArg::Emulated => Ok(Choice::Emulated),
        BackendArg::Cpu => can_run_on_cpu(file).map(|()| Choice::Cpu),
        BackendArg::Cuda => {
            Gpu::open(0).map_err(|e| Failure::new(code::GPU, format!("--backend cuda: {e}")))?;
            names_real_work(file, "GPUs").map(|()| Choice::Cuda)
        }
        BackendArg::Auto => match on_gpus(file) {
            Ok(()) => names_real_work(file, "GPUs").map(|()| Choice::Cuda),
            Err(why) => {
                can_run_on_cpu(file)?;
                note(format!("running on the CPU: {why}"));
                Ok(Choice::Cpu)
            }
        },
    }
}

/// Why a policy is better not run on GPUs here.
fn on_gpus(file: &PolicyFile) -> Result<(), String> {
    Gpu::open(0).map_err(|e| e.to_string())?;
    // A policy that was searched for fp32 hidden states counts twice the bytes that a GPU hands over.
    let said = file.model.bytes_per_token().0;
    let target = file.exec.as_ref().map(|section| &section.target);
    let features = target.filter(|target| target.path.is_none()).map(|target| {
        let captured = match target.target_layer_ids.len() {
            0 => target.captured_layers,
            given => given,
        };
        (captured * target.hidden_size) as u64
    });
    match features {
        Some(features) if said == features * super::cpu::ELEMENT_BYTES as u64 => Err(format!(
            "model.bytes_per_token = {said} is for fp32 hidden states; a GPU hands over bf16, set it to {} and search again",
            features * super::cuda::ELEMENT_BYTES as u64
        )),
        Some(_) | None => Ok(()),
    }
}

/// Refuses a policy that names no data and no model, and says what would run instead.
fn names_real_work(file: &PolicyFile, place: &str) -> Result<(), Failure> {
    if file.exec.is_none() {
        let per_token = file.model.bytes_per_token().0;
        return Err(refusal(
            file,
            place,
            &format!(
                "it has no [exec] section, so it names no data and no model to run ({per_token} bytes of hidden states a token were simulated); add [exec.data], [exec.target] and [exec.drafter]"
            ),
        ));
    }
    if file.workload.lengths != Lengths::Data {
        return Err(refusal(
            file,
            place,
            "workload.lengths describes lengths that no data has; set workload.lengths = \"data\" and search again",
        ));
    }
    Ok(())
}

fn refusal(file: &PolicyFile, place: &str, why: &str) -> Failure {
    let instead = "`--backend emulated` runs its dispatch here without the model";
    Failure::usage(format!(
        "policy \"{}\" cannot run on {place}: {why}; {instead}",
        file.name
    ))
}

/// Refuses a policy whose data or model this machine does not have, and says what would run instead.
fn can_run_on_cpu(file: &PolicyFile) -> Result<(), Failure> {
    names_real_work(file, "the CPU")?;
    let Some(section) = &file.exec else {
        return Ok(());
    };
    let needed = weights_bytes(section);
    match memory_available() {
        Some(there) if needed > there => Err(refusal(
            file,
            "the CPU",
            &format!(
                "its models need about {} and {} of memory are free",
                Bytes(needed),
                Bytes(there)
            ),
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
