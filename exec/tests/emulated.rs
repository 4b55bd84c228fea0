//! The emulated backend under the driver: real bytes through real queues, and no piece of work ends before its time.

mod common;

use common::{Recorder, core, plan_for};
use exec::backend::emulated::{Emulated, Emulation, LinkSharing, ServiceTimes};
use exec::driver::{Driver, Options, RunReport};
use shared::core::{Action, Event};
use shared::draw::{Seed, Stream};
use shared::id::{DrafterId, MicrobatchId, TargetId};
use shared::plan::Plan;
use shared::policy::{PRESETS, Policy, preset};
use shared::time::{Span, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

const COUNT: usize = 40;

fn policies() -> impl Iterator<Item = Policy> {
    PRESETS.iter().map(|name| preset(name).unwrap())
}

/// Service times of a few emulated seconds, different for every microbatch.
fn emulation(plan: &Plan, sharing: LinkSharing, both_ways_rate: f64) -> Emulation {
    let draw = |stream: u64, least: u64| {
        let seed = Seed(3).derive(stream);
        let one = |id| least + seed.below(Stream::Forward, id, least);
        (0..plan.microbatches.len() as u64)
            .map(|id| Span::from_ms(one(id)))
            .collect()
    };
    Emulation {
        times: ServiceTimes {
            forward: draw(1, 5_000),
            stage: draw(2, 300),
            fetch: draw(3, 300),
            train: draw(4, 3_000),
            apply: Span::from_ms(500),
        },
        bytes: plan.microbatches.iter().map(|m| m.bytes).collect(),
        byte_scale: 0.1,
        speedup: 5_000.0,
        sharing,
        both_ways_rate,
    }
}

fn run(
    policy: &Policy,
    sharing: LinkSharing,
    both_ways_rate: f64,
) -> (RunReport, Recorder, ServiceTimes) {
    let plan = plan_for(policy, COUNT);
    let core = core(&plan, policy);
    let mut recorder = Recorder::new(&core);
    let emulation = emulation(&plan, sharing, both_ways_rate);
    let times = emulation.times.clone();
    let backend = Arc::new(Emulated::new(emulation).unwrap());
    let report = Driver::new(core, backend, Options::default())
        .run(&mut recorder)
        .unwrap();
    recorder.assert_complete();
    recorder.assert_replays();
    (report, recorder, times)
}

/// A piece of work as the records show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Piece {
    Forward(TargetId, MicrobatchId),
    Stage(MicrobatchId),
    Fetch(DrafterId, MicrobatchId),
    Train(DrafterId, MicrobatchId),
    Apply,
}

fn ordered(action: &Action) -> Option<Piece> {
    Some(match *action {
        Action::Forward { target, microbatch } => Piece::Forward(target, microbatch),
        Action::Stage { microbatch, .. } => Piece::Stage(microbatch),
        Action::Fetch {
            drafter,
            microbatch,
            ..
        } => Piece::Fetch(drafter, microbatch),
        Action::Train {
            drafter,
            microbatch,
            ..
        } => Piece::Train(drafter, microbatch),
        Action::Apply { .. } => Piece::Apply,
        _ => return None,
    })
}

fn ended(event: &Event) -> Option<Piece> {
    Some(match *event {
        Event::ForwardEnded {
            target, microbatch, ..
        } => Piece::Forward(target, microbatch),
        Event::StageEnded { microbatch, .. } => Piece::Stage(microbatch),
        Event::FetchEnded {
            drafter,
            microbatch,
            ..
        } => Piece::Fetch(drafter, microbatch),
        Event::TrainEnded {
            drafter,
            microbatch,
            ..
        } => Piece::Train(drafter, microbatch),
        Event::StepApplied { .. } => Piece::Apply,
        _ => return None,
    })
}

fn service(times: &ServiceTimes, piece: Piece) -> Span {
    match piece {
        Piece::Forward(_, id) => times.forward[id.index()],
        Piece::Stage(id) => times.stage[id.index()],
        Piece::Fetch(_, id) => times.fetch[id.index()],
        Piece::Train(_, id) => times.train[id.index()],
        Piece::Apply => times.apply,
    }
}

#[test]
fn no_piece_of_work_ends_before_its_time() {
    for policy in policies() {
        for (sharing, both_ways_rate) in [
            (LinkSharing::Own, 1.0),
            (LinkSharing::Own, 0.7),
            (LinkSharing::EachWay, 0.7),
            (LinkSharing::BothWays, 1.0),
        ] {
            let (report, recorder, times) = run(&policy, sharing, both_ways_rate);
            let mut open: BTreeMap<Piece, Time> = BTreeMap::new();
            let mut count = 0;
            for record in &recorder.records {
                if let Some(piece) = ended(&record.event) {
                    let begun = open.remove(&piece).expect("what ended was ordered");
                    let took = record.at - begun;
                    let least = service(&times, piece);
                    assert!(
                        took >= least,
                        "{}: {piece:?} took {took}, not {least}",
                        policy.name
                    );
                    count += 1;
                }
                open.extend(
                    record
                        .actions
                        .iter()
                        .filter_map(ordered)
                        .map(|piece| (piece, record.at)),
                );
            }
            assert!(open.is_empty(), "{open:?}");
            assert!(count >= 2 * COUNT);
            assert!(report.end > Time::ZERO);
        }
    }
}

#[test]
fn a_shared_link_moves_one_transfer_s_worth_at_a_time() {
    let staged = preset("staged-fifo").unwrap();
    let (report, _, times) = run(&staged, LinkSharing::BothWays, 1.0);
    let all: Span = times.stage.iter().chain(&times.fetch).copied().sum();
    assert!(
        report.end - Time::ZERO >= all,
        "{} is less than {all}",
        report.end
    );
}

#[test]
fn bytes_are_counted_where_they_are() {
    use exec::store::Place;
    for policy in policies() {
        let (report, recorder, _) = run(&policy, LinkSharing::Own, 1.0);
        let is_host = |(place, _): &&(Place, _)| *place == Place::Host;
        let on_host = report.peaks.places.iter().any(|entry| is_host(&entry));
        assert_eq!(
            on_host,
            policy.placement == shared::policy::Placement::Host,
            "{}",
            policy.name
        );
        assert!(report.peaks.all >= recorder.last.plan().bytes_max());
    }
}
