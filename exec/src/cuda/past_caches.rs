//! Copies within host memory that leave the caches alone.

use super::Element;

/// Copies `from` to `to`, which are as long, without reading `to` into a cache first: gigabytes that nobody looks at soon. The memory has
/// a third less to do than under an ordinary copy, and what threads work on stays in their caches.
pub(super) fn copy_past_caches<T: Element>(from: &[T], to: &mut [T]) {
    assert_eq!(from.len(), to.len(), "copies are as long as what they copy");
    #[cfg(target_arch = "x86_64")]
    x86_64::stream(from, to);
    #[cfg(not(target_arch = "x86_64"))]
    to.copy_from_slice(from);
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use crate::cuda::Element;
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    /// Bytes of a cache line, which four streaming stores fill.
    const LINE: usize = 64;

    /// Whole lines by streaming stores; what lies before the first and behind the last as always.
    pub(super) fn stream<T: Element>(from: &[T], to: &mut [T]) {
        // SAFETY: an alignment to bytes is one to elements, whose size divides a line; any bits of one element are copied as they are.
        let (before, lines, _) = unsafe { to.align_to_mut::<Line>() };
        let (first, count) = (before.len(), lines.len());
        let per_line = LINE / T::BYTES;
        let (from_before, rest) = from.split_at(first);
        let (from_lines, from_behind) = rest.split_at(count * per_line);
        for (at, line) in lines.iter_mut().enumerate() {
            let source = from_lines[at * per_line..].as_ptr().cast::<__m128i>();
            let parts = std::ptr::from_mut(line).cast::<__m128i>();
            for quarter in 0..LINE / size_of::<__m128i>() {
                // SAFETY: both are a line long; the source may begin anywhere, and a line begins at a multiple of its length.
                unsafe {
                    _mm_stream_si128(parts.add(quarter), _mm_loadu_si128(source.add(quarter)))
                };
            }
        }
        to[..first].copy_from_slice(from_before);
        to[first + count * per_line..].copy_from_slice(from_behind);
        // Streaming stores of this thread are seen before whatever it tells others from here on.
        // SAFETY: every processor of this kind has it.
        unsafe { _mm_sfence() };
    }

    /// A cache line.
    #[repr(C, align(64))]
    struct Line([u8; LINE]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From every beginning to every beginning within a line, and all lengths about a few lines.
    #[test]
    fn what_lies_anywhere_arrives_and_nothing_else_changes() {
        copies(|n| u8::try_from(n % 251).unwrap());
        copies(|n| u32::try_from(n).unwrap());
        copies(|n| n as f64);
    }

    fn copies<T: Element + PartialEq + std::fmt::Debug>(value: impl Fn(usize) -> T) {
        let source: Vec<T> = (1..=400).map(value).collect();
        for (from, to) in (0..64).flat_map(|from| [0, 1, 7, 63].map(|to| (from, to))) {
            for len in [0, 1, 15, 63, 64, 65, 200, 256] {
                let mut target = [T::ZERO; 400];
                copy_past_caches(&source[from..from + len], &mut target[to..to + len]);
                assert_eq!(target[to..to + len], source[from..from + len]);
                let others = target[..to].iter().chain(&target[to + len..]);
                assert!(others.into_iter().all(|other| *other == T::ZERO));
            }
        }
    }
}
