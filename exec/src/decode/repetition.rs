//! Small models fall into loops: answers that repeat the same few tokens.

/// Whether `tokens` ends with `times` copies of its last k tokens, for some k from 1 to
/// `period_max`. Copies must fill at least `TOKENS_MIN` tokens: "ha ha ha" is no loop.
pub fn repeats(tokens: &[u32], period_max: usize, times: usize) -> bool {
    (1..=period_max).any(|k| {
        let times = times.max(TOKENS_MIN.div_ceil(k));
        let Some(start) = tokens.len().checked_sub(times * k) else {
            return false;
        };
        let tail = &tokens[start..];
        tail[k..] == tail[..tail.len() - k]
    })
}

/// Fewest tokens that make a loop.
const TOKENS_MIN: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_copies_of_a_phrase_are_a_loop_and_two_are_not() {
        let phrase: Vec<u32> = (0..10).collect();
        let said = |copies: usize| [&[90, 91][..], &phrase.repeat(copies)].concat();
        assert!(repeats(&said(3), 16, 3));
        assert!(!repeats(&said(2), 16, 3));
        assert!(!repeats(&said(3), 9, 3));
        let mut broken = said(3);
        broken[25] = 99;
        assert!(!repeats(&broken, 16, 3));
    }

    #[test]
    fn short_periods_need_more_copies() {
        assert!(!repeats(&[5; 11], 16, 3));
        assert!(repeats(&[5; 12], 16, 3));
        assert!(!repeats(&[], 16, 3));
    }
}
