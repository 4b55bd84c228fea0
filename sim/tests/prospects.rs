//! What lies around a policy: small changes of the box on common random numbers, and GPUs taking turns.

#[expect(dead_code, reason = "these tests need no part of it but points")]
mod scenario;

use scenario::scenario;
use sim::spec::{ByteSize, Distribution};
use sim::{Change, Colocated, Effect, Point, Unpaired, gain, is_tie, prepare, side_by_side};
use std::sync::atomic::AtomicBool;

/// The reference box under the composed policy, with less data.
fn composed() -> Point {
    let mut scenario = scenario("reference");
    scenario.workload.samples = 30_000;
    let policy = scenario.policy("composed");
    scenario.points(&[policy]).remove(0)
}

fn outcomes(points: &[Point]) -> Vec<sim::Outcomes> {
    side_by_side(points, 0..3, &AtomicBool::new(false), &|| {})
}

fn changed(point: &Point, change: Change) -> Option<Point> {
    let work = prepare(&point.resolved, &point.lengths).unwrap();
    let resolved = change.of(&point.resolved, &work)?;
    Some(Point {
        resolved,
        lengths: point.lengths.clone(),
    })
}

#[test]
fn a_point_gains_nothing_on_itself_whatever_runs_beside_it() {
    let base = composed();
    let target = changed(&base, Change::Target).unwrap();
    let all = outcomes(&[base.clone(), target, base]);
    let [first, _, again] = [0, 1, 2].map(|i| all[i].as_ref().unwrap());
    let nothing = gain(first, again);
    assert_eq!((nothing.mean, nothing.half_width), (0.0, 0.0));
    assert!(is_tie(&nothing));
}

#[test]
fn one_more_target_helps_where_targets_limit() {
    let mut base = composed();
    base.resolved.costs.distribution = Distribution::Deterministic;
    // Drafters, slots and the end of the run out of the way.
    base.resolved.policy.depth_total = Some(60);
    let drafter = &mut base.resolved.costs.drafter;
    *drafter = toml::from_str::<sim::spec::StageCost>("per_token_us = 10.0").unwrap();
    let changes = [Change::Target, Change::Drafter, Change::Link];
    let mut points = vec![base.clone()];
    points.extend(changes.map(|change| changed(&base, change).unwrap()));
    let all = outcomes(&points);
    let without = all[0].as_ref().unwrap();
    let effects = [0, 1, 2].map(|i| Effect::of(changes[i], without, &all[i + 1]));
    let [target, _, link] = effects.map(|effect| effect.gain.unwrap());
    assert!((target.mean - 0.2).abs() < 0.02, "{target:?}");
    assert!(target.low() > 0.0 && !is_tie(&target));
    assert!(is_tie(&link), "{link:?}");
}

#[test]
fn what_cannot_be_changed_says_why() {
    let mut base = composed();
    let slot = changed(&base, Change::Slot).unwrap();
    assert_eq!(slot.resolved.policy.depth_total, Some(13));
    let moved = changed(&base, Change::ToTargets).unwrap();
    let policy = &moved.resolved.policy;
    assert_eq!((policy.targets, policy.drafters), (6, 2));
    base.resolved.policy.depth_total = None;
    base.resolved.policy.depth_per_drafter = None;
    base.resolved.policy.depth_per_bucket = None;
    base.resolved.policy.bytes_total = None;
    assert!(changed(&base, Change::Slot).is_none());
    let mut small = composed();
    small.resolved.hardware.gpu_memory = ByteSize(60 << 30);
    let all = outcomes(&[small]);
    assert!(matches!(&all[0], Err(Unpaired::Overflow(place)) if place.contains("GPU of")));
}

#[test]
fn a_stopped_comparison_says_so() {
    let stopped = side_by_side(&[composed()], 0..3, &AtomicBool::new(true), &|| {});
    assert!(matches!(stopped[0], Err(Unpaired::Interrupted)));
}

#[test]
fn taking_turns_is_bounded_by_the_work_of_both_stages() {
    let point = composed();
    let work = prepare(&point.resolved, &point.lengths).unwrap();
    let found = Colocated::of(&point.resolved, &work).unwrap();
    assert_eq!((found.gpus, found.step, found.wide_step), (8, 12, 32));
    // Wider steps spread more evenly.
    assert!(found.tokens_per_s < found.wide_tokens_per_s);
    let plan = sim::plan(&point.resolved, &work).unwrap();
    let both = plan.microbatches.iter().map(|m| {
        let span = work.service.forward(m) + work.service.train(m);
        span.as_ns() as f64 / 1e9
    });
    let bound = 8.0 * plan.tokens().0 as f64 / both.sum::<f64>();
    assert!(found.wide_tokens_per_s < bound, "{found:?} {bound}");
    assert!(found.fits());
    let needed = found.gpu.total().0;
    assert!(needed > (54 + 33 + 40) * 1_000_000_000, "{needed}");
}
