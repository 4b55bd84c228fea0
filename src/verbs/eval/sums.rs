//! Means and counts over prompts.

use super::measure::{Answered, Measured};
use exec::decode::{Round, Tally};
use sim::Estimate;

/// One drafter over all prompts.
pub(super) struct Sum {
    pub(super) tally: Tally,
    /// Acceptance length, mean over prompts; prompts without a round do not count.
    pub(super) length: Estimate,
    /// Tokens of answers a forward of the target, that of the prompt included.
    pub(super) tokens_per_forward: f64,
    /// By the length of prompt and answer.
    pub(super) by_length: Vec<Bucket>,
    /// By the length of the text before the block.
    pub(super) by_context: Vec<Bucket>,
    /// Answers that are the target's own, where the target verified.
    pub(super) identical: Option<usize>,
    /// Time a token over that of the target alone, where the target verified.
    pub(super) time_ratio: Option<f64>,
}

/// Part of the rounds, by length.
pub(super) struct Bucket {
    /// Above so many tokens.
    pub(super) above: u32,
    /// Up to so many; `None` for the last, which is open.
    pub(super) up_to: Option<u32>,
    /// Prompts that fell into it, with at least one round.
    pub(super) prompts: usize,
    pub(super) rounds: usize,
    /// Acceptance length: mean over prompts, with its interval.
    pub(super) length: Estimate,
}

impl Bucket {
    /// As [`bucket_name`].
    pub(super) fn name(&self) -> String {
        name(self.above, self.up_to)
    }
}

/// The name of the bucket at place `i` between `edges`: `≤ 128`, `129–256`, `> 256`.
pub(super) fn bucket_name(edges: &[u32], i: usize) -> String {
    name(
        i.checked_sub(1).map_or(0, |i| edges[i]),
        edges.get(i).copied(),
    )
}

fn name(above: u32, up_to: Option<u32>) -> String {
    match (above, up_to) {
        (0, Some(up_to)) => format!("≤ {up_to}"),
        (above, Some(up_to)) => format!("{}–{up_to}", above + 1),
        (0, None) => "any".to_owned(),
        (above, None) => format!("> {above}"),
    }
}

/// The sums of drafter `index`.
pub(super) fn sum(measured: &Measured, index: usize, slots: usize, edges: &[u32]) -> Sum {
    let prompts = &measured.prompts;
    let rounds = |prompt: &'_ Answered| prompt.drafted[index].decoded.rounds.clone();
    let all: Vec<Round> = prompts.iter().flat_map(rounds).collect();
    let tally = Tally::of(&all, slots);
    let real = prompts.iter().all(|p| p.drafted[index].token_s.is_some());
    let same = |p: &&Answered| p.drafted[index].difference.is_none();
    let tokens: usize = tally.gained + prompts.len();
    Sum {
        length: length(prompts.iter().map(rounds)),
        tokens_per_forward: tokens as f64 / (tally.rounds + prompts.len()) as f64,
        by_length: buckets(
            edges,
            prompts.iter().map(|prompt| {
                let tokens = prompt.prompt + prompt.answer;
                rounds(prompt)
                    .into_iter()
                    .map(|round| (tokens, round))
                    .collect()
            }),
        ),
        by_context: buckets(
            edges,
            prompts.iter().map(|prompt| {
                rounds(prompt)
                    .into_iter()
                    .map(|round| (round.anchor, round))
                    .collect()
            }),
        ),
        identical: real.then(|| prompts.iter().filter(same).count()),
        time_ratio: real.then(|| {
            let alone: f64 = prompts.iter().map(|p| p.alone_s * p.answer as f64).sum();
            let drafted = prompts
                .iter()
                .filter_map(|p| Some(p.drafted[index].token_s? * p.answer as f64));
            drafted.sum::<f64>() / alone
        }),
        tally,
    }
}

/// Acceptance length over prompts, each with its rounds.
fn length(prompts: impl Iterator<Item = Vec<Round>>) -> Estimate {
    let each = prompts.filter(|rounds| !rounds.is_empty());
    let lengths: Vec<f64> = each
        .map(|rounds| Tally::of(&rounds, 0).acceptance_length())
        .collect();
    Estimate::of(&lengths)
}

/// Sorts the rounds of each prompt into buckets by the number beside them; empty buckets are left out.
fn buckets(edges: &[u32], prompts: impl Iterator<Item = Vec<(usize, Round)>>) -> Vec<Bucket> {
    let mut sorted: Vec<Vec<Vec<Round>>> = vec![Vec::new(); edges.len() + 1];
    for prompt in prompts {
        let mut parts: Vec<Vec<Round>> = vec![Vec::new(); edges.len() + 1];
        for (tokens, round) in prompt {
            let bucket = edges.partition_point(|&edge| (edge as usize) < tokens);
            parts[bucket].push(round);
        }
        for (bucket, rounds) in parts.into_iter().enumerate() {
            if !rounds.is_empty() {
                sorted[bucket].push(rounds);
            }
        }
    }
    let bucket = |(i, prompts): (usize, Vec<Vec<Round>>)| Bucket {
        above: i.checked_sub(1).map_or(0, |i| edges[i]),
        up_to: edges.get(i).copied(),
        prompts: prompts.len(),
        rounds: prompts.iter().map(Vec::len).sum(),
        length: length(prompts.into_iter()),
    };
    let all = sorted.into_iter().enumerate().map(bucket);
    all.filter(|bucket| bucket.prompts > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(anchor: usize, gained: usize) -> Round {
        Round {
            anchor,
            offered: 3,
            accepted: gained - 1,
            gained,
        }
    }

    #[test]
    fn rounds_fall_into_the_bucket_of_their_length() {
        let one = vec![(10, round(10, 1)), (11, round(11, 3))];
        let other = vec![(30, round(30, 2))];
        let found = buckets(&[10, 20], [one, other].into_iter());
        let shown: Vec<_> = found
            .iter()
            .map(|b| (b.name(), b.prompts, b.rounds, b.length.mean))
            .collect();
        let expected = [
            ("≤ 10", 1, 1, 1.0),
            ("11–20", 1, 1, 3.0),
            ("> 20", 1, 1, 2.0),
        ];
        assert_eq!(
            shown,
            expected.map(|(name, p, r, m)| (name.to_owned(), p, r, m))
        );
        assert_eq!(buckets(&[], std::iter::empty()).len(), 0);
    }

    #[test]
    fn lengths_are_means_of_prompts_not_of_rounds() {
        let prompts = [vec![round(1, 1); 9], vec![round(1, 3)], vec![]];
        let found = length(prompts.into_iter());
        assert_eq!((found.mean, found.count), (2.0, 2));
    }
}
