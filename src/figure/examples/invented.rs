//! Invented data for every figure, reproducible.

use super::super::*;

pub(super) const NAMES: [&str; 8] = [
    "composed",
    "bucketed",
    "drafter-queues",
    "staged-fifo",
    "composed-block",
    "composed-shared",
    "bucketed-deep",
    "fifo-p2p",
];

pub(super) const LONG_NAMES: [&str; 8] = [
    "composed, reserve admission, 12 slots, fixed assignment, device to device",
    "bucketed round robin with per-bucket depth two and block admission",
    "drafter-queues",
    "staged-fifo-of-the-reference-run-with-host-pinned-transport-and-20-slots-a-drafter",
    "c",
    "composed-shared-assignment-prefetch-off",
    "bucketed, deep",
    "fifo over peer-to-peer links, depth searched in bytes rather than items",
];

pub(super) fn heading(title: &str, shown: &str) -> Heading {
    Heading {
        title: title.to_owned(),
        shown: shown.to_owned(),
        scenario: "reference".to_owned(),
        seed: Some(7),
    }
}

/// A reproducible number from 0 to 1.
pub(super) fn noise(index: usize) -> f64 {
    let mixed = (index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    ((mixed ^ (mixed >> 29)) >> 11) as f64 / (1_u64 << 53) as f64
}

pub(super) const DEPTHS: [f64; 9] = [4.0, 6.0, 8.0, 10.0, 12.0, 16.0, 24.0, 40.0, 60.0];

pub(super) fn throughput_of(policy: usize, depth: f64) -> f64 {
    let reached =
        [21_520.0, 21_400.0, 20_100.0, 12_050.0][policy % 4] - 350.0 * (policy / 4) as f64;
    let hunger = [2.2, 3.5, 5.0, 7.0][policy % 4];
    reached * (1.0 - (-depth / hunger).exp())
}

pub(super) fn throughput_depth(policies: usize, names: [&str; 8]) -> ThroughputDepth {
    let series = |policy: usize| DepthSeries {
        policy: names[policy].to_owned(),
        deadlocks: if policy == 2 { vec![2.0, 40.0] } else { vec![] },
        points: DEPTHS
            .map(|depth| {
                let throughput_tok_s = throughput_of(policy, depth);
                let half = 90.0 + 2_400.0 / depth;
                DepthPoint {
                    depth,
                    throughput_tok_s,
                    ci_low_tok_s: throughput_tok_s - half,
                    ci_high_tok_s: throughput_tok_s + half,
                }
            })
            .to_vec(),
    };
    ThroughputDepth {
        heading: heading(
            "Throughput against depth",
            "mean of 8 replications with 95 % confidence band",
        ),
        policies: (0..policies).map(series).collect(),
        bound_tok_s: Some(21_534.0),
    }
}

pub(super) fn memory_depth(policies: usize, names: [&str; 8]) -> MemoryDepth {
    let series = |policy: usize| MemorySeries {
        policy: names[policy].to_owned(),
        points: DEPTHS
            .map(|depth| {
                let leak = if policy % 4 > 1 {
                    5.0 + 2.0 * policy as f64
                } else {
                    0.0
                };
                let hs_gib = 2.81 * (depth + leak);
                let host_gib = if policy % 4 == 3 {
                    72.0 + hs_gib
                } else {
                    60.0 + 3.0 * policy as f64
                };
                MemoryPoint {
                    depth,
                    hs_gib,
                    host_gib,
                }
            })
            .to_vec(),
    };
    MemoryDepth {
        heading: heading(
            "Memory against depth",
            "peak HS memory in all places, peak host memory",
        ),
        policies: (0..policies).map(series).collect(),
    }
}

pub(super) fn pareto(policies: usize, names: [&str; 8]) -> Pareto {
    let series = |policy: usize| ParetoSeries {
        policy: names[policy].to_owned(),
        points: (0..150)
            .map(|i| {
                let depth = 3.0 + 57.0 * noise(i * 8 + policy).powi(2);
                let worse = 1.0 - 0.25 * noise(i * 8 + policy + 7_000).powi(2);
                ParetoPoint {
                    hs_gib: 2.81 * depth.round() + if policy % 4 > 1 { 14.0 } else { 0.0 },
                    throughput_tok_s: throughput_of(policy, depth) * worse,
                }
            })
            .collect(),
    };
    let point = ParetoPoint {
        hs_gib: 33.7,
        throughput_tok_s: 21_430.0,
    };
    let mut policies: Vec<ParetoSeries> = (0..policies).map(series).collect();
    policies[0].points.push(point);
    let front = front_of(policies.iter().flat_map(|series| &series.points));
    Pareto {
        heading: heading(
            "Throughput against memory",
            "all points of the search, Pareto front",
        ),
        policies,
        front,
        chosen: Some(Chosen {
            point,
            label: "composed, 5 + 3, 12 slots: 21.4k tok/s".to_owned(),
        }),
        bound_tok_s: Some(21_534.0),
    }
}

fn front_of<'a>(points: impl Iterator<Item = &'a ParetoPoint>) -> Vec<ParetoPoint> {
    let mut sorted: Vec<ParetoPoint> = points.copied().collect();
    sorted.sort_by(|a, b| a.hs_gib.total_cmp(&b.hs_gib));
    let mut best = 0.0;
    sorted.retain(|point| {
        let is_faster = point.throughput_tok_s > best;
        best = point.throughput_tok_s.max(best);
        is_faster
    });
    sorted
}

