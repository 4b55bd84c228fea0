//! Formulas for measured times: least squares of relative errors, no coefficient below zero.

use shared::load::Rest;
use sim::spec::Formula;
use std::collections::BTreeMap;

/// A size and what it took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    /// Padded tokens.
    pub(crate) padded: u64,
    /// Samples.
    pub(crate) samples: u32,
    /// Tokens of the longest sample.
    pub(crate) longest: u32,
    /// (ms)
    pub(crate) ms: f64,
    /// How much it counts: the share of the work that it stands for.
    pub(crate) weight: f64,
}

/// How far a fit is off on the points it was made from, as shares of what was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct FitError {
    /// Mean of the absolute errors.
    pub(crate) mean: f64,
    /// The largest of them.
    pub(crate) max: f64,
}

/// The formula that fits best.
pub(crate) fn formula(points: &[Point]) -> (Formula, FitError) {
    let terms = |p: &Point| {
        let unit = |set: fn(&mut Formula)| {
            let mut formula = Formula::default();
            set(&mut formula);
            formula.ms(p.padded, p.samples, p.longest)
        };
        [
            unit(|f| f.base_ms = 1.0),
            unit(|f| f.per_token_us = 1.0),
            unit(|f| f.per_sample_ms = 1.0),
            unit(|f| f.per_token2_ns = 1.0),
        ]
    };
    let rows: Vec<_> = points.iter().map(|p| (terms(p), p.ms, p.weight)).collect();
    let [base_ms, per_token_us, per_sample_ms, per_token2_ns] = not_negative(&rows);
    let formula = Formula {
        base_ms,
        per_token_us,
        per_sample_ms,
        per_token2_ns,
    };
    let fitted = |p: &Point| formula.ms(p.padded, p.samples, p.longest);
    let pairs = points.iter().map(|p| (fitted(p), p.ms, p.weight));
    (formula, error(pairs))
}

/// A link's one latency, and its speed each way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fitted {
    /// (ms)
    pub(crate) latency: f64,
    /// Out of targets, and into drafters; only what was measured counts. (bytes/s)
    pub(crate) speeds: [f64; 2],
    /// How far the fit is off each way.
    pub(crate) errors: [FitError; 2],
}

impl Fitted {
    /// Time of a copy one way. (ms)
    pub(crate) fn ms(&self, way: usize, bytes: u64) -> f64 {
        self.latency + bytes as f64 / self.speeds[way] * 1e3
    }
}

/// Latency and bandwidth of a link, from copies of so many bytes that took so many ms: out of targets, and into drafters.
///
/// Copies of one size do not tell latency from speed. All of it is called speed then: other sizes are likely to cost in proportion.
pub(crate) fn link(copies: [&[(u64, f64)]; 2]) -> Fitted {
    let rows: Vec<_> = copies
        .iter()
        .enumerate()
        .flat_map(|(way, copies)| copies.iter().map(move |copy| (way, *copy)))
        .map(|(way, (bytes, ms))| {
            let on = |other: usize| if way == other { bytes as f64 } else { 0.0 };
            ([on(0), on(1), 1.0], ms, 1.0)
        })
        .collect();
    let sizes = || copies.iter().flat_map(|way| way.iter().map(|copy| copy.0));
    let (least, most) = (sizes().min(), sizes().max());
    let is_one_size = least.unwrap_or(0) as f64 * ONE_SIZE >= most.unwrap_or(0) as f64;
    let [out, into, latency] = if is_one_size {
        let alone: Vec<_> = rows
            .iter()
            .map(|([out, into, _], ms, weight)| ([*out, *into], *ms, *weight))
            .collect();
        let [out, into] = not_negative(&alone);
        [out, into, 0.0]
    } else {
        not_negative(&rows)
    };
    let speed = |ms_per_byte: f64| {
        if ms_per_byte > 0.0 {
            1e3 / ms_per_byte
        } else {
            // Too fast to tell: all of it is latency.
            BANDWIDTH_MAX
        }
    };
    let mut fitted = Fitted {
        latency,
        speeds: [speed(out), speed(into)],
        errors: [FitError::default(); 2],
    };
    for way in [0, 1] {
        let each = copies[way].iter();
        fitted.errors[way] = error(each.map(|&(bytes, ms)| (fitted.ms(way, bytes), ms, 1.0)));
    }
    fitted
}

/// The share of a copy's time in which another goes the other way, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Crossed(pub(crate) f64);

