//! Where systems of this kind went wrong for others, as scenarios with what must come out instead.

#[expect(dead_code, reason = "these tests need no part of it but runs")]
mod scenario;

use scenario::{Scenario, scenario};
use shared::core::{Action, Activity, Core, Event};
use shared::policy::{Admission, Policy, Severity, check};
use shared::time::Time;
use sim::spec::Buckets;
use sim::{End, Outcome};

/// One policy's run, watched.
fn watched(
    scenario: &Scenario,
    policy: &Policy,
    mut watch: impl FnMut(Time, &Event, &[Action]),
) -> Outcome {
    let resolved = scenario.resolved(policy);
    let work = sim::prepare(&resolved, &scenario.lengths()).expect("work");
    let mut observer =
        |at: Time, event: &Event, actions: &[Action], _: &Core| watch(at, event, actions);
    let detail = shared::metrics::Detail::default();
    sim::run(&resolved, &work, detail, &mut observer).expect("it can run")
}

fn outcome(scenario: &Scenario, policy: &Policy) -> Outcome {
    watched(scenario, policy, |_, _, _| {})
}

#[test]
fn buckets_save_padding_and_composed_steps_keep_neighbours_uncorrelated() {
    let scenario = scenario("length-groups");
    let policies = scenario.policies();
    let composed = outcome(&scenario, &policies[0]).metrics;
    assert!(composed.padding() <= 0.035, "{}", composed.padding());
    let correlation = composed.mix.microbatch_lag1.expect("lengths differ");
    assert!(correlation.abs() <= 0.13, "{correlation}");
    assert!(composed.mix.distinct_min >= 2);

    let grouped = outcome(&scenario, &policies[1]).metrics;
    assert!(grouped.padding() <= 0.035, "{}", grouped.padding());
    let correlation = grouped.mix.microbatch_lag1.expect("lengths differ");
    assert!(correlation >= 0.6, "{correlation}");

    let mut random = scenario.clone();
    random.workload.buckets = Buckets::Edges(vec![407]);
    let policy = Policy {
        mix_step_min: 1,
        ..policies[0].clone()
    };
    let random = outcome(&random, &policy).metrics;
    assert!(
        (random.padding() - 0.2965).abs() < 0.01,
        "{}",
        random.padding()
    );
    let correlation = random.mix.microbatch_lag1.expect("lengths differ");
    assert!(correlation.abs() <= 0.13, "{correlation}");
}

#[test]
fn nothing_is_produced_beyond_the_bound_while_drafters_stand_still() {
    let scenario = scenario("halted-drafter");
    for policy in scenario.policies() {
        let (mut produced, mut consumed, mut most) = (0_u32, 0_u32, 0);
        let mut last_begun = Time::ZERO;
        let mut pauses = Vec::new();
        let outcome = watched(&scenario, &policy, |at, event, actions| {
            consumed += u32::from(matches!(event, Event::TrainEnded { .. }));
            for action in actions {
                if matches!(action, Action::Forward { .. }) {
                    produced += 1;
                    pauses.push(at - last_begun);
                    last_begun = at;
                }
            }
            most = most.max(produced - consumed);
        });
        assert_eq!(outcome.end, End::Done);
        assert_eq!((produced, consumed), (800, 800));
        // Under `block` each target holds one more.
        let in_hand = match policy.admission {
            Admission::Reserve => 0,
            Admission::Block => u32::from(policy.targets),
        };
        let slots = policy.depth_total.expect("a cap");
        assert_eq!(most, slots + in_hand, "{}", policy.name);
        let longest = pauses.iter().max().expect("forwards").as_ns();
        assert!(
            longest > 9_900_000_000,
            "nothing is begun while drafters stand still, but {longest} ns"
        );
        assert_eq!(outcome.metrics.peaks.slots, slots);
    }
}

#[test]
fn what_stands_on_the_path_costs_half_the_time_and_has_a_name() {
    let scenario = scenario("ack-stall");
    let policies = scenario.policies();
    let on_path = outcome(&scenario, &policies[0]).metrics;
    let share = |activity| on_path.drafter_share(activity);
    assert!((share(Activity::Busy) - 0.5).abs() < 0.02, "{on_path:?}");
    assert!((share(Activity::Copying) - 0.5).abs() < 0.02);
    let beside = outcome(&scenario, &policies[1]).metrics;
    let busy = beside.drafter_share(Activity::Busy);
    assert!(busy > 0.97, "{busy}");
}

#[test]
fn a_capacity_that_no_worker_can_use_is_refused_with_both_keys() {
    let scenario = scenario("refused/zero-capacity");
    let facts = scenario.facts();
    let refusal = |policy: &Policy| {
        let mut found = check(policy, &facts).into_iter();
        let error = found.find(|f| f.severity == Severity::Error);
        let error = error.expect("it cannot work");
        format!("policy.{}: {}", error.key, error.message)
    };
    let policies = scenario.policies();
    let gate = refusal(&policies[0]);
    assert!(
        gate.contains("policy.gate_high: 2 ") && gate.contains("training.grad_accum 1"),
        "{gate}"
    );
    let pool = refusal(&policies[1]);
    assert!(
        pool.contains("policy.depth_total: 1 ") && pool.contains("grad_accum 1"),
        "{pool}"
    );
}
