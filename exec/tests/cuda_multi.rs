//! Several GPUs: copies between them, sums over them, and drafters that learn together on them.
//!
//! Each test passes at once on a machine without a GPU. On one GPU both ends of a way are that GPU; with two or more they are the first
//! and the last. `NCCL_NVLS_ENABLE=0` must stand in the environment for NCCL to be used.
#![allow(
    clippy::print_stderr,
    reason = "what a run on GPUs measured is worth reading"
)]

use std::sync::Arc;

use candle_core::{DType, Device, Tensor};
use exec::cuda::drafter::{
    AttentionKernels, CudaDrafter, DrafterLimits, DrafterOptions, Frozen, Landing,
};
use exec::cuda::links::{Links, Wires};
use exec::cuda::nccl::{Comms, Summable};
use exec::cuda::{Buffer, CudaError, Element, Gpu, Pool, Stream, Tuning, Way};
use exec::model::{
    Drafter, DrafterConfig, DrafterSize, PaddedBatch, Sample, Target, TargetConfig, Tensors,
};
use exec::train::{AdamW, BlockPlan, BlockSpec, Objective, Schedule};
use half::bf16;
use serde_json::json;
use shared::id::Bytes;

/// Steps that drafters learn together.
const STEPS: u64 = 20;

/// Relative L2 distance after them between weights of drafters that add their microbatches in different order. f32 sums of four parts
/// differ by some 1e-7, but AdamW's first steps move a weight by the learning rate whatever its gradient's size, so gradients near zero
/// part ways: 7.5e-4 was measured, a hundredth of what is learned meanwhile.
const WEIGHTS: f64 = 2e-3;

/// All GPUs there are.
fn gpus() -> Vec<Arc<Gpu>> {
    let count = Gpu::count().unwrap_or(0);
    (0..count).map(|at| Gpu::open(at).unwrap()).collect()
}

/// The first GPU and the last, if there is any.
fn ends() -> Option<[Arc<Gpu>; 2]> {
    let gpus = gpus();
    Some([Arc::clone(gpus.first()?), Arc::clone(gpus.last()?)])
}

