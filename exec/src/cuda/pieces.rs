//! Large copies, piece by piece.
//!
//! A GPU copies one thing after another in each direction. The few bytes that a step waits for (a loss, a list of rows) would stand
//! behind gigabytes of hidden states, so those go in pieces, one at a time: with another one waiting a copy engine stays with them for
//! milliseconds, between them it looks for others.

use std::ops::Range;

/// Where each piece of `len` elements lies: `piece` of them, but for the last.
pub(crate) fn pieces(len: usize, piece: usize) -> impl Iterator<Item = Range<usize>> {
    let piece = piece.max(1);
    let starts = (0..len).step_by(piece);
    starts.map(move |first| first..len.min(first + piece))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_everything_once() {
        assert_eq!(pieces(0, 3).count(), 0);
        assert_eq!(pieces(2, 3).collect::<Vec<_>>(), vec![0..2; 1]);
        assert_eq!(pieces(7, 3).collect::<Vec<_>>(), [0..3, 3..6, 6..7]);
    }
}