pub(super) fn utilisation(groups: usize, names: [&str; 8]) -> Utilisation {
    let worker = |policy: usize, index: usize| {
        let jitter = 0.02 * noise(policy * 8 + index);
        let slow = [0.0, 0.01, 0.06, 0.43][policy % 4] + jitter;
        let is_target = index < 5;
        WorkerShares {
            worker: if is_target {
                format!("t{index}")
            } else {
                format!("d{}", index - 5)
            },
            busy: if is_target { 0.995 - slow } else { 0.82 - slow },
            copying: if is_target { 0.0 } else { 0.02 + slow * 0.5 },
            blocked: if is_target { slow } else { 0.0 },
            starved: if is_target { 0.0 } else { 0.1 + slow * 0.3 },
            barrier: if is_target { 0.0 } else { 0.045 },
        }
    };
    Utilisation {
        heading: heading(
            "Where the time goes",
            "shares of wall time per worker after warm-up",
        ),
        groups: (0..groups)
            .map(|policy| UtilisationGroup {
                policy: names[policy * 3 % 8].to_owned(),
                workers: (0..8).map(|index| worker(policy * 3, index)).collect(),
            })
            .collect(),
    }
}

pub(super) fn slots_over_time() -> SlotsOverTime {
    let series = |index: usize, name: &str, cap: f64, length: usize| {
        let mut slots = 0.0_f64;
        let points = (0..length).map(|i| {
            let up = if noise(i + 9_000 * index) < 0.56 {
                1.0
            } else {
                -1.0
            };
            slots = (slots + up).clamp(0.0, cap);
            (i as f64 * 0.37 + noise(i) * 0.2, slots)
        });
        SlotsSeries {
            name: name.to_owned(),
            color: index,
            points: points.collect(),
            cap: Some(cap),
        }
    };
    SlotsOverTime {
        heading: heading(
            "HS slots in use",
            "reserved, filling, queued and in training",
        ),
        series: vec![
            series(0, "composed", 12.0, 800),
            series(1, "staged-fifo", 60.0, 800),
        ],
    }
}

