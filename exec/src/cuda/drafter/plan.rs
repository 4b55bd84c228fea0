//! What the kernels need to know about a microbatch, worked out on the host.

use super::shape::Shape;
use crate::train::BlockPlan;

/// The last layer and the head work on whole multiples of so many slots, so that few shapes of products occur.
pub(super) const TARGET_ROWS: usize = 128;

/// Keys a tile of the key gradient: 64 for each of two warpgroups.
const KEY_ROWS: usize = 128;

/// Whole numbers for the kernels, several lists one behind the other in one upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct List {
    /// First word.
    pub(super) start: usize,
    /// Words.
    pub(super) len: usize,
}

/// A microbatch's blocks without those that no loss comes from, as lists of words.
///
/// A block without a supervised slot is seen by no other block, so it adds nothing to loss or gradients.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// All lists.
    pub(super) words: Vec<u32>,
    /// Blocks kept (A).
    pub(super) blocks: usize,
    /// Slots of the blocks kept (N).
    pub(super) slots: usize,
    /// Supervised slots.
    pub(super) supervised: usize,
    /// The same up to whole multiples of [`TARGET_ROWS`].
    pub(super) supervised_padded: usize,
    /// Context rows (C): rows times tokens.
    pub(super) context: usize,
    /// Input token of each slot `[N]`.
    pub(super) tokens: List,
    /// Position of each slot `[N]`.
    pub(super) positions: List,
    /// Position of each context row `[C]`.
    pub(super) context_positions: List,
    /// First slot of each block `[A]`.
    pub(super) first_slots: List,
    /// Distinct inputs of the first layer: the anchors' tokens, then the mask token [A + 1].
    pub(super) distinct: List,
    /// Which of them each slot has `[N]`.
    pub(super) distinct_of: List,
    /// Supervised slots, ascending; then the last one again, up to whole multiples.
    pub(super) targets: List,
    /// Their labels.
    pub(super) labels: List,
    /// Their loss weights, as bits of f32; 0 behind the supervised ones.
    pub(super) weights: List,
    /// The context row whose last hidden state tells of each supervised slot's token: the one a position before it.
    pub(super) teachers: List,
    /// How many supervised slots come before each block, and in all [A + 1]; for the host alone.
    pub(super) bounds: Vec<usize>,
    /// Anchor of each block `[A]`.
    pub(super) anchors: List,
    /// Anchor and first context row of each block [A, 2].
    pub(super) sights: List,
    /// Blocks worked on together, four words each: first block, blocks, first context row, last anchor.
    pub(super) shares: List,
    /// Keys worked on together, six words each: first row, rows, position, first block, blocks, whether they are slots.
    pub(super) key_shares: List,
}

