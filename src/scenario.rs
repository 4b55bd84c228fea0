//! A scenario or policy file as a whole: its sections, and the points it resolves to.

use crate::config::{ConfigErrors, Kind, Loaded, Point, Points, load, refuse_ranges};
use crate::failure::Failure;
use crate::terminal::note;
use exec::config::{DataSection, ExecSection, OutOfRange, Tensorboard};
use serde::{Deserialize, Serialize};
use shared::draw::Seed;
use shared::policy::{Overrides, Policy};
use sim::Resolved;
use sim::spec::{Costs, Fault, Hardware, Lengths, Model, Problem, Search, Training, Workload};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A scenario without ranges: one of its points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScenarioFile {
    #[serde(default)]
    pub(crate) kind: Kind,
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) question: String,
    #[serde(default)]
    pub(crate) seed: u64,
    pub(crate) workload: Workload,
    pub(crate) training: Training,
    pub(crate) model: Model,
    pub(crate) hardware: Hardware,
    pub(crate) costs: Costs,
    #[serde(default)]
    pub(crate) fault: Vec<Fault>,
    #[serde(default)]
    pub(crate) search: Search,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) exec: Option<ExecSection>,
    pub(crate) policy: Overrides,
}

/// A policy file: concrete, complete, and what to expect of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicyFile {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) question: String,
    pub(crate) seed: u64,
    pub(crate) policy: Policy,
    pub(crate) workload: Workload,
    pub(crate) training: Training,
    pub(crate) model: Model,
    pub(crate) hardware: Hardware,
    pub(crate) costs: Costs,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) fault: Vec<Fault>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) exec: Option<ExecSection>,
    #[serde(default)]
    pub(crate) expect: Expect,
    #[serde(default)]
    pub(crate) provenance: Provenance,
}

/// What the simulator says a policy gives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Expect {
    pub(crate) throughput_tok_s: f64,
    pub(crate) throughput_ci_low: f64,
    pub(crate) throughput_ci_high: f64,
    pub(crate) bound_tok_s: f64,
    pub(crate) hs_slots_peak: u32,
    pub(crate) hs_bytes_peak: u64,
    pub(crate) host_bytes_peak: u64,
    pub(crate) target_gpu_bytes_peak: u64,
    pub(crate) drafter_gpu_bytes_peak: u64,
}

/// Where a policy file comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Provenance {
    pub(crate) version: String,
    pub(crate) commit: String,
    pub(crate) scenario: String,
    pub(crate) costs_hash: String,
    pub(crate) lengths_hash: String,
    pub(crate) plan_hash: String,
}

impl PolicyFile {
    pub(crate) fn resolved(&self) -> Resolved {
        Resolved {
            seed: Seed(self.seed),
            workload: self.workload.clone(),
            training: self.training.clone(),
            model: self.model.clone(),
            hardware: self.hardware.clone(),
            costs: self.costs.clone(),
            faults: self.fault.clone(),
            policy: self.policy.clone(),
        }
    }
}

/// What was loaded: a scenario to expand, or one policy.
#[derive(Debug)]
pub(crate) enum Input {
    Scenario {
        loaded: Loaded,
        points: Points,
    },
    Policy {
        loaded: Loaded,
        file: Box<PolicyFile>,
    },
}

/// Loads and merges files and flags.
pub(crate) fn open(files: &[PathBuf], sets: &[String], max: u64) -> Result<Input, Failure> {
    let loaded = load(files, sets)?;
    match loaded.kind()? {
        Kind::Scenario => {
            // Candidates are drawn from spaces of any size.
            let search = loaded.table().get("search");
            let is_drawn = search.is_some_and(|search| search.get("candidates").is_some());
            let points = loaded.expand(if is_drawn { u64::MAX } else { max })?;
            Ok(Input::Scenario { loaded, points })
        }
        Kind::Policy => {
            refuse_ranges(&loaded)?;
            let file: PolicyFile = loaded.parse()?;
            loaded.check(problems_of_policy(&file))?;
            Ok(Input::Policy {
                loaded,
                file: Box::new(file),
            })
        }
    }
}

impl Input {
    /// An error about point `index` whose text begins with its key, where the files wrote that key.
    pub(crate) fn error_at_key(&self, index: usize, error: impl std::fmt::Display) -> ConfigErrors {
        let text = error.to_string();
        match self {
            Self::Policy { loaded, .. } => loaded.error_at_key(None, &text),
            Self::Scenario { loaded, points } => {
                loaded.error_at_key(Some(&points.point(index)), &text)
            }
        }
    }
}

