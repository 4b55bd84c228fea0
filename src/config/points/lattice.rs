//! The points as places on a lattice, one axis a ranged field: some of them spread evenly, and those next to one.

use super::{Entry, Points, places};
use shared::draw::{Seed, Stream};
use std::collections::BTreeSet;

/// Axes with at most so many values are looked at in full around a point.
const FEW: usize = 8;

/// On longer axes, neighbours lie so many parts of the axis away, and one step.
const PARTS: [usize; 2] = [8, 48];

impl Points {
    /// About `count` points that cover every axis evenly; all, if there are no more. Each policy entry has its share.
    ///
    /// Method: Latin hypercubes (McKay, Beckman and Conover, Technometrics 21(2), 1979): every axis is cut into as many parts as there are
    /// points, and each part is hit once, in an order of its own.
    pub(crate) fn spread(&self, count: usize) -> Vec<usize> {
        let share = count.div_ceil(self.entries.len()).max(1);
        let mut chosen = BTreeSet::new();
        for (number, entry) in self.entries.iter().enumerate() {
            let counts = self.counts(entry);
            let all = counts.iter().try_fold(1_usize, |n, &c| n.checked_mul(c));
            if let Some(all) = all.filter(|&all| all <= share) {
                chosen.extend((0..all).map(|i| self.index(number, &places(counts.clone(), i))));
                continue;
            }
            let axes = counts.iter().enumerate();
            let orders: Vec<Vec<usize>> = axes.map(|(axis, _)| order(axis, share)).collect();
            for draw in 0..share {
                let place = |(order, &count): (&Vec<usize>, &usize)| {
                    // The middle of the part; in u128 since an axis may be as long as memory.
                    let middle = (2 * order[draw] as u128 + 1) * count as u128;
                    (middle / (2 * share as u128)) as usize
                };
                let digits: Vec<usize> = orders.iter().zip(&counts).map(place).collect();
                chosen.insert(self.index(number, &digits));
            }
        }
        chosen.into_iter().collect()
    }

    /// The points that differ from point `index` along one axis: by any value of a short axis, by small and large steps on a long one.
    pub(crate) fn near(&self, index: usize) -> Vec<usize> {
        let (number, digits) = self.digits(index);
        let counts = self.counts(&self.entries[number]);
        let mut near = BTreeSet::new();
        for (axis, &count) in counts.iter().enumerate() {
            let at = digits[axis];
            let others: Vec<usize> = if count <= FEW {
                (0..count).collect()
            } else {
                let steps = PARTS.iter().map(|part| (count / part).max(1));
                let steps = steps.chain([1]);
                steps
                    .flat_map(|step| [at.saturating_sub(step), (at + step).min(count - 1)])
                    .collect()
            };
            for other in others {
                let mut digits = digits.clone();
                digits[axis] = other;
                near.insert(self.index(number, &digits));
            }
        }
        near.remove(&index);
        near.into_iter().collect()
    }

    /// Values on each axis of an entry: those of the sweep, then its own.
    fn counts(&self, entry: &Entry) -> Vec<usize> {
        let swept = self.sweep.iter().map(|axis| axis.choices.count() as usize);
        let own = entry.axes.iter().map(|axis| axis.count() as usize);
        swept.chain(own).collect()
    }

    /// The entry of a point and its place on each axis.
    fn digits(&self, index: usize) -> (usize, Vec<usize>) {
        let of_all: usize = self.entries.iter().map(|entry| entry.count).sum();
        let (swept, mut within) = (index / of_all, index % of_all);
        let mut number = 0;
        while within >= self.entries[number].count {
            within -= self.entries[number].count;
            number += 1;
        }
        let axes = self.sweep.len();
        let mut counts = self.counts(&self.entries[number]);
        let own = counts.split_off(axes);
        let mut digits = places(counts, swept);
        digits.extend(places(own, within));
        (number, digits)
    }

    /// The point of an entry at these places.
    fn index(&self, number: usize, digits: &[usize]) -> usize {
        let counts = self.counts(&self.entries[number]);
        let joined = |range: std::ops::Range<usize>| {
            range.fold(0, |index, axis| index * counts[axis] + digits[axis])
        };
        let axes = self.sweep.len();
        let of_all: usize = self.entries.iter().map(|entry| entry.count).sum();
        let before: usize = self.entries[..number].iter().map(|e| e.count).sum();
        joined(0..axes) * of_all + before + joined(axes..counts.len())
    }
}

/// The parts of an axis in an order that differs from axis to axis.
fn order(axis: usize, parts: usize) -> Vec<usize> {
    let seed = Seed(axis as u64);
    let mut order: Vec<usize> = (0..parts).collect();
    order.sort_by_key(|&part| seed.draw(Stream::Decision, part as u64));
    order
}

#[cfg(test)]
mod tests {
    use super::super::super::load::testing::loaded;
    use super::*;

    const SPACE: &str = "
        costs = { spread = 0.1 }
        [sweep]
        costs.spread = { from = 0.0, to = 0.5 }
        [[policy]]
        preset = 'composed'
        split = ['4+4', '5+3', '6+2']
        depth_total = { from = 4, to = 103 }
        [[policy]]
        preset = 'bucketed'
        take = ['oldest', 'longest']
    ";

    fn space() -> Points {
        loaded(SPACE).expand(u64::MAX).unwrap()
    }

    #[test]
    fn a_place_and_its_point_are_one() {
        let points = space();
        assert_eq!(points.len(), 1025 * (300 + 2));
        for index in [0, 1, 299, 300, 301, 302, 999, points.len() - 1] {
            let (entry, digits) = points.digits(index);
            assert_eq!(points.index(entry, &digits), index);
            assert_eq!(points.point(index).entry, entry);
        }
    }

    #[test]
    fn few_points_cover_every_axis() {
        let points = space();
        let chosen = points.spread(60);
        assert!(chosen.len() > 50 && chosen.len() <= 60, "{}", chosen.len());
        let depths: BTreeSet<usize> = chosen
            .iter()
            .filter_map(|&i| {
                points.point(i).table["policy"]
                    .get("depth_total")?
                    .as_integer()
            })
            .map(|depth| (depth as usize - 4) / 10)
            .collect();
        assert_eq!(depths.len(), 10, "each tenth of the depths");
        assert_eq!(chosen, points.spread(60));
        let all = loaded("[[policy]]\ndepth_total = [4, 8, 12]")
            .expand(9)
            .unwrap();
        assert_eq!(all.spread(20), [0, 1, 2]);
    }

    #[test]
    fn neighbours_differ_along_one_axis() {
        let points = space();
        let index = points.index(0, &[512, 50, 1]);
        let near = points.near(index);
        let (_, digits) = points.digits(index);
        for &other in &near {
            let (_, others) = points.digits(other);
            let differ = digits.iter().zip(&others).filter(|(a, b)| a != b);
            assert_eq!(differ.count(), 1);
        }
        // Six along the spread, six depths, two other splits.
        assert_eq!(near.len(), 14);
    }
}