impl Plan {
    /// `tokens` are those of a row of hidden states (S); `units` is how many blocks one launch block of the attention kernel takes.
    pub(super) fn new(plan: &BlockPlan, tokens: usize, s: &Shape, units: usize) -> Self {
        let (rows, per_row, slots) = plan.shape();
        let alive = |block: usize| {
            let weights = &plan.weights()[block * slots..(block + 1) * slots];
            weights.iter().any(|&w| w > 0.0)
        };
        let kept: Vec<usize> = (0..rows * per_row).filter(|&block| alive(block)).collect();
        let of_slots = |block: &usize| block * slots..(block + 1) * slots;
        let places: Vec<usize> = kept.iter().flat_map(of_slots).collect();
        let anchors: Vec<u32> = kept.iter().map(|&block| plan.starts()[block]).collect();
        let row_of: Vec<usize> = kept.iter().map(|&block| block / per_row).collect();
        let weight_of = |slot: usize| plan.weights()[places[slot]] as f32;
        let mut targets: Vec<usize> = (0..places.len())
            .filter(|&slot| weight_of(slot) > 0.0)
            .collect();
        let supervised = targets.len();
        if let Some(&last) = targets.last() {
            targets.resize(supervised.next_multiple_of(TARGET_ROWS), last);
        }
        let weights = targets
            .iter()
            .enumerate()
            .map(|(n, &slot)| match n < supervised {
                true => weight_of(slot).to_bits(),
                false => 0,
            });

        let teacher_of = |slot: &usize| {
            let position = plan.positions()[places[*slot]];
            ((row_of[slot / slots] * tokens) as u32 + position).saturating_sub(1)
        };
        let of_blocks = (0..=kept.len()).map(|block| {
            let before = |slot: &usize| slot / slots < block;
            targets[..supervised].partition_point(before)
        });
        let bounds = of_blocks.collect();

        let mut words = Words(Vec::new());
        let pick = |from: &[u32]| places.iter().map(|&place| from[place]).collect::<Vec<_>>();
        let blocks = kept.len();
        let mask = places.get(1).map_or(0, |&place| plan.tokens()[place]);
        let first_tokens = places.chunks(slots).map(|block| plan.tokens()[block[0]]);
        let distinct_of = (0..places.len()).map(|slot| match slot % slots {
            0 => slot / slots,
            _ => blocks,
        });
        let sight = |block: usize| [anchors[block], (row_of[block] * tokens) as u32];
        Self {
            tokens: words.add(pick(plan.tokens())),
            positions: words.add(pick(plan.positions())),
            context_positions: words.add((0..rows).flat_map(|_| 0..tokens as u32)),
            distinct: words.add(first_tokens.chain([mask])),
            first_slots: words.add((0..blocks).map(|block| (block * slots) as u32)),
            distinct_of: words.add(distinct_of.map(|row| row as u32)),
            targets: words.add(targets.iter().map(|&slot| slot as u32)),
            labels: words.add(targets.iter().map(|&slot| plan.labels()[places[slot]])),
            weights: words.add(weights),
            teachers: words.add(targets.iter().map(teacher_of)),
            bounds,
            sights: words.add((0..blocks).flat_map(sight)),
            shares: words.add(shares(&anchors, &row_of, tokens, units)),
            key_shares: words.add(key_shares(&anchors, &row_of, rows, tokens, s.slots)),
            anchors: words.add(anchors),
            words: words.0,
            blocks,
            slots: places.len(),
            supervised,
            supervised_padded: targets.len(),
            context: rows * tokens,
        }
    }
}

struct Words(Vec<u32>);

impl Words {
    /// Lists begin at 16 bytes.
    fn add(&mut self, list: impl IntoIterator<Item = u32>) -> List {
        let start = self.0.len();
        self.0.extend(list);
        let len = self.0.len() - start;
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        List { start, len }
    }
}

/// Neighbouring blocks of one row, `units` at a time, those with the longest context first.
fn shares(anchors: &[u32], row_of: &[usize], tokens: usize, units: usize) -> Vec<u32> {
    let mut shares: Vec<[u32; 4]> = Vec::new();
    for run in runs(row_of) {
        for first in run.clone().step_by(units) {
            let end = run.end.min(first + units);
            let context = row_of[first] * tokens;
            shares.push([first, end - first, context, anchors[end - 1] as usize].map(|n| n as u32));
        }
    }
    shares.sort_by_key(|share| std::cmp::Reverse(share[3]));
    shares.concat()
}

/// Every context row and every slot once, those that most blocks see first.
fn key_shares(
    anchors: &[u32],
    row_of: &[usize],
    rows: usize,
    tokens: usize,
    slots: usize,
) -> Vec<u32> {
    let mut shares: Vec<[u32; 6]> = Vec::new();
    for row in 0..rows {
        let first = row_of.partition_point(|&r| r < row);
        let end = row_of.partition_point(|&r| r <= row);
        for position in (0..tokens).step_by(KEY_ROWS) {
            // Anchors ascend, so the blocks that see a tile are the last ones.
            let seen = first + anchors[first..end].partition_point(|&a| a as usize <= position);
            let count = KEY_ROWS.min(tokens - position);
            let words = [
                row * tokens + position,
                count,
                position,
                seen,
                end - seen,
                0,
            ];
            shares.push(words.map(|n| n as u32));
        }
    }
    let all = anchors.len() * slots;
    for first in (0..all).step_by(KEY_ROWS) {
        let count = KEY_ROWS.min(all - first);
        let (block, end) = (first / slots, (first + count).div_ceil(slots));
        shares.push([first, count, first, block, end - block, 1].map(|n| n as u32));
    }
    shares.sort_by_key(|share| std::cmp::Reverse(share[4]));
    shares.concat()
}