/// What decoding needs of a file: its names, and the section that says which models and data.
#[derive(Clone, Debug)]
pub(crate) struct Sections {
    pub(crate) name: String,
    pub(crate) seed: u64,
    pub(crate) workload: Workload,
    pub(crate) exec: ExecSection,
}

/// These sections of a policy file, or of a scenario's first point, with full paths. No data is read.
pub(crate) fn sections(path: &Path, sets: &[String]) -> Result<Sections, Failure> {
    let (loaded, name, seed, workload, exec) = match open(&[path.to_path_buf()], sets, u64::MAX)? {
        Input::Policy { loaded, file } => (loaded, file.name, file.seed, file.workload, file.exec),
        Input::Scenario { loaded, points } => {
            let point = points.point(0);
            let file: ScenarioFile = loaded.parse_point(&point)?;
            loaded.check_point(&point, problems_of_exec(file.exec.as_ref()))?;
            (loaded, file.name, file.seed, file.workload, file.exec)
        }
    };
    let exec = portable_exec(exec, &loaded)?.ok_or_else(|| {
        Failure::usage(format!(
            "{}: has no [exec] section, so it names no target and no tokenizer; add [exec.data], [exec.target] and [exec.drafter]",
            path.display()
        ))
    })?;
    Ok(Sections {
        name,
        seed,
        workload,
        exec,
    })
}

/// A point with everything it needs.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// The file it would be, ranges resolved.
    pub(crate) file: PolicyFile,
    /// Values of the swept fields, as text.
    pub(crate) swept: BTreeMap<String, String>,
    /// Which policy entry of the scenario.
    pub(crate) entry: usize,
    /// Which point of the scenario.
    pub(crate) point: usize,
    /// Lengths of its samples. (tokens)
    pub(crate) lengths: Arc<Vec<u32>>,
    /// How to search among cases.
    pub(crate) search: Search,
}

/// All cases of what was loaded, checked section by section.
pub(crate) fn cases(input: &Input) -> Result<Vec<Case>, Failure> {
    let mut lengths = LengthsCache::default();
    match input {
        Input::Policy { loaded, file } => {
            let mut file = (**file).clone();
            file.workload = portable(file.workload, loaded)?;
            file.exec = portable_exec(file.exec, loaded)?;
            Ok(vec![Case {
                lengths: lengths.of(&file.workload, file.seed, file.exec.as_ref())?,
                file,
                swept: BTreeMap::new(),
                entry: 0,
                point: 0,
                search: Search::default(),
            }])
        }
        Input::Scenario { loaded, points } => {
            let mut cases = Vec::new();
            for (index, point) in points.iter().enumerate() {
                cases.push(case(loaded, index, &point, &mut lengths)?);
            }
            Ok(cases)
        }
    }
}

/// The first case, which says how to search.
pub(crate) fn first_case(input: &Input) -> Result<Case, Failure> {
    let first = match input {
        Input::Policy { .. } => cases(input)?,
        Input::Scenario { .. } => cases_at(input, &[0])?,
    };
    Ok(first.into_iter().next().expect("there is a point"))
}

/// The cases of these points of a scenario.
pub(crate) fn cases_at(input: &Input, which: &[usize]) -> Result<Vec<Case>, Failure> {
    let Input::Scenario { loaded, points } = input else {
        return cases(input);
    };
    let mut lengths = LengthsCache::default();
    which
        .iter()
        .map(|&index| case(loaded, index, &points.point(index), &mut lengths))
        .collect()
}

/// The points of what was loaded.
pub(crate) fn points(input: &Input) -> Option<&Points> {
    match input {
        Input::Policy { .. } => None,
        Input::Scenario { points, .. } => Some(points),
    }
}

/// The data section of what was loaded, without loading the data. A scenario that sweeps it has none.
pub(crate) fn data_section(input: &Input) -> Result<DataSection, Failure> {
    let sections = match input {
        Input::Policy { loaded, file } => vec![portable_exec(file.exec.clone(), loaded)?],
        Input::Scenario { loaded, points } => {
            let of_point = |point| {
                let said: ScenarioFile = loaded.parse_point(&point)?;
                portable_exec(said.exec, loaded)
            };
            points
                .iter()
                .map(of_point)
                .collect::<Result<_, Failure>>()?
        }
    };
    let mut sections = sections.into_iter().map(|exec| exec.map(|exec| exec.data));
    let first = sections.next().flatten().ok_or_else(|| {
        Failure::usage("exec.data: is missing; say there what the token store is made from")
    })?;
    if sections.any(|other| other.as_ref() != Some(&first)) {
        let message = "exec.data: is swept, so that there would be several stores; give one value a key with --set";
        return Err(Failure::usage(message));
    }
    Ok(first)
}

