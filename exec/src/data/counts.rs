//! How many records became samples, and what happened to the others.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Tally of one load; every record read is in exactly one of the outcomes.
///
/// Invariant: `records` = `accepted` + `bad` + `empty` + `all_masked` + `too_few_loss_tokens` +
/// `over_long` (see [`Counts::balanced`]).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Records read: non-blank JSONL lines and pieces of plain text.
    pub records: u64,
    /// Records that became samples.
    pub accepted: u64,
    /// Samples among the accepted that were cut to `max_len`.
    pub truncated: u64,
    /// Lines that are no record.
    pub bad: u64,
    /// Records without a token.
    pub empty: u64,
    /// Records in which no token bears loss.
    pub all_masked: u64,
    /// Records with some, but fewer than `min_loss_tokens`, loss-bearing tokens.
    pub too_few_loss_tokens: u64,
    /// Records above `max_len` that were left out.
    pub over_long: u64,
    /// Records of which the template shows no answer as the model would give it; among `all_masked`.
    pub hidden: u64,
    /// Records in which some answers bear no loss, since the template rewrites them when later turns come.
    pub partly_learned: u64,
    /// Answers without loss in those records.
    pub answers_unlearned: u64,
    /// Records whose `id` an earlier one has; they are samples like any other.
    pub ids_repeated: u64,
    /// Tokens cut off to meet `max_len`.
    pub tokens_cut: u64,
    /// Loss-bearing tokens of all records, before any rule.
    pub loss_tokens: u64,
    /// Loss-bearing tokens of the samples.
    pub loss_tokens_kept: u64,
    /// Blank lines of JSONL files, which are no records.
    pub blank_lines: u64,
    /// Files read.
    pub files: u64,
    /// Hidden files and folders passed over in folders.
    pub files_hidden: u64,
    /// Files in folders that are not UTF-8 text.
    pub files_binary: u64,
    /// `.json` files in folders that do not hold one record a line.
    pub files_json: u64,
    /// Links to folders, pipes, sockets and devices passed over in folders.
    pub files_special: u64,
}

impl Counts {
    /// Whether every record has exactly one outcome.
    pub fn balanced(&self) -> bool {
        self.records == self.accepted + self.dropped()
    }

    /// Records that became no sample.
    pub fn dropped(&self) -> u64 {
        self.bad + self.empty + self.all_masked + self.too_few_loss_tokens + self.over_long
    }

    /// Share of the loss-bearing tokens that reach training, from 0 to 1.
    pub fn loss_kept_share(&self) -> f64 {
        if self.loss_tokens == 0 {
            1.0
        } else {
            self.loss_tokens_kept as f64 / self.loss_tokens as f64
        }
    }

    /// Whether anything was left out, cut or found odd that the user should hear of.
    pub fn is_notable(&self) -> bool {
        self.dropped() + self.truncated + self.partly_learned + self.ids_repeated > 0
    }

    /// Counts one record that became no sample.
    pub(super) fn count_drop(&mut self, reason: DropReason) {
        self.records += 1;
        match reason {
            DropReason::Bad => self.bad += 1,
            DropReason::Empty => self.empty += 1,
            DropReason::AllMasked => self.all_masked += 1,
            DropReason::TooFewLossTokens => self.too_few_loss_tokens += 1,
            DropReason::OverLong => self.over_long += 1,
        }
    }

    /// Share of the records that are bad lines, from 0 to 1.
    pub fn bad_share(&self) -> f64 {
        if self.records == 0 {
            0.0
        } else {
            self.bad as f64 / self.records as f64
        }
    }

    /// Files in folders that were passed over because of what they hold.
    pub(super) fn files_not_text(&self) -> u64 {
        self.files_binary + self.files_json
    }
}

impl fmt::Display for Counts {
    /// One line: files, records, samples, then every outcome that occurred.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} files, {} records, {} samples",
            self.files, self.records, self.accepted
        )?;
        for (count, what) in [
            (self.truncated, "truncated"),
            (self.bad, "bad"),
            (self.empty, "empty"),
            (self.all_masked, "without a loss token"),
            (self.too_few_loss_tokens, "with too few loss tokens"),
            (self.over_long, "over max_len"),
            (self.tokens_cut, "tokens cut off"),
            (
                self.partly_learned,
                "with answers that the template rewrites",
            ),
            (self.answers_unlearned, "such answers without loss"),
            (self.ids_repeated, "with the id of an earlier one"),
            (self.files_hidden, "hidden files skipped"),
            (self.files_binary, "binary files skipped"),
            (self.files_json, "json files without records skipped"),
            (self.files_special, "special files skipped"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        if self.accepted > 0 && self.loss_tokens_kept < self.loss_tokens {
            let percent = 100.0 * self.loss_kept_share();
            let of = self.loss_tokens;
            write!(f, ", {percent:.2} % of {of} loss tokens kept")?;
        }
        Ok(())
    }
}

/// Why a record became no sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// The line is no record.
    Bad,
    /// It has no token.
    Empty,
    /// No token bears loss.
    AllMasked,
    /// Fewer than `min_loss_tokens` tokens bear loss.
    TooFewLossTokens,
    /// It has more than `max_len` tokens.
    OverLong,
}

impl DropReason {
    /// All reasons, in the order of their numbers in a token store.
    pub(super) const ALL: [Self; 5] = [
        Self::Bad,
        Self::Empty,
        Self::AllMasked,
        Self::TooFewLossTokens,
        Self::OverLong,
    ];

    /// The name reports print.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bad => "bad",
            Self::Empty => "empty",
            Self::AllMasked => "all_masked",
            Self::TooFewLossTokens => "too_few_loss_tokens",
            Self::OverLong => "over_long",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_names_only_what_occurred() {
        let counts = Counts {
            files: 1,
            records: 3,
            accepted: 1,
            bad: 2,
            ..Counts::default()
        };
        assert_eq!(counts.to_string(), "1 files, 3 records, 1 samples, 2 bad");
        assert!(counts.balanced());
        assert!((counts.bad_share() - 2.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn a_lost_record_unbalances_the_tally() {
        assert!(
            !Counts {
                records: 2,
                accepted: 1,
                ..Counts::default()
            }
            .balanced()
        );
    }
}