/// NCCL over these GPUs; a machine without it is told apart from one where it fails.
fn comms(gpus: &[Arc<Gpu>]) -> Option<Comms> {
    match Comms::new(gpus) {
        Ok(comms) => Some(comms),
        Err(error @ (CudaError::NoLibrary { .. } | CudaError::Multicast { .. })) => {
            eprintln!("not run: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Numbers that look random, in [0, 1).
fn draws(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn buffer<T: Element>(gpu: &Arc<Gpu>, len: usize) -> Buffer<T> {
    let bytes = Bytes((len * T::BYTES) as u64);
    Pool::new(gpu, bytes, "a test")
        .unwrap()
        .buffer(len)
        .unwrap()
}

#[test]
fn every_pair_of_gpus_that_reach_each_other_delivers_what_was_sent() {
    let gpus = gpus();
    if gpus.len() < 2 {
        return;
    }
    let links = Links::survey(&Wires::new(&gpus, 1 << 20).unwrap(), 1 << 20);
    let ordinals: Vec<usize> = (0..gpus.len()).collect();
    for line in links.complaints(&ordinals) {
        eprintln!("{line}");
        assert!(!line.contains("came out wrong"), "{line}");
    }
}

#[test]
fn every_way_delivers_every_byte_and_keeps_the_order() {
    let Some([a, b]) = ends() else { return };
    let _ = a.reach(&b).and_then(|()| b.reach(&a));
    let mut random = draws(3);
    // Several pieces of a way through the host, and a bit.
    let len = (5 << 25) + 1234;
    let sent: Vec<u8> = (0..len).map(|_| (random() * 256.0) as u8).collect();
    let (first, second) = (Stream::new(&a).unwrap(), Stream::new(&b).unwrap());
    let (from, to) = (buffer::<u8>(&a, len), buffer::<u8>(&b, len));
    let ways = [
        ("direct", Way::Direct),
        ("pinned", Way::pinned(&a).unwrap()),
        ("pageable", Way::pageable(&a).unwrap()),
    ];
    for (name, mut way) in ways {
        second.zero(to.ptr()).unwrap();
        first.upload(&sent, from.ptr()).unwrap();
        way.carry((&first, from.ptr()), (&second, to.ptr()))
            .unwrap();
        // What follows in the source's stream must not reach the copy.
        first.zero(from.ptr()).unwrap();
        assert!(second.download(to.ptr()).unwrap() == sent, "{name}");
        // And what comes back goes through the same memory.
        second.upload(&sent, to.ptr()).unwrap();
        way.carry((&second, to.ptr()), (&first, from.ptr()))
            .unwrap();
        assert!(first.download(from.ptr()).unwrap() == sent, "{name}");
    }
}

/// Numbers on each GPU, summed by NCCL; what the host says they sum to in the GPUs' order.
fn summed<T: Summable + PartialEq + std::ops::Add<Output = T> + std::fmt::Debug>(
    gpus: &[Arc<Gpu>],
    comms: &mut Comms,
    number: impl Fn(f64) -> T,
) {
    let mut random = draws(11);
    let len = 100_003;
    let parts: Vec<Vec<T>> = gpus
        .iter()
        .map(|_| (0..len).map(|_| number(random())).collect())
        .collect();
    let streams: Vec<Stream> = gpus.iter().map(|gpu| Stream::new(gpu).unwrap()).collect();
    let buffers: Vec<Buffer<T>> = gpus.iter().map(|gpu| buffer(gpu, len)).collect();
    for ((stream, buffer), part) in streams.iter().zip(&buffers).zip(&parts) {
        stream.upload(part, buffer.ptr()).unwrap();
    }
    let ends: Vec<_> = streams
        .iter()
        .zip(&buffers)
        .map(|(s, b)| (s, b.ptr()))
        .collect();
    comms.sum_to_first(&ends).unwrap();
    let sum = streams[0].download(buffers[0].ptr()).unwrap();
    let host = |at: usize| parts.iter().map(|part| part[at]).reduce(|a, b| a + b);
    if gpus.len() <= 2 {
        // No order of two can be told from the other.
        assert!((0..len).all(|at| Some(sum[at]) == host(at)));
    }
    comms.spread_first(&ends).unwrap();
    for (stream, buffer) in streams.iter().zip(&buffers) {
        assert!(stream.download(buffer.ptr()).unwrap() == sum);
    }
}

#[test]
fn nccl_sums_to_what_the_host_does() {
    let all = gpus();
    for count in [1, 2, all.len()] {
        let Some(gpus) = all.get(..count).filter(|gpus| !gpus.is_empty()) else {
            continue;
        };
        let Some(mut comms) = comms(gpus) else { return };
        summed::<f32>(gpus, &mut comms, |x| (x - 0.5) as f32);
        summed::<f64>(gpus, &mut comms, |x| x - 0.5);
        summed::<u64>(gpus, &mut comms, |x| (x * 1e9) as u64);
        eprintln!("NCCL {} over {count}", comms.version().unwrap());
    }
}

#[test]
fn nccl_refuses_streams_of_other_gpus() {
    let Some([a, b]) = ends() else { return };
    let Some(mut comms) = comms(std::slice::from_ref(&a)) else {
        return;
    };
    let stream = Stream::new(&b).unwrap();
    let vector = buffer::<f32>(&b, 8);
    let twice = [(&stream, vector.ptr()), (&stream, vector.ptr())];
    let error = comms.sum_to_first(&twice).unwrap_err().to_string();
    assert!(error.starts_with("ncclReduce: 2 streams"), "{error}");
}

// ---------------------------------------------------------------- drafters that learn together

/// A drafter, and four microbatches a step.
struct Lesson {
    target: Target,
    drafter: Drafter,
    plans: Vec<BlockPlan>,
    /// Rows, tokens a row, and features of each.
    features: Vec<(usize, Vec<bf16>)>,
    limits: DrafterLimits,
}

const HIDDEN: usize = 256;
const VOCAB: usize = 1000;
const ANCHORS: usize = 8;
const SLOTS: usize = 16;

fn lesson() -> Lesson {
    let config = TargetConfig::from_json(
        json!({
            "architectures": ["Qwen3ForCausalLM"], "hidden_size": HIDDEN, "intermediate_size": 64,
            "num_hidden_layers": 8, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
            "vocab_size": VOCAB, "rope_theta": 1e4, "tie_word_embeddings": false, "initializer_range": 0.05,
        }),
        "a test",
    )
    .unwrap();
    let size = DrafterSize {
        layers: 2,
        intermediate_size: 512,
        attention_heads: 8,
        key_value_heads: 2,
        head_dim: 64,
    };
    let drafter = DrafterConfig::for_target(&config, size, SLOTS, VOCAB as u32 - 1).unwrap();
    let target = Target::random(config, 5, &drafter.target_layer_ids, &Device::Cpu).unwrap();
    let (spec, width) = (
        BlockSpec::of(&drafter),
        drafter.target_layer_ids.len() * HIDDEN,
    );
    let mut random = draws(29);
    let (mut plans, mut features) = (Vec::new(), Vec::new());
    for (microbatch, tokens) in [200, 64, 120, 31].into_iter().enumerate() {
        let ids: Vec<u32> = (0..tokens).map(|_| (random() * 999.0) as u32).collect();
        let mask: Vec<bool> = (0..tokens).map(|at| at > 4 && random() > 0.1).collect();
        let sample = Sample {
            input_ids: &ids,
            loss_mask: &mask,
        };
        let batch = PaddedBatch::new(&[sample], tokens).unwrap();
        let anchors = exec::train::anchors::draw(3, 0, microbatch as u64, &mask, ANCHORS);
        plans.push(BlockPlan::new(&batch, &[anchors], &spec).unwrap());
        let values = (0..tokens * width).map(|_| bf16::from_f64(3.0 * random() - 1.5));
        features.push((tokens, values.collect()));
    }
    Lesson {
        drafter: Drafter::random(drafter, 6, &target).unwrap(),
        limits: DrafterLimits {
            slots_max: ANCHORS * SLOTS,
            context_max: 200,
            row_max: 200,
            logits_max: 256,
        },
        target,
        plans,
        features,
    }
}

/// A drafter on a GPU with the lesson's microbatches in its memory.
struct Pupil {
    drafter: CudaDrafter,
    features: Vec<Buffer<bf16>>,
}

impl Lesson {
    fn pupil(&self, gpu: &Arc<Gpu>) -> Pupil {
        let stream = Stream::new(gpu).unwrap();
        let put = |values: &[bf16]| {
            let place = buffer::<bf16>(gpu, values.len());
            stream.upload(values, place.ptr()).unwrap();
            place
        };
        let tensor = |tensor: &Tensor| {
            let flat = tensor.to_dtype(DType::BF16).unwrap().flatten_all().unwrap();
            Arc::new(put(&flat.to_vec1::<bf16>().unwrap()))
        };
        let frozen = Frozen {
            embed: tensor(self.target.embed()),
            lm_head: tensor(self.target.lm_head()),
        };
        let options = DrafterOptions {
            limits: self.limits,
            settings: AdamW::default(),
            schedule: Schedule::constant(6e-4),
            tuning: Tuning::Heuristic,
            attention: AttentionKernels::Auto,
            objective: Objective::CrossEntropy,
        };
        let features = self
            .features
            .iter()
            .map(|(_, values)| put(values))
            .collect();
        stream.synchronize().unwrap();
        let (config, weights) = (self.drafter.config(), self.drafter.weights());
        Pupil {
            drafter: CudaDrafter::new(&stream, config, weights, frozen, &options).unwrap(),
            features,
        }
    }

    fn teach(&self, pupil: &mut Pupil, microbatches: std::ops::Range<usize>) {
        for at in microbatches {
            let (features, tokens) = (pupil.features[at].ptr(), self.features[at].0);
            let taught = pupil.drafter.accumulate(features, tokens, &self.plans[at]);
            taught.unwrap();
        }
    }

    /// Weights after all steps with the two halves of each step's microbatches at two pupils, added up by `sum` and handed on by `spread`.
    fn together(
        &self,
        [a, b]: [&Arc<Gpu>; 2],
        mut sum: impl FnMut(&mut CudaDrafter, &mut CudaDrafter),
        mut spread: impl FnMut(&mut CudaDrafter, &mut CudaDrafter),
    ) -> Tensors {
        let (mut first, mut second) = (self.pupil(a), self.pupil(b));
        for step in 1..=STEPS {
            self.teach(&mut first, 0..2);
            self.teach(&mut second, 2..4);
            sum(&mut first.drafter, &mut second.drafter);
            assert_eq!(first.drafter.apply().unwrap().step, step);
            spread(&mut first.drafter, &mut second.drafter);
        }
        let (weights, others) = (
            first.drafter.weights().unwrap(),
            second.drafter.weights().unwrap(),
        );
        assert!(
            bits(&weights) == bits(&others),
            "both have the same weights"
        );
        assert_eq!(second.drafter.step(), STEPS);
        weights
    }
}

fn numbers(tensors: &Tensors) -> Vec<f32> {
    let all = tensors.values().map(|t| t.flatten_all().unwrap());
    all.flat_map(|t| t.to_vec1::<f32>().unwrap()).collect()
}

fn bits(tensors: &Tensors) -> Vec<u32> {
    numbers(tensors).into_iter().map(f32::to_bits).collect()
}

/// ‖a − b‖ / ‖b‖.
fn distance(a: &Tensors, b: &Tensors) -> f64 {
    let (a, b) = (numbers(a), numbers(b));
    let square = |x: f64| x * x;
    let apart: f64 = a
        .iter()
        .zip(&b)
        .map(|(a, b)| square(f64::from(a - b)))
        .sum();
    let norm: f64 = b.iter().map(|&b| square(f64::from(b))).sum();
    (apart / norm).sqrt()
}

#[test]
fn two_drafters_learn_what_one_with_twice_the_microbatches_does() {
    let Some([a, b]) = ends() else { return };
    let _ = a.reach(&b).and_then(|()| b.reach(&a));
    let lesson = lesson();
    let mut alone = lesson.pupil(&a);
    for _ in 0..STEPS {
        lesson.teach(&mut alone, 0..4);
        alone.drafter.apply().unwrap();
    }
    let alone = alone.drafter.weights().unwrap();
    let in_place = lesson.together(
        [&a, &a],
        |first, second| first.add_from(second).unwrap(),
        |first, second| second.take_weights(first).unwrap(),
    );
    let start = lesson.drafter.weights();
    let (apart, learned) = (distance(&in_place, &alone), distance(&alone, start));
    eprintln!("two drafters against one: {apart:.2e}; learned {learned:.2e}");
    assert!(
        apart < WEIGHTS && learned > 10.0 * WEIGHTS,
        "{apart:.2e} {learned:.2e}"
    );
    let landing = Landing::new(&a).unwrap();
    for kind in ["pinned", "pageable", "direct"] {
        let way = |gpu: &Arc<Gpu>| match kind {
            "pinned" => Way::pinned(gpu).unwrap(),
            "pageable" => Way::pageable(gpu).unwrap(),
            _ => Way::Direct,
        };
        let (mut there, mut back) = (way(&b), way(&a));
        let by_copies = lesson.together(
            [&a, &b],
            |first, second| {
                first.add_from_device(second, &mut there, &landing).unwrap();
            },
            |first, second| second.take_weights_from_device(first, &mut back).unwrap(),
        );
        assert!(
            bits(&by_copies) == bits(&in_place),
            "{kind}: the same bits wherever they are"
        );
    }
    if a.ordinal() == b.ordinal() {
        return;
    }
    let Some(comms) = comms(&[Arc::clone(&a), Arc::clone(&b)]) else {
        return;
    };
    let comms = std::cell::RefCell::new(comms);
    let by_nccl = lesson.together(
        [&a, &b],
        |first, second| {
            let (mine, theirs) = (
                first.step_vectors().unwrap(),
                second.step_vectors().unwrap(),
            );
            let streams = [first.stream().clone(), second.stream().clone()];
            let mut comms = comms.borrow_mut();
            comms
                .sum_to_first(&[
                    (&streams[0], mine.gradients),
                    (&streams[1], theirs.gradients),
                ])
                .unwrap();
            comms
                .sum_to_first(&[(&streams[0], mine.loss), (&streams[1], theirs.loss)])
                .unwrap();
            comms
                .sum_to_first(&[(&streams[0], mine.counts), (&streams[1], theirs.counts)])
                .unwrap();
            first.merge(second).unwrap();
        },
        |first, second| {
            let streams = [first.stream().clone(), second.stream().clone()];
            let weights = [
                (&streams[0], first.weight_vector()),
                (&streams[1], second.weight_vector()),
            ];
            comms.borrow_mut().spread_first(&weights).unwrap();
            second.weights_arrived(first).unwrap();
        },
    );
    assert!(bits(&by_nccl) == bits(&in_place), "two sums have one order");
    eprintln!("the same bits by copies and by NCCL");
}
