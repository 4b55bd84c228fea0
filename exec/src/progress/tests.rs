use super::*;
use shared::core::{Actions, Use};
use shared::draw::Seed;
use shared::id::{BucketId, Bytes, MicrobatchId, StepId};
use shared::plan::{Edges, FormationBuilder, MixRule, OrderSpec, Ordering, Plan, Tail};
use shared::policy::{Policy, preset};
use std::sync::Arc;

/// One target, one drafter, two microbatches of 1000 tokens, each a step.
fn core() -> Core {
    let policy = Policy {
        targets: 1,
        drafters: 1,
        overlap: false,
        ..preset("bucketed").unwrap()
    };
    let mut builder = FormationBuilder::new(Edges::given(vec![100]).unwrap(), Bytes(10));
    for _ in 0..2 {
        builder.push(BucketId(0), 10, 100).unwrap();
    }
    let spec = OrderSpec {
        ordering: Ordering::AsFormed,
        drafters: 1,
        grad_accum: 1,
        tail: Tail::Short,
        mix: MixRule::default(),
        assign: false,
        train_cost: Vec::new(),
        seed: Seed(0),
    };
    let plan = Plan::order(&builder.build().unwrap(), &spec);
    Core::new(Arc::new(plan), policy, 1, Seed(0))
}

fn event(number: usize) -> Event {
    let (target, drafter) = (TargetId(0), DrafterId(0));
    let (microbatch, outcome) = (MicrobatchId(0), Outcome::Done);
    [
        Event::Started,
        Event::ForwardEnded {
            target,
            microbatch,
            outcome,
        },
        Event::FetchEnded {
            drafter,
            microbatch,
            outcome,
        },
        Event::TrainEnded {
            drafter,
            microbatch,
            outcome,
        },
        Event::StepApplied {
            step: StepId(0),
            group: Group::All,
        },
    ][number]
}

fn after(events: usize) -> (Progress, Core) {
    let mut core = core();
    let mut progress = Progress::new(&core);
    let mut actions = Actions::new();
    for number in 0..events {
        let now = Time::from_ns(number as u64 * 1_000_000_000);
        core.on(now, event(number), &mut actions);
        progress.observe(now, &event(number), &core);
        actions.clear();
    }
    (progress, core)
}

#[test]
fn nothing_is_claimed_before_anything_is_known() {
    let (progress, core) = after(1);
    let line = progress.status(&core).to_string();
    assert_eq!(
        line,
        "thru - tok/s | I - | T - | wait 0% | pool 0/12 0 B | - | step 0/2 | ETA -"
    );
}

#[test]
fn rates_are_what_the_records_say() {
    let (progress, core) = after(5);
    let status = progress.status(&core);
    // 1000 tokens in 4 seconds; the drafter trained for one, applied for one, and waited for two.
    assert_eq!(status.throughput, Some(250.0));
    assert_eq!(status.drafter_capacity, Some(500.0));
    assert_eq!((status.waiting, status.done), (0.5, 0.5));
    assert_eq!((status.steps, status.steps_planned), (1, 2));
    assert_eq!(status.eta, Some(Span::from_ns(4_000_000_000)));
}

#[test]
fn the_line_is_short_and_complete() {
    let one = |count, gib: f64| Use {
        count,
        bytes: Bytes((gib * 1024.0 * 1024.0 * 1024.0) as u64),
    };
    let status = Status {
        throughput: Some(12_000.0),
        throughput_overall: None,
        target_capacity: Some(21_700.0),
        drafter_capacity: Some(25_100.0),
        waiting: 0.03,
        pool: vec![one(2, 5.0), one(0, 0.0), one(7, 22.1)],
        slots: one(9, 27.11),
        slots_max: Some(12),
        bottleneck: Some(Bottleneck::Targets),
        done: 0.2,
        steps: 41,
        steps_planned: 230,
        eta: Some(Span::from_ms(192_000)),
    };
    assert_eq!(
        status.to_string(),
        "thru 12.0k tok/s | I 21.7k | T 25.1k | wait 3% | pool b0 2 b2 7 9/12 27.1 GiB | targets | step 41/230 | ETA 0:03:12"
    );
}
