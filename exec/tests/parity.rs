//! The CPU models against a reference: one case computed by an independent PyTorch implementation.
//!
//! `data/parity` holds a tiny target and drafter, two microbatches of an optimizer step, and what
//! every quantity must be. The comparison itself is `exec::parity`, for any backend. The program of
//! this test runs without cargo too: it looks for the case in DFLASH_TEST_DATA, or from the root of
//! the repository.

use std::path::{Path, PathBuf};

use exec::parity::{Case, CpuSubject, Kind, Subject, Tolerances, compare};

fn case() -> Case {
    let named = std::env::var_os("DFLASH_TEST_DATA").map(PathBuf::from);
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let places = [named, Some(built), Some("exec/tests/data".into())];
    let found = places.into_iter().flatten().find(|path| path.is_dir());
    Case::load(&found.expect("a folder with the case").join("parity")).unwrap()
}

#[test]
#[expect(
    clippy::print_stdout,
    reason = "how close it came is worth reading when the test passes too"
)]
fn everything_recorded_matches_on_the_cpu_in_f32() {
    let case = case();
    let mut subject = CpuSubject::load(&case).unwrap();
    let found = compare(&case, &mut subject, &Tolerances::F32).unwrap();
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
