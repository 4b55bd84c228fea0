//! Which microbatches are measured: of every bucket some, from the smallest to the largest.

use shared::id::MicrobatchId;
use shared::plan::Plan;

/// So many microbatches of each bucket of a plan, spread over their sizes; fewer where a bucket has fewer.
pub(super) fn sample(plan: &Plan, per_bucket: usize) -> Vec<MicrobatchId> {
    let mut chosen = Vec::new();
    for bucket in 0..plan.buckets {
        let rows = plan.microbatches.iter().enumerate();
        let mut mine: Vec<(u64, usize)> = rows
            .filter(|(_, m)| m.bucket.0 == bucket)
            .map(|(row, m)| (m.padded.0, row))
            .collect();
        mine.sort_unstable();
        // Of equal sizes one is enough, unless there is nothing else.
        mine.dedup_by_key(|(padded, _)| *padded);
        let count = per_bucket.min(mine.len());
        // Both ends, and evenly between: costs are fitted inside what was measured.
        let at = |i: usize| match count {
            1 => mine.len() - 1,
            _ => i * (mine.len() - 1) / (count - 1),
        };
        chosen.extend((0..count).map(|i| MicrobatchId::from_index(mine[at(i)].1)));
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::id::Bytes;
    use shared::plan::{
        Edges, FormSpec, Formation, Limits, MixRule, OrderSpec, Ordering, OverLong, Tail,
    };

    #[test]
    fn sizes_of_every_bucket_are_spread_from_the_smallest_to_the_largest() {
        let lengths: Vec<u32> = (1..=200).collect();
        let formation = Formation::form(
            &lengths,
            &FormSpec {
                edges: Edges::given(vec![100, 200]).unwrap(),
                limits: Limits {
                    token_budget: 400,
                    batch_max: 4,
                },
                over_long: OverLong::Refuse,
                epochs: 1,
                bytes_per_token: Bytes(2),
                seed: shared::draw::Seed(1),
            },
        )
        .unwrap();
        let spec = OrderSpec {
            ordering: Ordering::Shuffled,
            drafters: 1,
            grad_accum: 1,
            tail: Tail::Short,
            mix: MixRule::default(),
            assign: false,
            train_cost: Vec::new(),
            seed: shared::draw::Seed(1),
        };
        let plan = Plan::order(&formation, &spec);
        let chosen = sample(&plan, 3);
        assert_eq!(chosen.len(), 6);
        for bucket in 0..2 {
            let padded = |m: &shared::plan::Microbatch| m.padded.0;
            let mine = plan.microbatches.iter().filter(|m| m.bucket.0 == bucket);
            let sizes: Vec<u64> = chosen
                .iter()
                .map(|id| plan.microbatch(*id))
                .filter(|m| m.bucket.0 == bucket)
                .map(padded)
                .collect();
            assert_eq!(sizes.len(), 3);
            assert_eq!(sizes[0], mine.clone().map(padded).min().unwrap());
            assert_eq!(sizes[2], mine.map(padded).max().unwrap());
        }
    }
}