/// Ranges of equal neighbours.
fn runs(values: &[usize]) -> impl Iterator<Item = std::ops::Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let value = values.get(start)?;
        let len = values[start..].iter().take_while(|v| *v == value).count();
        start += len;
        Some(start - len..start)
    })
}

#[cfg(test)]
mod tests {
    use super::super::shape::tests::shape;
    use super::*;
    use crate::model::{PaddedBatch, Sample};
    use crate::train::BlockSpec;

    fn plan() -> Plan {
        let ids: Vec<u32> = (10..26).collect();
        let sample = |n: usize| Sample {
            input_ids: &ids[..n],
            loss_mask: &[true; 16][..n],
        };
        let batch = PaddedBatch::new(&[sample(16), sample(6)], 16).unwrap();
        let spec = BlockSpec {
            block_size: 4,
            mask_token_id: 49,
            gamma: 2.0,
        };
        let anchors = [vec![2, 3, 9], vec![1]];
        let blocks = BlockPlan::new(&batch, &anchors, &spec).unwrap();
        Plan::new(&blocks, 16, &shape(), 2)
    }

    fn list(plan: &Plan, list: List) -> &[u32] {
        &plan.words[list.start..list.start + list.len]
    }

    #[test]
    fn blocks_without_loss_are_left_out() {
        let plan = plan();
        // Row 1 has one anchor and two dropped blocks.
        assert_eq!((plan.blocks, plan.slots, plan.context), (4, 16, 32));
        assert_eq!((plan.supervised, plan.supervised_padded), (3 * 4, 128));
        assert_eq!(list(&plan, plan.targets)[11..14], [15, 15, 15]);
        let weights = list(&plan, plan.weights);
        assert!(weights[11] != 0 && weights[12..].iter().all(|&bits| bits == 0));
        assert_eq!(list(&plan, plan.anchors), [2, 3, 9, 1]);
        assert_eq!(list(&plan, plan.sights), [2, 0, 3, 0, 9, 0, 1, 16]);
        assert_eq!(list(&plan, plan.targets)[..4], [1, 2, 3, 5]);
        assert_eq!(list(&plan, plan.labels)[..4], [13, 14, 15, 14]);
        // The last block's slots are asked for tokens 2, 3 and 4 of row 1, whose context begins at 16.
        assert_eq!(list(&plan, plan.teachers)[..4], [2, 3, 4, 3]);
        assert_eq!(list(&plan, plan.teachers)[9..13], [17, 18, 19, 19]);
        assert_eq!(plan.bounds, [0, 3, 6, 9, 12]);
    }

    #[test]
    fn the_first_layer_has_one_row_for_all_masks() {
        let plan = plan();
        assert_eq!(list(&plan, plan.distinct), [12, 13, 19, 11, 49]);
        assert_eq!(list(&plan, plan.distinct_of)[..5], [0, 4, 4, 4, 1]);
    }

    #[test]
    fn shares_keep_to_a_row_and_put_long_contexts_first() {
        let plan = plan();
        let shares: Vec<_> = list(&plan, plan.shares).chunks(4).collect();
        assert_eq!(shares, [[2, 1, 0, 9], [0, 2, 0, 3], [3, 1, 16, 1]]);
    }

    #[test]
    fn every_key_is_in_one_share() {
        let plan = plan();
        let shares: Vec<_> = list(&plan, plan.key_shares).chunks(6).collect();
        assert_eq!(
            shares,
            [
                [0, 16, 0, 0, 4, 1],
                [0, 16, 0, 0, 3, 0],
                [16, 16, 0, 3, 1, 0]
            ]
        );
    }
}
