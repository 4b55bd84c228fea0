use super::*;
use exec::calibrate::{BesideCopies, Copied, Measured, Pace, Timed};
use shared::draw::Seed;
use shared::id::Bytes;
use shared::plan::{
    Edges, FormSpec, Formation, Limits, MixRule, OrderSpec, Ordering, OverLong, Tail,
};
use std::sync::Arc;

fn plan() -> Arc<Plan> {
    let lengths: Vec<u32> = (1..=40).map(|i| i * 10).collect();
    let spec = FormSpec {
        edges: Edges::given(vec![200, 400]).unwrap(),
        limits: Limits {
            token_budget: 800,
            batch_max: 8,
        },
        over_long: OverLong::Refuse,
        epochs: 1,
        bytes_per_token: Bytes(1000),
        seed: Seed(1),
    };
    let formation = Formation::form(&lengths, &spec).unwrap();
    let order = OrderSpec {
        ordering: Ordering::AsFormed,
        drafters: 1,
        grad_accum: 1,
        tail: Tail::Short,
        mix: MixRule::default(),
        assign: false,
        train_cost: Vec::new(),
        seed: Seed(1),
    };
    Arc::new(Plan::order(&formation, &order))
}

/// Forwards of 2 us a token, trainings of 3, copies of 1 GB/s out and 2 in after 1 ms, steps of 5 ms.
pub(super) fn measurement() -> Measurement {
    let plan = plan();
    let span = |ms: f64| Span::from_ns((ms * 1e6) as u64);
    let mut measured = Measured::default();
    for row in 0..plan.microbatches.len() {
        let id = MicrobatchId::from_index(row);
        let microbatch = plan.microbatch(id);
        let (tokens, bytes) = (microbatch.padded.0 as f64, microbatch.bytes.0 as f64);
        let timed = |stage, ms: f64| Timed {
            stage,
            microbatch: Some(id),
            span: span(ms),
        };
        measured.first.push(timed(Stage::Forward, 50.0));
        for _ in 0..2 {
            measured.alone.push(timed(Stage::Forward, tokens * 2e-3));
            measured.alone.push(timed(Stage::Train, tokens * 3e-3));
            // A fifth slower for as long as another goes the other way.
            for (stage, bytes_per_ms) in [(Stage::CopyOut, 1e6), (Stage::CopyIn, 2e6)] {
                for share in [0.0, 1.0] {
                    let took = (1.0 + bytes / bytes_per_ms) / (1.0 - 0.2 * share);
                    measured.copies.push(Copied {
                        stage,
                        microbatch: id,
                        span: span(took),
                        both_ways: span(share * took),
                    });
                }
            }
        }
    }
    measured.alone.push(Timed {
        stage: Stage::Apply,
        microbatch: None,
        span: span(5.0),
    });
    measured.alone.push(Timed {
        stage: Stage::ApplyTogether,
        microbatch: None,
        span: span(7.0),
    });
    measured.steps_beside = [span(6.25), span(6.25), span(60.0)].to_vec();
    // A training goes at half its speed beside copies in, and all else as if alone.
    let copies = [Stage::CopyOut, Stage::CopyIn];
    for (stage, copies) in [Stage::Forward, Stage::Train]
        .into_iter()
        .flat_map(|stage| copies.map(|copies| (stage, copies)))
    {
        let is_slow = (stage, copies) == (Stage::Train, Stage::CopyIn);
        measured.beside_copies.push(BesideCopies {
            stage,
            copies,
            microbatch: MicrobatchId(0),
            alone: span(3.0),
            beside: span(if is_slow { 6.0 } else { 3.0 }),
        });
    }
    measured.together.push(Together {
        forwards: 1,
        trains: 1,
        forward_rate: 0.6,
        train_rate: 0.5,
        pieces: 9,
    });
    // A tenth less with short rests, a seventh with long ones.
    let all: Vec<Timed> = measured
        .alone
        .iter()
        .filter(|t| t.microbatch.is_some())
        .copied()
        .collect();
    for (share, busy) in [(1.0, 1.0), (0.9, 0.7), (6.0 / 7.0, 0.3)] {
        let pieces: Vec<Timed> = all
            .iter()
            .map(|&timed| Timed {
                span: span(share * ms(timed.span)),
                ..timed
            })
            .collect();
        let computed: f64 = pieces.iter().map(|piece| ms(piece.span)).sum();
        measured.paces.push(Pace {
            elapsed: span(computed / busy),
            pieces,
        });
    }
    Measurement {
        measured,
        formation: "all".into(),
        plan,
        edges: vec![200, 400],
        transport: Transport::HostPinned,
        memory: Vec::new(),
    }
}

