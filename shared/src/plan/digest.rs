//! A plan's fingerprint.

use super::{Exception, Microbatch, Plan};
use crate::id::SampleId;

/// Everything in the plan, field by field in the order of their declaration, lists with their lengths.
pub(super) fn digest(plan: &Plan) -> u64 {
    let mut digest = Digest(OFFSET);
    digest.samples(&plan.samples);
    digest.microbatches(&plan.microbatches);
    digest.word(plan.steps.len() as u64);
    for step in &plan.steps {
        digest.pair(step.microbatches.start, step.microbatches.end);
        digest.word(match step.exception {
            None => 0,
            Some(Exception::Tail) => 1,
            Some(Exception::DryBucket) => 2,
        });
    }
    digest.list(&plan.step_of, |step| u64::from(step.0));
    digest.list(&plan.drafter_of, |drafter| u64::from(drafter.0));
    digest.word(u64::from(plan.buckets()));
    digest.microbatches(&plan.dropped);
    digest.samples(&plan.over_long);
    digest.0
}

/// FNV-1a (Fowler, Noll and Vo) over 64-bit words, with a shift so that high bits reach low ones too.
struct Digest(u64);

impl Digest {
    fn word(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(PRIME);
        self.0 = mixed ^ (mixed >> 29);
    }

    fn pair(&mut self, high: u32, low: u32) {
        self.word(u64::from(high) << 32 | u64::from(low));
    }

    fn list<T>(&mut self, list: &[T], word: impl Fn(&T) -> u64) {
        self.word(list.len() as u64);
        for item in list {
            self.word(word(item));
        }
    }

    fn samples(&mut self, samples: &[SampleId]) {
        self.list(samples, |sample| u64::from(sample.0));
    }

    fn microbatches(&mut self, microbatches: &[Microbatch]) {
        self.word(microbatches.len() as u64);
        for m in microbatches {
            self.pair(u32::from(m.bucket.0) << 16 | u32::from(m.epoch), m.key);
            self.pair(m.samples.start, m.samples.end);
            self.word(m.tokens.0);
            self.word(m.padded.0);
            self.word(m.tokens_squared);
            self.word(m.bytes.0);
        }
    }
}

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{BucketId, Bytes, DrafterId, StepId, Tokens};
    use crate::plan::PlannedStep;

    fn plan() -> Plan {
        let microbatch = Microbatch {
            bucket: BucketId(1),
            epoch: 0,
            key: 0,
            samples: 0..2,
            tokens: Tokens(9),
            padded: Tokens(10),
            tokens_squared: 41,
            bytes: Bytes(100),
        };
        Plan {
            samples: vec![SampleId(0), SampleId(1)],
            microbatches: vec![microbatch],
            steps: vec![PlannedStep {
                microbatches: 0..1,
                exception: None,
            }],
            step_of: vec![StepId(0)],
            drafter_of: vec![DrafterId(0)],
            bucket_counts: vec![0, 1],
            dropped: Vec::new(),
            over_long: Vec::new(),
        }
    }

    #[test]
    fn every_field_changes_the_digest() {
        let changes: [fn(&mut Plan); 13] = [
            |p| p.samples.swap(0, 1),
            |p| p.microbatches[0].bucket.0 = 0,
            |p| p.microbatches[0].epoch = 1,
            |p| p.microbatches[0].key = 1,
            |p| p.microbatches[0].tokens.0 = 8,
            |p| p.microbatches[0].padded.0 = 9,
            |p| p.microbatches[0].tokens_squared = 40,
            |p| p.microbatches[0].bytes.0 = 99,
            |p| p.steps[0].exception = Some(Exception::Tail),
            |p| p.step_of[0].0 = 1,
            |p| p.drafter_of.clear(),
            |p| p.dropped.push(p.microbatches[0].clone()),
            |p| p.over_long.push(SampleId(7)),
        ];
        let mut digests = vec![plan().digest()];
        assert_eq!(digests[0], plan().digest());
        for change in changes {
            let mut changed = plan();
            change(&mut changed);
            digests.push(changed.digest());
        }
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), 1 + changes.len());
    }
}
