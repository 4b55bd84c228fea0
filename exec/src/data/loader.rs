//! Reads files and applies the rules to every record.

use std::collections::HashSet;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::bad_record::BadRecord;
use super::blocks::Blocks;
use super::chat::Tokens;
use super::chat_format::ChatFormat;
use super::counts::{Counts, DropReason};
use super::dataset::Dataset;
use super::digest::Digest;
use super::error::{DataError, Place, Result};
use super::lines::Lines;
use super::owned::Owned;
use super::reader::{Line, Read, Reader};
use super::rules::{OnBadLine, OverLong, PlainText, Rules};
use super::source_file::{Seen, SourceFile};
use super::tokenizer::{EncodeError, Tokenizer};
use super::walk::{self, Format};
use super::watch::{Unwatched, Watch};

/// Reads `inputs` (files and folders) in order and makes a sample of every record that meets
/// `rules`.
///
/// The result depends on the contents, their order and the arguments alone.
///
/// # Errors
/// The rules contradict each other, a path cannot be read, a record is refused (see [`Rules`]), or
/// no sample is left.
pub fn load(inputs: &[PathBuf], tokenizer: &Tokenizer, rules: &Rules) -> Result<Dataset> {
    load_watched(inputs, tokenizer, rules, &Unwatched)
}

/// As [`load`], watched.
///
/// # Errors
/// As [`load`], and [`DataError::Stopped`].
pub fn load_watched(
    inputs: &[PathBuf],
    tokenizer: &Tokenizer,
    rules: &Rules,
    watch: &dyn Watch,
) -> Result<Dataset> {
    let (samples, counts) = read_into(Owned::new(), inputs, tokenizer, rules, watch)?;
    Ok(Dataset::owned(samples, counts))
}

/// Reads `inputs` as [`load`] does and hands every sample to `sink`, in order.
///
/// # Errors
/// As [`load`], and what `sink` refuses.
pub(super) fn read_into<S: Sink>(
    sink: S,
    inputs: &[PathBuf],
    tokenizer: &Tokenizer,
    rules: &Rules,
    watch: &dyn Watch,
) -> Result<(S, Counts)> {
    rules.check()?;
    if inputs.is_empty() {
        return Err(DataError::NoInputs);
    }
    let chat = ChatFormat::new(tokenizer, rules)?;
    let mut counts = Counts::default();
    let files = walk::files(inputs, rules.line_bytes_max, &mut counts)?;
    watch.total(files.iter().map(|(path, _)| bytes_of(path)).sum());
    let mut loader = Loader {
        tokenizer,
        chat,
        rules,
        vocab: rules.vocab.unwrap_or_else(|| tokenizer.vocab_size()),
        watch,
        sink,
        counts,
        first_bad: None,
        names: HashSet::new(),
    };
    for (path, format) in files {
        loader.file(&path, format)?;
    }
    loader.finish()
}

/// Bytes of a file, for the progress bar alone.
fn bytes_of(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

struct Loader<'a, S> {
    tokenizer: &'a Tokenizer,
    chat: ChatFormat<'a>,
    rules: &'a Rules,
    /// Number of ids the model embeds.
    vocab: u32,
    watch: &'a dyn Watch,
    sink: S,
    counts: Counts,
    first_bad: Option<(Place, BadRecord)>,
    /// Digests of the ids that records had so far.
    names: HashSet<u64>,
}

