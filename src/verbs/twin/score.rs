//! How well a set of policies was predicted: errors, order, and what following the prediction costs.

/// One policy as predicted and as run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) name: String,
    /// (tok/s)
    pub(super) predicted: f64,
    /// One a run, at least one. (tok/s)
    pub(super) measured: Vec<f64>,
    /// Standard errors of runs by their own steps, as shares of their throughput; fewer than runs where some were too short.
    pub(super) own_errors: Vec<f64>,
}

/// Standard deviation of one run's throughput around its policy's mean, as a share of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Noise {
    /// Between runs of one policy.
    OfRuns(f64),
    /// Each policy ran once: by the steps within runs, which says nothing of what changes from one run to the next.
    OfSteps(f64),
    /// Each policy ran once, for too few steps.
    Unknown,
}

impl Noise {
    /// 0 where it is unknown.
    fn share(self) -> f64 {
        match self {
            Self::OfRuns(share) | Self::OfSteps(share) => share,
            Self::Unknown => 0.0,
        }
    }
}

/// The verdict on all of them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Score {
    pub(super) noise: Noise,
    /// Mean of the absolute errors of the predictions, as shares of what was measured.
    pub(super) error_mean: f64,
    /// The largest of them.
    pub(super) error_max: f64,
    /// Pairs whose measured throughputs differ by more than noise.
    pub(super) pairs: usize,
    /// Those of them that were predicted the other way round or level, the faster one first.
    pub(super) swapped: Vec<(String, String)>,
    /// The policy with the best prediction.
    pub(super) chosen: String,
    /// The policy that was fastest.
    pub(super) fastest: String,
    /// What the chosen one lost against the fastest, as a share of the fastest.
    pub(super) regret: f64,
}

impl Entry {
    /// Mean over the runs. (tok/s)
    pub(super) fn mean(&self) -> f64 {
        self.measured.iter().sum::<f64>() / self.measured.len().max(1) as f64
    }

    /// Of the prediction, as a share of what was measured.
    pub(super) fn error(&self) -> f64 {
        self.predicted / self.mean() - 1.0
    }
}

impl Score {
    /// The verdict on at least one entry; `None` on nothing.
    pub(super) fn of(entries: &[Entry]) -> Option<Self> {
        let noise = noise(entries);
        let best =
            |value: fn(&Entry) -> f64| entries.iter().max_by(|a, b| value(a).total_cmp(&value(b)));
        let (chosen, fastest) = (best(|e| e.predicted)?, best(Entry::mean)?);
        let errors = entries.iter().map(|entry| entry.error().abs());
        let mut pairs = 0;
        let mut swapped = Vec::new();
        for (at, a) in entries.iter().enumerate() {
            for b in &entries[..at] {
                if !differ(a, b, noise.share()) {
                    continue;
                }
                pairs += 1;
                let (measured, predicted) = (a.mean() - b.mean(), a.predicted - b.predicted);
                // A tie that is none was not predicted either.
                if measured * predicted <= 0.0 {
                    let (faster, slower) = if measured > 0.0 { (a, b) } else { (b, a) };
                    swapped.push((faster.name.clone(), slower.name.clone()));
                }
            }
        }
        Some(Self {
            noise,
            error_mean: errors.clone().sum::<f64>() / entries.len() as f64,
            error_max: errors.fold(0.0, f64::max),
            pairs,
            swapped,
            chosen: chosen.name.clone(),
            fastest: fastest.name.clone(),
            regret: 1.0 - chosen.mean() / fastest.mean(),
        })
    }

    /// Kendall's tau over the pairs that differ: 1 when all are in order, -1 when none is; `None` where no pair differs.
    pub(super) fn tau(&self) -> Option<f64> {
        let (pairs, swapped) = (self.pairs as f64, self.swapped.len() as f64);
        (self.pairs > 0).then(|| (pairs - 2.0 * swapped) / pairs)
    }
}

