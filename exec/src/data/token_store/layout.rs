//! How the binary files of a store are laid out.

use crate::data::counts::DropReason;

/// Raised when the layout changes.
pub(super) const FORMAT: u64 = 1;

/// The file that lists the others.
pub(super) const MANIFEST: &str = "manifest.json";

/// The binary files, in the order of their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Tokens,
    Mask,
    Index,
    Names,
    Dropped,
}

impl Part {
    pub(super) const ALL: [Self; 5] = [
        Self::Tokens,
        Self::Mask,
        Self::Index,
        Self::Names,
        Self::Dropped,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Tokens => "tokens.bin",
            Self::Mask => "mask.bin",
            Self::Index => "index.bin",
            Self::Names => "names.bin",
            Self::Dropped => "dropped.bin",
        }
    }

    /// Bytes of an entry.
    pub(super) const fn entry_bytes(self) -> usize {
        match self {
            Self::Tokens => 4,
            Self::Mask | Self::Names => 1,
            Self::Index => 32,
            Self::Dropped => 12,
        }
    }

    /// What the file begins with: a mark, the format and the file's number.
    pub(super) fn header(self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(b"dflashTS");
        header[8..12].copy_from_slice(&(FORMAT as u32).to_le_bytes());
        header[12..].copy_from_slice(&(self as u32).to_le_bytes());
        header
    }
}

pub(super) const HEADER_BYTES: usize = 16;

/// A sample, as `index.bin` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its first token.
    pub(super) start: u64,
    /// Where its name ends; it begins where the one before ends.
    pub(super) name_end: u64,
    /// Tokens.
    pub(super) length: u32,
    /// Tokens that bear loss.
    pub(super) loss_tokens: u32,
    /// Which source.
    pub(super) file: u32,
    /// The line in it, from 1.
    pub(super) line: u32,
}

impl Entry {
    pub(super) fn to_bytes(self) -> [u8; Part::Index.entry_bytes()] {
        let mut bytes = [0; Part::Index.entry_bytes()];
        bytes[..8].copy_from_slice(&self.start.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.name_end.to_le_bytes());
        let small = [self.length, self.loss_tokens, self.file, self.line];
        for (place, number) in bytes[16..].chunks_exact_mut(4).zip(small) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Entry `i` of `entries`, the file without its header.
    pub(super) fn read(entries: &[u8], i: usize) -> Self {
        let bytes = entry(entries, Part::Index, i);
        let large = |at| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        Self {
            start: large(0),
            name_end: large(8),
            length: small(bytes, 16),
            loss_tokens: small(bytes, 20),
            file: small(bytes, 24),
            line: small(bytes, 28),
        }
    }
}

/// A record that became no sample, as `dropped.bin` has it.
pub(super) fn dropped_to_bytes(file: u32, line: u32, reason: DropReason) -> [u8; 12] {
    let number = DropReason::ALL.iter().position(|&known| known == reason);
    let number = number.expect("all reasons are listed") as u32;
    let mut bytes = [0; 12];
    for (place, number) in bytes.chunks_exact_mut(4).zip([file, line, number]) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// Entry `i` of `dropped.bin` without its header; no reason where its number is unknown.
pub(super) fn dropped(entries: &[u8], i: usize) -> (u32, u32, Option<DropReason>) {
    let bytes = entry(entries, Part::Dropped, i);
    let reason = DropReason::ALL.get(small(bytes, 8) as usize).copied();
    (small(bytes, 0), small(bytes, 4), reason)
}

fn entry(entries: &[u8], part: Part, i: usize) -> &[u8] {
    &entries[i * part.entry_bytes()..(i + 1) * part.entry_bytes()]
}

fn small(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_and_have_their_places() {
        let entry = Entry {
            start: 1 << 40,
            name_end: 2,
            length: 3,
            loss_tokens: 4,
            file: 5,
            line: 6,
        };
        let bytes = [[0; 32], entry.to_bytes()].concat();
        assert_eq!(Entry::read(&bytes, 1), entry);
        assert_eq!(bytes[32 + 5], 1);
        assert_eq!(bytes[32 + 28..], [6, 0, 0, 0]);
        let bytes = dropped_to_bytes(7, 8, DropReason::OverLong);
        assert_eq!(dropped(&bytes, 0), (7, 8, Some(DropReason::OverLong)));
        assert_eq!(dropped(&[255; 12], 0).2, None);
    }

    #[test]
    fn headers_differ() {
        for (i, part) in Part::ALL.iter().enumerate() {
            assert!(
                Part::ALL[..i]
                    .iter()
                    .all(|other| other.header() != part.header())
            );
            assert_eq!(HEADER_BYTES % 4, 0, "ids must stay aligned");
        }
    }
}
