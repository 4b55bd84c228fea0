//! The file of answers: a conversation a line, only ever added to.

use super::setup::Setup;
use crate::failure::Failure;
use crate::output::OutputError;
use exec::data::Message;
use exec::decode::{Ended, Finished, Prompt};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// How an answer was made: rows of one file agree in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Made {
    /// Fingerprint of the target.
    pub(super) target: String,
    pub(super) temperature: f64,
    pub(super) seed: u64,
    pub(super) max_new_tokens: usize,
    pub(super) loop_period_max: usize,
}

/// One line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Row {
    id: String,
    messages: Vec<Said>,
    /// Tokens of the answer.
    tokens: usize,
    /// `itself`, `limit` or `loop`.
    ended: String,
    made: Made,
    /// Exact tokens of prompt and answer, if asked for; training prefers them to the messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input_ids: Option<Vec<u32>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    loss_mask: Option<Vec<u8>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Said {
    role: String,
    content: String,
}

impl Row {
    pub(super) fn new(
        setup: &Setup,
        prompt: &Prompt,
        messages: &[Message],
        finished: &Finished,
    ) -> Self {
        let end = match finished.ended {
            Ended::Itself => setup.limits.ends.first().copied(),
            Ended::Limit | Ended::Loop => None,
        };
        let said: Vec<u32> = finished.tokens.iter().copied().chain(end).collect();
        let mask = |prompt: usize| [vec![0; prompt], vec![1; said.len()]].concat();
        Self {
            id: prompt.id.clone(),
            messages: messages
                .iter()
                .map(|message| Said {
                    role: message.role.name().to_owned(),
                    content: message.content.clone(),
                })
                .collect(),
            tokens: finished.tokens.len(),
            ended: name_of(finished.ended).to_owned(),
            made: setup.made.clone(),
            loss_mask: setup.with_tokens.then(|| mask(prompt.ids.len())),
            input_ids: setup.with_tokens.then(|| [&prompt.ids[..], &said].concat()),
        }
    }
}

const fn name_of(ended: Ended) -> &'static str {
    match ended {
        Ended::Itself => "itself",
        Ended::Limit => "limit",
        Ended::Loop => "loop",
    }
}

/// The file, and what is in it.
#[derive(Debug)]
pub(super) struct Answers {
    path: PathBuf,
    file: File,
    ids: HashSet<String>,
    /// What users say first in the conversations that were there.
    pub(super) first_turns: Vec<String>,
    /// Bytes of a last line that was cut, if there was one.
    pub(super) repaired: Option<usize>,
}

impl Answers {
    /// Opens or makes the file. A last line that was cut is removed: it is done again.
    pub(super) fn open(path: &Path, made: &Made) -> Result<Self, Failure> {
        let failed = |source: std::io::Error| failed(path, source);
        if path.is_dir() {
            return Err(OutputError::Directory { path: path.into() }.into());
        }
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(failed)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        let whole = bytes
            .iter()
            .rposition(|&b| b == b'\n')
            .map_or(0, |at| at + 1);
        let mut answers = Self {
            path: path.to_path_buf(),
            file,
            ids: HashSet::new(),
            first_turns: Vec::new(),
            repaired: None,
        };
        for (number, line) in (1..).zip(bytes[..whole].split(|&b| b == b'\n')) {
            if !line.is_empty() {
                answers.take_in(line, number, made)?;
            }
        }
        if whole < bytes.len() {
            answers.file.set_len(whole as u64).map_err(failed)?;
            answers.file.seek(SeekFrom::End(0)).map_err(failed)?;
            answers.repaired = Some(bytes.len() - whole);
        }
        Ok(answers)
    }

    fn take_in(&mut self, line: &[u8], number: usize, made: &Made) -> Result<(), Failure> {
        let shown = self.path.display();
        let row: Row = serde_json::from_slice(line).map_err(|e| {
            Failure::data(format!(
                "{shown}:{number}: is no answer of `dflash regenerate`: {e}; give --out another file"
            ))
        })?;
        if row.made != *made {
            return Err(Failure::usage(format!(
                "{shown}:{number}: was made with {}, now {}; give the same flags, or --out another file",
                settings(&row.made),
                settings(made)
            )));
        }
        let first = row.messages.iter().find(|said| said.role == "user");
        self.first_turns
            .extend(first.map(|said| said.content.clone()));
        self.ids.insert(row.id);
        Ok(())
    }

    pub(super) fn has(&self, id: &str) -> bool {
        self.ids.contains(id)
    }

    /// Conversations in the file.
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Adds a line.
    pub(super) fn append(&mut self, row: &Row) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(row).map_err(|e| failed(&self.path, e.into()))?;
        line.push(b'\n');
        self.file
            .write_all(&line)
            .map_err(|e| failed(&self.path, e))?;
        self.ids.insert(row.id.clone());
        Ok(())
    }

    /// Makes sure that all lines are on the disk.
    pub(super) fn finish(&self) -> Result<(), Failure> {
        self.file.sync_all().map_err(|e| failed(&self.path, e))
    }
}

fn settings(made: &Made) -> String {
    format!(
        "target {}, temperature {}, seed {}, {} new tokens, loops of {}",
        made.target, made.temperature, made.seed, made.max_new_tokens, made.loop_period_max
    )
}

fn failed(path: &Path, source: std::io::Error) -> Failure {
    OutputError::Failed {
        path: path.into(),
        source,
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> Made {
        Made {
            target: "t".into(),
            temperature: 0.0,
            seed: 0,
            max_new_tokens: 8,
            loop_period_max: 4,
        }
    }

    fn row(id: &str) -> Row {
        let said = |role: &str| Said {
            role: role.into(),
            content: format!("{role} {id}"),
        };
        Row {
            id: id.into(),
            messages: vec![said("user"), said("assistant")],
            tokens: 3,
            ended: "itself".into(),
            made: made(),
            input_ids: None,
            loss_mask: None,
        }
    }

    #[test]
    fn a_cut_line_is_removed_and_whole_ones_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        let mut answers = Answers::open(&path, &made()).unwrap();
        answers.append(&row("one")).unwrap();
        answers.append(&row("two")).unwrap();
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 9]).unwrap();
        let mut answers = Answers::open(&path, &made()).unwrap();
        assert!(answers.has("one") && !answers.has("two"));
        assert!(answers.repaired.is_some());
        assert_eq!(answers.first_turns, ["user one"]);
        answers.append(&row("two")).unwrap();
        answers.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), whole);
    }

    #[test]
    fn other_files_and_other_settings_are_refused_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        std::fs::write(&path, "{\"text\": \"mine\"}\n").unwrap();
        let error = Answers::open(&path, &made()).unwrap_err();
        assert!(
            error
                .message
                .contains("a.jsonl:1: is no answer of `dflash regenerate`"),
            "{error:?}"
        );
        assert_eq!(std::fs::read(&path).unwrap(), b"{\"text\": \"mine\"}\n");
        std::fs::remove_file(&path).unwrap();
        Answers::open(&path, &made())
            .unwrap()
            .append(&row("one"))
            .unwrap();
        let other = Made {
            temperature: 1.0,
            ..made()
        };
        let error = Answers::open(&path, &other).unwrap_err();
        assert!(
            error.message.contains("temperature 0,")
                && error.message.contains("now target t, temperature 1,"),
            "{error:?}"
        );
    }
}
