//! The CPU models against a reference: one case computed by an independent PyTorch implementation.
//!
//! `data/parity` holds a tiny target and drafter, two microbatches of an optimizer step, and what
//! every quantity must be. The comparison itself is `exec::parity`, for any backend. The program of
//! this test runs without cargo too: it looks for the case in DFLASH_TEST_DATA, or from the root of
//! the repository. Tests of a GPU pass at once without one, unless `DFLASH_CUDA=1` says that there
//! must be one.

use std::path::{Path, PathBuf};

use exec::cuda::Gpu;
use exec::cuda::drafter::AttentionKernels;
use exec::parity::{Case, CpuSubject, CudaSubject, Kind, Subject, Tolerances, compare};

fn case() -> Case {
    let named = std::env::var_os("DFLASH_TEST_DATA").map(PathBuf::from);
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let places = [named, Some(built), Some("exec/tests/data".into())];
    let found = places.into_iter().flatten().find(|path| path.is_dir());
    Case::load(&found.expect("a folder with the case").join("parity")).unwrap()
}

/// Compares everything, and asserts that nothing is left out and nothing is off.
#[expect(
    clippy::print_stdout,
    reason = "how close it came is worth reading when the test passes too"
)]
fn everything_matches(case: &Case, subject: &mut dyn Subject, tolerances: &Tolerances) {
    let found = compare(case, subject, tolerances).unwrap();
    println!("{found}");
    assert_eq!(found.failures().count(), 0, "{found}");
    // Features, last hidden states, weights of slots, outputs and logits of both microbatches, all
    // 25 gradients and weights, and the scalars of three steps.
    assert_eq!(case.expected.len(), 2 * 5 + 2 * 25);
    let of = |kind: Kind| found.findings.iter().filter(|f| f.kind == kind).count();
    assert_eq!([Kind::Gradients, Kind::Weights].map(of), [25, 50]);
    assert_eq!([Kind::Loss, Kind::GradNorm].map(of), [3, 3]);
}

#[test]
fn everything_recorded_matches_on_the_cpu_in_f32() {
    let case = case();
    let mut subject = CpuSubject::load(&case).unwrap();
    everything_matches(&case, &mut subject, &Tolerances::F32);
}

#[test]
fn everything_recorded_matches_on_a_gpu_in_bf16() {
    let gpu = match Gpu::open(0) {
        Ok(gpu) => gpu,
        Err(error) => {
            let must = std::env::var("DFLASH_CUDA").is_ok_and(|value| value == "1");
            assert!(!must, "DFLASH_CUDA=1 and {error}");
            return;
        }
    };
    let case = case();
    for attention in [AttentionKernels::Auto, AttentionKernels::Portable] {
        let mut subject = CudaSubject::load(&case, &gpu, attention).unwrap();
        everything_matches(&case, &mut subject, &Tolerances::BF16);
    }
}

#[test]
fn two_computations_give_the_same_bits() {
    let case = case();
    let contribution = || {
        let mut subject = CpuSubject::load(&case).unwrap();
        let microbatch = &case.microbatches[1];
        let plan = subject.plan(&case, microbatch).unwrap();
        subject.contribution(&microbatch.batch, &plan).unwrap()
    };
    let (a, b) = (contribution(), contribution());
    assert_eq!(a.loss_sum.to_bits(), b.loss_sum.to_bits());
    for (name, gradient) in &a.gradients {
        let bits = |tensor: &candle_core::Tensor| -> Vec<u32> {
            let numbers: Vec<f32> = tensor.flatten_all().unwrap().to_vec1().unwrap();
            numbers.into_iter().map(f32::to_bits).collect()
        };
        assert_eq!(bits(gradient), bits(&b.gradients[name]), "{name}");
    }
}