impl Crossed {
    /// The time that a copy would take alone which took `time`, if it has `rate` of its speed while another goes the other way.
    pub(crate) fn alone(self, rate: f64, time: f64) -> f64 {
        time * (1.0 - self.0 * (1.0 - rate))
    }
}

/// The speed of copies while others go the other way, as a share of their speed alone: what makes the times for a byte of each way the most
/// alike. None where too few copies were alone, or beside others, to tell, or where they are as fast beside them.
///
/// The middle counts and deviations are not squared: a copy that was held up by something else says little.
pub(crate) fn both_ways(ways: &[Vec<(Crossed, f64)>; 2]) -> Option<f64> {
    let too_few = |pick: fn(f64) -> bool| {
        let count = |way: &Vec<(Crossed, f64)>| way.iter().filter(|(c, _)| pick(c.0)).count();
        ways.iter().any(|way| count(way) < CROSSED_MIN)
    };
    if too_few(|share| share < ALONE) || too_few(|share| share > CROSSED) {
        return None;
    }
    let unlike = |rate: f64| {
        let way = |copies: &Vec<(Crossed, f64)>| {
            let alone: Vec<f64> = copies.iter().map(|(c, t)| c.alone(rate, *t)).collect();
            let middle = super::median(&alone);
            alone.iter().map(|t| (t / middle).ln().abs()).sum::<f64>()
        };
        ways.iter().map(way).sum::<f64>()
    };
    let rates = (0..=RATE_STEPS).map(|n| 1.0 - n as f64 * (1.0 - RATE_MIN) / RATE_STEPS as f64);
    let best = rates.min_by(|a, b| unlike(*a).total_cmp(&unlike(*b)))?;
    (best < BOTH_WAYS_TOLD).then_some(best)
}

/// A copy is alone when others go the other way for less than this share of its time, and beside them for more than that.
const ALONE: f64 = 0.1;
const CROSSED: f64 = 0.3;

/// Copies of either kind that are needed each way.
const CROSSED_MIN: usize = 3;

/// Two directions that leave each other less share one link and lose something besides.
const RATE_MIN: f64 = 0.3;

/// In steps of half a percent.
const RATE_STEPS: u32 = 140;

/// Directions that keep this much or more slow each other by nothing worth telling.
const BOTH_WAYS_TOLD: f64 = 0.98;

/// Sizes within this factor of each other are one.
const ONE_SIZE: f64 = 1.1;

/// What stands for a link on which size makes no difference. (bytes/s)
const BANDWIDTH_MAX: f64 = 1e13;

/// Of triples (fitted, measured, weight).
fn error(pairs: impl Iterator<Item = (f64, f64, f64)>) -> FitError {
    let errors: Vec<(f64, f64)> = pairs
        .map(|(fitted, measured, weight)| ((fitted / measured - 1.0).abs(), weight))
        .collect();
    let weights: f64 = errors.iter().map(|(_, weight)| weight).sum();
    FitError {
        mean: errors.iter().map(|(e, w)| e * w).sum::<f64>() / weights.max(f64::MIN_POSITIVE),
        max: errors.iter().map(|(e, _)| *e).fold(0.0, f64::max),
    }
}

/// How fast work goes at a pace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Paced {
    /// Share of the time in which its device computes.
    pub(crate) busy: f64,
    /// Its speed, as a share of that without rests.
    pub(crate) gain: f64,
}

/// What work gains by rests: paces without rests, with short ones and with long ones, in this order. None where it gains next to
/// nothing.
pub(crate) fn rest(paces: &[Paced]) -> Option<Rest> {
    let [without, short, long] = paces else {
        return None;
    };
    let busy = without.busy.min(1.0);
    let is_told = short.gain.is_finite() && long.gain.is_finite() && short.busy < busy;
    if !is_told || short.busy <= 0.0 || short.gain <= 0.0 {
        return None;
    }
    let exponent = (short.gain.ln() / (busy / short.busy).ln()).clamp(0.0, EXPONENT_MAX);
    let rounded = super::rounded;
    (exponent >= EXPONENT_TOLD).then(|| Rest {
        exponent: rounded(exponent),
        busy: rounded(busy),
        speed_max: rounded(short.gain.max(long.gain)),
    })
}

/// Rests never make up for all that they cost.
const EXPONENT_MAX: f64 = 0.9;

/// An exponent smaller than this is noise: a tenth of the time at rest would be worth 0.5 %.
const EXPONENT_TOLD: f64 = 0.05;

