//! Bucket edges with the least total padding, by dynamic programming.
//!
//! With the distinct lengths L(1) < L(2) < ... and C(j) the number of samples up to L(j), a bucket that holds lengths i+1 to j costs
//! L(j) (C(j) - C(i)) padded tokens. The best way to split the first j lengths over r buckets is
//!
//! ```text
//! best(r, j) = min over i < j of best(r-1, i) + L(j) (C(j) - C(i))
//! ```
//!
//! For fixed r each i is a line in x = L(j), of slope -C(i) and height best(r-1, i). Slopes fall as i grows and x only rises, so the
//! lower envelope of the lines is a queue that is walked once (the convex hull trick): time and back pointers are
//! buckets x distinct lengths, whatever the number of samples.

/// At most `buckets` edges, the last of them the longest length, for `distinct` = rising (length, samples) pairs.
pub(super) fn edges(distinct: &[(u32, u64)], buckets: usize) -> Vec<u32> {
    let count = distinct.len();
    let buckets = buckets.min(count);
    let mut samples = vec![0_i128; count + 1];
    for (j, &(_, equal)) in distinct.iter().enumerate() {
        samples[j + 1] = samples[j] + i128::from(equal);
    }
    let length = |j: usize| i128::from(distinct[j - 1].0);

    // One bucket holds everything up to j.
    let mut best: Vec<i128> = (0..=count)
        .map(|j| if j == 0 { 0 } else { length(j) * samples[j] })
        .collect();
    // cuts[r][j] is the last length of the bucket before the last, when r + 2 buckets hold the first j lengths.
    let mut cuts = Vec::with_capacity(buckets);
    for used in 1..buckets {
        let mut envelope = Vec::new();
        let mut lowest = 0;
        let mut next = vec![0; count + 1];
        let mut cut = vec![0_u32; count + 1];
        for j in used + 1..=count {
            let line = Line {
                slope: -samples[j - 1],
                height: best[j - 1],
                cut: j - 1,
            };
            push(&mut envelope, lowest, line);
            let x = length(j);
            while lowest + 1 < envelope.len()
                && envelope[lowest + 1].at(x) <= envelope[lowest].at(x)
            {
                lowest += 1;
            }
            next[j] = envelope[lowest].at(x) + x * samples[j];
            cut[j] = envelope[lowest].cut as u32;
        }
        best = next;
        cuts.push(cut);
    }

    let mut edges = vec![distinct[count - 1].0];
    let mut upto = count;
    for cut in cuts.iter().rev() {
        upto = cut[upto] as usize;
        edges.push(distinct[upto - 1].0);
    }
    edges.reverse();
    edges
}

struct Line {
    slope: i128,
    height: i128,
    cut: usize,
}

impl Line {
    fn at(&self, x: i128) -> i128 {
        self.slope * x + self.height
    }
}

/// Adds a line with the least slope so far to the lines from `lowest` on; those that are lowest nowhere any more leave.
fn push(envelope: &mut Vec<Line>, lowest: usize, line: Line) {
    while let [.., first, second] = &envelope[lowest..] {
        // `second` is lowest from where it meets `first` to where `line` meets `first`, if that comes later.
        let line_meets = (line.height - first.height) * (first.slope - second.slope);
        let second_meets = (second.height - first.height) * (first.slope - line.slope);
        if line_meets > second_meets {
            break;
        }
        envelope.pop();
    }
    envelope.push(line);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Seed, Stream};

    fn padded(distinct: &[(u32, u64)], edges: &[u32]) -> u64 {
        let edge = |length| edges.iter().find(|&&e| e >= length).copied().unwrap();
        distinct
            .iter()
            .map(|&(length, equal)| u64::from(edge(length)) * equal)
            .sum()
    }

    /// The least padding over all choices of at most `buckets` edges.
    fn brute_force(distinct: &[(u32, u64)], buckets: usize) -> u64 {
        let free = distinct.len() - 1;
        (0..1_u32 << free)
            .filter(|chosen| (chosen.count_ones() as usize) < buckets)
            .map(|chosen| {
                let picked = (0..=free).filter(|&i| i == free || chosen >> i & 1 == 1);
                padded(distinct, &picked.map(|i| distinct[i].0).collect::<Vec<_>>())
            })
            .min()
            .unwrap()
    }

    #[test]
    fn no_choice_of_edges_pads_less() {
        for case in 0..400 {
            let seed = Seed(case);
            let count = 1 + seed.below(Stream::Length, 0, 10) as usize;
            let mut length = 0;
            let distinct: Vec<(u32, u64)> = (0..count as u64)
                .map(|i| {
                    length += 1 + seed.below(Stream::Length, 1 + 2 * i, 40) as u32;
                    (length, 1 + seed.below(Stream::Length, 2 + 2 * i, 30))
                })
                .collect();
            for buckets in 1..=count + 1 {
                let edges = edges(&distinct, buckets);
                assert_eq!(edges.len(), buckets.min(count));
                assert_eq!(edges.last(), distinct.last().map(|(length, _)| length));
                let least = brute_force(&distinct, buckets);
                assert_eq!(
                    padded(&distinct, &edges),
                    least,
                    "case {case}, {buckets} buckets"
                );
            }
        }
    }

    #[test]
    fn many_lengths_and_more_buckets_pad_ever_less() {
        let distinct: Vec<(u32, u64)> = (1..=32_768)
            .map(|length| (length, u64::from(1 + 40_000 / length)))
            .collect();
        let paddings =
            [1, 2, 4, 8, 16].map(|buckets| padded(&distinct, &edges(&distinct, buckets)));
        assert!(
            paddings.windows(2).all(|pair| pair[1] < pair[0]),
            "{paddings:?}"
        );
    }
}
