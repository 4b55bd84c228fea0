//! Real text into training samples.
//!
//! A load goes: paths ([`load`]'s inputs, or [`text_on_this_machine`]) → files → records → token ids
//! with a loss mask ([`Tokenizer`], [`ChatFormat`]) → rules ([`Rules`]) → [`Dataset`]. Nothing is
//! dropped silently: every record ends as a sample or in [`Dataset::dropped`] and one field of
//! [`Counts`]. [`token_store`] does the same once, into files that later runs map.
//!
//! | input | records | loss |
//! |---|---|---|
//! | JSONL, `messages` or `conversations` | one a line | as [`LossOn`] says: assistant turns and their end token |
//! | JSONL, `prompt` with `response` or `completion` | one a line, as a conversation of two turns | the same |
//! | JSONL, `text` | one a line | every token |
//! | JSONL, `input_ids` with `loss_mask` or `packed_loss_mask` | one a line | as given |
//! | JSONL in gzip (`.jsonl.gz`) | as JSONL | |
//! | any UTF-8 file | chunks of at most `tokens_max` tokens, or the whole file ([`PlainText`]) | every token |
//! | a folder | those of the files in it, in sorted order | |
//!
//! JSONL is read line by line and plain text block by block, so memory holds the samples and little
//! else. Two loads of equal contents give equal data sets, whatever the machine.

mod bad_record;
mod blocks;
mod chat;
mod chat_format;
mod counts;
mod dataset;
mod digest;
mod error;
mod lines;
mod loader;
mod owned;
mod reader;
mod record;
mod registry;
mod rules;
mod source_file;
mod template;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod token_store;
mod tokenizer;
mod walk;
mod watch;

pub use bad_record::BadRecord;
pub use chat::{Conversation, Message, Role, Tokens, Turn};
pub use chat_format::{ChatFault, ChatFormat};
pub use counts::{Counts, DropReason};
pub use dataset::{Dataset, Sample};
pub use error::{DataError, DataErrorKind, Place};
pub use loader::{load, load_watched};
pub use registry::text_on_this_machine;
pub use rules::{LINE_BYTES_MAX, LossOn, OnBadLine, OverLong, PlainText, Rules};
pub use template::{ChatTemplate, TemplateFault, TemplateSource, is_inline};
pub use tokenizer::{ByteTokenizer, CarriedTemplate, EncodeError, FileTokenizer, Tokenizer};
pub use watch::{Unwatched, Watch};