impl<S: Sink> Loader<'_, S> {
    fn file(&mut self, path: &Path, format: Format) -> Result<()> {
        if self.counts.files >= u64::from(u32::MAX) {
            return Err(too_many(path, "files"));
        }
        self.counts.files += 1;
        self.sink.begin_file(path)?;
        let mut file = SourceFile::open(path, format, self.watch)?;
        match format {
            Format::JsonLines => self.json_lines(path, &mut file)?,
            Format::Plain => self.plain(path, &mut file)?,
        }
        self.sink.end_file(path, file.seen())
    }

    /// One record a line, blank lines apart.
    fn json_lines(&mut self, path: &Path, file: &mut SourceFile<'_>) -> Result<()> {
        let mut lines = Lines::new(BufReader::new(file), self.rules.line_bytes_max);
        loop {
            if self.watch.is_stopped() {
                return Err(DataError::Stopped);
            }
            let batch = lines
                .batch(BATCH_BYTES)
                .map_err(|e| DataError::io(path, e))?;
            if batch.is_empty() {
                return Ok(());
            }
            let reader = Reader {
                tokenizer: self.tokenizer,
                chat: &self.chat,
                loss_on: self.rules.loss_on,
            };
            // Read in parallel, taken up in order: threads change the time, never the result.
            let outcomes: Vec<_> = batch
                .into_par_iter()
                .map(|(number, line)| (number, reader.line(line)))
                .collect();
            for (number, outcome) in outcomes {
                let place = place_at(path, number)?;
                match outcome {
                    Line::Blank => self.counts.blank_lines += 1,
                    Line::Read(read) => self.accept(read, place)?,
                    Line::Bad(reason) => self.bad(place, reason)?,
                    Line::Failed(error) => return Err(self.encode_error(error, &place)),
                }
            }
        }
    }

    /// Plain text: every token bears loss, a sample is a chunk or the whole file.
    fn plain(&mut self, path: &Path, file: &mut SourceFile<'_>) -> Result<()> {
        let chunk_len = match self.rules.plain {
            PlainText::Chunks { tokens_max } => tokens_max as usize,
            PlainText::Whole => usize::MAX,
        };
        let mut blocks = Blocks::new(path, file);
        let mut chunk = Tokens::default();
        let mut chunk_line = 1;
        // Line of the token at hand.
        let mut line = 1;
        let mut tokens = 0_u64;
        while let Some(text) = blocks.next()? {
            if self.watch.is_stopped() {
                return Err(DataError::Stopped);
            }
            let place = place_at(path, line)?;
            let (ids, starts) = self
                .tokenizer
                .encode_with_offsets(text)
                .map_err(|error| self.encode_error(error, &place))?;
            let mut counted = 0;
            for (id, start) in ids.into_iter().zip(starts) {
                // A token may begin inside a character, or, after normalisation, before the last.
                let start = start.clamp(counted, text.len());
                line += newlines(&text.as_bytes()[counted..start]);
                counted = start;
                if chunk.ids.is_empty() {
                    chunk_line = line;
                }
                tokens += 1;
                chunk.extend([id], true);
                if chunk.ids.len() == chunk_len {
                    let place = place_at(path, chunk_line)?;
                    self.accept(Read::of(std::mem::take(&mut chunk)), place)?;
                }
            }
            line += newlines(&text.as_bytes()[counted..]);
        }
        // A full last chunk leaves nothing; a file without any token is an empty record.
        if !chunk.ids.is_empty() || tokens == 0 {
            let place = place_at(path, chunk_line)?;
            self.accept(Read::of(chunk), place)?;
        }
        Ok(())
    }

    /// Applies the rules to a record.
    fn accept(&mut self, read: Read, place: Place) -> Result<()> {
        let Read {
            mut tokens,
            name,
            answers_unlearned,
        } = read;
        if let Some(position) = tokens.ids.iter().position(|&id| id >= self.vocab) {
            let id = tokens.ids[position];
            return Err(DataError::TokenId {
                place,
                id,
                position,
                vocab: self.vocab,
            });
        }
        self.counts.loss_tokens += tokens.loss_tokens();
        self.count_answers(&tokens, answers_unlearned);
        self.count_name(name.as_deref());
        let max_len = self.rules.max_len as usize;
        let length = tokens.ids.len();
        let over_long = length > max_len;
        match self.rules.over_long {
            OverLong::Reject if over_long => {
                return Err(DataError::OverLong {
                    place,
                    tokens: length as u64,
                    max_len: self.rules.max_len,
                });
            }
            OverLong::Truncate if over_long => {
                tokens.ids.truncate(max_len);
                tokens.mask.truncate(max_len);
            }
            _ => {}
        }
        if let Some(reason) = self.drop_reason(&tokens) {
            self.counts.count_drop(reason);
            return self.sink.dropped(place.line, reason);
        }
        if self.counts.accepted >= u64::from(u32::MAX) {
            return Err(too_many(&place.path, "samples"));
        }
        self.counts.records += 1;
        self.counts.accepted += 1;
        self.counts.truncated += u64::from(over_long);
        self.counts.tokens_cut += (length - tokens.ids.len()) as u64;
        self.counts.loss_tokens_kept += tokens.loss_tokens();
        self.sink.sample(&tokens, place.line, name.as_deref())
    }

    fn count_answers(&mut self, tokens: &Tokens, unlearned: u64) {
        if unlearned == 0 {
            return;
        }
        if tokens.loss_tokens() == 0 {
            self.counts.hidden += 1;
        } else {
            self.counts.partly_learned += 1;
            self.counts.answers_unlearned += unlearned;
        }
    }

    fn count_name(&mut self, name: Option<&str>) {
        let Some(name) = name else { return };
        let mut digest = Digest::new();
        digest.add(name.as_bytes());
        self.counts.ids_repeated += u64::from(!self.names.insert(digest.finish()));
    }

    fn drop_reason(&self, tokens: &Tokens) -> Option<DropReason> {
        let loss_tokens = tokens.loss_tokens();
        if tokens.ids.is_empty() {
            Some(DropReason::Empty)
        } else if tokens.ids.len() > self.rules.max_len as usize {
            Some(DropReason::OverLong)
        } else if loss_tokens == 0 {
            Some(DropReason::AllMasked)
        } else if loss_tokens < u64::from(self.rules.min_loss_tokens) {
            Some(DropReason::TooFewLossTokens)
        } else {
            None
        }
    }

    fn bad(&mut self, mut place: Place, reason: BadRecord) -> Result<()> {
        place.column = reason.column();
        if self.rules.on_bad_line == OnBadLine::Stop {
            return Err(DataError::BadLine { place, reason });
        }
        self.counts.count_drop(DropReason::Bad);
        self.sink.dropped(place.line, DropReason::Bad)?;
        self.first_bad.get_or_insert((place, reason));
        Ok(())
    }

    fn finish(self) -> Result<(S, Counts)> {
        let counts = self.counts;
        assert!(
            counts.balanced(),
            "every record has exactly one outcome: {counts:?}"
        );
        if counts.accepted == 0 {
            return Err(DataError::no_samples(&counts, self.rules));
        }
        match self.first_bad {
            Some((place, reason)) if counts.bad_share() > self.rules.bad_share_max => {
                let (bad, records) = (counts.bad, counts.records);
                let limit = self.rules.bad_share_max;
                Err(DataError::TooManyBadLines {
                    bad,
                    records,
                    limit,
                    place,
                    reason,
                })
            }
            _ => Ok((self.sink, counts)),
        }
    }

    fn encode_error(&self, error: EncodeError, place: &Place) -> DataError {
        match error {
            EncodeError::NoChatToken { token } => {
                let path = self.tokenizer.path().unwrap_or(&place.path).to_path_buf();
                DataError::NoChatToken { path, token }
            }
            EncodeError::Failed(reason) => DataError::Encode {
                place: place.clone(),
                reason,
            },
        }
    }
}

/// Takes what the loader makes, in the order of the files and their lines.
pub(super) trait Sink {
    /// Samples and drops that follow are of this file, until the next.
    fn begin_file(&mut self, path: &Path) -> Result<()>;
    /// The file was read to its end.
    fn end_file(&mut self, path: &Path, seen: Seen) -> Result<()>;
    /// A record became a sample; its tokens are not empty.
    fn sample(&mut self, tokens: &Tokens, line: u32, name: Option<&str>) -> Result<()>;
    /// A record became none.
    fn dropped(&mut self, line: u32, reason: DropReason) -> Result<()>;
}

/// Bytes of lines that are in memory at once: enough to keep every core busy.
const BATCH_BYTES: usize = 8 << 20;

fn place_at(path: &Path, line: u64) -> Result<Place> {
    let line = u32::try_from(line).map_err(|_| too_many(path, "lines"))?;
    Ok(Place {
        path: path.to_path_buf(),
        line,
        column: None,
    })
}

fn newlines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
}

fn too_many(path: &Path, what: &'static str) -> DataError {
    DataError::TooMany {
        path: path.to_path_buf(),
        what,
        limit: u32::MAX,
    }
}