pub(super) fn mixing(policies: usize, names: [&str; 8], buckets: usize) -> Mixing {
    let series = |policy: usize| {
        let center = [0.09, 0.17, 0.24, 0.27][policy % 4];
        let spread = [0.03, 0.08, 0.11, 0.12][policy % 4];
        let distance = |i: usize| {
            let sum: f64 = (0..6).map(|k| noise(i * 6 + k + 50_000 * policy)).sum();
            (center + (sum - 3.0) * spread).max(0.01)
        };
        let shares = [
            [0.0, 0.0, 0.0, 0.0, 0.24, 0.76],
            [0.005, 0.145, 0.33, 0.33, 0.16, 0.03],
            [0.011, 0.2, 0.36, 0.3, 0.11, 0.019],
            [0.0004, 0.2396, 0.38, 0.27, 0.09, 0.02],
        ][policy % 4];
        MixingSeries {
            policy: names[policy].to_owned(),
            color: policy,
            tv: (0..2_000).map(distance).collect(),
            share_by_distinct: (0..buckets)
                .map(|k| shares[k * 6 / buckets] * 6.0 / buckets.max(6) as f64)
                .collect(),
        }
    };
    Mixing {
        heading: heading(
            "Mixing of lengths in an optimizer step",
            "2,000 steps a policy",
        ),
        policies: (0..policies).map(series).collect(),
    }
}

pub(super) fn timeline(names: [&str; 8]) -> Timeline {
    let mut spans = Vec::new();
    let mut add = |worker, start_s: f64, end_s: f64, activity| {
        spans.push(TimelineSpan {
            worker,
            start_s,
            end_s,
            activity,
        });
    };
    let mut ready = Vec::new();
    for target in 0..5 {
        let mut now = 0.0;
        for round in 0..8 {
            let bucket = (target * 5 + round * 7 + round / 3) % 6;
            let length = 1.6 + 0.22 * bucket as f64 + 0.3 * noise(target * 16 + round);
            add(target, now, now + length, Activity::Forward { bucket });
            now += length;
            ready.push((now, bucket));
            if noise(target * 31 + round) > 0.8 {
                add(target, now, now + 0.35, Activity::Blocked);
                now += 0.35;
            }
        }
    }
    ready.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut steps = Vec::new();
    let mut free = [0.0_f64; 3];
    for (step, work) in ready.chunks_exact(12).enumerate() {
        for (index, (at, bucket)) in work.iter().enumerate() {
            let drafter = index % 3;
            let copied = at.max(free[drafter] - 0.5) + 0.3;
            add(
                5 + drafter,
                copied - 0.3,
                copied,
                Activity::Copy { bucket: *bucket },
            );
            let start = copied.max(free[drafter]);
            let end = start + 0.9 + 0.1 * *bucket as f64;
            add(5 + drafter, start, end, Activity::Train { bucket: *bucket });
            free[drafter] = end;
        }
        let last = free.iter().copied().fold(0.0, f64::max);
        for (drafter, end) in free.iter_mut().enumerate() {
            add(5 + drafter, *end, last, Activity::Barrier);
            *end = last;
        }
        steps.push(StepMark {
            at_s: last,
            label: format!("step {}", step + 1),
        });
    }
    let long = names[0].len() > 20;
    let worker = |index: usize| match (long, index) {
        (true, _) => format!("{} on device {index}", names[index]),
        (_, 0..5) => format!("t{index}"),
        _ => format!("d{}", index - 5),
    };
    Timeline {
        heading: heading(
            "The first three optimizer steps",
            "policy composed, 12 slots",
        ),
        buckets: ["≤ 512", "≤ 1024", "≤ 2048", "≤ 3072", "≤ 4096", "≤ 8192"]
            .map(str::to_owned)
            .to_vec(),
        workers: (0..8).map(worker).collect(),
        spans,
        steps,
    }
}

pub(super) fn loss_curve() -> LossCurve {
    let run = |index: usize, name: &str, floor: f64| LossRun {
        name: name.to_owned(),
        loss: (0..3_000)
            .map(|step| {
                let trend = floor + (9.0 - floor) * (-(step as f64) / 260.0).exp();
                let shake = (noise(step + 5_000 * index) - 0.5) * (0.7 + 0.4 * index as f64);
                (
                    step as f64,
                    if step == 700 { f64::NAN } else { trend + shake },
                )
            })
            .collect(),
    };
    let rate = |step: f64| {
        let cosine = 0.5 * (1.0 + (std::f64::consts::PI * step / 3_000.0).cos());
        6e-4 * (step / 120.0).min(1.0) * cosine
    };
    LossCurve {
        heading: heading(
            "Loss of the drafter",
            "mean over the microbatches of each optimizer step",
        ),
        runs: vec![run(0, "composed", 2.2), run(1, "staged-fifo", 2.45)],
        learning_rate: (0..3_000)
            .map(|step| (f64::from(step), rate(f64::from(step))))
            .collect(),
    }
}

