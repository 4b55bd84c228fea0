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
        let words = bytes.0.div_ceil(WORD).max(1);
        Self {
            microbatch,
            words: (0..words).map(|index| word(microbatch, index)).collect(),
        }
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
        let found = (self.microbatch, self.words.len() as u64);
        let expected = (microbatch, bytes.0.div_ceil(WORD).max(1));
        if found != expected {
            return Err(WorkError::Fatal(format!(
                "the payload is {} words of {}, not {} words of {}",
                found.1, found.0, expected.1, expected.0
            )));
        }
        let mut words = (0..).zip(&self.words);
        match words.find(|(index, found)| **found != word(microbatch, *index)) {
            None => Ok(()),
            Some((index, _)) => Err(WorkError::Fatal(format!(
                "the payload of {microbatch} is damaged at byte {}",
                index * WORD
            ))),
        }
    }
}

const WORD: u64 = size_of::<u64>() as u64;

/// Weyl sequence keyed by the microbatch: one multiplication a word, and no two words of a run alike.
fn word(microbatch: MicrobatchId, index: u64) -> u64 {
    (u64::from(microbatch.0) << 40 | index).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_verified_and_a_wrong_or_damaged_one_is_not() {
        let bytes = Bytes(100);
        let mut copy = Payload::make(MicrobatchId(3), bytes).copied();
        assert_eq!(copy.verify(MicrobatchId(3), bytes), Ok(()));
        let wrong = copy.verify(MicrobatchId(4), bytes).unwrap_err();
        assert_eq!(
            wrong.to_string(),
            "the payload is 13 words of m3, not 13 words of m4"
        );
        copy.words[5] ^= 1;
        let damaged = copy.verify(MicrobatchId(3), bytes).unwrap_err();
        assert_eq!(
            damaged.to_string(),
            "the payload of m3 is damaged at byte 40"
        );
    }
}
