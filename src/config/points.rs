//! A scenario with ranges as a list of concrete scenarios.
//!
//! Each `[[policy]]` entry stands for the product of its ranges, the entries for their sum, and `[sweep]` multiplies them all. The
//! sweep turns slowest, so points that share a workload follow one another.

mod gather;
mod lattice;
#[cfg(test)]
mod tests;

use super::error::{ConfigError, ConfigErrors, KeyFault};
use super::load::Loaded;
use super::path::{KeyPath, Step};
use super::range::Choices;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use toml::{Table, Value};

/// Most points of a search unless the user asks for more.
pub(crate) const POINTS_MAX: u64 = 100_000;

/// All points of a scenario, made when asked for.
#[derive(Clone, Debug)]
pub(crate) struct Points {
    /// The scenario without policies and sweep.
    base: Table,
    sweep: Arc<[SweepAxis]>,
    /// Whether policies are written as `[[policy]]`, in rows.
    policy_rows: bool,
    entries: Vec<Entry>,
    policy_columns: BTreeSet<String>,
    count: usize,
}

/// One concrete scenario.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    /// The scenario: no `sweep`, and `policy` is one table of single values.
    pub(crate) table: Table,
    /// The values of the swept fields by dotted path, such as `policy.depth_total`. Where one policy entry ranges over a field
    /// that another one fixes, the fixed value stands here too.
    pub(crate) swept: BTreeMap<String, Value>,
    /// The policy entry it belongs to, from 0.
    pub(crate) entry: usize,
    sweep: Arc<[SweepAxis]>,
    policy_rows: bool,
    split: bool,
}

/// A swept field outside the policies.
#[derive(Clone, Debug)]
struct SweepAxis {
    /// The field.
    path: KeyPath,
    /// Where its range is written.
    written: KeyPath,
    choices: Choices,
}

/// One `[[policy]]`.
#[derive(Clone, Debug)]
struct Entry {
    /// Fields with one value.
    fixed: Table,
    axes: Vec<PolicyAxis>,
    /// Whether `targets` and `drafters` come from `split`.
    split: bool,
    count: usize,
}

/// A ranged field of a policy.
#[derive(Clone, Debug)]
enum PolicyAxis {
    Field { name: String, choices: Choices },
    Split(Vec<Split>),
}

/// N targets and M drafters, written `"5+3"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Split {
    targets: u16,
    drafters: u16,
}

impl Loaded {
    /// The points of this scenario, at most `max`.
    ///
    /// # Errors
    /// Every range that is none, every swept path that leads nowhere, no policy at all, or more points than `max`: these are
    /// counted, never made.
    pub(crate) fn expand(&self, max: u64) -> Result<Points, ConfigErrors> {
        let mut errors = Vec::new();
        let mut base = self.table().clone();
        let sweep = base.remove("sweep");
        let policy = base.remove("policy");
        let sweep = gather::sweep(self, &base, sweep.as_ref(), &mut errors);
        let mut entries = gather::entries(self, policy.as_ref(), &mut errors);
        if errors.is_empty() {
            errors.extend(self.too_many(&sweep, &entries, max));
        }
        ConfigErrors::check(errors)?;
        let mut count = 0;
        for entry in &mut entries {
            // Below max, so it fits.
            entry.count = entry
                .axes
                .iter()
                .map(|axis| axis.count() as usize)
                .product();
            count += entry.count;
        }
        let sweep_count: usize = sweep
            .iter()
            .map(|axis| axis.choices.count() as usize)
            .product();
        Ok(Points {
            base,
            sweep: sweep.into(),
            policy_rows: policy.is_some_and(|policy| policy.is_array()),
            policy_columns: entries.iter().flat_map(Entry::columns).collect(),
            entries,
            count: count * sweep_count,
        })
    }

    fn too_many(&self, sweep: &[SweepAxis], entries: &[Entry], max: u64) -> Option<ConfigError> {
        let policies = entries.iter().try_fold(0_u128, |sum, entry| {
            sum.checked_add(product(entry.axes.iter().map(PolicyAxis::count))?)
        });
        let swept = product(sweep.iter().map(|axis| axis.choices.count()));
        let count = policies
            .zip(swept)
            .and_then(|(policies, swept)| policies.checked_mul(swept));
        let count = match count {
            Some(count) if count <= u128::from(max) => return None,
            Some(count) => count.to_string(),
            None => format!("more than {}", u128::MAX),
        };
        let fault = KeyFault::TooManyPoints { count, max };
        Some(self.error(&KeyPath::default(), fault))
    }
}

impl Points {
    /// How many there are; at least one.
    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    /// The dotted paths of all swept fields, sorted: the keys that [`Point::swept`] may hold.
    #[cfg(test)]
    pub(crate) fn columns(&self) -> Vec<String> {
        let sweep = self.sweep.iter().map(|axis| axis.path.to_string());
        let policy = self.policy_columns.iter().map(|field| column(field));
        sweep
            .chain(policy)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }

    /// Point `index`.
    ///
    /// # Panics
    /// When there is no such point.
    pub(crate) fn point(&self, index: usize) -> Point {
        assert!(index < self.count, "a point below the count is asked for");
        let entries_count: usize = self.entries.iter().map(|entry| entry.count).sum();
        let (sweep_index, mut within) = (index / entries_count, index % entries_count);
        let mut entry_index = 0;
        while within >= self.entries[entry_index].count {
            within -= self.entries[entry_index].count;
            entry_index += 1;
        }
        let mut table = self.base.clone();
        let mut swept = BTreeMap::new();
        let counts = self.sweep.iter().map(|axis| axis.choices.count() as usize);
        for (axis, place) in self.sweep.iter().zip(places(counts.collect(), sweep_index)) {
            let value = axis.choices.value(place);
            axis.path
                .set(&mut table, &value)
                .expect("expanding has tried this path");
            swept.insert(axis.path.to_string(), value);
        }
        let entry = &self.entries[entry_index];
        let policy = entry.policy(within);
        for field in &self.policy_columns {
            if let Some(value) = policy.get(field) {
                swept.insert(column(field), value.clone());
            }
        }
        table.insert("policy".into(), Value::Table(policy));
        Point {
            table,
            swept,
            entry: entry_index,
            sweep: Arc::clone(&self.sweep),
            policy_rows: self.policy_rows,
            split: entry.split,
        }
    }

    /// Every point, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Point> {
        (0..self.count).map(|index| self.point(index))
    }
}

impl Point {
    /// Where the scenario wrote the value at `path` of this point.
    pub(super) fn written_as(&self, path: &KeyPath) -> KeyPath {
        if let Some(axis) = self.sweep.iter().find(|axis| path.is_in(&axis.path)) {
            return axis.written.clone();
        }
        if path.first() != Some("policy") {
            return path.clone();
        }
        let mut written = KeyPath::default().key("policy");
        if self.policy_rows {
            written = written.index(self.entry);
        }
        match path.0.get(1) {
            Some(Step::Key(field)) if self.split && SPLIT_FIELDS.contains(&field.as_str()) => {
                written.key("split")
            }
            _ => {
                written.0.extend_from_slice(&path.0[1..]);
                written
            }
        }
    }
}

impl Entry {
    /// The names of its ranged fields.
    fn columns(&self) -> Vec<String> {
        let names = |axis: &PolicyAxis| match axis {
            PolicyAxis::Field { name, .. } => vec![name.clone()],
            PolicyAxis::Split(_) => SPLIT_FIELDS.map(String::from).to_vec(),
        };
        self.axes.iter().flat_map(names).collect()
    }

    /// Its policy number `index`.
    fn policy(&self, index: usize) -> Table {
        let mut policy = self.fixed.clone();
        let counts = self.axes.iter().map(|axis| axis.count() as usize);
        for (axis, place) in self.axes.iter().zip(places(counts.collect(), index)) {
            match axis {
                PolicyAxis::Field { name, choices } => {
                    policy.insert(name.clone(), choices.value(place));
                }
                PolicyAxis::Split(splits) => splits[place].write(&mut policy),
            }
        }
        policy
    }
}

impl PolicyAxis {
    const fn count(&self) -> u128 {
        match self {
            Self::Field { choices, .. } => choices.count(),
            Self::Split(splits) => splits.len() as u128,
        }
    }
}

/// The policy fields that a split stands for.
const SPLIT_FIELDS: [&str; 2] = ["targets", "drafters"];

impl Split {
    /// Reads `"5+3"`.
    fn parse(text: &str) -> Option<Self> {
        let (targets, drafters) = text.split_once('+')?;
        let count = |text: &str| {
            let digits = text.trim();
            let whole = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            digits.parse().ok().filter(|count| whole && *count > 0)
        };
        Some(Self {
            targets: count(targets)?,
            drafters: count(drafters)?,
        })
    }

    fn write(self, policy: &mut Table) {
        let counts = [self.targets, self.drafters];
        for (field, count) in SPLIT_FIELDS.into_iter().zip(counts) {
            policy.insert(field.into(), Value::from(i64::from(count)));
        }
    }
}

fn column(field: &str) -> String {
    KeyPath::default().key("policy").key(field).to_string()
}

/// The product, if it stays below 2^128.
fn product(counts: impl IntoIterator<Item = u128>) -> Option<u128> {
    counts.into_iter().try_fold(1_u128, u128::checked_mul)
}

/// The digits of `index` when digit i counts to `counts[i]` and the last turns fastest.
fn places(counts: Vec<usize>, mut index: usize) -> Vec<usize> {
    let mut places = vec![0; counts.len()];
    for (place, count) in places.iter_mut().zip(counts).rev() {
        *place = index % count;
        index /= count;
    }
    places
}