/// Of single runs, pooled over the policies that ran more than once; else by their steps, pooled over those that know.
fn noise(entries: &[Entry]) -> Noise {
    let (mut squares, mut freedom) = (0.0, 0);
    for entry in entries.iter().filter(|entry| entry.measured.len() > 1) {
        let mean = entry.mean();
        let relative = entry.measured.iter().map(|x| (x / mean - 1.0).powi(2));
        squares += relative.sum::<f64>();
        freedom += entry.measured.len() - 1;
    }
    if freedom > 0 {
        return Noise::OfRuns((squares / freedom as f64).sqrt());
    }
    let own = entries.iter().flat_map(|entry| &entry.own_errors);
    match own.clone().count() {
        0 => Noise::Unknown,
        count => Noise::OfSteps((own.map(|x| x * x).sum::<f64>() / count as f64).sqrt()),
    }
}

/// Whether two means are further apart than twice the standard deviation of their difference.
fn differ(a: &Entry, b: &Entry, noise: f64) -> bool {
    let runs = |entry: &Entry| 1.0 / entry.measured.len().max(1) as f64;
    let deviation = noise * (runs(a) + runs(b)).sqrt();
    let middle = (a.mean() + b.mean()) / 2.0;
    (a.mean() - b.mean()).abs() > 2.0 * deviation * middle
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, predicted: f64, measured: &[f64]) -> Entry {
        Entry {
            name: name.into(),
            predicted,
            measured: measured.to_vec(),
            own_errors: Vec::new(),
        }
    }

    #[test]
    fn a_right_order_is_tau_one_without_regret() {
        let entries = [
            entry("a", 101.0, &[100.0]),
            entry("b", 202.0, &[200.0]),
            entry("c", 147.0, &[150.0]),
        ];
        let score = Score::of(&entries).unwrap();
        assert_eq!(
            (score.noise, score.pairs, score.tau()),
            (Noise::Unknown, 3, Some(1.0))
        );
        assert!((score.error_max - 0.02).abs() < 1e-12 && score.error_mean < score.error_max);
        assert_eq!((score.chosen.as_str(), score.regret), ("b", 0.0));
    }

    #[test]
    fn pairs_within_noise_do_not_count() {
        // Runs deviate by about 1.4 %, so means of two differ when they are 2.8 % apart.
        let entries = [
            entry("a", 100.0, &[100.0, 102.0]),
            entry("b", 101.0, &[99.0, 101.0]),
            entry("c", 120.0, &[119.0, 121.0]),
        ];
        let score = Score::of(&entries).unwrap();
        let Noise::OfRuns(noise) = score.noise else {
            panic!("{score:?}");
        };
        assert!((noise - 0.0129).abs() < 0.002, "{score:?}");
        assert_eq!((score.pairs, score.tau()), (2, Some(1.0)));
    }

    #[test]
    fn where_each_policy_ran_once_its_steps_tell_the_noise() {
        let mut entries = [
            entry("a", 100.0, &[100.0]),
            entry("b", 100.0, &[99.6]),
            entry("c", 90.0, &[90.0]),
        ];
        let score = Score::of(&entries).unwrap();
        assert_eq!(
            (score.noise, score.tau()),
            (Noise::Unknown, Some(1.0 / 3.0))
        );
        assert_eq!(score.swapped, [("a".to_owned(), "b".to_owned())]);
        // 0.5 % apart is within twice the deviation of a difference, 0.25 % * sqrt(2).
        entries[0].own_errors = vec![0.003];
        entries[2].own_errors = vec![0.002];
        let score = Score::of(&entries).unwrap();
        let Noise::OfSteps(noise) = score.noise else {
            panic!("{score:?}");
        };
        assert!((noise - 0.00255).abs() < 1e-5, "{noise}");
        assert_eq!((score.pairs, score.tau()), (2, Some(1.0)));
    }

    #[test]
    fn a_wrong_choice_has_its_price() {
        let entries = [
            entry("a", 130.0, &[90.0]),
            entry("b", 120.0, &[100.0]),
            entry("c", 50.0, &[50.0]),
        ];
        let score = Score::of(&entries).unwrap();
        assert_eq!(score.swapped, [("b".to_owned(), "a".to_owned())]);
        assert!((score.tau().unwrap() - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!((score.chosen.as_str(), score.fastest.as_str()), ("a", "b"));
        assert!((score.regret - 0.1).abs() < 1e-12);
        assert_eq!(Score::of(&[]), None);
    }
}
