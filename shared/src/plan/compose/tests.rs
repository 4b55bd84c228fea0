//! What every composed plan keeps, and what becomes of tails, rare buckets and dry ones.

use super::*;
use crate::id::{BucketId, Bytes};
use crate::plan::{Edges, Fill, FormationBuilder, MixRule, Ordering, Plan};
use crate::time::Span;

/// Epochs of microbatches of each bucket, of varied sizes.
fn formation(counts: &[u32], epochs: u16, seed: u64) -> Formation {
    let edges = (1..=counts.len() as u32).map(|b| 256 * b).collect();
    let mut builder = FormationBuilder::new(Edges::given(edges).unwrap(), Bytes(51_200));
    for epoch in 0..epochs {
        if epoch > 0 {
            builder.next_epoch().unwrap();
        }
        for (bucket, &count) in counts.iter().enumerate() {
            for i in 0..count {
                let tokens = 200 * (bucket as u32 + 1)
                    + Seed(seed).below(Stream::Length, u64::from(i), 50) as u32;
                builder.push(BucketId(bucket as u8), 4, tokens).unwrap();
            }
        }
    }
    builder.build().unwrap()
}

fn spec(drafters: u16, grad_accum: u32, buckets: usize) -> OrderSpec {
    OrderSpec {
        ordering: Ordering::Composed(Fill::Even),
        drafters,
        grad_accum,
        tail: Tail::Short,
        mix: MixRule {
            step_min: 0,
            window_min: 0,
        },
        assign: true,
        train_cost: (1..=buckets as u64)
            .map(|b| Span::from_ms(100 + 20 * b))
            .collect(),
        seed: Seed(3),
    }
}

fn mix(plan: &Plan, step: &PlannedStep) -> Vec<u32> {
    let mut counts = vec![0; usize::from(plan.buckets())];
    for row in step.microbatches.clone() {
        counts[plan.microbatches[row as usize].bucket.index()] += 1;
    }
    counts
}

fn distinct(counts: &[u32]) -> usize {
    counts.iter().filter(|&&n| n > 0).count()
}

/// Total variation distance of a step's mix from the plan's. (1/1000, rounded up)
fn distance(plan: &Plan, step: &[u32]) -> u64 {
    let all = &plan.bucket_counts;
    let (total, size): (u32, u32) = (all.iter().sum(), step.iter().sum());
    let (total, size) = (u64::from(total), u64::from(size));
    let apart = |(&a, &b): (&u32, &u32)| (u64::from(a) * size).abs_diff(u64::from(b) * total);
    let sum: u64 = all.iter().zip(step).map(apart).sum();
    (sum * 1000).div_ceil(2 * total * size)
}

/// What holds of every composed plan.
fn check(formation: &Formation, spec: &OrderSpec, plan: &Plan) {
    let mut keys: Vec<u32> = plan
        .microbatches
        .iter()
        .chain(&plan.dropped)
        .map(|m| m.key)
        .collect();
    keys.sort_unstable();
    assert!(
        keys.into_iter().eq(0..formation.microbatches.len() as u32),
        "each once"
    );
    for m in &plan.microbatches {
        assert_eq!(*m, formation.microbatches[m.key as usize]);
    }
    let mut end = 0;
    for (number, step) in plan.steps.iter().enumerate() {
        assert_eq!(step.microbatches.start, end);
        assert!((1..=spec.step_size()).contains(&(step.microbatches.len() as u32)));
        end = step.microbatches.end;
        let rows = step.microbatches.start as usize..end as usize;
        assert!(plan.step_of[rows].iter().all(|s| s.index() == number));
    }
    assert_eq!(end as usize, plan.microbatches.len());
    check_rules(spec, plan);
    if spec.assign {
        check_drafters(spec, plan)
    } else {
        assert!(plan.drafter_of.is_empty())
    }
    assert_eq!(plan.digest(), Plan::order(formation, spec).digest());
}

