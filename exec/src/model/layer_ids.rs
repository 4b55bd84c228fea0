//! Which target layers a drafter reads when its config is new.

/// The default `target_layer_ids` for a target of `target_layers` and a drafter of
/// `drafter_layers`.
///
/// One drafter layer reads the middle of the target; otherwise id i is
/// `round(1 + i·(N_t − 4)/(n − 1))`, halves to even. An id names the layer whose *output* is taken.
/// Small targets are clamped so that ids stay inside the target; duplicates are dropped.
pub fn default_target_layer_ids(target_layers: usize, drafter_layers: usize) -> Vec<usize> {
    if drafter_layers <= 1 {
        return vec![target_layers / 2];
    }
    let (last, gaps) = (target_layers.saturating_sub(4), drafter_layers - 1);
    let mut ids: Vec<usize> = (0..drafter_layers)
        .map(|i| 1 + divide_half_to_even(i * last, gaps))
        .map(|id| id.min(target_layers.saturating_sub(1)))
        .collect();
    ids.dedup();
    ids
}

/// `numerator / denominator`, rounded; halves go to the even neighbour once 1 is added, as the
/// published rule rounds the sum.
fn divide_half_to_even(numerator: usize, denominator: usize) -> usize {
    let (whole, rest) = (numerator / denominator, numerator % denominator);
    match (2 * rest).cmp(&denominator) {
        std::cmp::Ordering::Less => whole,
        std::cmp::Ordering::Greater => whole + 1,
        // 1 + whole is even exactly when whole is odd.
        std::cmp::Ordering::Equal => whole + usize::from(whole % 2 == 0),
    }
}

#[cfg(test)]
mod tests {
    use super::default_target_layer_ids as ids;

    #[test]
    fn published_targets_give_their_published_layers() {
        assert_eq!(ids(64, 5), [1, 16, 31, 46, 61]);
        assert_eq!(ids(36, 5), [1, 9, 17, 25, 33]);
        assert_eq!(ids(40, 5), [1, 10, 19, 28, 37]);
        assert_eq!(ids(32, 5), [1, 8, 15, 22, 29]);
    }

    #[test]
    fn one_drafter_layer_reads_the_middle() {
        assert_eq!(ids(36, 1), [18]);
    }

    #[test]
    fn halves_go_to_the_even_id() {
        // 1 + 1·7/2 = 4.5 → 4 and 1 + 1·9/2 = 5.5 → 6, as Python rounds.
        assert_eq!(ids(11, 3), [1, 4, 8]);
        assert_eq!(ids(13, 3), [1, 6, 10]);
    }

    #[test]
    fn tiny_targets_stay_inside_their_layers() {
        for target in 1..8 {
            for drafter in 1..6 {
                let got = ids(target, drafter);
                assert!(
                    got.iter().all(|&id| id < target),
                    "{target} {drafter} {got:?}"
                );
                assert!(
                    got.windows(2).all(|w| w[0] < w[1]),
                    "{target} {drafter} {got:?}"
                );
            }
        }
    }
}
