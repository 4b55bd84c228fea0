//! Where a value stands in a file: `policy[0].depth_total`.

use std::fmt;
use toml::{Table, Value};

/// One step into a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Step {
    /// Into a table.
    Key(String),
    /// Into an array, counted from 0.
    Index(usize),
}

/// The steps from the top of a file to one value. Shown and read as dotted keys with `[n]` for the rows of an array.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KeyPath(pub(crate) Vec<Step>);

/// Why a value cannot be put in its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PlaceError {
    /// A step leads into something that holds no keys.
    #[error("{0} is {1}, not a table; drop what follows it")]
    NoTable(KeyPath, &'static str),
    /// A row is asked for that does not exist.
    #[error("{0} does not exist, the array has {1} rows; count from 0")]
    NoRow(KeyPath, usize),
}

impl KeyPath {
    /// Reads `a.b[0]."c.d"`.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut steps = Vec::new();
        let mut rest = text.trim();
        loop {
            let (key, after) = first_key(rest)
                .ok_or_else(|| format!("{text:?} is no key; write it as in training.grad_accum"))?;
            steps.push(Step::Key(key));
            rest = after;
            while let Some(inside) = rest.strip_prefix('[') {
                let (row, after) = inside
                    .split_once(']')
                    .and_then(|(row, after)| Some((row.trim().parse().ok()?, after)))
                    .ok_or_else(|| {
                        format!("{text:?} has no row number in [ ]; write it as in policy[0]")
                    })?;
                steps.push(Step::Index(row));
                rest = after;
            }
            rest = rest.trim_start();
            match rest.strip_prefix('.') {
                Some(after) => rest = after.trim_start(),
                None if rest.is_empty() => return Ok(Self(steps)),
                None => {
                    return Err(format!(
                        "{text:?} is no key; write it as in training.grad_accum"
                    ));
                }
            }
        }
    }

    /// This path and one key more.
    pub(crate) fn key(&self, key: &str) -> Self {
        self.step(Step::Key(key.into()))
    }

    /// This path and one row more.
    pub(crate) fn index(&self, index: usize) -> Self {
        self.step(Step::Index(index))
    }

    fn step(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }

    /// The path of what holds this value; the top holds itself.
    pub(crate) fn parent(&self) -> Self {
        Self(self.0[..self.0.len().saturating_sub(1)].to_vec())
    }

    /// Whether this value is `other` or inside it.
    pub(crate) fn is_in(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }

    /// The first key.
    pub(crate) fn first(&self) -> Option<&str> {
        match self.0.first() {
            Some(Step::Key(key)) => Some(key),
            _ => None,
        }
    }

    /// The value in this place.
    pub(crate) fn get<'t>(&self, table: &'t Table) -> Option<&'t Value> {
        let (first, rest) = self.0.split_first()?;
        let Step::Key(key) = first else { return None };
        rest.iter()
            .try_fold(table.get(key)?, |value, step| match step {
                Step::Key(key) => value.as_table()?.get(key),
                Step::Index(row) => value.as_array()?.get(*row),
            })
    }

    /// Puts `value` in this place, making the tables on the way. A key into an array of tables means each of its tables.
    ///
    /// Returns the places that it went to.
    ///
    /// # Errors
    /// When the way leads through a value that is no table, or past the end of an array.
    pub(crate) fn set(&self, table: &mut Table, value: &Value) -> Result<Vec<Self>, PlaceError> {
        let mut places = Vec::new();
        set_in(table, &self.0, value, &Self::default(), &mut places)?;
        Ok(places)
    }

    /// Takes the value out of this place, if it stands under a key.
    pub(crate) fn remove(&self, table: &mut Table) -> Option<Value> {
        let (last, before) = self.0.split_last()?;
        let Step::Key(last) = last else { return None };
        let Some((Step::Key(first), rest)) = before.split_first() else {
            return table.remove(last);
        };
        rest.iter()
            .try_fold(table.get_mut(first)?, |value, step| match step {
                Step::Key(key) => value.as_table_mut()?.get_mut(key),
                Step::Index(row) => value.as_array_mut()?.get_mut(*row),
            })?
            .as_table_mut()?
            .remove(last)
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(row) => write!(f, "[{row}]")?,
                Step::Key(key) => {
                    let dot = if position > 0 { "." } else { "" };
                    match is_bare(key) {
                        true => write!(f, "{dot}{key}")?,
                        false => write!(f, "{dot}{key:?}")?,
                    }
                }
            }
        }
        Ok(())
    }
}

fn set_in(
    table: &mut Table,
    steps: &[Step],
    value: &Value,
    at: &KeyPath,
    places: &mut Vec<KeyPath>,
) -> Result<(), PlaceError> {
    let Some((Step::Key(key), rest)) = steps.split_first() else {
        return Err(PlaceError::NoTable(at.clone(), "a table"));
    };
    let at = at.key(key);
    if rest.is_empty() {
        table.insert(key.clone(), value.clone());
        places.push(at);
        return Ok(());
    }
    let inner = table
        .entry(key.clone())
        .or_insert_with(|| Value::Table(Table::new()));
    set_through(inner, rest, value, at, places)
}