/// Two pieces of work of which one is a forward and one a training, as far as they overlapped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Overlapped {
    /// Time alone of the piece. (ms)
    pub(crate) alone: f64,
    /// Whether it is a forward.
    pub(crate) is_forward: bool,
    /// Time alone of the other. (ms)
    pub(crate) other: f64,
    /// How long they overlapped. (ms)
    pub(crate) together: f64,
    /// How long the piece took in all. (ms)
    pub(crate) took: f64,
    /// Which piece it is part of.
    pub(crate) piece: usize,
}

/// How many kernels a training has for each of a forward, where that explains how long pieces take beside each other clearly better than
/// one speed for each kind does.
pub(crate) fn kernel_ratio(overlaps: &[Overlapped]) -> Option<f64> {
    let by_kind = |o: &Overlapped, ratio: f64| if o.is_forward { ratio } else { 1.0 };
    let by_kernel = |o: &Overlapped, ratio: f64| {
        let (mine, other) = match o.is_forward {
            true => (o.alone, o.other / ratio),
            false => (o.alone / ratio, o.other),
        };
        mine / (mine + other)
    };
    let grid = (0..GRID).map(|i| GRID_FROM * GRID_STEP.powi(i));
    let best = |speed: &dyn Fn(&Overlapped, f64) -> f64| {
        let tried = grid
            .clone()
            .map(|ratio| (misfit(overlaps, &|o| speed(o, ratio)), ratio));
        tried.min_by(|a, b| a.0.total_cmp(&b.0))
    };
    let (kind, _) = best(&by_kind)?;
    let (kernel, ratio) = best(&by_kernel)?;
    (kernel < CLEARLY * kind).then_some(ratio)
}

/// Ratios that are tried: from 0.1 to 10, each 2 % above the one before.
const GRID: i32 = 233;
const GRID_FROM: f64 = 0.1;
const GRID_STEP: f64 = 1.02;

/// A law of kernels must leave less than this share of the squared error that speeds by kind leave.
const CLEARLY: f64 = 0.7;

/// Sum of squared relative errors of what pieces are said to have done, their common speed chosen freely.
fn misfit(overlaps: &[Overlapped], speed: &dyn Fn(&Overlapped) -> f64) -> f64 {
    let mut pieces: BTreeMap<usize, (f64, f64, f64)> = BTreeMap::new();
    for overlap in overlaps {
        let piece = pieces.entry(overlap.piece).or_default();
        piece.0 += overlap.together * speed(overlap);
        piece.1 += overlap.together;
        piece.2 = overlap.took / overlap.alone;
    }
    // Done by each, of 1, as if the part that overlapped were all of it.
    let done: Vec<f64> = pieces
        .values()
        .filter(|(_, together, _)| *together > 0.0)
        .map(|(progress, together, took)| progress / together * took)
        .collect();
    let (sum, squares) = done
        .iter()
        .fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    let common = if squares > 0.0 { sum / squares } else { 1.0 };
    done.iter().map(|x| (common * x - 1.0).powi(2)).sum()
}

/// The coefficients that give the least sum of squared relative errors among all that are not negative.
///
/// Some of them are zero and the others solve the plain problem, so all subsets are tried: there are few.
fn not_negative<const N: usize>(rows: &[([f64; N], f64, f64)]) -> [f64; N] {
    let mut best = ([0.0; N], f64::INFINITY);
    for subset in 1..1_u32 << N {
        let chosen: Vec<usize> = (0..N).filter(|i| subset >> i & 1 == 1).collect();
        if chosen.len() > rows.len() {
            continue;
        }
        let Some(solved) = least_squares(rows, &chosen) else {
            continue;
        };
        if solved.iter().any(|x| *x < 0.0) {
            continue;
        }
        let rest: f64 = rows
            .iter()
            .map(|(terms, ms, weight)| {
                let fitted: f64 = terms.iter().zip(&solved).map(|(t, x)| t * x).sum();
                weight * (fitted / ms - 1.0).powi(2)
            })
            .sum();
        // A coefficient more must be worth it.
        if rest < best.1 * WORTH {
            best = (solved, rest);
        }
    }
    best.0
}

/// A larger set of coefficients is taken when it leaves less than this share of the squared error.
const WORTH: f64 = 0.98;