fn case(
    loaded: &Loaded,
    index: usize,
    point: &Point,
    lengths: &mut LengthsCache,
) -> Result<Case, Failure> {
    let said: ScenarioFile = loaded.parse_point(point)?;
    let policy = said
        .policy
        .resolve()
        .map_err(|error| loaded.error_at_key(Some(point), &error.to_string()))?;
    let mut file = PolicyFile {
        kind: Kind::Policy,
        name: said.name,
        question: said.question,
        seed: said.seed,
        policy,
        workload: said.workload,
        training: said.training,
        model: said.model,
        hardware: said.hardware,
        costs: said.costs,
        fault: said.fault,
        exec: said.exec,
        expect: Expect::default(),
        provenance: Provenance::default(),
    };
    let mut problems = problems_of_policy(&file);
    problems.extend(said.search.validate("search"));
    loaded.check_point(point, problems)?;
    file.workload = portable(file.workload, loaded)?;
    file.exec = portable_exec(file.exec, loaded)?;
    let swept = point
        .swept
        .iter()
        .map(|(key, value)| (key.clone(), plain(value)));
    Ok(Case {
        swept: swept.collect(),
        entry: point.entry,
        point: index,
        lengths: lengths.of(&file.workload, file.seed, file.exec.as_ref())?,
        search: said.search,
        file,
    })
}

/// The workload as a policy file in another folder can name it: a file of lengths by its full path.
fn portable(mut workload: Workload, loaded: &Loaded) -> Result<Workload, Failure> {
    if let Lengths::File(file) = &mut workload.lengths {
        *file = full_path(loaded, "workload.lengths", file)?;
    }
    Ok(workload)
}

/// The section as a policy file in another folder can name it: data, tokenizer and models by their full paths.
fn portable_exec(
    section: Option<ExecSection>,
    loaded: &Loaded,
) -> Result<Option<ExecSection>, Failure> {
    let Some(mut section) = section else {
        return Ok(None);
    };
    for path in &mut section.data.paths {
        *path = full_path(loaded, "exec.data.paths", path)?;
    }
    if let Some(path) = section.data.tokenizer_path() {
        let path = full_path(loaded, "exec.data.tokenizer", path)?;
        section.data.tokenizer = utf_8("exec.data.tokenizer", path)?;
    }
    if let Some(path) = &mut section.data.store {
        *path = full_path(loaded, "exec.data.store", path)?;
    }
    if let Some(path) = section.data.chat_template_path() {
        let path = full_path(loaded, "exec.data.chat_template", path)?;
        section.data.chat_template = Some(utf_8("exec.data.chat_template", path)?);
    }
    if let Some(path) = &mut section.target.path {
        *path = full_path(loaded, "exec.target.path", path)?;
    }
    if let Some(path) = &mut section.drafter.path {
        *path = full_path(loaded, "exec.drafter.path", path)?;
    }
    if let Tensorboard::Folder(path) = &mut section.observe.tensorboard {
        *path = full_path(loaded, "exec.observe.tensorboard", path)?;
    }
    Ok(Some(section))
}

/// A path as text, as a key that is not always a path has it.
fn utf_8(key: &str, path: PathBuf) -> Result<String, Failure> {
    path.into_os_string().into_string().map_err(|path| {
        Failure::usage(format!(
            "{key}: {} is not UTF-8; move it to another folder",
            path.display()
        ))
    })
}

/// The full path of the path at `key`, which is relative to the file that wrote it; to the working folder where a flag did.
fn full_path(loaded: &Loaded, key: &str, path: &Path) -> Result<PathBuf, Failure> {
    let found = beside(loaded, key, path);
    std::path::absolute(&found).map_err(|error| {
        Failure::usage(format!(
            "{key}: {} has no full path: {error}; name another",
            found.display()
        ))
    })
}