fn set_through(
    inner: &mut Value,
    rest: &[Step],
    value: &Value,
    at: KeyPath,
    places: &mut Vec<KeyPath>,
) -> Result<(), PlaceError> {
    match (inner, rest) {
        (Value::Table(table), [Step::Key(_), ..]) => set_in(table, rest, value, &at, places),
        (Value::Array(rows), [Step::Index(row), rest @ ..]) => {
            let at = at.index(*row);
            let count = rows.len();
            let Some(inner) = rows.get_mut(*row) else {
                return Err(PlaceError::NoRow(at, count));
            };
            if rest.is_empty() {
                *inner = value.clone();
                places.push(at);
                return Ok(());
            }
            set_through(inner, rest, value, at, places)
        }
        (Value::Array(rows), [Step::Key(_), ..]) if rows.iter().all(Value::is_table) => {
            for (row, inner) in rows.iter_mut().enumerate() {
                set_through(inner, rest, value, at.index(row), places)?;
            }
            Ok(())
        }
        (inner, _) => Err(PlaceError::NoTable(at, kind(inner))),
    }
}

/// What a value is, in words.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a string",
        Value::Integer(_) | Value::Float(_) => "a number",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "an array",
        Value::Table(_) => "a table",
    }
}

/// The first key of a path and what follows it.
fn first_key(text: &str) -> Option<(String, &str)> {
    for quote in ['"', '\''] {
        if let Some(inside) = text.strip_prefix(quote) {
            let (key, after) = inside.split_once(quote)?;
            return Some((key.into(), after));
        }
    }
    let end = text.find(|c: char| !is_bare_char(c)).unwrap_or(text.len());
    (end > 0).then(|| (text[..end].into(), &text[end..]))
}

fn is_bare(key: &str) -> bool {
    !key.is_empty() && key.chars().all(is_bare_char)
}

const fn is_bare_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> KeyPath {
        KeyPath::parse(text).unwrap()
    }

    #[test]
    fn paths_read_and_show_alike() {
        for text in [
            "a",
            "a.b-c.d_1",
            "policy[0].depth_total",
            "m[1][2]",
            "sweep.\"a.b\"",
        ] {
            assert_eq!(path(text).to_string(), text);
        }
        assert_eq!(path(" a . 'b' ").to_string(), "a.b");
        assert_eq!(path("a[3].b").0.len(), 3);
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for text in ["", ".", "a.", ".a", "a..b", "a b", "a]", "\"a"] {
            assert_eq!(
                KeyPath::parse(text).unwrap_err(),
                format!("{text:?} is no key; write it as in training.grad_accum")
            );
        }
        assert_eq!(
            KeyPath::parse("a[x]").unwrap_err(),
            "\"a[x]\" has no row number in [ ]; write it as in policy[0]"
        );
    }

    #[test]
    fn values_are_put_taken_and_found() {
        let mut table: Table = toml::from_str("a = 1\n[[p]]\nx = 1\n[[p]]\n").unwrap();
        path("b.c.d").set(&mut table, &Value::from(2)).unwrap();
        assert_eq!(path("b.c.d").get(&table), Some(&Value::from(2)));
        path("p[1].x").set(&mut table, &Value::from(5)).unwrap();
        assert_eq!(path("p[0].x").get(&table), Some(&Value::from(1)));
        assert_eq!(path("p[1].x").get(&table), Some(&Value::from(5)));
        assert_eq!(path("p[1].x").remove(&mut table), Some(Value::from(5)));
        assert_eq!(path("p[1].x").get(&table), None);
        assert_eq!(path("a").remove(&mut table), Some(Value::from(1)));
        assert_eq!(path("a").remove(&mut table), None);
    }

    #[test]
    fn a_key_into_an_array_of_tables_means_each() {
        let mut table: Table = toml::from_str("p = [ { x = 1 }, { } ]").unwrap();
        let places = path("p.x").set(&mut table, &Value::from(7)).unwrap();
        assert_eq!(places, [path("p[0].x"), path("p[1].x")]);
        assert_eq!(path("p[1].x").get(&table), Some(&Value::from(7)));
    }

    #[test]
    fn ways_through_scalars_and_past_ends_are_refused() {
        let mut table: Table = toml::from_str("a = 1\nb = [1, 2]").unwrap();
        let mut refused = |text: &str| {
            path(text)
                .set(&mut table, &Value::from(7))
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            refused("a.b"),
            "a is a number, not a table; drop what follows it"
        );
        assert_eq!(
            refused("b.c"),
            "b is an array, not a table; drop what follows it"
        );
        assert_eq!(
            refused("b[2]"),
            "b[2] does not exist, the array has 2 rows; count from 0"
        );
    }
}