pub(super) fn prediction(buckets: usize) -> PredictionMeasurement {
    let stage = |offset: usize, base: f64| {
        (0..buckets)
            .map(|bucket| {
                let predicted = base * (1.0 + 0.16 * bucket as f64);
                let off = 0.08 * (noise(bucket + offset) - 0.5);
                let label = format!("≤ {}", 512 * (bucket + 1));
                Pair {
                    label,
                    predicted,
                    measured: predicted * (1.0 + off),
                }
            })
            .collect()
    };
    let panel = |title: &str, axis: &str, pairs| PairPanel {
        title: title.to_owned(),
        axis: axis.to_owned(),
        pairs,
    };
    let total = vec![Pair {
        label: "throughput".to_owned(),
        predicted: 21_480.0,
        measured: 21_102.0,
    }];
    PredictionMeasurement {
        heading: heading(
            "Prediction and measurement",
            "mean service time per bucket [tokens], and in total",
        ),
        panels: vec![
            panel("Target forward", "Time [ms]", stage(10, 1_650.0)),
            panel("Drafter training", "Time [ms]", stage(50, 930.0)),
            panel("Total", "Throughput [tok/s]", total),
        ],
    }
}

/// A drafter that learns, beside drafters that do not; `names` are those of the latter.
pub(super) fn acceptance(checkpoints: usize, names: [&str; 8]) -> Acceptance {
    let length = |step: f64| 1.1 + 2.6 * (1.0 - (-step / 900.0).exp());
    let point = |i: usize| {
        let step = 250.0 * (i + 1) as f64;
        let middle = length(step) + 0.1 * noise(i);
        AcceptancePoint {
            step,
            length: middle,
            low: middle - 0.25,
            high: middle + 0.25,
        }
    };
    let series = |index: usize, name: &str, kept: f64| AcceptanceSeries {
        name: name.to_owned(),
        length: (0..16).map(|slot| kept.powi(slot)).sum(),
        slots: (1..16)
            .map(|slot| kept.powi(slot) * (1.0 - 0.02 * noise(index + slot as usize)))
            .collect(),
    };
    Acceptance {
        heading: heading(
            "A trained drafter is accepted 3.4 tokens at a time",
            "40 prompts",
        ),
        steps: (0..checkpoints).map(point).collect(),
        series: vec![
            series(0, "trained", 0.71),
            series(1, names[0], 0.02),
            series(2, names[1], 0.31),
        ],
    }
}

/// `count` variants in five groups, over two quantities.
pub(super) fn groups(count: usize, names: [&str; 8]) -> Groups {
    let value = |group: usize, variant: usize| {
        let mean = 2.0 + 0.2 * group as f64 - 0.05 * variant as f64;
        GroupValue {
            mean,
            low: mean - 0.1,
            high: mean + 0.1,
            runs: vec![mean - 0.06, mean, mean + 0.06],
        }
    };
    let panel = |title: &str| GroupPanel {
        title: title.to_owned(),
        axis: format!("{title} [tokens/forward]"),
        groups: ["all", "≤ 128", "129–256", "257–512", "> 512"]
            .map(String::from)
            .into(),
        series: (0..count)
            .map(|variant| GroupSeries {
                name: names[variant % names.len()].to_owned(),
                values: (0..5).map(|group| value(group, variant)).collect(),
            })
            .collect(),
    };
    Groups {
        heading: heading("What a choice is worth", "mean and interval"),
        panels: vec![panel("Acceptance length"), panel("Held-out loss")],
    }
}
