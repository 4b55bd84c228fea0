//! Large copies, piece by piece.
//!
//! A GPU copies one thing after another in each direction. The few bytes that a step waits for (a loss, a list of rows) would stand
//! behind gigabytes of hidden states, so those go in pieces of which few are under way.

use std::collections::VecDeque;
use std::ops::Range;

/// Pieces under way where the host carries them on: one is copied, one waits, and one is prepared or taken away.
pub(super) const UNDER_WAY: usize = 3;

/// Where each piece of `len` elements lies: `piece` of them, but for the last.
pub(crate) fn pieces(len: usize, piece: usize) -> impl Iterator<Item = Range<usize>> {
    let piece = piece.max(1);
    let starts = (0..len).step_by(piece);
    starts.map(move |first| first..len.min(first + piece))
}

/// Begins one piece after another, at most `under_way` at a time; each is ended in its turn. A piece is asked for when there is a place for
/// it, not before, so that others may take from the same source.
///
/// `begin` is told the piece's place among those under way, below `under_way`; what it gives is handed to `end`. A place is used again
/// once its piece has ended. After an error nothing more begins, and what is under way is still ended.
///
/// # Errors
/// The first of `begin` or `end`.
pub(crate) fn in_turn<P, T, E>(
    pieces: impl IntoIterator<Item = P>,
    under_way: usize,
    mut begin: impl FnMut(usize, &P) -> Result<T, E>,
    mut end: impl FnMut(usize, P, T) -> Result<(), E>,
) -> Result<(), E> {
    let under_way = under_way.max(1);
    let mut pieces = pieces.into_iter();
    let mut open: VecDeque<(usize, P, T)> = VecDeque::with_capacity(under_way);
    let mut outcome = Ok(());
    for number in 0.. {
        if open.len() == under_way
            && let Some((place, piece, begun)) = open.pop_front()
        {
            outcome = end(place, piece, begun);
        }
        if outcome.is_err() {
            break;
        }
        let Some(piece) = pieces.next() else { break };
        let place = number % under_way;
        match begin(place, &piece) {
            Ok(begun) => open.push_back((place, piece, begun)),
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
    }
    for (place, piece, begun) in open {
        let ended = end(place, piece, begun);
        outcome = outcome.and(ended);
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// What happens when 10 elements go in pieces of 3, two at a time, and `fails` at a piece's beginning or end.
    fn told(fails: &str) -> (String, Result<(), String>) {
        let log = RefCell::new(Vec::new());
        let step = |what: &str, place: usize, range: Range<usize>| {
            let text = format!("{what}{}@{place}", range.start);
            log.borrow_mut().push(text.clone());
            match text == fails {
                true => Err(text),
                false => Ok(range),
            }
        };
        let outcome = in_turn(
            pieces(10, 3),
            2,
            |place, range| step("+", place, range.clone()),
            |place, range, begun| {
                assert_eq!(begun, range);
                step("-", place, range).map(drop)
            },
        );
        (log.into_inner().join(" "), outcome)
    }

    #[test]
    fn pieces_cover_everything_once() {
        assert_eq!(pieces(0, 3).count(), 0);
        assert_eq!(pieces(2, 3).collect::<Vec<_>>(), vec![0..2; 1]);
        assert_eq!(pieces(7, 3).collect::<Vec<_>>(), [0..3, 3..6, 6..7]);
    }

    #[test]
    fn pieces_begin_and_end_in_turn_and_few_are_under_way() {
        let (log, outcome) = told("");
        assert_eq!(log, "+0@0 +3@1 -0@0 +6@0 -3@1 +9@1 -6@0 -9@1");
        assert_eq!(outcome, Ok(()));
    }

    #[test]
    fn after_an_error_what_is_under_way_is_ended_and_nothing_begins() {
        let (log, outcome) = told("+6@0");
        assert_eq!(log, "+0@0 +3@1 -0@0 +6@0 -3@1");
        assert_eq!(outcome, Err("+6@0".to_owned()));
        let (log, outcome) = told("-0@0");
        assert_eq!(log, "+0@0 +3@1 -0@0 -3@1");
        assert_eq!(outcome, Err("-0@0".to_owned()));
    }

    #[test]
    fn all_of_it_passes_through_a_few_places() {
        let from: Vec<u32> = (0..1000).collect();
        let mut to = vec![0; 1000];
        let bounce = RefCell::new(vec![vec![0; 64]; UNDER_WAY]);
        let outcome: Result<(), ()> = in_turn(
            pieces(from.len(), 64),
            UNDER_WAY,
            |place, range| {
                bounce.borrow_mut()[place][..range.len()].copy_from_slice(&from[range.clone()]);
                Ok(())
            },
            |place, range, ()| {
                to[range.clone()].copy_from_slice(&bounce.borrow()[place][..range.len()]);
                Ok(())
            },
        );
        assert_eq!((outcome, &to), (Ok(()), &from));
        let nothing: Result<(), ()> = in_turn(pieces(0, 64), 2, |_, _| Err(()), |_, _, ()| Ok(()));
        assert_eq!(nothing, Ok(()));
    }
}