/// Every full step meets the rules as far as the buckets that still hold work allow; every step that falls short says why.
fn check_rules(spec: &OrderSpec, plan: &Plan) {
    let (drafters, window) = (u32::from(spec.drafters), u32::from(spec.mix.window_min));
    let step_min = usize::from(spec.mix.step_min);
    let epoch_of = |step: &PlannedStep| plan.microbatches[step.microbatches.start as usize].epoch;
    for epoch in plan.steps.chunk_by(|a, b| epoch_of(a) == epoch_of(b)) {
        let mut left = vec![0; usize::from(plan.buckets())];
        for step in epoch {
            left.iter_mut()
                .zip(mix(plan, step))
                .for_each(|(left, n)| *left += n);
        }
        for m in plan
            .dropped
            .iter()
            .filter(|m| m.epoch == epoch_of(&epoch[0]))
        {
            left[m.bucket.index()] += 1;
        }
        for step in epoch {
            let counts = mix(plan, step);
            let full = step.microbatches.len() as u32 == spec.step_size();
            // With a carried tail the pool of an epoch is not its own microbatches alone.
            if full && spec.tail != Tail::Carry {
                assert!(distinct(&counts) >= step_min.min(distinct(&left)));
            }
            let places: u32 = counts.iter().map(|&n| n.min(drafters)).sum();
            let kept =
                distinct(&counts) >= step_min && (!spec.assign || places >= drafters * window);
            let excuse = if full {
                Exception::DryBucket
            } else {
                Exception::Tail
            };
            assert_eq!(step.exception, (!kept).then_some(excuse));
            left.iter_mut()
                .zip(counts)
                .for_each(|(left, n)| *left = left.saturating_sub(n));
        }
    }
}

fn check_drafters(spec: &OrderSpec, plan: &Plan) {
    for step in &plan.steps {
        let mut held = vec![0; usize::from(spec.drafters)];
        let mut buckets = vec![vec![0; usize::from(plan.buckets())]; usize::from(spec.drafters)];
        let mut place = 0;
        for row in step.microbatches.clone() {
            let drafter = plan.drafter_of[row as usize].index();
            assert!(
                held[drafter] >= place,
                "nobody gets its second before all have their first"
            );
            place = held[drafter];
            held[drafter] += 1;
            buckets[drafter][plan.microbatches[row as usize].bucket.index()] += 1;
        }
        if step.microbatches.len() >= held.len() {
            assert!(held.iter().all(|&n| n > 0), "{held:?}");
        }
        if step.exception.is_none() {
            let least = buckets.iter().map(|counts| distinct(counts)).min().unwrap();
            assert!(least >= usize::from(spec.mix.window_min));
        }
    }
}

/// Worst distance, fewest distinct buckets and mean distance over the full steps.
fn mixing(plan: &Plan, size: usize) -> (u64, usize, u64) {
    let full = plan
        .steps
        .iter()
        .filter(|step| step.microbatches.len() == size);
    let rows: Vec<Vec<u32>> = full.map(|step| mix(plan, step)).collect();
    let distances: Vec<u64> = rows.iter().map(|row| distance(plan, row)).collect();
    let fewest = rows.iter().map(|row| distinct(row)).min().unwrap();
    (
        *distances.iter().max().unwrap(),
        fewest,
        distances.iter().sum::<u64>() / rows.len() as u64,
    )
}

#[test]
fn every_full_step_holds_the_mix() {
    let shares = [
        [25, 25, 18, 14, 11, 7],
        [30, 22, 18, 14, 9, 7],
        [17, 17, 17, 17, 16, 16],
        [20, 20, 20, 20, 12, 8],
        [10, 30, 25, 15, 12, 8],
        [34, 20, 16, 12, 10, 8],
    ];
    for shares in shares {
        for seed in 0..6 {
            let jitter = |b: u64| Seed(seed).below(Stream::Fault, b, 9) as u32;
            let counts: Vec<u32> = shares
                .iter()
                .zip(0..)
                .map(|(&n, b)| 40 * n + jitter(b))
                .collect();
            let formation = formation(&counts, 1, seed);
            let spec = OrderSpec {
                seed: Seed(seed),
                ..spec(3, 4, 6)
            };
            let plan = Plan::order(&formation, &spec);
            check(&formation, &spec, &plan);
            let (worst, fewest, mean) = mixing(&plan, 12);
            assert!(fewest >= 5, "{counts:?}: a step holds {fewest} buckets");
            assert!(
                worst <= 200 && mean <= 120,
                "{counts:?}: {worst} worst, {mean} mean"
            );
        }
    }
}

