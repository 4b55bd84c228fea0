//! Random numbers as a pure function of their place: no generator state, no order of draws.

/// Mixes one word (the finaliser of splitmix64, Steele et al. 2014).
fn mix(word: u64) -> u64 {
    let mut z = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Hashes a sequence of words; every word and its position count.
pub(crate) fn hash(words: &[u64]) -> u64 {
    words.iter().fold(0, |state, &word| mix(state ^ mix(word)))
}

/// A uniform number in (0, 1] from a hashed word.
fn unit(word: u64) -> f64 {
    ((word >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// `count` normal draws with mean 0 for the tensor `name` under `seed` (Box and Muller 1958).
pub(crate) fn normals(seed: u64, name: &str, count: usize, std: f64) -> Vec<f32> {
    let stream = name
        .bytes()
        .fold(hash(&[seed]), |state, byte| hash(&[state, byte.into()]));
    let mut draws = Vec::with_capacity(count + 1);
    for pair in 0..count.div_ceil(2) as u64 {
        let radius = std * (-2.0 * unit(hash(&[stream, 2 * pair])).ln()).sqrt();
        let angle = std::f64::consts::TAU * unit(hash(&[stream, 2 * pair + 1]));
        draws.push((radius * angle.cos()) as f32);
        draws.push((radius * angle.sin()) as f32);
    }
    draws.truncate(count);
    draws
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_the_asked_spread_and_no_mean() {
        let draws = normals(7, "w", 40_001, 0.02);
        let mean = draws.iter().map(|&x| f64::from(x)).sum::<f64>() / draws.len() as f64;
        let square = draws.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / draws.len() as f64;
        assert_eq!(draws.len(), 40_001);
        assert!(mean.abs() < 4e-4, "{mean}");
        assert!((square.sqrt() - 0.02).abs() < 3e-4, "{square}");
    }

    #[test]
    fn seed_and_name_both_matter_and_length_does_not() {
        let base = normals(1, "a", 8, 1.0);
        assert_eq!(base[..5], normals(1, "a", 5, 1.0)[..]);
        assert_ne!(base, normals(2, "a", 8, 1.0));
        assert_ne!(base, normals(1, "b", 8, 1.0));
    }
}