fn plain(value: &toml::Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// What is wrong with the sections of a policy file.
pub(crate) fn problems_of_policy(file: &PolicyFile) -> Vec<Problem> {
    let sections = [
        file.workload.validate("workload"),
        file.training.validate("training"),
        file.model.validate("model"),
        file.hardware.validate("hardware"),
        file.costs.validate("costs"),
    ];
    let faults = file
        .fault
        .iter()
        .enumerate()
        .flat_map(|(i, f)| f.validate(&format!("fault[{i}]")));
    let exec = problems_of_exec(file.exec.as_ref());
    sections
        .into_iter()
        .flatten()
        .chain(faults)
        .chain(exec)
        .collect()
}

fn problems_of_exec(section: Option<&ExecSection>) -> Vec<Problem> {
    let found = section.map(ExecSection::problems).unwrap_or_default();
    let problem = |found: OutOfRange| Problem {
        key: found.key.to_owned(),
        value: found.value,
        limit: found.limit,
        way_out: found.way_out.to_owned(),
    };
    found.into_iter().map(problem).collect()
}

/// Lengths by what decides them, so that points of one workload share them.
#[derive(Default)]
struct LengthsCache(BTreeMap<String, Arc<Vec<u32>>>);

impl LengthsCache {
    fn of(
        &mut self,
        workload: &Workload,
        seed: u64,
        exec: Option<&ExecSection>,
    ) -> Result<Arc<Vec<u32>>, Failure> {
        let (lengths, samples) = (&workload.lengths, workload.samples);
        let key = match lengths {
            Lengths::File(_) | Lengths::Microbatches { .. } => format!("{lengths:?} {samples}"),
            Lengths::Data => format!("{:?} {samples}", exec.map(|section| &section.data)),
            lengths => format!("{lengths:?} {samples} {seed}"),
        };
        if let Some(known) = self.0.get(&key) {
            return Ok(Arc::clone(known));
        }
        let lengths = match &workload.lengths {
            Lengths::File(file) => read_lengths(file)?,
            Lengths::Data => data_lengths(exec)?,
            _ => sim::draw_lengths(workload, Seed(seed)).unwrap_or_default(),
        };
        let limit = if workload.samples > 0 {
            workload.samples as usize
        } else {
            usize::MAX
        };
        let lengths = Arc::new(lengths.into_iter().take(limit).collect::<Vec<_>>());
        self.0.insert(key, Arc::clone(&lengths));
        Ok(lengths)
    }
}

/// A path in a file is relative to that file.
fn beside(loaded: &Loaded, key: &str, path: &Path) -> PathBuf {
    let folder = loaded
        .file_of(key)
        .and_then(|file| file.parent().map(Path::to_path_buf));
    match folder {
        Some(folder) if path.is_relative() => folder.join(path),
        _ => path.to_path_buf(),
    }
}

/// One length a line; an optional first line names the column.
fn read_lengths(file: &Path) -> Result<Vec<u32>, Failure> {
    let shown = file.display();
    let text = std::fs::read(file).map_err(|e| {
        Failure::data(format!(
            "{shown}: cannot be read: {e}; check workload.lengths"
        ))
    })?;
    let text = String::from_utf8(text)
        .map_err(|_| Failure::data(format!("{shown}: is not UTF-8; write one length a line")))?;
    let mut lengths = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let cell = line.split(',').next().unwrap_or("").trim();
        let is_title = i == 0 && cell.parse::<f64>().is_err();
        if cell.is_empty() || is_title {
            continue;
        }
        let length = cell.parse::<u32>().ok().filter(|&l| l > 0).ok_or_else(|| {
            Failure::data(format!(
                "{shown}:{}: {cell:?} is no length; write a whole number of tokens, at least 1, on each line",
                i + 1
            ))
        })?;
        lengths.push(length);
    }
    if lengths.is_empty() {
        return Err(Failure::data(format!(
            "{shown}: holds no lengths; write one a line"
        )));
    }
    Ok(lengths)
}

/// The lengths of the samples that the data section describes.
fn data_lengths(section: Option<&ExecSection>) -> Result<Vec<u32>, Failure> {
    let section = section.ok_or_else(|| {
        Failure::usage(
            "workload.lengths: \"data\" takes the lengths of [exec.data], which is missing; add it",
        )
    })?;
    let data = crate::verbs::data::load(&section.data)?;
    if data.counts().is_notable() {
        note(format!("data: {}", data.counts()));
    }
    Ok(data.lengths())
}
