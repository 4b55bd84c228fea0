//! Answers to many prompts at once.

use candle_core::Tensor;

use super::repetition::repeats;
use super::sample::Sampling;
use crate::model::ModelError;

/// A target that reads several texts at once, each in a row of its own.
pub trait Batch {
    /// Forgets all rows and reads `prompts`, each at least one token, one a row. Gives the logits
    /// behind each [rows, V].
    ///
    /// Errors: tokens outside the vocabulary, the tensor library's.
    fn start(&mut self, prompts: &[&[u32]]) -> Result<Tensor, ModelError>;

    /// Reads one more token in each row, and gives the logits behind it [rows, V].
    ///
    /// Errors: tokens outside the vocabulary, the tensor library's.
    fn step(&mut self, tokens: &[u32]) -> Result<Tensor, ModelError>;

    /// Keeps these rows, in this order; there is at least one.
    ///
    /// Errors: the tensor library's.
    fn keep(&mut self, rows: &[usize]) -> Result<(), ModelError>;
}

/// A prompt to be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The caller's number for it.
    pub number: usize,
    /// What keys its draws: answers do not depend on the batch that they are made in.
    pub stream: u64,
    /// The prompt, at least one token.
    pub prompt: Vec<u32>,
}

/// When an answer ends, and how it is drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateLimits {
    /// Tokens of an answer, at most.
    pub new_tokens_max: usize,
    /// Tokens that end an answer; they are not part of it.
    pub ends: Vec<u32>,
    /// Tokens that are never said.
    pub never: Vec<u32>,
    /// Longest period of a loop that stops an answer; 0 lets it go on. (tokens)
    pub loop_period_max: usize,
    /// How tokens are taken.
    pub sampling: Sampling,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The target said so.
    Itself,
    /// It grew to `new_tokens_max`.
    Limit,
    /// It fell into a loop.
    Loop,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// The job's number.
    pub number: usize,
    /// The answer, without the token that ended it.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub ended: Ended,
}

/// Copies of a phrase that make a loop.
const LOOP_TIMES: usize = 3;

/// Waves among which jobs are sorted by the length of their prompts, to pad little.
const WAVES_SORTED: usize = 8;

/// Answers `jobs` in waves of at most `rows` at once; rows that are done leave the batch.
///
/// Calls `done` at each answer, in the order they end; it returns whether to go on.
///
/// Errors: the batch's, and what `done` returns.
pub fn generate<E: From<ModelError>>(
    batch: &mut dyn Batch,
    rows: usize,
    jobs: impl IntoIterator<Item = Job>,
    limits: &GenerateLimits,
    mut done: impl FnMut(Finished) -> Result<bool, E>,
) -> Result<(), E> {
    let mut jobs = jobs.into_iter();
    loop {
        let mut window: Vec<Job> = jobs.by_ref().take(rows * WAVES_SORTED).collect();
        if window.is_empty() {
            return Ok(());
        }
        window.sort_by_key(|job| (job.prompt.len(), job.number));
        let mut window = window.into_iter().peekable();
        while window.peek().is_some() {
            let wave = window.by_ref().take(rows).map(Answering::new);
            if !answer(batch, wave.collect(), limits, &mut done)? {
                return Ok(());
            }
        }
    }
}

/// Answers one wave; returns whether to go on.
fn answer<E: From<ModelError>>(
    batch: &mut dyn Batch,
    mut wave: Vec<Answering>,
    limits: &GenerateLimits,
    done: &mut impl FnMut(Finished) -> Result<bool, E>,
) -> Result<bool, E> {
    let prompts: Vec<&[u32]> = wave.iter().map(|row| &row.job.prompt[..]).collect();
    let mut logits = batch.start(&prompts)?;
    loop {
        let each = logits.to_vec2::<f32>().map_err(ModelError::from)?;
        let mut busy = Vec::new();
        for (row, logits) in each.into_iter().enumerate() {
            match wave[row].take(logits, limits) {
                None => busy.push(row),
                Some(ended) => {
                    let finished = wave[row].finished(ended);
                    if !done(finished)? {
                        return Ok(false);
                    }
                }
            }
        }
        if busy.is_empty() {
            return Ok(true);
        }
        if busy.len() < wave.len() {
            batch.keep(&busy)?;
            let mut row = 0..;
            wave.retain(|_| row.next().is_some_and(|row| busy.contains(&row)));
        }
        let newest = wave.iter().filter_map(|row| row.answer.last().copied());
        logits = batch.step(&newest.collect::<Vec<_>>())?;
    }
}

/// A row at work.
struct Answering {
    job: Job,
    answer: Vec<u32>,
}

impl Answering {
    fn new(job: Job) -> Self {
        assert!(!job.prompt.is_empty(), "a prompt has at least one token");
        Self {
            job,
            answer: Vec::new(),
        }
    }

    fn finished(&mut self, ended: Ended) -> Finished {
        Finished {
            number: self.job.number,
            tokens: std::mem::take(&mut self.answer),
            ended,
        }
    }

