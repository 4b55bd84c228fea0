//! Real bytes that stand for hidden states.

use crate::backend::WorkError;
use shared::id::{Bytes, MicrobatchId};

/// Bytes that only the forward of one microbatch makes, so that a payload that is wrong, mixed up or damaged is noticed.
#[derive(Debug)]
pub struct Payload {
    microbatch: MicrobatchId,
    words: Vec<u64>,
}

impl Payload {
    /// What a forward over `microbatch` makes, `bytes` large to the next whole word.
    pub(super) fn make(microbatch: MicrobatchId, bytes: Bytes) -> Self {
        let count = words_of(bytes);
        let page = page_of(microbatch);
        let mut words = Vec::with_capacity(count);
        while words.len() < count {
            let at = words.len();
            words.extend_from_slice(&page[..PAGE.min(count - at)]);
            words[at] = word(microbatch, at);
        }
        Self { microbatch, words }
    }

    /// A copy, byte by byte.
    pub(super) fn copied(&self) -> Self {
        Self {
            microbatch: self.microbatch,
            words: self.words.clone(),
        }
    }

    /// Whether this is what the forward over `microbatch` made.
    pub(super) fn verify(&self, microbatch: MicrobatchId, bytes: Bytes) -> Result<(), WorkError> {
        let found = (self.microbatch, self.words.len());
        let expected = (microbatch, words_of(bytes));
        if found != expected {
            return Err(WorkError::Fatal(format!(
                "the payload is {} words of {}, not {} words of {}",
                found.1, found.0, expected.1, expected.0
            )));
        }
        let page = page_of(microbatch);
        let is_damaged = |(number, words): &(usize, &[u64])| {
            words[0] != word(microbatch, number * PAGE) || words[1..] != page[1..words.len()]
        };
        match self.words.chunks(PAGE).enumerate().find(is_damaged) {
            None => Ok(()),
            Some((number, _)) => Err(WorkError::Fatal(format!(
                "the payload of {microbatch} is damaged in page {number} of {PAGE} words"
            ))),
        }
    }
}

/// Words of a page. Pages of one payload are alike but for their first word, so that they are made, copied and compared at the speed
/// of memory.
const PAGE: usize = 512;

fn words_of(bytes: Bytes) -> usize {
    bytes.0.div_ceil(size_of::<u64>() as u64).max(1) as usize
}

fn page_of(microbatch: MicrobatchId) -> [u64; PAGE] {
    [word(microbatch, usize::MAX); PAGE]
}

/// A word that says whose and where it is.
fn word(microbatch: MicrobatchId, at: usize) -> u64 {
    ((u64::from(microbatch.0) << 32) ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_verified_and_a_wrong_or_damaged_one_is_not() {
        let bytes = Bytes(5_000);
        let mut copy = Payload::make(MicrobatchId(3), bytes).copied();
        assert_eq!(copy.verify(MicrobatchId(3), bytes), Ok(()));
        let wrong = copy.verify(MicrobatchId(4), bytes).unwrap_err();
        assert_eq!(
            wrong.to_string(),
            "the payload is 625 words of m3, not 625 words of m4"
        );
        copy.words[600] ^= 1;
        let damaged = copy.verify(MicrobatchId(3), bytes).unwrap_err();
        assert_eq!(
            damaged.to_string(),
            "the payload of m3 is damaged in page 1 of 512 words"
        );
    }
}
