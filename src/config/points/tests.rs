//! What ranges expand to.

use super::super::load::testing::{loaded, loaded_with};
use super::*;
use serde::Deserialize;

fn refused(text: &str) -> String {
    loaded(text).expand(POINTS_MAX).unwrap_err().to_string()
}

fn swept(text: &str) -> Vec<String> {
    let points = loaded(text).expand(POINTS_MAX).unwrap();
    let row = |point: Point| {
        let values = point
            .swept
            .iter()
            .map(|(key, value)| format!("{key}={value}"));
        values.collect::<Vec<_>>().join(" ")
    };
    points.iter().map(row).collect()
}

#[test]
fn a_scenario_without_ranges_is_one_point() {
    let points = loaded("seed = 7\n[[policy]]\npreset = 'composed'")
        .expand(1)
        .unwrap();
    assert_eq!((points.len(), points.columns().len()), (1, 0));
    let point = points.point(0);
    let expected: Table = toml::from_str("seed = 7\npolicy = { preset = 'composed' }").unwrap();
    assert_eq!(point.table, expected);
    assert!(point.swept.is_empty());
    assert_eq!(
        loaded("policy = { preset = 'composed' }")
            .expand(1)
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn ranges_multiply_inside_an_entry_and_add_over_entries() {
    let text = "
        [[policy]]
        preset = ['composed', 'bucketed']
        depth_total = { from = 4, to = 12, step = 8 }
        [[policy]]
        preset = 'staged-fifo'
        depth_per_drafter = [10, 20]
    ";
    assert_eq!(
        swept(text),
        [
            "policy.depth_total=4 policy.preset=\"composed\"",
            "policy.depth_total=4 policy.preset=\"bucketed\"",
            "policy.depth_total=12 policy.preset=\"composed\"",
            "policy.depth_total=12 policy.preset=\"bucketed\"",
            "policy.depth_per_drafter=10 policy.preset=\"staged-fifo\"",
            "policy.depth_per_drafter=20 policy.preset=\"staged-fifo\"",
        ]
    );
    let points = loaded(text).expand(POINTS_MAX).unwrap();
    assert_eq!(
        points.columns(),
        [
            "policy.depth_per_drafter",
            "policy.depth_total",
            "policy.preset"
        ]
    );
    let entries: Vec<usize> = points.iter().map(|point| point.entry).collect();
    assert_eq!(entries, [0, 0, 0, 0, 1, 1]);
}

#[test]
fn the_sweep_multiplies_everything_and_turns_slowest() {
    let text = "
        seed = 1
        [training]
        token_budget = 49152
        [sweep]
        seed = [1, 2]
        'training.token_budget' = [32768, 49152]
        [[policy]]
        depth_total = [4, 8]
    ";
    let rows = swept(text);
    assert_eq!(rows.len(), 8);
    assert_eq!(
        rows[0],
        "policy.depth_total=4 seed=1 training.token_budget=32768"
    );
    assert_eq!(
        rows[1],
        "policy.depth_total=8 seed=1 training.token_budget=32768"
    );
    assert_eq!(
        rows[2],
        "policy.depth_total=4 seed=1 training.token_budget=49152"
    );
    assert_eq!(
        rows[7],
        "policy.depth_total=8 seed=2 training.token_budget=49152"
    );
    let last = loaded(text).expand(8).unwrap().point(7);
    let expected = "seed = 2\ntraining.token_budget = 49152\npolicy.depth_total = 8";
    assert_eq!(last.table, toml::from_str::<Table>(expected).unwrap());
}

#[test]
fn swept_paths_may_be_dotted_quoted_or_new() {
    let rest = "[[policy]]\n";
    for sweep in [
        "sweep.costs.spread = [0.1, 0.3]\n",
        "sweep.'costs.spread' = [0.1, 0.3]\n",
        "[sweep.costs]\nspread = { from = 0.1, to = 0.3, step = 0.2 }\n",
    ] {
        assert_eq!(
            swept(&format!("{sweep}{rest}")),
            ["costs.spread=0.1", "costs.spread=0.3"]
        );
    }
    let rows = "fault = [ { at_s = 1 } ]\nsweep.'fault[0].at_s' = [5, 9]\n";
    let points = loaded(&format!("{rows}{rest}")).expand(2).unwrap();
    let expected = "fault = [ { at_s = 9 } ]\npolicy = {}";
    assert_eq!(
        points.point(1).table,
        toml::from_str::<Table>(expected).unwrap()
    );
}

#[test]
fn a_split_stands_for_targets_and_drafters() {
    let text = "[[policy]]\nsplit = ['5+3', '4 + 4']";
    assert_eq!(
        swept(text),
        [
            "policy.drafters=3 policy.targets=5",
            "policy.drafters=4 policy.targets=4"
        ]
    );
    let one = loaded("[[policy]]\nsplit = '5+3'")
        .expand(1)
        .unwrap()
        .point(0);
    let expected = "policy = { targets = 5, drafters = 3 }";
    assert_eq!(one.table, toml::from_str::<Table>(expected).unwrap());
    assert!(one.swept.is_empty());
}

#[test]
fn what_is_no_split_is_refused() {
    for split in ["5-3", "5+", "+3", "0+8", "5+3+1", "5+-3", "5++3", "99999+1"] {
        assert_eq!(
            refused(&format!("[[policy]]\nsplit = '{split}'")),
            format!(
                "s.toml: policy[0].split: \"{split}\" is not accepted; write targets + drafters, such as \"5+3\" (line 2)"
            )
        );
    }
    assert_eq!(
        refused("[[policy]]\nsplit = '5+3'\ntargets = 4"),
        "s.toml: policy[0].split: \"5+3\" cannot stand beside targets; write either split or targets and drafters (line 2)"
    );
}

#[test]
fn more_points_than_allowed_are_counted_and_not_made() {
    let text = "
        sweep.seed = { from = 1, to = 1000000, step = 1 }
        [[policy]]
        depth_total = { from = 1, to = 1000, step = 1 }
    ";
    assert_eq!(
        refused(text),
        "s.toml: the ranges make 1000000000 points, at most 100000 are allowed; shorten them or raise --max-points"
    );
    let two = loaded("[[policy]]\ndepth_total = [4, 8]");
    assert_eq!(
        two.expand(1).unwrap_err().to_string(),
        "s.toml: the ranges make 2 points, at most 1 are allowed; shorten them or raise --max-points"
    );
    assert_eq!(two.expand(2).unwrap().len(), 2);
    let endless = "[[policy]]\na = { from = 0.0, to = 1e300, step = 1e-300 }\nb = [1, 2]";
    assert_eq!(
        refused(endless),
        format!(
            "s.toml: the ranges make more than {} points, at most 100000 are allowed; shorten them or raise --max-points",
            u128::MAX
        )
    );
}

#[test]
fn a_scenario_needs_a_policy() {
    let message = "s.toml: no [[policy]]; add one, such as [[policy]] with preset = \"composed\"";
    assert_eq!(refused("seed = 1"), message);
    assert_eq!(refused("policy = []"), message);
    assert_eq!(
        refused("policy = 'composed'"),
        "s.toml: policy: \"composed\" is not accepted; write a table such as { preset = \"composed\" } (line 1)"
    );
}

#[test]
fn every_wrong_range_is_reported_in_its_place() {
    let text = "sweep.a = 4
sweep.b = []
sweep.'c d' = [1]
sweep.policy.depth_total = [4]
sweep.training.token_budget.x = [4]
sweep.'training' = { from = 1, to = 0, step = 1 }
[training]
token_budget = 4
[[policy]]
depth_total = [[4]]
prefetch = { from = 1 }
";
    // The sixth line redefines a table, which TOML itself refuses.
    assert!(loaded_with(&[text], &[]).is_err());
    let text = text.replace("sweep.'training' = { from = 1, to = 0, step = 1 }\n", "\n");
    assert_eq!(
        refused(&text),
        "\
s.toml: sweep.a: 4 is a single value; write a list, or set a itself (line 1)
s.toml: sweep.b: [] holds no value; list at least one or drop the key (line 2)
s.toml: sweep.\"c d\": \"c d\" is no key; write it as in training.grad_accum (line 3)
s.toml: sweep.policy: policies are not swept here; write the range in its [[policy]] entry (line 4)
s.toml: sweep.training.token_budget.x: training.token_budget is a number, not a table; drop what follows it (line 5)
s.toml: policy[0].depth_total: [[4]] holds [4]; list single values (line 10)
s.toml: policy[0].prefetch: { from = 1 } has no \"to\"; write { from = 4, to = 24, step = 4 } or a list (line 11)"
    );
}

#[test]
fn swept_tables_and_fields_swept_twice_are_refused() {
    let text = "training.token_budget = 4
sweep.training = [1, 2]
sweep.seed = [1, 2]
sweep.'seed ' = [3, 4]
policy = {}";
    assert_eq!(
        refused(text),
        "\
s.toml: sweep.training: training is a table; sweep the single values in it (line 2)
s.toml: sweep.\"seed \": seed is swept twice; keep one of the ranges (line 4)"
    );
    assert_eq!(
        refused("sweep = [4]\npolicy = {}"),
        "s.toml: sweep: [4] is not accepted; write a table such as { \"training.token_budget\" = [32768, 49152] } (line 1)"
    );
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "read to be checked, not to be used")]
struct Scenario {
    training: Training,
    policy: Policy,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "read to be checked, not to be used")]
struct Training {
    token_budget: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "read to be checked, not to be used")]
struct Policy {
    targets: Option<u8>,
    drafters: Option<u8>,
    depth_total: u32,
}

#[test]
fn errors_of_a_point_name_what_the_scenario_wrote() {
    let loaded = loaded(
        "[training]
token_budget = 4
[sweep]
'training.tokn_budget' = [1, 2]
[[policy]]
depth_total = 4
[[policy]]
depth_totl = [4, 8]
split = '300+3'
",
    );
    let points = loaded.expand(6).unwrap();
    let error = loaded
        .parse_point::<Scenario>(&points.point(5))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "\
s.toml: sweep.\"training.tokn_budget\": unknown key, did you mean \"token_budget\"? (line 4)
s.toml: policy[1]: missing key \"depth_total\"; add it (line 7)
s.toml: policy[1].depth_totl: unknown key, did you mean \"depth_total\"? (line 8)
s.toml: policy[1].split: 300 is not accepted; write a whole number from 0 to 255 (line 9)"
    );
}
