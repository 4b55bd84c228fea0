//! A microbatch of token rows.

use super::ModelError;

/// One training sequence, as slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample<'a> {
    /// Tokens.
    pub input_ids: &'a [u32],
    /// True on tokens that bear loss; as long as `input_ids`.
    pub loss_mask: &'a [bool],
}

/// Samples right-padded to one length: B rows of S tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaddedBatch {
    /// Tokens [B, S]; token 0 stands at pads.
    pub input_ids: Vec<Vec<u32>>,
    /// Tokens of each row that are not padding.
    pub lengths: Vec<usize>,
    /// True on tokens that bear loss [B, S]; false at pads.
    pub loss_mask: Vec<Vec<bool>>,
}

impl PaddedBatch {
    /// Pads `samples` to `padded_tokens` a row.
    ///
    /// Errors: no samples, an empty or too long sample, a mask of another length.
    pub fn new(samples: &[Sample<'_>], padded_tokens: usize) -> Result<Self, ModelError> {
        if samples.is_empty() {
            let problem = "the batch has no rows; give it at least one sample".to_owned();
            return Err(ModelError::Batch { row: 0, problem });
        }
        for (row, sample) in samples.iter().enumerate() {
            let (tokens, mask) = (sample.input_ids.len(), sample.loss_mask.len());
            let problem = if tokens == 0 {
                "the sample has no tokens; leave it out".to_owned()
            } else if tokens > padded_tokens {
                format!("{tokens} tokens do not fit into {padded_tokens}; truncate or pad longer")
            } else if mask != tokens {
                format!("loss mask of {mask} entries for {tokens} tokens")
            } else {
                continue;
            };
            return Err(ModelError::Batch { row, problem });
        }
        Ok(Self {
            input_ids: samples
                .iter()
                .map(|s| padded(s.input_ids, padded_tokens))
                .collect(),
            lengths: samples.iter().map(|s| s.input_ids.len()).collect(),
            loss_mask: samples
                .iter()
                .map(|s| padded(s.loss_mask, padded_tokens))
                .collect(),
        })
    }

    /// Rows (B).
    pub fn rows(&self) -> usize {
        self.input_ids.len()
    }

    /// Tokens a row, padding included (S).
    pub fn padded_tokens(&self) -> usize {
        self.input_ids.first().map_or(0, Vec::len)
    }

    /// Tokens that are not padding, over all rows.
    pub fn real_tokens(&self) -> usize {
        self.lengths.iter().sum()
    }
}

fn padded<T: Copy + Default>(values: &[T], length: usize) -> Vec<T> {
    let mut row = values.to_vec();
    row.resize(length, T::default());
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_padded_on_the_right_and_bear_no_loss_there() {
        let sample = Sample {
            input_ids: &[5, 6],
            loss_mask: &[false, true],
        };
        let batch = PaddedBatch::new(&[sample], 4).unwrap();
        assert_eq!(batch.input_ids, [[5, 6, 0, 0]]);
        assert_eq!(batch.loss_mask, [[false, true, false, false]]);
        assert_eq!(
            (batch.rows(), batch.padded_tokens(), batch.real_tokens()),
            (1, 4, 2)
        );
    }

    #[test]
    fn rows_that_do_not_fit_are_named() {
        let good = Sample {
            input_ids: &[1],
            loss_mask: &[true],
        };
        let long = Sample {
            input_ids: &[1, 2, 3],
            loss_mask: &[true; 3],
        };
        let error = PaddedBatch::new(&[good, long], 2).unwrap_err().to_string();
        assert_eq!(
            error,
            "batch row 1: 3 tokens do not fit into 2; truncate or pad longer"
        );
        assert!(PaddedBatch::new(&[], 2).is_err());
    }
}