#[test]
fn what_was_measured_comes_out_as_costs_links_and_speeds() {
    let found = summed(&[measurement()], Choice::Cpu, Some(1));
    let formula = |cost: &StageCost| cost.formula(0).unwrap().ms(1000, 4, 250);
    assert!((formula(&found.costs.target) - 2.0).abs() < 1e-4);
    assert!((formula(&found.costs.drafter) - 3.0).abs() < 1e-4);
    let [target, drafter] = found.own["all"];
    assert!((target.ms(1000, 4, 250) - 2.0).abs() < 1e-4, "{target:?}");
    assert!((drafter.ms(1000, 4, 250) - 3.0).abs() < 1e-4, "{drafter:?}");
    assert_eq!((found.costs.step_ms, found.gpus), (5.0, Some(1)));
    assert_eq!(found.costs.all_reduce_ms, 2.0);
    let sharing = found.sharing.as_ref().unwrap();
    assert_eq!(sharing.rates(1, 1), (0.6, 0.5));
    assert_eq!(sharing.step_rate, Some(0.8));
    let rest = found.rests.train.unwrap();
    assert!((rest.exponent - 0.2954).abs() < 1e-3, "{rest:?}");
    assert!((rest.speed_max - 7.0 / 6.0).abs() < 1e-3, "{rest:?}");
    let link = &found.links[&Transport::HostPinned];
    let near = |rate: Rate, expected: f64| (rate.bytes_per_s() / expected - 1.0).abs() < 1e-3;
    assert!(near(link.bandwidth, 1e9) && near(link.bandwidth_in.unwrap(), 2e9));
    assert!(
        (link.latency_ms - 1.0).abs() < 1e-3 && link.shared,
        "{link:?}"
    );
    assert_eq!(link.compute_rate, Some(0.8));
    assert_eq!(link.both_ways_rate, Some(0.8));
    let slow: Vec<_> = found.beside.iter().filter(|b| b.rate < 0.99).collect();
    assert!(
        matches!(slow[..], [b] if (b.stage, b.copies) == (Stage::Train, Stage::CopyIn) && b.rate == 0.5),
        "{slow:?}"
    );
    let forwards = found.measures.iter().filter(|m| m.stage == Stage::Forward);
    let names: Vec<&str> = forwards.map(|m| m.bucket.as_str()).collect();
    assert_eq!(names, ["<=200 of 2", "<=400 of 2"]);
    assert!(found.measures.iter().all(|m| m.error().abs() < 1e-3));
    assert_eq!(found.measures[0].first, 50.0);
}

#[test]
fn the_file_lies_over_a_scenario_that_holds_a_table() {
    let dir = tempfile::tempdir().unwrap();
    let found = summed(&[measurement()], Choice::Cpu, Some(1));
    let out = OutputDir::create(dir.path()).unwrap();
    found.write(&out, "s.toml").unwrap();
    let text = std::fs::read_to_string(dir.path().join("costs.toml")).unwrap();
    assert!(text.contains(&format!("hash {}", found.hash())), "{text}");
    let table: toml::Table = toml::from_str(&text).unwrap();
    let mut costs = table["costs"].as_table().unwrap().clone();
    // As if laid over a file with these.
    let target = costs["target"].as_table_mut().unwrap();
    target.insert("per_token2_ns".into(), 0.0.into());
    let costs: Costs = costs.try_into().unwrap();
    assert_eq!(costs.validate("costs"), []);
    assert!(matches!(costs.target, StageCost::Formula(_)));
    let csv = std::fs::read_to_string(dir.path().join("calibration.csv")).unwrap();
    // A header; two buckets of four stages; the optimizer steps of one and of all.
    assert_eq!(csv.lines().count(), 1 + 2 * 4 + 2);
}
