//! Drafting without a model: what followed the last time.

use candle_core::Tensor;

use super::drafting::Proposer;
use crate::model::ModelError;

/// Longest suffix that is looked up, in tokens.
pub const MATCH_MAX: usize = 8;

/// Prompt lookup (Saxena 2023): the longest suffix of the text, of at most [`MATCH_MAX`] tokens,
/// that occurs before, most recently; drafts what followed it there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ngram {
    /// Tokens drafted a round.
    pub drafts: usize,
}

impl Proposer for Ngram {
    fn propose(&mut self, known: &[u32]) -> Result<Vec<u32>, ModelError> {
        let Some(mut next) = continuation(known) else {
            return Ok(Vec::new());
        };
        // The copy may run into itself: text of a short period then goes on with that period.
        let mut text = known.to_vec();
        for _ in 0..self.drafts {
            text.push(text[next]);
            next += 1;
        }
        Ok(text.split_off(known.len()))
    }

    fn accept(&mut self, _: &Tensor) -> Result<(), ModelError> {
        Ok(())
    }
}

/// Where the text goes on behind the most recent occurrence of its longest repeated suffix.
fn continuation(known: &[u32]) -> Option<usize> {
    let longest = MATCH_MAX.min(known.len().saturating_sub(1));
    (1..=longest).rev().find_map(|n| {
        let suffix = &known[known.len() - n..];
        let before = &known[..known.len() - 1];
        let found = before.windows(n).rposition(|window| window == suffix)?;
        Some(found + n)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drafts(known: &[u32]) -> Vec<u32> {
        Ngram { drafts: 4 }.propose(known).unwrap()
    }

    #[test]
    fn periodic_text_goes_on_with_its_period() {
        assert_eq!(drafts(&[1, 2, 3, 1, 2, 3, 1]), [2, 3, 1, 2]);
        assert_eq!(drafts(&[7, 7]), [7, 7, 7, 7]);
    }

    #[test]
    fn the_longest_suffix_wins_and_of_equals_the_most_recent() {
        // "2 3" was followed by 4, the more recent "3" alone by 9.
        assert_eq!(drafts(&[2, 3, 4, 5, 3, 9, 2, 3])[..2], [4, 5]);
        assert_eq!(drafts(&[3, 4, 3, 5, 8, 3])[..2], [5, 8]);
    }

    #[test]
    fn new_text_gets_no_drafts() {
        assert!(drafts(&[1, 2, 3]).is_empty());
        assert!(drafts(&[1]).is_empty());
        assert!(drafts(&[]).is_empty());
    }

    #[test]
    fn suffixes_longer_than_the_limit_are_not_looked_for() {
        // The last 9 tokens occur at the start, the last 8 of them also later.
        let long: Vec<u32> = (10..19).collect();
        let text = [&long[..], &[1], &long[1..], &[2], &long[..]].concat();
        assert_eq!(drafts(&text)[..2], [2, 10]);
    }
}
