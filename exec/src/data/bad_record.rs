//! Why a line of JSONL is no record.

use super::template::TemplateFault;

/// Why a line is no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRecord {
    /// Bytes that are no UTF-8.
    #[error("not valid UTF-8")]
    NotUtf8 {
        /// The column of the first such byte, from 1.
        column: usize,
    },
    /// Broken JSON, or a field of the wrong type.
    #[error("not a valid record: {reason}")]
    Json {
        /// What the parser said.
        reason: String,
        /// The column where it said so, from 1.
        column: usize,
    },
    /// A line that would not fit into memory.
    #[error("the line is longer than line_bytes_max = {limit} bytes")]
    TooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// An object without any accepted set of keys.
    #[error(
        "unknown record with {found}: accepted are messages, conversations, input_ids + loss_mask or packed_loss_mask, \
         prompt + response, prompt + completion, or text"
    )]
    UnknownShape {
        /// The keys found, ready to print.
        found: String,
    },
    /// `input_ids` and `loss_mask` do not fit together.
    #[error("input_ids has {ids} values but loss_mask has {mask}: both need one value a token")]
    LengthMismatch {
        /// Number of ids.
        ids: usize,
        /// Number of mask values.
        mask: usize,
    },
    /// A `packed_loss_mask` that is none, or does not fit.
    #[error("packed_loss_mask cannot be used: {reason}")]
    PackedMask {
        /// Why.
        reason: String,
    },
    /// The chat template has no text for the conversation.
    #[error("{0}")]
    Template(TemplateFault),
    /// A field that carries words, and no template that would show them.
    #[error(
        "message {message} has {field}, which the built-in chat format cannot show: set \
         chat_template, or use a tokenizer with a template"
    )]
    NeedsTemplate {
        /// Which message, from 1.
        message: usize,
        /// The field.
        field: &'static str,
    },
    /// A message from nobody known.
    #[error(
        "message {message} has the unknown role {role}: accepted are system, user, assistant and \
         tool (and developer, human, gpt, function, observation)"
    )]
    UnknownRole {
        /// Which message, from 1.
        message: usize,
        /// The role as written, quoted and shortened.
        role: String,
    },
    /// A message that lacks a field.
    #[error("message {message} has no {field}")]
    MissingField {
        /// Which message, from 1.
        message: usize,
        /// The names the field may have.
        field: &'static str,
    },
}

impl BadRecord {
    /// The column the reason refers to, from 1, where there is one.
    pub fn column(&self) -> Option<usize> {
        match self {
            Self::NotUtf8 { column } | Self::Json { column, .. } => Some(*column),
            _ => None,
        }
    }
}
