//! Which microbatches are measured: of every bucket some, from the smallest to the largest.

use shared::id::MicrobatchId;
use shared::plan::Plan;

/// So many microbatches of each bucket of a plan, spread over their sizes; fewer where a bucket has fewer.
pub(super) fn sample(plan: &Plan, per_bucket: usize) -> Vec<MicrobatchId> {
    let mut chosen = Vec::new();
    for bucket in 0..plan.buckets() {
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

/// All microbatches in the plan's order, each with the one of the sample that has its bucket and size, or else itself.
pub(super) fn order(plan: &Plan, sample: &[MicrobatchId]) -> Vec<(MicrobatchId, MicrobatchId)> {
    let size = |id: MicrobatchId| {
        let microbatch = plan.microbatch(id);
        (
            microbatch.bucket,
            microbatch.padded,
            microbatch.sample_count(),
        )
    };
    let like = |id: MicrobatchId| {
        let same = sample.iter().find(|other| size(**other) == size(id));
        (id, same.copied().unwrap_or(id))
    };
    (0..plan.microbatches.len())
        .map(|row| like(MicrobatchId::from_index(row)))
        .collect()
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
        let order = order(&plan, &chosen);
        assert_eq!(order.len(), plan.microbatches.len());
        for (row, &(id, like)) in order.iter().enumerate() {
            assert_eq!(id.index(), row);
            let [mine, others] = [id, like].map(|id| {
                let m = plan.microbatch(id);
                (m.bucket, m.padded, m.sample_count())
            });
            assert_eq!(mine, others);
            let is_known = chosen.contains(&like);
            assert!(is_known || like == id, "{id:?} {like:?}");
        }
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