/// Coefficients of the chosen terms, by the normal equations of the scaled problem; the others are zero.
fn least_squares<const N: usize>(
    rows: &[([f64; N], f64, f64)],
    chosen: &[usize],
) -> Option<[f64; N]> {
    let n = chosen.len();
    let column = |i: usize| {
        rows.iter()
            .map(move |(terms, ms, weight)| weight.sqrt() * terms[i] / ms)
    };
    let ones = || rows.iter().map(|(_, _, weight)| weight.sqrt());
    let scales: Vec<f64> = chosen
        .iter()
        .map(|&i| column(i).map(|x| x * x).sum::<f64>().sqrt())
        .collect();
    if scales.contains(&0.0) {
        return None;
    }
    let dot = |a: usize, b: usize| -> f64 {
        let sum: f64 = column(chosen[a])
            .zip(column(chosen[b]))
            .map(|(x, y)| x * y)
            .sum();
        sum / scales[a] / scales[b]
    };
    let right = |a: usize| {
        let sum: f64 = column(chosen[a]).zip(ones()).map(|(x, one)| x * one).sum();
        sum / scales[a]
    };
    let mut matrix: Vec<Vec<f64>> = (0..n)
        .map(|a| (0..n).map(|b| dot(a, b)).chain([right(a)]).collect())
        .collect();
    for pivot in 0..n {
        let largest = (pivot..n).max_by(|&a, &b| {
            let [a, b] = [a, b].map(|row: usize| matrix[row][pivot].abs());
            a.total_cmp(&b)
        })?;
        matrix.swap(pivot, largest);
        if matrix[pivot][pivot].abs() < SINGULAR {
            return None;
        }
        let top = matrix[pivot].clone();
        for (at, row) in matrix.iter_mut().enumerate() {
            if at == pivot {
                continue;
            }
            let factor = row[pivot] / top[pivot];
            row.iter_mut().zip(&top).for_each(|(x, t)| *x -= factor * t);
        }
    }
    let mut solved = [0.0; N];
    for (at, &i) in chosen.iter().enumerate() {
        solved[i] = matrix[at][n] / matrix[at][at] / scales[at];
    }
    Some(solved)
}

