use super::*;
use crate::run::RunError;
use crate::spec::Search;
use crate::stats::Estimate;
use crate::sweep::Worst;
use shared::policy::PRESETS;

/// A row with these throughputs by replication; rankings of replications look at nothing else.
fn row(throughputs: &[f64]) -> Row {
    let (targets, drafters, gpus) = (1, 1, PRESETS.len() as u16);
    Row {
        index: 0,
        throughput: Estimate::of(throughputs),
        throughputs: throughputs.to_vec(),
        worst: Worst::default(),
        outcome: Err(RunError::Gpus {
            targets,
            drafters,
            gpus,
        }),
        simulated: 0,
        left_behind: None,
    }
}

/// Noise that all rows share, replication by replication.
const SHARED: [f64; 6] = [0.0, 40.0, -30.0, 15.0, -25.0, 5.0];

/// A row of this mean: the shared noise, and a little of its own.
fn near(mean: f64, own: [f64; 6]) -> Row {
    let values: Vec<f64> = SHARED
        .iter()
        .zip(own)
        .map(|(shared, own)| mean + shared + own)
        .collect();
    row(&values)
}

fn ranked(rows: &[Row], search: &Search) -> Ranking {
    let among: Vec<usize> = (0..rows.len()).collect();
    rank(rows, &among, search).expect("several rows")
}

const OWN: [f64; 6] = [0.3, -0.2, 0.1, -0.4, 0.2, 0.0];

#[test]
fn ties_are_called_ties_and_losers_slower() {
    let rows = [
        near(1_000.0, [0.0; 6]),
        near(999.0, OWN),
        near(950.0, OWN),
        near(1_000.0, [0.0; 6]),
    ];
    let ranking = ranked(&rows, &Search::default());
    assert_eq!((ranking.fastest, ranking.refusal), (0, None));
    assert!((ranking.zone - 5.0).abs() < 0.01, "{}", ranking.zone);
    let standings: Vec<_> = (0..4).map(|i| ranking.standing(i)).collect();
    use Standing::{Slower, Tie};
    assert_eq!(standings, [None, Some(Tie), Some(Slower), Some(Tie)]);
    let loser = ranking.of(2).unwrap();
    assert!((loser.difference - 50.0).abs() < 0.1 && loser.p_slower < 1e-6);
    assert_eq!(loser.basis, Basis::Paired(6));
    assert!(loser.variance_ratio.unwrap() > 1_000.0, "{loser:?}");
}

#[test]
fn without_common_noise_the_same_means_cannot_be_told_apart() {
    let mut turned = SHARED;
    turned.rotate_left(2);
    let other: Vec<f64> = turned.iter().map(|noise| 990.0 + noise).collect();
    let rows = [near(1_000.0, [0.0; 6]), row(&other)];
    let ranking = ranked(&rows, &Search::default());
    let comparison = ranking.of(1).unwrap();
    assert_eq!(comparison.standing, Standing::Open);
    assert!(comparison.variance_ratio.unwrap() < 2.0, "{comparison:?}");
    let Some(Refusal::Replications { row, have, needed }) = ranking.refusal else {
        panic!("{ranking:?}");
    };
    assert_eq!((row, have), (1, 6));
    assert!(needed > 6 && needed < 100, "{needed}");
    let text = ranking.refusal.unwrap().to_string();
    assert!(
        text.contains(&format!("write search.replications = {needed}")),
        "{text}"
    );
    // A wider zone is a weaker claim, which these runs carry.
    let wide = Search {
        tolerance: 0.2,
        ..Search::default()
    };
    assert_eq!(ranked(&rows, &wide).refusal, None);
}

#[test]
fn more_rivals_make_each_claim_harder() {
    let own = |scale: f64| OWN.map(|noise| noise * scale);
    let few = [near(1_000.0, [0.0; 6]), near(992.0, own(14.0))];
    let many: Vec<Row> = std::iter::once(near(1_000.0, [0.0; 6]))
        .chain((0..60).map(|_| near(992.0, own(14.0))))
        .collect();
    let p = |rows: &[Row]| ranked(rows, &Search::default()).of(1).unwrap().p_slower;
    assert!((p(&many) / p(&few) - 60.0).abs() < 1e-6);
    assert_eq!(
        ranked(&few, &Search::default()).standing(1),
        Some(Standing::Slower)
    );
    assert_eq!(
        ranked(&many, &Search::default()).standing(1),
        Some(Standing::Open)
    );
}

#[test]
fn one_short_run_each_carries_only_what_is_far_apart() {
    let clear = [row(&[1_000.0]), row(&[900.0])];
    let ranking = ranked(&clear, &Search::default());
    assert_eq!(ranking.of(1).unwrap().basis, Basis::Means);
    assert_eq!(ranking.standing(1), Some(Standing::Slower));
    assert_eq!(ranking.refusal, None);
    let close = [row(&[1_000.0]), row(&[980.0])];
    let refusal = ranked(&close, &Search::default()).refusal;
    let wanted = Refusal::Replications {
        row: 1,
        have: 1,
        needed: 3,
    };
    assert_eq!(refusal, Some(wanted));
}
