//! Ranges: `[4, 8, 12]`, or `{ from = 4, to = 24, step = 4 }` with both ends. Without a step a range of whole numbers holds each of them, one of
//! decimals is continuous: so finely divided that nothing lies between.

use super::error::{KeyFault, shown};
use toml::{Table, Value};

/// The values that one field takes, made one by one: a range of a billion costs nothing until it is refused.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Choices {
    /// Those of a list.
    Listed(Vec<Value>),
    /// from, from + step, ... in whole numbers.
    Whole { from: i64, step: i64, count: u128 },
    /// The same in decimals.
    Decimal { from: f64, step: f64, count: u128 },
}

const KEYS: &[&str] = &["from", "to", "step"];

impl Choices {
    /// How many there are.
    pub(super) const fn count(&self) -> u128 {
        match self {
            Self::Listed(values) => values.len() as u128,
            Self::Whole { count, .. } | Self::Decimal { count, .. } => *count,
        }
    }

    /// The value in place `index`, which is below the count.
    pub(super) fn value(&self, index: usize) -> Value {
        match self {
            Self::Listed(values) => values[index].clone(),
            Self::Whole { from, step, .. } => Value::Integer(from + step * index as i64),
            Self::Decimal { from, step, .. } => Value::Float(rounded(from + step * index as f64)),
        }
    }
}

/// The choices in `value`, or none if it is a single one.
///
/// # Errors
/// When it looks like a range but is not one: empty, repeated, nested, endless or backwards.
pub(super) fn choices(value: &Value) -> Result<Option<Choices>, KeyFault> {
    match value {
        Value::Array(values) => listed(values).map(Some),
        Value::Table(table) => stepped(table).map(Some),
        _ => Ok(None),
    }
}

/// Whether a table was meant as a range.
pub(super) fn is_range_table(table: &Table) -> bool {
    table.contains_key("from") && (table.contains_key("to") || table.contains_key("step"))
}

fn listed(values: &[Value]) -> Result<Choices, KeyFault> {
    let refused = |limit: &str, way_out: &str| KeyFault::Limit {
        value: shown(&Value::Array(values.to_vec())),
        limit: limit.into(),
        way_out: way_out.into(),
    };
    if values.is_empty() {
        return Err(refused(
            "holds no value",
            "list at least one or drop the key",
        ));
    }
    if let Some(nested) = values.iter().find(|v| v.is_array() || v.is_table()) {
        return Err(refused(
            &format!("holds {}", shown(nested)),
            "list single values",
        ));
    }
    // Values have no order or hash that all types share; their text has.
    let mut texts: Vec<String> = values.iter().map(Value::to_string).collect();
    texts.sort_unstable();
    if let Some(pair) = texts.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(refused(
            &format!("holds {} more than once", pair[0]),
            "list each value once",
        ));
    }
    Ok(Choices::Listed(values.to_vec()))
}

fn stepped(table: &Table) -> Result<Choices, KeyFault> {
    let refused = |limit: String| KeyFault::Limit {
        value: shown(&Value::Table(table.clone())),
        limit,
        way_out: "write { from = 4, to = 24, step = 4 } or a list".into(),
    };
    if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
        let key = key.clone();
        return Err(refused(format!("has the key {key:?} that no range has")));
    }
    let end = |key: &str| {
        table
            .get(key)
            .ok_or_else(|| refused(format!("has no {key:?}")))
    };
    let (from, to) = (end("from")?, end("to")?);
    let fine = table
        .get("step")
        .map_or_else(|| fine_step(from, to), |_| None);
    let step = match &fine {
        Some(step) => step,
        None => end("step")?,
    };
    match (from, to, step) {
        (Value::Integer(from), Value::Integer(to), Value::Integer(step)) => {
            ordered(from, to, step, &0).map_err(refused)?;
            let count = (i128::from(*to) - i128::from(*from)) / i128::from(*step) + 1;
            Ok(Choices::Whole {
                from: *from,
                step: *step,
                count: count.unsigned_abs(),
            })
        }
        (from, to, step) => {
            let number = |value: &Value| {
                number(value)
                    .ok_or_else(|| refused(format!("holds {}, no finite number", shown(value))))
            };
            let (from, to, step) = (number(from)?, number(to)?, number(step)?);
            ordered(&from, &to, &step, &0.0).map_err(refused)?;
            let steps = ((to - from) / step + STEP_SLACK).floor();
            // A float beyond 2^128 becomes the largest count, which is refused anyway.
            let count = (steps as u128).saturating_add(1);
            Ok(Choices::Decimal { from, step, count })
        }
    }
}

