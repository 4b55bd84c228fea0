//! Reads files and applies the rules to every record.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::bad_record::BadRecord;
use super::blocks::Blocks;
use super::chat::Tokens;
use super::counts::{Counts, DropReason};
use super::dataset::Dataset;
use super::error::{DataError, Place, Result};
use super::lines::Lines;
use super::record::Record;
use super::rules::{OnBadLine, OverLong, PlainText, Rules};
use super::tokenizer::{EncodeError, Tokenizer};
use super::walk::{self, Format};

/// Reads `inputs` (files and folders) in order and makes a sample of every record that meets
/// `rules`.
///
/// The result depends on the contents, their order and the arguments alone.
///
/// # Errors
/// The rules contradict each other, a path cannot be read, a record is refused (see [`Rules`]), or
/// no sample is left.
pub fn load(inputs: &[PathBuf], tokenizer: &Tokenizer, rules: &Rules) -> Result<Dataset> {
    rules.check()?;
    if inputs.is_empty() {
        return Err(DataError::NoInputs);
    }
    let mut counts = Counts::default();
    let files = walk::files(inputs, rules.line_bytes_max, &mut counts)?;
    let mut loader = Loader::new(tokenizer, rules, counts);
    for (path, format) in files {
        loader.file(&path, format)?;
    }
    loader.finish()
}

struct Loader<'a> {
    tokenizer: &'a Tokenizer,
    rules: &'a Rules,
    /// Number of ids the model embeds.
    vocab: u32,
    dataset: Dataset,
    first_bad: Option<(Place, BadRecord)>,
}

impl<'a> Loader<'a> {
    fn new(tokenizer: &'a Tokenizer, rules: &'a Rules, counts: Counts) -> Self {
        let mut dataset = Dataset::new();
        *dataset.counts_mut() = counts;
        let vocab = rules.vocab.unwrap_or_else(|| tokenizer.vocab_size());
        Self {
            tokenizer,
            rules,
            vocab,
            dataset,
            first_bad: None,
        }
    }

    fn file(&mut self, path: &Path, format: Format) -> Result<()> {
        self.dataset.add_file(path)?;
        match format {
            Format::JsonLines => self.json_lines(path),
            Format::Plain => self.plain(path),
        }
    }

    /// One record a line, blank lines apart.
    fn json_lines(&mut self, path: &Path) -> Result<()> {
        let file = File::open(path).map_err(|e| DataError::io(path, e))?;
        let mut lines = Lines::new(BufReader::new(file), self.rules.line_bytes_max);
        loop {
            let batch = lines
                .batch(BATCH_BYTES)
                .map_err(|e| DataError::io(path, e))?;
            if batch.is_empty() {
                return Ok(());
            }
            // Read in parallel, taken up in order: threads change the time, never the result.
            let outcomes: Vec<_> = batch
                .into_par_iter()
                .map(|(number, line)| (number, read_line(line, self.tokenizer)))
                .collect();
            for (number, outcome) in outcomes {
                let place = place_at(path, number)?;
                match outcome {
                    Line::Blank => self.dataset.counts_mut().blank_lines += 1,
                    Line::Tokens(tokens) => self.accept(tokens, place)?,
                    Line::Bad(reason) => self.bad(place, reason)?,
                    Line::Failed(error) => return Err(self.encode_error(error, &place)),
                }
            }
        }
    }

    /// Plain text: every token bears loss, a sample is a chunk or the whole file.
    fn plain(&mut self, path: &Path) -> Result<()> {
        let chunk_len = match self.rules.plain {
            PlainText::Chunks { tokens_max } => tokens_max as usize,
            PlainText::Whole => usize::MAX,
        };
        let file = File::open(path).map_err(|e| DataError::io(path, e))?;
        let mut blocks = Blocks::new(path, file);
        let mut chunk = Tokens::default();
        let mut chunk_line = 1;
        // Line of the token at hand.
        let mut line = 1;
        let mut tokens = 0_u64;
        while let Some(text) = blocks.next()? {
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
                    self.accept(std::mem::take(&mut chunk), place)?;
                }
            }
            line += newlines(&text.as_bytes()[counted..]);
        }
        // A full last chunk leaves nothing; a file without any token is an empty record.
        if !chunk.ids.is_empty() || tokens == 0 {
            let place = place_at(path, chunk_line)?;
            self.accept(chunk, place)?;
        }
        Ok(())
    }

    /// Applies the rules to a record's tokens.
    fn accept(&mut self, mut tokens: Tokens, place: Place) -> Result<()> {
        if let Some(position) = tokens.ids.iter().position(|&id| id >= self.vocab) {
            let id = tokens.ids[position];
            return Err(DataError::TokenId {
                place,
                id,
                position,
                vocab: self.vocab,
            });
        }
        let max_len = self.rules.max_len as usize;
        let over_long = tokens.ids.len() > max_len;
        match self.rules.over_long {
            OverLong::Reject if over_long => {
                let tokens = tokens.ids.len() as u64;
                return Err(DataError::OverLong {
                    place,
                    tokens,
                    max_len: self.rules.max_len,
                });
            }
            OverLong::Truncate if over_long => {
                tokens.ids.truncate(max_len);
                tokens.mask.truncate(max_len);
            }
            _ => {}
        }
        match self.drop_reason(&tokens) {
            Some(reason) => self.dataset.drop_record(place.line, reason),
            None => self.dataset.accept(&tokens, place.line, over_long)?,
        }
        Ok(())
    }

    fn drop_reason(&self, tokens: &Tokens) -> Option<DropReason> {
        let loss_tokens: u64 = tokens.mask.iter().map(|&flag| u64::from(flag)).sum();
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
        self.dataset.drop_record(place.line, DropReason::Bad);
        self.first_bad.get_or_insert((place, reason));
        Ok(())
    }

    fn finish(self) -> Result<Dataset> {
        let counts = self.dataset.counts();
        assert!(
            counts.balanced(),
            "every record has exactly one outcome: {counts:?}"
        );
        if self.dataset.is_empty() {
            return Err(DataError::no_samples(counts, self.rules));
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
            _ => Ok(self.dataset),
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

/// What a line of JSONL turned out to be.
enum Line {
    Blank,
    Tokens(Tokens),
    Bad(BadRecord),
    Failed(EncodeError),
}

/// Chat and text go through the tokenizer, ids are taken as they are.
fn read_line(line: Result<String, BadRecord>, tokenizer: &Tokenizer) -> Line {
    let record = match line {
        Ok(line) if line.trim().is_empty() => return Line::Blank,
        Ok(line) => Record::parse(&line),
        Err(reason) => Err(reason),
    };
    let tokens = match record {
        Ok(Record::Tokens(tokens)) => Ok(tokens),
        Ok(Record::Chat(messages)) => tokenizer.encode_chat(&messages),
        Ok(Record::Text(text)) => tokenizer.encode(&text).map(|ids| Tokens {
            mask: vec![1; ids.len()],
            ids,
        }),
        Err(reason) => return Line::Bad(reason),
    };
    tokens.map_or_else(Line::Failed, Line::Tokens)
}

/// Bytes of lines that are in memory at once: enough to keep every core busy.
const BATCH_BYTES: usize = 8 << 20;

fn place_at(path: &Path, line: u64) -> Result<Place> {
    let line = u32::try_from(line).map_err(|_| DataError::TooMany {
        path: path.to_path_buf(),
        what: "lines",
        limit: u32::MAX,
    })?;
    Ok(Place {
        path: path.to_path_buf(),
        line,
        column: None,
    })
}

fn newlines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
}
