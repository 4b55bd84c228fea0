//! Prompts from JSONL.
//!
//! | line | prompt |
//! |---|---|
//! | `messages`, `conversations` | the turns before a last one of the assistant, then the opening of the answer |
//! | `prompt` | as a user's turn (text), or as turns (a list) |
//! | `text` | its first half |
//! | `input_ids` | tokens before the first that `loss_mask` marks, or the first half |

mod asking;
mod line;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use line::Line;

pub use asking::Asking;

use crate::data::Message;
use crate::model::hash;

/// Something to be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// The line's own `id`, or a digest of what it says.
    pub id: String,
    /// Token ids, the opening of the answer included.
    pub ids: Vec<u32>,
    /// The turns; none where the line held bare text or tokens.
    pub messages: Vec<Message>,
}

/// Prompts of a file, and what was left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prompts {
    /// In the order of the file.
    pub prompts: Vec<Prompt>,
    /// Lines left out because their prompt is longer than allowed.
    pub too_long: usize,
    /// Lines left out because an earlier one has the same id or the same tokens.
    pub repeated: usize,
}

/// Why prompts cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    /// The file cannot be read.
    #[error("{}: cannot be read: {source}; check the path", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line is no prompt.
    #[error("{}:{line}: {problem}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong and what is expected.
        problem: String,
    },
    /// Nothing is left.
    #[error(
        "{}: no prompts: {lines} lines, {too_long} of them longer than {tokens_max} tokens; give a file of JSONL with messages, prompt or text, or allow longer prompts",
        path.display()
    )]
    Empty {
        /// The file.
        path: PathBuf,
        /// Lines that are not blank.
        lines: usize,
        /// Lines whose prompt was too long.
        too_long: usize,
        /// Tokens of a prompt, at most.
        tokens_max: usize,
    },
}

/// Reads the prompts of a JSONL file: at most `prompts_max`, each of at most `tokens_max` tokens.
///
/// Errors: an unreadable file, a line that is no prompt, no prompt at all.
pub fn read_prompts(
    path: &Path,
    asking: &Asking<'_>,
    prompts_max: usize,
    tokens_max: usize,
) -> Result<Prompts, PromptError> {
    let text = std::fs::read_to_string(path).map_err(|source| PromptError::Read {
        path: path.to_owned(),
        source,
    })?;
    let lines = text.lines().enumerate();
    let lines: Vec<_> = lines.filter(|(_, line)| !line.trim().is_empty()).collect();
    let mut found = Prompts::default();
    let mut known = HashSet::new();
    for (number, line) in &lines {
        if found.prompts.len() == prompts_max {
            break;
        }
        let prompt = Line::parse(line)
            .and_then(|line| line.prompt(asking))
            .map_err(|problem| PromptError::Line {
                path: path.to_owned(),
                line: number + 1,
                problem,
            })?;
        let is_new_id = known.insert(digest(prompt.id.bytes().map(u64::from)));
        if prompt.ids.len() > tokens_max {
            found.too_long += 1;
        } else if !is_new_id || !known.insert(digest(prompt.ids.iter().map(|&id| id.into()))) {
            found.repeated += 1;
        } else {
            found.prompts.push(prompt);
        }
    }
    match found.prompts.is_empty() {
        true => Err(PromptError::Empty {
            path: path.to_owned(),
            lines: lines.len(),
            too_long: found.too_long,
            tokens_max,
        }),
        false => Ok(found),
    }
}

impl Prompt {
    /// A prompt of turns, to be answered by the assistant.
    ///
    /// Errors: what the chat's format says.
    pub fn of_messages(
        id: String,
        messages: Vec<Message>,
        asking: &Asking<'_>,
    ) -> Result<Self, String> {
        Ok(Self {
            id,
            ids: asking.prompt(&messages)?,
            messages,
        })
    }

    /// A prompt of a sample: what stands before its first token with loss, or the first half of
    /// one that bears loss from its start. `None` for a sample too short to be cut.
    pub fn of_sample(id: String, ids: &[u32], mask: &[u8]) -> Option<Self> {
        let first = mask.iter().position(|&loss| loss != 0);
        let cut = match first {
            Some(first) if first > 1 => first,
            _ => ids.len() / 2,
        };
        (cut > 0).then(|| Self {
            id,
            ids: ids[..cut].to_vec(),
            messages: Vec::new(),
        })
    }
}

fn digest(words: impl IntoIterator<Item = u64>) -> u64 {
    words
        .into_iter()
        .fold(0, |state, word| hash(&[state, word]))
}

