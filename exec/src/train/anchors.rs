//! Where blocks start.

use crate::model::hash;

/// Draws up to `anchors_max` anchors of a sample, sorted ascending.
///
/// Uniform without replacement over positions i with `loss_mask[i]` and `loss_mask[i + 1]`; all of
/// them when there are no more than `anchors_max`. A pure function of its arguments: neither the
/// microbatch, nor the worker, nor the padding behind the sample changes the draw, and each epoch
/// draws anew. Each position gets a hashed key and the smallest keys win.
pub fn draw(
    seed: u64,
    epoch: u64,
    sample_id: u64,
    loss_mask: &[bool],
    anchors_max: usize,
) -> Vec<u32> {
    let valid = loss_mask
        .windows(2)
        .enumerate()
        .filter(|(_, pair)| pair[0] && pair[1]);
    let mut keyed: Vec<(u64, u32)> = valid
        .map(|(i, _)| (hash(&[seed, epoch, sample_id, i as u64]), i as u32))
        .collect();
    if keyed.len() > anchors_max {
        keyed.select_nth_unstable(anchors_max);
        keyed.truncate(anchors_max);
    }
    let mut anchors: Vec<u32> = keyed.into_iter().map(|(_, i)| i).collect();
    anchors.sort_unstable();
    anchors
}

#[cfg(test)]
mod tests {
    use super::draw;

    const MASK: [bool; 10] = [
        false, true, true, false, true, true, true, true, false, true,
    ];

    #[test]
    fn only_positions_with_loss_here_and_next_are_drawn() {
        assert_eq!(draw(1, 0, 0, &MASK, 10), [1, 4, 5, 6]);
        assert!(draw(1, 0, 0, &[true], 4).is_empty());
        assert!(draw(1, 0, 0, &[], 4).is_empty());
        assert!(draw(1, 0, 0, &MASK, 0).is_empty());
    }

    #[test]
    fn padding_changes_nothing_and_every_argument_counts() {
        let mask = [true; 200];
        let base = draw(3, 1, 9, &mask, 8);
        let mut padded = mask.to_vec();
        padded.extend([false; 56]);
        assert_eq!(draw(3, 1, 9, &padded, 8), base);
        assert!(base.is_sorted() && base.len() == 8);
        for other in [
            draw(4, 1, 9, &mask, 8),
            draw(3, 2, 9, &mask, 8),
            draw(3, 1, 8, &mask, 8),
        ] {
            assert_ne!(other, base);
        }
    }

    #[test]
    fn every_valid_position_is_equally_likely() {
        let mask = [true; 21];
        let mut counts = [0u32; 20];
        for sample in 0..8000 {
            for i in draw(5, 0, sample, &mask, 5) {
                counts[i as usize] += 1;
            }
        }
        // Binomial(8000, 1/4): standard deviation 39.
        assert!(counts.iter().all(|&n| n.abs_diff(2000) < 195), "{counts:?}");
    }
}