    /// Takes the next token, and says why the answer ended if it did.
    fn take(&mut self, mut logits: Vec<f32>, limits: &GenerateLimits) -> Option<Ended> {
        for &token in &limits.never {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit = f32::NEG_INFINITY;
            }
        }
        let place = self.answer.len();
        let token = limits.sampling.take(&logits, self.job.stream, place);
        if limits.ends.contains(&token) {
            return Some(Ended::Itself);
        }
        self.answer.push(token);
        if repeats(&self.answer, limits.loop_period_max, LOOP_TIMES) {
            return Some(Ended::Loop);
        }
        (self.answer.len() >= limits.new_tokens_max).then_some(Ended::Limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Device;

    /// Says 1, 2, 3, … in every row, and what `odd` maps these to.
    struct Counting {
        lengths: Vec<usize>,
        odd: fn(usize) -> usize,
        rows_seen: Vec<usize>,
    }

    impl Counting {
        fn new(odd: fn(usize) -> usize) -> Self {
            Self {
                lengths: vec![],
                odd,
                rows_seen: vec![],
            }
        }

        fn logits(&mut self) -> Result<Tensor, ModelError> {
            self.rows_seen.push(self.lengths.len());
            let row = |&length: &usize| {
                let mut row = vec![0.0f32; 50];
                row[(self.odd)(length)] = 1.0;
                row
            };
            let rows: Vec<_> = self.lengths.iter().map(row).collect();
            Ok(Tensor::new(rows, &Device::Cpu)?)
        }
    }

    impl Batch for Counting {
        fn start(&mut self, prompts: &[&[u32]]) -> Result<Tensor, ModelError> {
            self.lengths = prompts.iter().map(|prompt| prompt.len()).collect();
            self.logits()
        }

        fn step(&mut self, tokens: &[u32]) -> Result<Tensor, ModelError> {
            assert_eq!(tokens.len(), self.lengths.len());
            self.lengths.iter_mut().for_each(|length| *length += 1);
            self.logits()
        }

        fn keep(&mut self, rows: &[usize]) -> Result<(), ModelError> {
            self.lengths = rows.iter().map(|&row| self.lengths[row]).collect();
            Ok(())
        }
    }

    fn limits() -> GenerateLimits {
        GenerateLimits {
            new_tokens_max: 20,
            ends: vec![9],
            never: vec![],
            loop_period_max: 16,
            sampling: Sampling::GREEDY,
        }
    }

    fn jobs(lengths: &[usize]) -> impl Iterator<Item = Job> {
        let job = |(number, &length)| Job {
            number,
            stream: 0,
            prompt: vec![0; length],
        };
        lengths.iter().enumerate().map(job)
    }

    fn run(batch: &mut Counting, limits: &GenerateLimits, lengths: &[usize]) -> Vec<Finished> {
        let mut found = Vec::new();
        generate::<ModelError>(batch, 2, jobs(lengths), limits, |finished| {
            found.push(finished);
            Ok(true)
        })
        .unwrap();
        found
    }

    #[test]
    fn rows_leave_when_they_end_and_each_job_is_answered_once() {
        let mut batch = Counting::new(|length| length);
        let found = run(&mut batch, &limits(), &[7, 5, 8]);
        let said: Vec<_> = found.iter().map(|f| (f.number, f.tokens.clone())).collect();
        // Sorted by length: 5 and 7 first, then 8 alone.
        let expected = [(0, vec![7, 8]), (1, vec![5, 6, 7, 8]), (2, vec![8])];
        assert_eq!(said, expected);
        assert!(found.iter().all(|f| f.ended == Ended::Itself));
        assert_eq!(batch.rows_seen, [2, 2, 2, 1, 1, 1, 1]);
    }

    #[test]
    fn limits_and_loops_end_an_answer_and_forbidden_tokens_are_not_said() {
        let end = |odd, limits: &GenerateLimits| {
            let found = run(&mut Counting::new(odd), limits, &[1]);
            (found[0].tokens.len(), found[0].ended)
        };
        let count: fn(usize) -> usize = |length| 10 + length;
        assert_eq!(end(count, &limits()), (20, Ended::Limit));
        let again: fn(usize) -> usize = |length| length % 4;
        assert_eq!(end(again, &limits()), (12, Ended::Loop));
        let unguarded = GenerateLimits {
            loop_period_max: 0,
            ..limits()
        };
        assert_eq!(end(again, &unguarded), (20, Ended::Limit));
        let never_ending = GenerateLimits {
            never: vec![9, 999],
            ..limits()
        };
        assert_eq!(end(|length| length, &never_ending), (20, Ended::Limit));
    }

    #[test]
    fn the_caller_may_stop_between_answers() {
        let mut answers = 0;
        let mut batch = Counting::new(|length| length);
        generate::<ModelError>(&mut batch, 2, jobs(&[8, 8, 8]), &limits(), |_| {
            answers += 1;
            Ok(answers < 2)
        })
        .unwrap();
        assert_eq!(answers, 2);
    }
}