/// Terms as much alike as this cannot be told apart.
const SINGULAR: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;

    fn points(of: Formula) -> Vec<Point> {
        let sizes = [(8, 128), (4, 256), (2, 512), (3, 512), (1, 1024), (7, 96)];
        sizes
            .map(|(samples, longest)| {
                let padded = u64::from(samples * longest);
                Point {
                    padded,
                    samples,
                    longest,
                    ms: of.ms(padded, samples, longest),
                    weight: 1.0,
                }
            })
            .to_vec()
    }

    #[test]
    fn exact_times_give_their_formula_back() {
        let of = Formula {
            base_ms: 0.5,
            per_token_us: 20.0,
            per_sample_ms: 0.0,
            per_token2_ns: 3.0,
        };
        let (found, error) = formula(&points(of));
        assert!(error.max < 1e-9, "{error:?}");
        assert!((found.per_token_us - 20.0).abs() < 1e-6, "{found:?}");
        assert!((found.per_token2_ns - 3.0).abs() < 1e-6 && found.per_sample_ms.abs() < 1e-9);
    }

    #[test]
    fn no_coefficient_is_negative_and_the_error_is_told() {
        let mut points = points(Formula {
            per_token_us: 10.0,
            ..Formula::default()
        });
        // Shorter ones are slower than they should be, longer ones faster.
        for point in &mut points {
            point.ms *= if point.longest > 300 { 0.9 } else { 1.1 };
        }
        let (found, error) = formula(&points);
        let all = [
            found.base_ms,
            found.per_token_us,
            found.per_sample_ms,
            found.per_token2_ns,
        ];
        assert!(all.iter().all(|x| *x >= 0.0), "{found:?}");
        assert!(error.mean > 0.0 && error.max < 0.11 && error.mean <= error.max);
    }

    #[test]
    fn one_size_gives_one_coefficient() {
        let one = points(Formula {
            per_token_us: 10.0,
            ..Formula::default()
        });
        let (found, error) = formula(&one[..1]);
        assert!(error.max < 1e-9, "{found:?}");
    }

    #[test]
    fn how_directions_slow_each_other_is_told_despite_some_that_were_held_up() {
        let copies = |alone: f64, rate: f64| -> Vec<(Crossed, f64)> {
            let shares = [0.0, 0.02, 0.0, 0.05, 0.4, 0.8, 1.0, 0.9, 0.7];
            let each = shares.iter().enumerate().map(|(n, &share)| {
                let noise = 1.0 + 0.01 * ((n * 7 % 5) as f64 - 2.0);
                let held_up = if n % 4 == 1 { 1.6 } else { 1.0 };
                let took = alone / (1.0 - share * (1.0 - rate));
                (Crossed(share), took * noise * held_up)
            });
            each.collect()
        };
        let rate = both_ways(&[copies(3.0, 0.8), copies(2.0, 0.8)]).unwrap();
        assert!((rate - 0.8).abs() < 0.03, "{rate}");
        assert_eq!(both_ways(&[copies(3.0, 1.0), copies(2.0, 1.0)]), None);
        // Without one way, or without any that were alone, nothing is told.
        assert_eq!(both_ways(&[copies(3.0, 0.8), Vec::new()]), None);
        let beside = copies(3.0, 0.8).split_off(4);
        assert_eq!(both_ways(&[beside.clone(), beside]), None);
    }

    #[test]
    fn turns_by_kernels_are_told_from_speeds_by_kind() {
        // A training of three kernels for each of a forward: speeds in proportion to kernels' lengths, 1.1 in all.
        let pairs = [(30.0, 10.0), (30.0, 40.0), (60.0, 10.0), (60.0, 40.0)];
        let overlaps = |forward_speed: &dyn Fn(f64, f64) -> f64| -> Vec<Overlapped> {
            let mut all = Vec::new();
            for (piece, (forward, train)) in pairs.into_iter().enumerate() {
                let speed = forward_speed(forward, train);
                for (is_forward, alone, other, speed) in [
                    (true, forward, train, speed),
                    (false, train, forward, 1.1 - speed),
                ] {
                    all.push(Overlapped {
                        alone,
                        is_forward,
                        other,
                        together: 5.0,
                        took: alone / speed,
                        piece: 2 * piece + usize::from(is_forward),
                    });
                }
            }
            all
        };
        let by_kernel = overlaps(&|f, t| 1.1 * f / (f + t / 3.0));
        let found = kernel_ratio(&by_kernel).unwrap();
        assert!((found / 3.0 - 1.0).abs() < 0.03, "{found}");
        assert_eq!(kernel_ratio(&overlaps(&|_, _| 0.6)), None);
    }

    #[test]
    fn what_rests_gain_gives_the_exponent_and_the_highest_speed() {
        let paced = |busy: f64, gain: f64| Paced { busy, gain };
        let short = 0.7_f64.powf(-0.3);
        let found = rest(&[paced(1.0, 1.0), paced(0.7, short), paced(0.3, 1.2)]).unwrap();
        assert!((found.exponent - 0.3).abs() < 1e-5, "{found:?}");
        assert_eq!((found.busy, found.speed_max), (1.0, 1.2));
        assert!((found.speed(0.7) - short).abs() < 1e-5);
        // Slower with rests, or not rested at all: nothing is gained.
        assert_eq!(
            rest(&[paced(1.0, 1.0), paced(0.7, 0.98), paced(0.3, 1.0)]),
            None
        );
        assert_eq!(
            rest(&[paced(0.7, 1.0), paced(0.7, 1.1), paced(0.3, 1.2)]),
            None
        );
        assert_eq!(rest(&[]), None);
    }

    #[test]
    fn a_link_has_one_latency_and_a_speed_each_way() {
        let sizes = [1_000_000, 2_000_000, 8_000_000];
        let out = sizes.map(|b| (b, 0.1 + b as f64 / 1e7));
        let into = sizes.map(|b| (b, 0.1 + b as f64 / 5e6));
        let found = link([&out, &into]);
        assert!((found.latency - 0.1).abs() < 1e-9, "{found:?}");
        assert!(found.errors.iter().all(|e| e.max < 1e-9), "{found:?}");
        let near = |speed: f64, wanted: f64| (speed / wanted - 1.0).abs() < 1e-6;
        assert!(near(found.speeds[0], 1e10) && near(found.speeds[1], 5e9));
        let found = link([&[(5, 2.0), (50, 2.0)], &[]]);
        assert_eq!((found.latency, found.speeds[0]), (2.0, BANDWIDTH_MAX));
    }

    #[test]
    fn copies_of_one_size_have_a_speed_each_way_and_no_latency() {
        let out = [(3_000_000, 200.0), (3_000_100, 199.9), (3_002_000, 200.1)];
        let found = link([&out, &[(3_000_000, 400.0); 3]]);
        assert_eq!(found.latency, 0.0);
        assert!((found.ms(0, 3_000_000) - 200.0).abs() < 0.2, "{found:?}");
        assert!((found.ms(1, 3_000_000) - 400.0).abs() < 1e-6, "{found:?}");
    }
}
