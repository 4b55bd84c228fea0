//! A running 64-bit fingerprint of bytes, by which an edited trace is known.

/// FNV-1a over 8-byte words with a final mix. It tells edits and damage apart from the original; it is no defence against forgery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    state: u64,
}

impl Default for Digest {
    fn default() -> Self {
        Self {
            state: 0xcbf2_9ce4_8422_2325,
        }
    }
}

impl Digest {
    /// Adds bytes. Where the bytes are split between calls matters.
    pub fn add(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.word(u64::from_le_bytes(word.try_into().expect("eight bytes")));
        }
        let rest = words.remainder();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last));
        self.word(bytes.len() as u64);
    }

    /// Adds one number.
    pub fn word(&mut self, word: u64) {
        self.state = (self.state ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        self.state ^= self.state >> 29;
    }

    /// The fingerprint so far.
    pub fn finish(self) -> u64 {
        let word = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word ^ (word >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::Digest;

    fn of(bytes: &[u8]) -> u64 {
        let mut digest = Digest::default();
        digest.add(bytes);
        digest.finish()
    }

    #[test]
    fn one_changed_byte_changes_the_fingerprint() {
        let text = b"1200 forward t0 m3 ok | Forward t0 m17".to_vec();
        for at in 0..text.len() {
            let mut edited = text.clone();
            edited[at] ^= 1;
            assert_ne!(of(&text), of(&edited), "byte {at}");
        }
        assert_ne!(of(b"a"), of(b"a\0"));
    }
}
