//! A run that is stuck names what each unfinished item waits for.

use crate::base::point;
use shared::core::{Action, Core, Event, Status};
use shared::metrics::Detail;
use shared::time::Time;
use sim::{End, draw_lengths, prepare, run};

#[test]
fn a_stuck_run_names_every_microbatch_that_is_begun_and_every_worker() {
    let point = point(&[
        "policy.mix_enforce = 'take'",
        "policy.mix_window_min = 2",
        "policy.prefetch = 0",
        "policy.depth_total = 2",
        "costs.drafter.per_token_us = 20.0",
    ]);
    let lengths = draw_lengths(&point.workload, point.seed).expect("drawn lengths");
    let work = prepare(&point, &lengths).expect("work");
    let mut last = None;
    let mut observe = |_: Time, _: &Event, _: &[Action], core: &Core| last = Some(core.clone());
    let outcome = run(&point, &work, Detail::default(), &mut observe).expect("it runs");
    let End::Deadlock(stall) = outcome.end else {
        panic!("the rule on taking hangs");
    };
    let text = format!("{stall}\n");
    let core = last.expect("something happened");
    let is_named = |name: String| {
        let mut words = text.split(|c: char| !c.is_alphanumeric());
        assert!(words.any(|word| word == name), "{name} in\n{text}");
    };
    let mut begun = 0;
    for (id, life) in core.state().lives.kept() {
        if matches!(life.status, Status::Held | Status::Queued) {
            is_named(id.to_string());
            begun += 1;
        }
    }
    assert!(begun > 2, "{begun} wait\n{text}");
    (0..3).for_each(|target| is_named(format!("t{target}")));
    (0..2).for_each(|drafter| is_named(format!("d{drafter}")));
}