#[test]
fn a_prefix_of_steps_holds_the_mix() {
    let counts = [1003, 998, 721, 563, 437, 278];
    let plan = Plan::order(&formation(&counts, 1, 1), &spec(3, 4, 6));
    let total: i64 = counts.iter().map(|&n| i64::from(n)).sum();
    let mut seen = [0_i64; 6];
    for step in &plan.steps {
        seen.iter_mut()
            .zip(mix(&plan, step))
            .for_each(|(seen, n)| *seen += i64::from(n));
        let upto = i64::from(step.microbatches.end);
        for (seen, &count) in seen.iter().zip(&counts) {
            let apart = (seen * total - i64::from(count) * upto).abs();
            assert!(
                apart <= 2 * total,
                "within two microbatches of an even share"
            );
        }
    }
}

#[test]
fn all_sizes_rules_and_tails_keep_what_is_promised() {
    for case in 0..400 {
        let pick = |number, below| Seed(case).below(Stream::Fault, number, below) as u32;
        let buckets = 1 + pick(0, 7) as usize;
        let counts: Vec<u32> = (0..buckets as u64)
            .map(|b| {
                if pick(10 + b, 3) == 0 {
                    pick(20 + b, 6)
                } else {
                    pick(30 + b, 120)
                }
            })
            .collect();
        if counts.iter().sum::<u32>() == 0 {
            continue;
        }
        let (drafters, grad_accum) = (1 + pick(1, 4) as u16, 1 + pick(2, 5));
        let formation = formation(&counts, 1 + pick(3, 3) as u16, case);
        let spec = OrderSpec {
            tail: [Tail::Short, Tail::Carry, Tail::Drop][pick(4, 3) as usize],
            mix: MixRule {
                step_min: pick(5, 1 + u64::from(grad_accum).min(4)) as u8,
                window_min: pick(6, 1 + u64::from(grad_accum).min(3)) as u8,
            },
            assign: pick(7, 2) == 0,
            seed: Seed(case),
            ..spec(drafters, grad_accum, buckets)
        };
        check(&formation, &spec, &Plan::order(&formation, &spec));
    }
}

#[test]
fn another_seed_composes_another_order() {
    let formation = formation(&[60, 50, 40], 1, 1);
    let one = Plan::order(&formation, &spec(3, 4, 3));
    let other = Plan::order(
        &formation,
        &OrderSpec {
            seed: Seed(4),
            ..spec(3, 4, 3)
        },
    );
    assert_ne!(one.digest(), other.digest());
    let buckets = |plan: &Plan| -> Vec<BucketId> {
        plan.microbatches[..12].iter().map(|m| m.bucket).collect()
    };
    assert_ne!(
        buckets(&one),
        buckets(&other),
        "nor do buckets follow a fixed pattern"
    );
}

#[test]
fn tails_are_short_carried_or_dropped() {
    let formation = formation(&[10, 7, 3], 3, 1);
    let sizes = |tail| {
        let spec = OrderSpec {
            tail,
            ..spec(2, 4, 3)
        };
        let plan = Plan::order(&formation, &spec);
        check(&formation, &spec, &plan);
        let sizes: Vec<usize> = plan.steps.iter().map(|s| s.microbatches.len()).collect();
        (sizes, plan.dropped.len())
    };
    assert_eq!(sizes(Tail::Short), (vec![8, 8, 4, 8, 8, 4, 8, 8, 4], 0));
    assert_eq!(sizes(Tail::Carry), (vec![8, 8, 8, 8, 8, 8, 8, 4], 0));
    assert_eq!(sizes(Tail::Drop), (vec![8; 6], 12));
}

#[test]
fn what_is_carried_over_is_trained_first() {
    let formation = formation(&[10, 7, 3], 3, 1);
    let plan = Plan::order(
        &formation,
        &OrderSpec {
            tail: Tail::Carry,
            ..spec(2, 4, 3)
        },
    );
    // 20 an epoch in steps of 8: step 2 begins the second epoch with the 4 that the first left.
    let old = |rows: std::ops::Range<usize>| {
        plan.microbatches[rows]
            .iter()
            .filter(|m| m.epoch == 0)
            .count()
    };
    assert_eq!((old(0..16), old(16..24)), (16, 4));
}

#[test]
fn a_short_tail_that_breaks_the_rule_is_an_exception() {
    let formation = formation(&[11, 11, 11], 1, 1);
    let mix = MixRule {
        step_min: 2,
        window_min: 0,
    };
    let plan = Plan::order(
        &formation,
        &OrderSpec {
            mix,
            ..spec(2, 4, 3)
        },
    );
    let exceptions: Vec<_> = plan.steps.iter().map(|step| step.exception).collect();
    assert_eq!(exceptions, [None, None, None, None, Some(Exception::Tail)]);
}

