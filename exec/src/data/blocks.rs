//! A text file in blocks that end at a line end wherever there is one, so that a file of any size
//! can be tokenised in bounded memory.

use std::io::Read;
use std::path::Path;

use super::error::{DataError, Result};
use super::lines::BYTE_ORDER_MARK;

/// Reads blocks of at most [`BLOCK_BYTES`].
pub(super) struct Blocks<'a, R> {
    path: &'a Path,
    reader: R,
    bytes_max: usize,
    buffer: Vec<u8>,
    /// Bytes at the front of `buffer` that were handed out.
    used: usize,
    /// Offset of `buffer` in the file.
    offset: u64,
}

/// Enough for a tokenizer to see words whole, little enough to hold many offsets.
pub(super) const BLOCK_BYTES: usize = 64 << 10;

impl<'a, R: Read> Blocks<'a, R> {
    /// Blocks of what `reader` gives; `path` is for messages.
    pub(super) fn new(path: &'a Path, reader: R) -> Self {
        Self {
            path,
            reader,
            bytes_max: BLOCK_BYTES,
            buffer: Vec::new(),
            used: 0,
            offset: 0,
        }
    }

    /// The next block, never empty.
    ///
    /// # Errors
    /// The read failed, or the bytes are no text: not UTF-8, or with a NUL.
    pub(super) fn next(&mut self) -> Result<Option<&str>> {
        self.buffer.drain(..self.used);
        self.offset += self.used as u64;
        let missing = (self.bytes_max - self.buffer.len()) as u64;
        let read = self
            .reader
            .by_ref()
            .take(missing)
            .read_to_end(&mut self.buffer);
        read.map_err(|e| DataError::io(self.path, e))?;
        if self.offset == 0 && self.buffer.starts_with(BYTE_ORDER_MARK) {
            self.buffer.drain(..BYTE_ORDER_MARK.len());
            self.offset = BYTE_ORDER_MARK.len() as u64;
        }
        self.used = self.cut();
        let block = &self.buffer[..self.used];
        let not_text = |byte: usize| DataError::NotText {
            path: self.path.to_path_buf(),
            byte: self.offset + byte as u64,
        };
        let text = std::str::from_utf8(block).map_err(|error| not_text(error.valid_up_to()))?;
        if let Some(byte) = text.find('\0') {
            return Err(not_text(byte));
        }
        Ok((!text.is_empty()).then_some(text))
    }

    /// Where to end the block: after the last line end, else between two characters.
    fn cut(&self) -> usize {
        let all = self.buffer.len();
        if all < self.bytes_max - BYTE_ORDER_MARK.len() {
            return all;
        }
        if let Some(newline) = self.buffer.iter().rposition(|&byte| byte == b'\n') {
            return newline + 1;
        }
        match std::str::from_utf8(&self.buffer) {
            Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => {
                error.valid_up_to()
            }
            _ => all,
        }
    }
}

/// Whether the whole file is text.
///
/// # Errors
/// The file cannot be read.
pub(super) fn is_text(path: &Path) -> Result<bool> {
    let file = std::fs::File::open(path).map_err(|e| DataError::io(path, e))?;
    let mut blocks = Blocks::new(path, file);
    loop {
        match blocks.next() {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(true),
            Err(DataError::NotText { .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8], bytes_max: usize) -> Result<Vec<String>> {
        let mut blocks = Blocks {
            bytes_max,
            ..Blocks::new(Path::new("f"), bytes)
        };
        let mut seen = Vec::new();
        while let Some(block) = blocks.next()? {
            seen.push(block.to_owned());
        }
        Ok(seen)
    }

    #[test]
    fn blocks_end_at_line_ends_and_lose_nothing() {
        let text = "first line\nsecond\nthird is longer than a block of sixteen\nend";
        let blocks = all(text.as_bytes(), 16).expect("text");
        assert_eq!(blocks[..2], ["first line\n", "second\n"]);
        assert_eq!(blocks.concat(), text);
        assert!(blocks.iter().all(|block| block.len() <= 16));
    }

    #[test]
    fn characters_are_never_cut() {
        for bytes_max in 7..12 {
            assert_eq!(
                all("日本語日本語日本語".as_bytes(), bytes_max)
                    .expect("text")
                    .concat(),
                "日本語日本語日本語"
            );
        }
    }

    #[test]
    fn the_byte_order_mark_is_no_text() {
        assert_eq!(all(b"\xEF\xBB\xBFab", 16).expect("text"), ["ab"]);
        assert!(all(b"\xEF\xBB\xBF", 16).expect("text").is_empty());
    }

    #[test]
    fn the_offset_of_what_is_no_text_is_named() {
        let error = all(b"0123456789\n0123456789\n01\xFF", 16).expect_err("no UTF-8");
        let way_out = "decompress it, or convert it to JSONL or UTF-8 text";
        assert_eq!(
            error.to_string(),
            format!("f: not UTF-8 text at byte 24: {way_out}")
        );
        let error = all(b"ab\0c", 16).expect_err("a NUL");
        assert_eq!(
            error.to_string(),
            format!("f: not UTF-8 text at byte 2: {way_out}")
        );
        // A character that the file's end cuts off.
        let error = all(b"ab\xE6\x97", 16).expect_err("half a character");
        assert_eq!(
            error.to_string(),
            format!("f: not UTF-8 text at byte 2: {way_out}")
        );
    }
}