/// Steps that a continuous range is divided into.
const CONTINUOUS_STEPS: f64 = 1024.0;

/// The step of a range that names none, if its ends are numbers in order.
fn fine_step(from: &Value, to: &Value) -> Option<Value> {
    if let (Value::Integer(_), Value::Integer(_)) = (from, to) {
        return Some(Value::Integer(1));
    }
    let step = (number(to)? - number(from)?) / CONTINUOUS_STEPS;
    (step > 0.0).then_some(Value::Float(step))
}

/// Steps of 0.1 from 0 to 0.3 end at 0.3, though 0.3 / 0.1 is a little below 3.
const STEP_SLACK: f64 = 1e-9;

fn ordered<T: PartialOrd>(from: &T, to: &T, step: &T, zero: &T) -> Result<(), String> {
    if step <= zero {
        return Err("must have a step above 0".into());
    }
    if from > to {
        return Err("runs backwards".into());
    }
    Ok(())
}

fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Integer(number) => *number as f64,
        Value::Float(number) => *number,
        _ => return None,
    };
    number.is_finite().then_some(number)
}

/// To twelve significant digits, so that three steps of 0.1 are 0.3.
fn rounded(number: f64) -> f64 {
    format!("{number:.11e}").parse().unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Option<Choices>, KeyFault> {
        let table: Table = toml::from_str(&format!("value = {text}")).unwrap();
        choices(&table["value"])
    }

    fn values(text: &str) -> Vec<Value> {
        let choices = of(text).unwrap().unwrap();
        (0..choices.count() as usize)
            .map(|index| choices.value(index))
            .collect()
    }

    fn refused(text: &str) -> String {
        of(text).unwrap_err().to_string()
    }

    #[test]
    fn lists_and_steps_make_values() {
        assert_eq!(values("[4, 8]"), [4, 8].map(Value::from));
        assert_eq!(
            values("{ from = 4, to = 12, step = 4 }"),
            [4, 8, 12].map(Value::from)
        );
        assert_eq!(
            values("{ from = 4, to = 11, step = 4 }"),
            [4, 8].map(Value::from)
        );
        assert_eq!(
            values("{ from = 0, to = 0.3, step = 0.1 }"),
            [0.0, 0.1, 0.2, 0.3].map(Value::from)
        );
        assert_eq!(values("{ from = 4, to = 4, step = 1 }"), [Value::from(4)]);
        assert_eq!(values("{ from = 2, to = 4 }"), [2, 3, 4].map(Value::from));
        let continuous = values("{ from = 0.25, to = 0.75 }");
        assert_eq!(continuous.len(), 1025);
        assert_eq!(continuous[512], Value::Float(0.5));
        assert_eq!(of("4"), Ok(None));
        assert_eq!(of("'a'"), Ok(None));
    }

    #[test]
    fn endless_ranges_are_counted_not_made() {
        let all = "{ from = -9223372036854775808, to = 9223372036854775807, step = 1 }";
        assert_eq!(of(all).unwrap().unwrap().count(), 1 << 64);
        let fine = "{ from = 0.0, to = 1e300, step = 1e-300 }";
        assert_eq!(of(fine).unwrap().unwrap().count(), u128::MAX);
    }

    #[test]
    fn lists_hold_each_single_value_once() {
        assert_eq!(
            refused("[]"),
            "[] holds no value; list at least one or drop the key"
        );
        assert_eq!(
            refused("[[4], 8]"),
            "[[4], 8] holds [4]; list single values"
        );
        assert_eq!(
            refused("[4, 8, 4]"),
            "[4, 8, 4] holds 4 more than once; list each value once"
        );
    }

    #[test]
    fn steps_lead_from_one_end_to_the_other() {
        let way_out = "; write { from = 4, to = 24, step = 4 } or a list";
        for (range, limit) in [
            ("{ from = 4, step = 4 }", "has no \"to\""),
            (
                "{ from = 4, step = 4, too = 8 }",
                "has the key \"too\" that no range has",
            ),
            ("{ from = 4, step = 0, to = 8 }", "must have a step above 0"),
            ("{ from = 9, step = 1, to = 8 }", "runs backwards"),
            (
                "{ from = 0, step = nan, to = 1 }",
                "holds nan, no finite number",
            ),
            (
                "{ from = \"1 GB\", step = 1, to = 8 }",
                "holds \"1 GB\", no finite number",
            ),
        ] {
            assert_eq!(refused(range), format!("{range} {limit}{way_out}"));
        }
    }
}
