//! From a line of JSONL to tokens.

use super::bad_record::BadRecord;
use super::chat::Tokens;
use super::chat_format::{ChatFault, ChatFormat};
use super::record::Record;
use super::rules::LossOn;
use super::tokenizer::{EncodeError, Tokenizer};

/// What a line of JSONL turned out to be.
pub(super) enum Line {
    Blank,
    Read(Read),
    Bad(BadRecord),
    Failed(EncodeError),
}

/// A record's tokens, before the rules.
pub(super) struct Read {
    pub(super) tokens: Tokens,
    /// Its `id`.
    pub(super) name: Option<String>,
    /// Answers that should bear loss and do not.
    pub(super) answers_unlearned: u64,
}

impl Read {
    pub(super) fn of(tokens: Tokens) -> Self {
        Self {
            tokens,
            name: None,
            answers_unlearned: 0,
        }
    }
}

/// What reading a line takes; shared by threads.
pub(super) struct Reader<'a> {
    pub(super) tokenizer: &'a Tokenizer,
    pub(super) chat: &'a ChatFormat<'a>,
    pub(super) loss_on: LossOn,
}

impl Reader<'_> {
    pub(super) fn line(&self, line: Result<String, BadRecord>) -> Line {
        let parsed = match line {
            Ok(line) if line.trim().is_empty() => return Line::Blank,
            Ok(line) => Record::parse_with_id(&line),
            Err(reason) => Err(reason),
        };
        let (record, name) = match parsed {
            Ok(parsed) => parsed,
            Err(reason) => return Line::Bad(reason),
        };
        match self.tokens(record) {
            Ok((tokens, answers_unlearned)) => Line::Read(Read {
                tokens,
                name,
                answers_unlearned,
            }),
            Err(ChatFault::Record(reason)) => Line::Bad(reason),
            Err(ChatFault::Encode(error)) => Line::Failed(error),
        }
    }

    /// Chat and text go through the tokenizer, ids are taken as they are.
    fn tokens(&self, record: Record) -> Result<(Tokens, u64), ChatFault> {
        match record {
            Record::Tokens(tokens) => Ok((tokens, 0)),
            Record::Chat(conversation) => self.chat.encode(&conversation, self.loss_on),
            Record::Text(text) => {
                let ids = self.tokenizer.encode(&text)?;
                let mask = vec![1; ids.len()];
                Ok((Tokens { ids, mask }, 0))
            }
        }
    }
}
