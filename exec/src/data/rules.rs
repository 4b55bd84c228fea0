//! What a record has to satisfy to become a sample, and what happens if it does not.

use std::collections::BTreeMap;

use minijinja::Value;

use super::error::{DataError, Result};
use super::template::TemplateSource;

/// What to do with a sample above [`Rules::max_len`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverLong {
    /// Stop with an error that names the sample.
    Reject,
    /// Keep the first `max_len` tokens.
    Truncate,
    /// Leave the sample out and count it.
    Skip,
}

/// What to do with a line that is no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnBadLine {
    /// Stop with an error that names the line.
    Stop,
    /// Leave the line out and count it.
    Skip,
}

/// Which tokens of a conversation bear loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LossOn {
    /// What the assistant says in every turn, and the tokens that end its turns.
    #[default]
    Assistant,
    /// The same in its last turn alone.
    LastAssistant,
    /// Every token.
    All,
}

/// How a plain text file becomes samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlainText {
    /// Consecutive pieces of at most `tokens_max` tokens; the last one is whatever is left.
    Chunks {
        /// Tokens in a piece, at most [`Rules::max_len`].
        tokens_max: u32,
    },
    /// The whole file is one sample, to which [`OverLong`] applies.
    Whole,
}

/// The rules applied to every record before batching.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// Tokens in a sample, at most.
    pub max_len: u32,
    /// What happens above `max_len`.
    pub over_long: OverLong,
    /// Loss-bearing tokens in a sample, at least; applied after truncation.
    pub min_loss_tokens: u32,
    /// What happens to a line that is no record.
    pub on_bad_line: OnBadLine,
    /// Largest share of bad records under [`OnBadLine::Skip`], from 0 to 1.
    pub bad_share_max: f64,
    /// Bytes in a JSONL line, at most.
    pub line_bytes_max: usize,
    /// How plain text is cut.
    pub plain: PlainText,
    /// Number of ids the model embeds; `None` takes the tokenizer's.
    pub vocab: Option<u32>,
    /// Which tokens of a conversation bear loss.
    pub loss_on: LossOn,
    /// The chat template; `None` takes the tokenizer's, or ChatML where it has none.
    pub chat_template: Option<TemplateSource>,
    /// Values that the template finds beside the conversation.
    pub template_values: BTreeMap<String, Value>,
}

impl Rules {
    /// The default rules for samples of at most `max_len` tokens.
    ///
    /// Over-long records are left out and counted, bad lines stop the load, two loss-bearing tokens
    /// are required (an anchor and the token it predicts), text is cut into chunks of `max_len`.
    pub fn new(max_len: u32) -> Self {
        Self {
            max_len,
            over_long: OverLong::Skip,
            min_loss_tokens: 2,
            on_bad_line: OnBadLine::Stop,
            bad_share_max: 0.01,
            line_bytes_max: LINE_BYTES_MAX,
            plain: PlainText::Chunks {
                tokens_max: max_len,
            },
            vocab: None,
            loss_on: LossOn::Assistant,
            chat_template: None,
            template_values: BTreeMap::new(),
        }
    }

    /// Checks that the rules can be met by some sample.
    ///
    /// # Errors
    /// [`DataError::Rule`] names the key, its value, the limit and the way out.
    pub fn check(&self) -> Result<()> {
        let refuse =
            |key, value: String, reason: String| Err(DataError::Rule { key, value, reason });
        if self.max_len == 0 {
            return refuse(
                "max_len",
                "0".into(),
                "a sample needs at least 1 token; set it to 1 or more".into(),
            );
        }
        if self.min_loss_tokens > self.max_len {
            let reason = format!(
                "no sample of max_len = {} tokens can hold that many; lower it or raise max_len",
                self.max_len
            );
            return refuse("min_loss_tokens", self.min_loss_tokens.to_string(), reason);
        }
        if !(0.0..=1.0).contains(&self.bad_share_max) {
            let reason =
                "a share lies between 0 and 1; 0.01 allows one bad line in a hundred".into();
            return refuse("bad_share_max", self.bad_share_max.to_string(), reason);
        }
        if self.line_bytes_max == 0 {
            let reason = format!("no line fits; leave it at {LINE_BYTES_MAX}");
            return refuse("line_bytes_max", "0".into(), reason);
        }
        if self.vocab == Some(0) {
            return refuse(
                "vocab",
                "0".into(),
                "no token fits; set the model's vocabulary size".into(),
            );
        }
        if let PlainText::Chunks { tokens_max } = self.plain
            && (tokens_max == 0 || tokens_max > self.max_len)
        {
            let reason = format!(
                "a chunk holds 1 to max_len = {} tokens; choose a value there",
                self.max_len
            );
            return refuse("tokens_max", tokens_max.to_string(), reason);
        }
        Ok(())
    }
}

