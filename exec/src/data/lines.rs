//! The lines of a JSONL file, one in memory at a time.

use std::io::{self, BufRead, Read};

use super::bad_record::BadRecord;

/// Reads lines; a byte order mark, CRLF and a missing final newline are accepted.
pub(super) struct Lines<R> {
    reader: R,
    bytes_max: usize,
    number: u64,
    buffer: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    /// Lines of at most `bytes_max` bytes.
    pub(super) fn new(reader: R, bytes_max: usize) -> Self {
        Self {
            reader,
            bytes_max,
            number: 0,
            buffer: Vec::new(),
        }
    }

    /// The next line without its end, and its number from 1.
    ///
    /// A line that is too long is read past in pieces, so that the one after it can be read.
    pub(super) fn next(&mut self) -> io::Result<Option<(u64, Result<&str, BadRecord>)>> {
        self.buffer.clear();
        let limit = u64::try_from(self.bytes_max)
            .unwrap_or(u64::MAX)
            .saturating_add(1);
        self.reader
            .by_ref()
            .take(limit)
            .read_until(b'\n', &mut self.buffer)?;
        if self.buffer.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        if self.buffer.last() != Some(&b'\n') && self.buffer.len() > self.bytes_max {
            self.reader.skip_until(b'\n')?;
            return Ok(Some((
                self.number,
                Err(BadRecord::TooLong {
                    limit: self.bytes_max,
                }),
            )));
        }
        let mut line = self.buffer.as_slice();
        line = line.strip_suffix(b"\n").unwrap_or(line);
        line = line.strip_suffix(b"\r").unwrap_or(line);
        if self.number == 1 {
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        let text = std::str::from_utf8(line).map_err(|error| BadRecord::NotUtf8 {
            column: error.valid_up_to() + 1,
        });
        Ok(Some((self.number, text)))
    }

    /// The next lines, at least one and until they hold `bytes` bytes; none at the end of the file.
    pub(super) fn batch(
        &mut self,
        bytes: usize,
    ) -> io::Result<Vec<(u64, Result<String, BadRecord>)>> {
        let mut batch = Vec::new();
        let mut held = 0;
        while held < bytes {
            let Some((number, line)) = self.next()? else {
                break;
            };
            // A blank line takes memory too.
            held += 1 + line.as_ref().map_or(0, |line| line.len());
            batch.push((number, line.map(str::to_owned)));
        }
        Ok(batch)
    }
}

/// What some editors put before UTF-8 text.
pub(super) const BYTE_ORDER_MARK: &[u8] = "\u{FEFF}".as_bytes();

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8], bytes_max: usize) -> Vec<(u64, Result<String, BadRecord>)> {
        let mut lines = Lines::new(bytes, bytes_max);
        let mut seen = Vec::new();
        while let Some((number, line)) = lines.next().expect("memory never fails") {
            seen.push((number, line.map(str::to_owned)));
        }
        seen
    }

    #[test]
    fn mark_crlf_and_missing_final_newline_are_accepted() {
        let seen = all(b"\xEF\xBB\xBFone\r\n\ntwo", 99);
        let text = ["one", "", "two"].map(|line| Ok(line.to_owned()));
        assert_eq!(seen, (1..).zip(text).collect::<Vec<_>>());
        assert_eq!(all(b"", 99), []);
    }

    #[test]
    fn batches_end_at_their_size_and_lose_nothing() {
        let mut lines = Lines::new(&b"abc\nde\nf\n\ng"[..], 99);
        let mut sizes = Vec::new();
        let mut numbers = Vec::new();
        loop {
            let batch = lines.batch(6).expect("memory never fails");
            if batch.is_empty() {
                break;
            }
            sizes.push(batch.len());
            numbers.extend(batch.into_iter().map(|(number, _)| number));
        }
        assert_eq!((sizes, numbers), (vec![2, 3], vec![1, 2, 3, 4, 5]));
    }

    #[test]
    fn a_long_line_is_passed_over_and_the_next_one_read() {
        let too_long = Err(BadRecord::TooLong { limit: 3 });
        assert_eq!(
            all(b"abc\nabcd\nef", 3),
            [
                (1, Ok("abc".into())),
                (2, too_long.clone()),
                (3, Ok("ef".into()))
            ]
        );
        assert_eq!(all(b"abcdefgh", 3), [(1, too_long)]);
    }

    #[test]
    fn bytes_that_are_no_text_give_their_column() {
        assert_eq!(
            all(b"ok\nab\xFFc\n", 99)[1],
            (2, Err(BadRecord::NotUtf8 { column: 3 }))
        );
    }
}