#[test]
fn a_rare_bucket_is_spread_over_the_epoch() {
    let formation = formation(&[400, 400, 5], 1, 1);
    let plan = Plan::order(&formation, &spec(2, 4, 3));
    let holding: Vec<usize> = (0..plan.steps.len())
        .filter(|&s| mix(&plan, &plan.steps[s])[2] > 0)
        .collect();
    assert_eq!(holding.len(), 5, "never two in a step: {holding:?}");
    assert!(
        holding.windows(2).all(|pair| pair[1] - pair[0] >= 10),
        "{holding:?}"
    );
}

#[test]
fn one_bucket_with_nearly_everything_keeps_the_rule_while_the_others_last() {
    // Three distinct buckets a step need two of the 12 rare ones: six steps at most.
    let formation = formation(&[788, 6, 6], 1, 1);
    let spec = OrderSpec {
        mix: MixRule {
            step_min: 3,
            window_min: 0,
        },
        ..spec(2, 4, 3)
    };
    let plan = Plan::order(&formation, &spec);
    check(&formation, &spec, &plan);
    let kept = plan
        .steps
        .iter()
        .take_while(|step| step.exception.is_none())
        .count();
    assert_eq!(kept, 6);
    let dry = |step: &PlannedStep| step.exception == Some(Exception::DryBucket);
    assert!(plan.steps[6..].iter().all(dry));
}

#[test]
fn one_bucket_alone_is_dry_from_the_start() {
    let formation = formation(&[24], 1, 1);
    let mix = MixRule {
        step_min: 2,
        window_min: 0,
    };
    let plan = Plan::order(
        &formation,
        &OrderSpec {
            mix,
            ..spec(3, 4, 1)
        },
    );
    assert!(
        plan.steps
            .iter()
            .all(|step| step.exception == Some(Exception::DryBucket))
    );
}

#[test]
fn shares_of_drafters_mix_when_asked_to() {
    let formation = formation(&[500, 500, 360, 280, 220, 140], 1, 1);
    let mix = MixRule {
        step_min: 5,
        window_min: 3,
    };
    let spec = OrderSpec {
        mix,
        ..spec(3, 4, 6)
    };
    let plan = Plan::order(&formation, &spec);
    check(&formation, &spec, &plan);
    assert!(
        plan.steps[..166]
            .iter()
            .all(|step| step.exception.is_none())
    );
}

#[test]
fn one_bucket_steps_hold_one_bucket_until_only_rests_are_left() {
    let counts = [26, 15, 9, 30];
    let formation = formation(&counts, 2, 5);
    let spec = OrderSpec {
        ordering: Ordering::Composed(Fill::OneBucket),
        ..spec(2, 2, counts.len())
    };
    let plan = Plan::order(&formation, &spec);
    check(&formation, &spec, &plan);
    let per_epoch = plan.steps.len() / 2;
    for epoch in plan.steps.chunks(per_epoch) {
        let pure = |step: &&PlannedStep| distinct(&mix(&plan, step)) == 1;
        let whole: u32 = counts.iter().map(|n| n / 4).sum();
        assert_eq!(epoch.iter().take_while(pure).count(), whole as usize);
        let order: Vec<Vec<u32>> = epoch.iter().take(6).map(|step| mix(&plan, step)).collect();
        assert!(order.windows(2).any(|pair| pair[0] != pair[1]), "shuffled");
    }
}

#[test]
fn random_steps_mix_less_evenly_than_even_ones_and_hold_the_same_work() {
    let counts = [40, 30, 20, 10, 8, 4];
    let formation = formation(&counts, 1, 5);
    let far = |fill| {
        let spec = OrderSpec {
            ordering: Ordering::Composed(fill),
            ..spec(3, 4, counts.len())
        };
        let plan = Plan::order(&formation, &spec);
        check(&formation, &spec, &plan);
        let full = plan
            .steps
            .iter()
            .filter(|step| step.microbatches.len() == 12);
        full.map(|step| distance(&plan, &mix(&plan, step)))
            .sum::<u64>()
    };
    assert!(far(Fill::Random) > 2 * far(Fill::Even));
    assert!(far(Fill::OneBucket) > 2 * far(Fill::Random));
}