/// Bytes in a JSONL line, at most, unless the user says otherwise: far above any real record, far
/// below what a file without newlines would take.
pub const LINE_BYTES_MAX: usize = 64 << 20;

macro_rules! names {
    ($type:ident, $key:literal, $($variant:ident = $name:literal),+) => {
        impl $type {
            /// The name in files.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }

        impl std::str::FromStr for $type {
            type Err = DataError;

            fn from_str(name: &str) -> Result<Self> {
                match name {
                    $($name => Ok(Self::$variant),)+
                    _ => Err(DataError::Rule {
                        key: $key,
                        value: format!("\"{name}\""),
                        reason: concat!("choose one of", $(" ", $name),+).into(),
                    }),
                }
            }
        }
    };
}

names!(
    OverLong,
    "over_long",
    Reject = "reject",
    Truncate = "truncate",
    Skip = "skip"
);
names!(OnBadLine, "on_bad_line", Stop = "stop", Skip = "skip");
names!(
    LossOn,
    "loss_on",
    Assistant = "assistant",
    LastAssistant = "last-assistant",
    All = "all"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(change: impl FnOnce(&mut Rules), message: &str) {
        let mut rules = Rules::new(128);
        change(&mut rules);
        let error = rules.check().expect_err("the rules must be refused");
        assert_eq!(error.to_string(), message);
        assert_eq!(error.kind(), crate::data::DataErrorKind::Usage);
    }

    #[test]
    fn the_defaults_are_consistent() {
        for max_len in [2, 128, 8192] {
            Rules::new(max_len).check().expect("defaults must pass");
        }
    }

    #[test]
    fn impossible_rules_are_refused_with_key_value_and_way_out() {
        refused(
            |r| r.max_len = 0,
            "max_len = 0: a sample needs at least 1 token; set it to 1 or more",
        );
        refused(
            |r| r.min_loss_tokens = 129,
            "min_loss_tokens = 129: no sample of max_len = 128 tokens can hold that many; lower it or raise max_len",
        );
        refused(
            |r| r.bad_share_max = 1.5,
            "bad_share_max = 1.5: a share lies between 0 and 1; 0.01 allows one bad line in a hundred",
        );
        refused(
            |r| r.bad_share_max = f64::NAN,
            "bad_share_max = NaN: a share lies between 0 and 1; 0.01 allows one bad line in a hundred",
        );
        refused(
            |r| r.line_bytes_max = 0,
            "line_bytes_max = 0: no line fits; leave it at 67108864",
        );
        refused(
            |r| r.vocab = Some(0),
            "vocab = 0: no token fits; set the model's vocabulary size",
        );
        refused(
            |r| r.plain = PlainText::Chunks { tokens_max: 129 },
            "tokens_max = 129: a chunk holds 1 to max_len = 128 tokens; choose a value there",
        );
        refused(
            |r| r.plain = PlainText::Chunks { tokens_max: 0 },
            "tokens_max = 0: a chunk holds 1 to max_len = 128 tokens; choose a value there",
        );
    }

    #[test]
    fn names_parse_and_unknown_ones_list_the_choices() {
        assert_eq!(
            "truncate".parse::<OverLong>().ok(),
            Some(OverLong::Truncate)
        );
        assert_eq!("skip".parse::<OnBadLine>().ok(), Some(OnBadLine::Skip));
        let error = "drop".parse::<OverLong>().expect_err("unknown name");
        assert_eq!(
            error.to_string(),
            "over_long = \"drop\": choose one of reject truncate skip"
        );
        assert_eq!("all".parse::<LossOn>().ok(), Some(LossOn::All));
        assert_eq!(LossOn::LastAssistant.name(), "last-assistant");
        let error = "ignore".parse::<OnBadLine>().expect_err("unknown name");
        assert_eq!(
            error.to_string(),
            "on_bad_line = \"ignore\": choose one of stop skip"
        );
    }
}
