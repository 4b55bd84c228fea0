//! Formations whose microbatches are given instead of formed.

use super::form::hidden_states;
use super::{Edges, FormError, Formation, Microbatch};
use crate::id::{BucketId, Bytes, SampleId, Tokens};

impl Formation {
    /// A formation of microbatches that are given directly, as synthetic workloads do, in the order given.
    ///
    /// Keys become their places in the list. Sample ids are made up: they count from 0 in each epoch, as many as the ranges hold.
    /// Ranges may all be empty, for work whose samples do not matter.
    ///
    /// # Errors
    /// When there are none, a bucket has no edge, an epoch goes back, or a range does not begin where the one before ended.
    pub fn from_microbatches(
        mut microbatches: Vec<Microbatch>,
        edges: Edges,
    ) -> Result<Self, FormError> {
        let Some(last) = microbatches.last() else {
            return Err(FormError::NoSamples);
        };
        let Some(epochs) = last.epoch.checked_add(1) else {
            return Err(bad(
                microbatches.len() - 1,
                "is of epoch 65535",
                "number epochs from 0",
            ));
        };
        if microbatches.len() > u32::MAX as usize {
            let samples = microbatches.len() as u64;
            return Err(FormError::TooManySamples { samples, epochs });
        }
        let (mut end, mut epoch, mut id) = (0, 0, 0);
        let mut samples = Vec::new();
        for (row, microbatch) in microbatches.iter_mut().enumerate() {
            if microbatch.bucket.index() >= edges.len() {
                return Err(bad(
                    row,
                    "is of a bucket that has no edge",
                    "give an edge a bucket",
                ));
            }
            if microbatch.epoch < epoch {
                let remedy = "give microbatches epoch by epoch";
                return Err(bad(row, "is of an epoch before its predecessor's", remedy));
            }
            let range = &microbatch.samples;
            if range.start != end || range.end < end {
                let remedy = "lay ranges end to end, from 0";
                return Err(bad(row, "does not begin where the one before ends", remedy));
            }
            if microbatch.epoch > epoch {
                id = 0;
            }
            samples.extend((id..id + microbatch.sample_count()).map(SampleId));
            id += microbatch.sample_count();
            (end, epoch) = (range.end, microbatch.epoch);
            microbatch.key = row as u32;
        }
        Ok(Self {
            samples,
            microbatches,
            edges,
            epochs,
            over_long: Vec::new(),
        })
    }
}

fn bad(row: usize, fault: &'static str, remedy: &'static str) -> FormError {
    FormError::BadMicrobatch { row, fault, remedy }
}

/// Builds a [`Formation`] from bucket, number of samples and tokens a sample of each microbatch.
///
/// ```
/// # use shared::plan::{Edges, FormationBuilder};
/// # use shared::id::{BucketId, Bytes};
/// let edges = Edges::given(vec![512, 2048])?;
/// let mut builder = FormationBuilder::new(edges, Bytes(51_200));
/// builder.push(BucketId(0), 8, 400)?;
/// builder.push(BucketId(1), 2, 2048)?;
/// let formation = builder.build()?;
/// assert_eq!(formation.samples.len(), 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct FormationBuilder {
    microbatches: Vec<Microbatch>,
    edges: Edges,
    bytes_per_token: Bytes,
    epoch: u16,
    end: u32,
}

impl FormationBuilder {
    /// A builder at epoch 0, for buckets of these upper edges and hidden states of this size a token.
    pub fn new(edges: Edges, bytes_per_token: Bytes) -> Self {
        Self {
            microbatches: Vec::new(),
            edges,
            bytes_per_token,
            epoch: 0,
            end: 0,
        }
    }

