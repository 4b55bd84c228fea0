//! Scenario or policy: only a scenario may hold ranges.

use super::error::{ConfigErrors, KeyFault, shown};
use super::load::Loaded;
use super::path::{KeyPath, Step};
use super::range::is_range_table;
use serde::{Deserialize, Serialize};
use toml::Value;

/// What a file is, as its top-level key `kind` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Workload, hardware, costs and the policies to search.
    #[default]
    Scenario,
    /// One concrete policy.
    Policy,
}

impl Loaded {
    /// What the merged files are: scenarios unless they say otherwise.
    ///
    /// # Errors
    /// When `kind` is neither.
    pub(crate) fn kind(&self) -> Result<Kind, ConfigErrors> {
        let path = KeyPath::default().key("kind");
        match self.table().get("kind") {
            None => Ok(Kind::Scenario),
            Some(Value::String(kind)) if kind == "scenario" => Ok(Kind::Scenario),
            Some(Value::String(kind)) if kind == "policy" => Ok(Kind::Policy),
            Some(Value::String(kind)) => Err(self
                .error(
                    &path,
                    KeyFault::UnknownValue {
                        value: kind.clone(),
                        known: &["scenario", "policy"],
                    },
                )
                .into()),
            Some(value) => Err(self
                .error(
                    &path,
                    KeyFault::Type {
                        found: shown(value),
                        accepted: "\"scenario\" or \"policy\"".into(),
                    },
                )
                .into()),
        }
    }
}

/// Refuses every range in a policy file.
///
/// A range is a list where the policy has one value (at the top of the file or in `policy`), a table of `from`, `to` and `step`, a
/// `[sweep]`, or several policies in one file.
///
/// # Errors
/// One for each range.
pub(crate) fn refuse_ranges(loaded: &Loaded) -> Result<(), ConfigErrors> {
    let mut ranges = Vec::new();
    for (key, value) in loaded.table() {
        find(value, KeyPath::default().key(key), &mut ranges);
    }
    let error = |(path, value): (KeyPath, &Value)| {
        let found = shown(value);
        loaded.error(&path, KeyFault::RangeInPolicy { found })
    };
    ConfigErrors::check(ranges.into_iter().map(error).collect())
}

fn find<'v>(value: &'v Value, at: KeyPath, ranges: &mut Vec<(KeyPath, &'v Value)>) {
    let in_policy = at.0.len() == 1 || at.first() == Some("policy");
    let is_policy = at.0 == [Step::Key("policy".into())];
    match value {
        Value::Table(table) if is_range_table(table) || is_sweep(&at) => ranges.push((at, value)),
        Value::Table(table) => {
            for (key, value) in table {
                find(value, at.key(key), ranges);
            }
        }
        Value::Array(rows) if !rows.is_empty() && rows.iter().all(Value::is_table) => {
            if is_policy && rows.len() > 1 {
                ranges.push((at, value));
                return;
            }
            for (row, value) in rows.iter().enumerate() {
                find(value, at.index(row), ranges);
            }
        }
        Value::Array(_) if in_policy => ranges.push((at, value)),
        _ => {}
    }
}

fn is_sweep(at: &KeyPath) -> bool {
    at.0 == [Step::Key("sweep".into())]
}

#[cfg(test)]
mod tests {
    use super::super::load::testing::{loaded, loaded_with};
    use super::*;

    #[test]
    fn files_are_scenarios_unless_they_say_otherwise() {
        let kind = |text: &str| loaded(text).kind().map_err(|error| error.to_string());
        assert_eq!(kind(""), Ok(Kind::Scenario));
        assert_eq!(kind("kind = 'scenario'"), Ok(Kind::Scenario));
        assert_eq!(kind("kind = 'policy'"), Ok(Kind::Policy));
        assert_eq!(
            kind("kind = 'polcy'"),
            Err("s.toml: kind: unknown value \"polcy\", did you mean \"policy\"? (line 1)".into())
        );
        assert_eq!(
            kind("kind = 4"),
            Err(
                "s.toml: kind: 4 is not accepted; write \"scenario\" or \"policy\" (line 1)".into()
            )
        );
    }

    #[test]
    fn a_policy_file_holds_no_range() {
        let text = "kind = 'policy'
targets = [4, 5]
[policy]
depth_total = [4, 8, 12]
prefetch = { from = 0, to = 2, step = 1 }
[sweep]
seed = [1, 2]
[costs]
spread = { from = 0, to = 2, step = 1 }
";
        let rule = "is a range; a policy is concrete; run `dflash sim` on a scenario to choose one";
        assert_eq!(
            refuse_ranges(&loaded(text)).unwrap_err().to_string(),
            format!(
                "\
s.toml: targets: [4, 5] {rule} (line 2)
s.toml: policy.depth_total: [4, 8, 12] {rule} (line 4)
s.toml: policy.prefetch: {{ from = 0, step = 1, to = 2 }} {rule} (line 5)
s.toml: sweep: {{ seed = [1, 2] }} {rule} (line 6)
s.toml: costs.spread: {{ from = 0, step = 1, to = 2 }} {rule} (line 9)"
            )
        );
        let flag = loaded_with(&["kind = 'policy'"], &["policy.depth_total=[4, 8]"]).unwrap();
        assert_eq!(
            refuse_ranges(&flag).unwrap_err().to_string(),
            format!("--set policy.depth_total=[4, 8]: policy.depth_total: [4, 8] {rule}")
        );
    }

    #[test]
    fn several_policies_are_a_range_and_one_is_none() {
        let one = "[[policy]]\ndepth_total = 4\n";
        assert_eq!(refuse_ranges(&loaded(one)), Ok(()));
        let two = format!("{one}{one}");
        assert_eq!(
            refuse_ranges(&loaded(&two)).unwrap_err().to_string(),
            "s.toml: policy: [{ depth_total = 4 }, { depth_total = 4 }] is a range; a policy is concrete; run `dflash sim` on a scenario to choose one (line 1)"
        );
    }

    #[test]
    fn lists_outside_the_policy_are_data() {
        let text = "kind = 'policy'
[policy]
depth_total = 4
[workload]
buckets = { edges = [512, 1024] }
[[costs]]
base_ms = 3
";
        assert_eq!(refuse_ranges(&loaded(text)), Ok(()));
    }
}
