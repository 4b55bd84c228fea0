//! A digest that is the same on every machine and for every version: FNV-1a, 64 bits.

/// Digest under construction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Digest(u64);

impl Digest {
    pub(super) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds bytes.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    pub(super) fn finish(self) -> u64 {
        self.0
    }
}

/// A number that looks random, for `number` of the stream `seed`: the finaliser of SplitMix64
/// (Steele, Lea and Flood, 2014).
pub(super) fn scrambled(seed: u64, number: u64) -> u64 {
    let mut z = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_the_published_ones() {
        let of = |text: &str| {
            let mut digest = Digest::new();
            digest.add(text.as_bytes());
            digest.finish()
        };
        assert_eq!(of(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(of("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(of("foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn scrambled_numbers_are_the_published_ones() {
        // The first two outputs of SplitMix64 with seed 1234567.
        assert_eq!(scrambled(1_234_567, 0), 6_457_827_717_110_365_317);
        assert_eq!(scrambled(1_234_567, 1), 3_203_168_211_198_807_973);
    }
}
