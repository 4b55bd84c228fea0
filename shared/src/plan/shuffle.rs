//! A seeded shuffle.

use crate::draw::{Seed, Stream};

/// Puts `items` in an order that (seed, stream) decides, each order equally likely (Fisher and Yates; Knuth, TAOCP 2, 3.4.2 P).
pub(super) fn shuffle<T>(items: &mut [T], seed: Seed, stream: Stream) {
    for last in (1..items.len()).rev() {
        let pick = seed.below(stream, last as u64, last as u64 + 1);
        items.swap(last, pick as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_of_three_is_about_equally_likely() {
        let mut seen = [0_u32; 27];
        for seed in 0..6_000 {
            let mut items = [0_usize, 1, 2];
            shuffle(&mut items, Seed(seed), Stream::Order);
            seen[items[0] * 9 + items[1] * 3 + items[2]] += 1;
        }
        let seen: Vec<u32> = seen.into_iter().filter(|&n| n > 0).collect();
        assert_eq!(seen.len(), 6);
        assert!(seen.iter().all(|n| (850..1150).contains(n)), "{seen:?}");
    }

    #[test]
    fn nothing_and_one_stay() {
        shuffle::<u32>(&mut [], Seed(1), Stream::Order);
        let mut one = [7];
        shuffle(&mut one, Seed(1), Stream::Order);
        assert_eq!(one, [7]);
    }
}