/// A name for what a line says, the same for the same text.
pub(super) fn name_of(text: &str) -> String {
    format!("{:016x}", digest(text.bytes().map(u64::from)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Rules;
    use crate::data::Tokenizer;

    fn read(text: &str, prompts_max: usize, tokens_max: usize) -> Result<Prompts, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.jsonl");
        std::fs::write(&path, text).unwrap();
        let tokenizer = Tokenizer::byte();
        read_prompts(
            &path,
            &Asking::new(&tokenizer, &Rules::new(1)).unwrap(),
            prompts_max,
            tokens_max,
        )
        .map_err(|error| {
            let folder = format!("{}/", folder.path().display());
            error.to_string().replace(&folder, "")
        })
    }

    const USER: u32 = 258;
    const ASSISTANT: u32 = 259;
    const END: u32 = 256;

    #[test]
    fn every_shape_ends_where_the_answer_begins() {
        let chat = [USER, 'q'.into(), END, ASSISTANT];
        for line in [
            r#"{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}"#,
            r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "q"}]}]}"#,
            r#"{"conversations": [{"from": "human", "value": "q"}]}"#,
            r#"{"prompt": "q", "response": "never read"}"#,
            r#"{"prompt": [{"role": "user", "content": "q"}]}"#,
        ] {
            let found = read(line, 9, 99).unwrap();
            assert_eq!(found.prompts[0].ids, chat, "{line}");
            assert_eq!(found.prompts[0].messages.len(), 1);
        }
        let ids = |line: &str| read(line, 9, 99).unwrap().prompts.remove(0).ids;
        assert_eq!(ids(r#"{"text": "abcdef"}"#), [97, 98, 99]);
        assert_eq!(
            ids(r#"{"input_ids": [5, 6, 7, 8], "loss_mask": [0, 0, 0, 1]}"#),
            [5, 6, 7]
        );
        assert_eq!(ids(r#"{"input_ids": [5, 6, 7, 8]}"#), [5, 6]);
    }

    #[test]
    fn ids_are_kept_or_made_and_repeats_and_long_ones_are_counted() {
        let text = "{\"id\": 7, \"prompt\": \"a\"}\n\n{\"prompt\": \"b\"}\n{\"prompt\": \"b\"}\n{\"id\": \"7\", \"prompt\": \"c\"}\n{\"prompt\": \"a long one\"}\n";
        let found = read(text, 9, 5).unwrap();
        let ids: Vec<_> = found.prompts.iter().map(|p| p.id.as_str()).collect();
        assert_eq!(ids[0], "7");
        assert_eq!(ids[1].len(), 16);
        assert_eq!((ids.len(), found.repeated, found.too_long), (2, 2, 1));
        assert_eq!(read(text, 1, 5).unwrap().prompts.len(), 1);
    }

    #[test]
    fn lines_that_are_no_prompts_are_named() {
        let wrong = |text: &str, message: &str| {
            assert_eq!(read(text, 9, 99).unwrap_err(), message);
        };
        wrong(
            "{\"prompt\": \"a\"}\n{\"prompt\": \"b\n",
            "p.jsonl:2: not valid JSON: EOF while parsing a string at column 13",
        );
        wrong(
            "{\"question\": \"a\"}",
            "p.jsonl:1: has the keys question; a prompt needs messages, conversations, prompt, text or input_ids",
        );
        wrong(
            "{\"messages\": [{\"role\": \"poet\", \"content\": \"a\"}]}",
            "p.jsonl:1: turn 1: \"poet\" is no role; write system, user, assistant or tool",
        );
        wrong("{\"messages\": []}", "p.jsonl:1: has no turn to answer");
        wrong(
            "\n",
            "p.jsonl: no prompts: 0 lines, 0 of them longer than 99 tokens; give a file of JSONL with messages, prompt or text, or allow longer prompts",
        );
    }

    #[test]
    fn a_sample_is_cut_where_its_loss_begins() {
        let cut = |mask: &[u8]| Prompt::of_sample("s".into(), &[1, 2, 3, 4], mask).map(|p| p.ids);
        assert_eq!(cut(&[0, 0, 0, 1]), Some(vec![1, 2, 3]));
        assert_eq!(cut(&[1, 1, 1, 1]), Some(vec![1, 2]));
        assert_eq!(Prompt::of_sample("s".into(), &[1], &[1]), None);
    }

    #[test]
    fn the_opening_of_a_turn_does_not_depend_on_its_text() {
        let tokenizer = Tokenizer::byte();
        assert_eq!(
            Asking::new(&tokenizer, &Rules::new(1))
                .unwrap()
                .user_opening()
                .unwrap(),
            [USER]
        );
    }
}
