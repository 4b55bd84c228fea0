//! The position values of D-PACE.

/// v_k of each supervised slot: the accepted tokens that hang on it, by the drafter's own smoothed
/// probabilities.
///
/// `slots` are ascending indices over blocks of `block_size`, whole blocks at a time, `entropies`
/// their −ln q. A slot that is not supervised counts as certain in the products and adds nothing to
/// the sums.
pub(super) fn values(slots: &[u32], entropies: &[f64], block_size: usize, alpha: f64) -> Vec<f64> {
    let block_of = |at: usize| slots[at] as usize / block_size;
    let mut values = vec![0.0; slots.len()];
    let mut begin = 0;
    while begin < slots.len() {
        let end = (begin..slots.len())
            .find(|&at| block_of(at) != block_of(begin))
            .unwrap_or(slots.len());
        let mut reached = 1.0;
        for at in begin..end {
            reached *= (1.0 - alpha) * (-entropies[at]).exp() + alpha;
            values[at] = reached;
        }
        for at in (begin..end - 1).rev() {
            values[at] += values[at + 1];
        }
        begin = end;
    }
    values
}

#[cfg(test)]
mod tests {
    use super::values;

    #[test]
    fn a_slot_is_worth_the_tokens_that_hang_on_it() {
        // Blocks of 4: slots 1, 2, 3 of the first, slot 3 alone of the third.
        let certain = values(&[1, 2, 3, 11], &[0.0; 4], 4, 0.5);
        assert_eq!(certain, [3.0, 2.0, 1.0, 1.0]);
        let hopeless = values(&[1, 2, 3], &[f64::INFINITY; 3], 4, 0.5);
        assert_eq!(hopeless, [0.875, 0.375, 0.125]);
        assert!(values(&[], &[], 4, 0.5).is_empty());
    }
}
