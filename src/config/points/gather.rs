//! Finding the ranges of a scenario.

use super::super::error::{ConfigError, KeyFault, shown};
use super::super::load::Loaded;
use super::super::path::{KeyPath, kind};
use super::super::range::{choices, is_range_table};
use super::{Entry, PolicyAxis, SPLIT_FIELDS, Split, SweepAxis};
use toml::{Table, Value};

/// The axes of `[sweep]`, each tried once on `base`.
pub(super) fn sweep(
    loaded: &Loaded,
    base: &Table,
    sweep: Option<&Value>,
    errors: &mut Vec<ConfigError>,
) -> Vec<SweepAxis> {
    let mut axes = Vec::new();
    let written = KeyPath::default().key("sweep");
    let mut refuse = |path: &KeyPath, fault| errors.push(loaded.error(path, fault));
    match sweep {
        None => {}
        Some(Value::Table(table)) => {
            walk(table, &KeyPath::default(), &written, &mut axes, &mut refuse);
        }
        Some(other) => refuse(
            &written,
            KeyFault::Type {
                found: shown(other),
                accepted: "a table such as { \"training.token_budget\" = [32768, 49152] }".into(),
            },
        ),
    }
    let mut tried = base.clone();
    let mut seen: Vec<&KeyPath> = Vec::new();
    for axis in &axes {
        let fault = if seen.contains(&&axis.path) {
            Some(KeyFault::Other(format!(
                "{} is swept twice; keep one of the ranges",
                axis.path
            )))
        } else {
            try_on(&mut tried, axis)
        };
        seen.push(&axis.path);
        if let Some(fault) = fault {
            refuse(&axis.written, fault);
        }
    }
    axes
}

/// Collects ranges; both `a.b = [...]` and `"a.b" = [...]` name the field `a.b`.
fn walk(
    table: &Table,
    path: &KeyPath,
    written: &KeyPath,
    axes: &mut Vec<SweepAxis>,
    refuse: &mut impl FnMut(&KeyPath, KeyFault),
) {
    for (key, value) in table {
        let written = written.key(key);
        let steps = match KeyPath::parse(key) {
            Ok(steps) => steps,
            Err(message) => {
                refuse(&written, KeyFault::Other(message));
                continue;
            }
        };
        let mut path = path.clone();
        path.0.extend(steps.0);
        if path.first() == Some("policy") {
            let message = "policies are not swept here; write the range in its [[policy]] entry";
            refuse(&written, KeyFault::Other(message.into()));
            continue;
        }
        match value {
            Value::Table(inner) if !is_range_table(inner) => {
                walk(inner, &path, &written, axes, refuse);
            }
            value => match choices(value) {
                Ok(Some(choices)) => axes.push(SweepAxis {
                    path,
                    written,
                    choices,
                }),
                Ok(None) => refuse(
                    &written,
                    KeyFault::Limit {
                        value: shown(value),
                        limit: "is a single value".into(),
                        way_out: format!("write a list, or set {path} itself"),
                    },
                ),
                Err(fault) => refuse(&written, fault),
            },
        }
    }
}

/// Puts the first value of an axis in its place.
fn try_on(tried: &mut Table, axis: &SweepAxis) -> Option<KeyFault> {
    if let Some(value) = axis.path.get(tried)
        && (value.is_table() || value.is_array())
    {
        return Some(KeyFault::Other(format!(
            "{} is {}; sweep the single values in it",
            axis.path,
            kind(value)
        )));
    }
    let set = axis.path.set(tried, &axis.choices.value(0));
    set.err().map(|error| KeyFault::Other(error.to_string()))
}

/// The policies, with their ranges apart.
pub(super) fn entries(
    loaded: &Loaded,
    policy: Option<&Value>,
    errors: &mut Vec<ConfigError>,
) -> Vec<Entry> {
    let at = KeyPath::default().key("policy");
    let rows: Vec<(KeyPath, &Value)> = match policy {
        None => Vec::new(),
        Some(Value::Array(rows)) => {
            let place = |(row, value)| (at.index(row), value);
            rows.iter().enumerate().map(place).collect()
        }
        Some(value) => vec![(at.clone(), value)],
    };
    if rows.is_empty() {
        let fault = KeyFault::Other(
            "no [[policy]]; add one, such as [[policy]] with preset = \"composed\"".into(),
        );
        errors.push(loaded.error(&KeyPath::default(), fault));
    }
    let mut entries = Vec::new();
    for (at, value) in rows {
        match value {
            Value::Table(table) => entries.push(entry(loaded, &at, table, errors)),
            other => {
                let fault = KeyFault::Type {
                    found: shown(other),
                    accepted: "a table such as { preset = \"composed\" }".into(),
                };
                errors.push(loaded.error(&at, fault));
            }
        }
    }
    entries
}

fn entry(loaded: &Loaded, at: &KeyPath, table: &Table, errors: &mut Vec<ConfigError>) -> Entry {
    let mut entry = Entry {
        fixed: Table::new(),
        axes: Vec::new(),
        split: table.contains_key("split"),
        count: 0,
    };
    for (field, value) in table {
        let added = match field.as_str() {
            "split" => add_split(&mut entry, table, value),
            field => choices(value).map(|choices| match choices {
                None => {
                    entry.fixed.insert(field.into(), value.clone());
                }
                Some(choices) => entry.axes.push(PolicyAxis::Field {
                    name: field.into(),
                    choices,
                }),
            }),
        };
        if let Err(fault) = added {
            errors.push(loaded.error(&at.key(field), fault));
        }
    }
    entry
}

fn add_split(entry: &mut Entry, table: &Table, value: &Value) -> Result<(), KeyFault> {
    if let Some(field) = SPLIT_FIELDS
        .iter()
        .find(|field| table.contains_key(**field))
    {
        return Err(KeyFault::Limit {
            value: shown(value),
            limit: format!("cannot stand beside {field}"),
            way_out: "write either split or targets and drafters".into(),
        });
    }
    let split = |value: &Value| {
        value
            .as_str()
            .and_then(Split::parse)
            .ok_or_else(|| KeyFault::Type {
                found: shown(value),
                accepted: "targets + drafters, such as \"5+3\"".into(),
            })
    };
    match value {
        Value::Array(splits) => {
            choices(value)?;
            let splits: Result<_, _> = splits.iter().map(split).collect();
            entry.axes.push(PolicyAxis::Split(splits?));
        }
        single => split(single)?.write(&mut entry.fixed),
    }
    Ok(())
}