    /// Adds a microbatch of `samples` samples of `tokens` tokens each, without padding.
    ///
    /// # Errors
    /// When it has no samples or no tokens, its bucket has no edge, it is longer than that edge, or sizes overflow.
    pub fn push(
        &mut self,
        bucket: BucketId,
        samples: u32,
        tokens: u32,
    ) -> Result<&mut Self, FormError> {
        let row = self.microbatches.len();
        let Some(&edge) = self.edges.as_slice().get(bucket.index()) else {
            return Err(bad(
                row,
                "is of a bucket that has no edge",
                "give an edge a bucket",
            ));
        };
        if samples == 0 || tokens == 0 {
            return Err(bad(
                row,
                "is empty",
                "give it at least one sample of one token",
            ));
        }
        if tokens > edge {
            return Err(bad(
                row,
                "has samples longer than its bucket's edge",
                "raise the edge",
            ));
        }
        let overflow = || {
            let samples = u64::from(self.end) + u64::from(samples);
            FormError::TooManySamples {
                samples,
                epochs: self.epoch + 1,
            }
        };
        let end = self.end.checked_add(samples).ok_or_else(overflow)?;
        let padded = Tokens(u64::from(samples) * u64::from(tokens));
        let too_large = || {
            bad(
                row,
                "has more squared tokens than a number holds",
                "make it smaller",
            )
        };
        self.microbatches.push(Microbatch {
            bucket,
            epoch: self.epoch,
            key: row as u32,
            samples: self.end..end,
            tokens: padded,
            padded,
            tokens_squared: padded
                .0
                .checked_mul(u64::from(tokens))
                .ok_or_else(too_large)?,
            bytes: hidden_states(padded, self.bytes_per_token)?,
        });
        self.end = end;
        Ok(self)
    }

    /// Begins the next epoch.
    ///
    /// # Errors
    /// When epochs run out at 65535.
    pub fn next_epoch(&mut self) -> Result<&mut Self, FormError> {
        let next = self.epoch.checked_add(1).filter(|&epoch| epoch < u16::MAX);
        let remedy = "run fewer epochs at a time";
        self.epoch =
            next.ok_or_else(|| bad(self.microbatches.len(), "is of epoch 65535", remedy))?;
        Ok(self)
    }

    /// The formation.
    ///
    /// # Errors
    /// When nothing was added.
    pub fn build(self) -> Result<Formation, FormError> {
        Formation::from_microbatches(self.microbatches, self.edges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builder() -> FormationBuilder {
        FormationBuilder::new(Edges::given(vec![10, 20]).unwrap(), Bytes(3))
    }

    #[test]
    fn ranges_ids_and_keys_fit_together() {
        let mut builder = builder();
        builder
            .push(BucketId(1), 2, 15)
            .unwrap()
            .push(BucketId(0), 3, 10)
            .unwrap();
        builder
            .next_epoch()
            .unwrap()
            .push(BucketId(0), 1, 7)
            .unwrap();
        let formation = builder.build().unwrap();
        assert_eq!(formation.samples, [0, 1, 2, 3, 4, 0].map(SampleId));
        assert_eq!(formation.epochs, 2);
        let shown: Vec<_> = formation
            .microbatches
            .iter()
            .map(|m| {
                (
                    m.key,
                    m.epoch,
                    m.samples.clone(),
                    m.padded.0,
                    m.tokens_squared,
                    m.bytes.0,
                )
            })
            .collect();
        let expected = [
            (0, 0, 0..2, 30, 450, 90),
            (1, 0, 2..5, 30, 300, 90),
            (2, 1, 5..6, 7, 49, 21),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(builder().push(BucketId(2), 1, 1).is_err());
        assert!(builder().push(BucketId(0), 1, 11).is_err());
        assert!(builder().push(BucketId(0), 0, 4).is_err());
        assert_eq!(builder().build().unwrap_err(), FormError::NoSamples);
        let mut far = builder();
        far.push(BucketId(0), u32::MAX, 1).unwrap();
        assert!(matches!(
            far.push(BucketId(0), 1, 1),
            Err(FormError::TooManySamples { .. })
        ));
    }

    #[test]
    fn given_microbatches_may_hold_no_samples_but_lie_end_to_end() {
        let mut builder = builder();
        builder
            .push(BucketId(0), 4, 5)
            .unwrap()
            .push(BucketId(1), 2, 20)
            .unwrap();
        let Formation {
            mut microbatches,
            edges,
            ..
        } = builder.build().unwrap();
        microbatches[1].samples = 5..6;
        let gap = Formation::from_microbatches(microbatches.clone(), edges.clone()).unwrap_err();
        assert_eq!(
            gap.to_string(),
            "microbatch 1 does not begin where the one before ends; lay ranges end to end, from 0"
        );
        for microbatch in &mut microbatches {
            microbatch.samples = 0..0;
        }
        let formation = Formation::from_microbatches(microbatches, edges).unwrap();
        assert!(formation.samples.is_empty());
        assert_eq!(formation.microbatches[1].tokens.0, 40);
    }
}
