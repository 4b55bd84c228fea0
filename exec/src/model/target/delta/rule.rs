//! The gated delta rule in chunks.
//!
//! Token by token, the state M [K, V] of a head becomes
//! M ← a·M + β·k·(v − a·Mᵀk)ᵀ with a = exp(g), and the head reads Mᵀq. Chunks of tokens turn that
//! into products of matrices (Yang et al. 2024, "Parallelizing Linear Transformers with the Delta
//! Rule"): within a chunk the writes depend on each other through a triangular system.

use candle_core::{D, Device, Result, Tensor};

/// What heads read at each token [B, N, S, V], and their state after the last one [B, N, K, V].
///
/// q and k [B, N, S, K], v [B, N, S, V]; `decay` g ≤ 0 and `beta` β [B, N, S]; `state` before the
/// first token. A token with g = 0 and β = 0 leaves the state as it is.
pub(super) fn gated_delta_rule(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    decay: &Tensor,
    beta: &Tensor,
    state: &Tensor,
) -> Result<(Tensor, Tensor)> {
    let (rows, heads, tokens, key_width) = k.dims4()?;
    let value_width = v.dim(D::Minus1)?;
    let (n, size) = (rows * heads, CHUNK_MAX.min(tokens.next_power_of_two()));
    let padded = tokens.next_multiple_of(size);
    let chunks = padded / size;
    // Everything by chunk, [B·N·chunks, size, ..].
    let cut = |x: &Tensor, width: usize| {
        let x = x.reshape((n, tokens, width))?;
        x.pad_with_zeros(1, 0, padded - tokens)?
            .reshape((n * chunks, size, width))
    };
    let (q, k, v) = (cut(q, key_width)?, cut(k, key_width)?, cut(v, value_width)?);
    let (g, beta) = (cut(decay, 1)?, cut(beta, 1)?);

    let device = k.device();
    let lower = triangle(size, |i, j| j <= i, device)?;
    let strict = triangle(size, |i, j| j < i, device)?;
    // Decay from a chunk's start through each token, and between any two of its tokens.
    let sum = lower
        .broadcast_as((n * chunks, size, size))?
        .contiguous()?
        .matmul(&g)?;
    let between = sum
        .broadcast_sub(&sum.transpose(1, 2)?)?
        .minimum(0f32)?
        .exp()?
        .broadcast_mul(&lower)?;
    let since_start = sum.exp()?;
    let total = sum.narrow(1, size - 1, 1)?;
    let until_end = total.broadcast_sub(&sum)?.exp()?;

    let kt = k.transpose(1, 2)?;
    let k_beta = k.broadcast_mul(&beta)?;
    let system = (k_beta.matmul(&kt)? * &between)?.broadcast_mul(&strict)?;
    let solve = inverse(&system, size)?;
    let writes = solve.matmul(&v.broadcast_mul(&beta)?)?;
    let erases = solve.matmul(&k_beta.broadcast_mul(&since_start)?)?;
    let within = (q.matmul(&kt)? * between)?;

    // From chunk to chunk, [B·N, chunks, size, ..].
    let by_chunk = |x: Tensor| x.reshape((n, chunks, size, ()));
    let (writes, erases, within) = (by_chunk(writes)?, by_chunk(erases)?, by_chunk(within)?);
    let q = by_chunk(q.broadcast_mul(&since_start)?)?;
    let k = by_chunk(k.broadcast_mul(&until_end)?)?;
    let kept = total.exp()?.reshape((n, chunks, 1, 1))?;
    let mut state = state.reshape((n, key_width, value_width))?;
    let mut reads = Vec::with_capacity(chunks);
    for c in 0..chunks {
        let at = |x: &Tensor| x.get_on_dim(1, c);
        let new = (at(&writes)? - at(&erases)?.matmul(&state)?)?;
        reads.push((at(&q)?.matmul(&state)? + at(&within)?.matmul(&new)?)?);
        let written = at(&k)?.transpose(1, 2)?.matmul(&new)?;
        state = (state.broadcast_mul(&at(&kept)?)? + written)?;
    }
    let read = Tensor::cat(&reads, 1)?.narrow(1, 0, tokens)?.contiguous()?;
    Ok((
        read.reshape((rows, heads, tokens, value_width))?,
        state.reshape((rows, heads, key_width, value_width))?,
    ))
}

/// (I + A)⁻¹ of strictly lower triangular A [N, size, size], `size` a power of two.
///
/// Blocks of s and s rows are joined to blocks of 2s: below the diagonal stands −T₂·A₂₁·T₁. No powers
/// of A are formed, which would overflow what they cancel to.
fn inverse(a: &Tensor, size: usize) -> Result<Tensor> {
    let ones = triangle(size, |i, j| i == j, a.device())?;
    let mut t = ones.broadcast_as(a.shape())?.contiguous()?;
    let mut s = 1;
    while s < size {
        let joined = |i: usize, j: usize| i / (2 * s) == j / (2 * s) && i / s > j / s;
        let corner = a.broadcast_mul(&triangle(size, joined, a.device())?)?;
        t = (&t - t.matmul(&corner)?.matmul(&t)?)?;
        s *= 2;
    }
    Ok(t)
}

/// A matrix [size, size] of 1 where `one(row, column)` and 0 elsewhere.
fn triangle(size: usize, one: impl Fn(usize, usize) -> bool, device: &Device) -> Result<Tensor> {
    let cell = |n: usize| if one(n / size, n % size) { 1.0 } else { 0.0 };
    let cells: Vec<f32> = (0..size * size).map(cell).collect();
    Tensor::from_vec(cells, (size, size), device)
}

/// Tokens of a chunk at most.
const CHUNK_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::normal::normals;

    const KEYS: usize = 6;
    const VALUES: usize = 5;

    struct Case {
        q: Vec<f32>,
        k: Vec<f32>,
        v: Vec<f32>,
        decay: Vec<f32>,
        beta: Vec<f32>,
        state: Vec<f32>,
        tokens: usize,
    }

    fn unit(mut x: Vec<f32>) -> Vec<f32> {
        for row in x.chunks_mut(KEYS) {
            let length = row.iter().map(|x| x * x).sum::<f32>().sqrt();
            row.iter_mut().for_each(|x| *x /= length);
        }
        x
    }

    /// One row and one head; keys that hardly differ make the system hard.
    fn case(tokens: usize, spread: f64, decays: f32) -> Case {
        let draw = |name: &str, count: usize| normals(9, name, count, 1.0);
        let near = normals(9, "k", tokens * KEYS, spread);
        Case {
            q: unit(draw("q", tokens * KEYS)),
            k: unit(near.into_iter().map(|x| x + 1.0).collect()),
            v: draw("v", tokens * VALUES),
            decay: draw("g", tokens)
                .iter()
                .map(|g| -g.abs() * decays)
                .collect(),
            beta: draw("b", tokens)
                .iter()
                .map(|b| 1.0 / (1.0 + (-b).exp()))
                .collect(),
            state: draw("m", KEYS * VALUES),
            tokens,
        }
    }

    impl Case {
        /// The rule as it is written, token by token in f64.
        fn by_token(&self) -> (Vec<f64>, Vec<f64>) {
            let f = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
            let (q, k, v, mut m) = (f(&self.q), f(&self.k), f(&self.v), f(&self.state));
            let mut read = Vec::new();
            for t in 0..self.tokens {
                let (q, k) = (&q[t * KEYS..][..KEYS], &k[t * KEYS..][..KEYS]);
                let a = f64::from(self.decay[t]).exp();
                m.iter_mut().for_each(|m| *m *= a);
                let of = |m: &[f64], x: &[f64], j: usize| {
                    (0..KEYS).map(|i| m[i * VALUES + j] * x[i]).sum::<f64>()
                };
                for j in 0..VALUES {
                    let delta = (v[t * VALUES + j] - of(&m, k, j)) * f64::from(self.beta[t]);
                    (0..KEYS).for_each(|i| m[i * VALUES + j] += k[i] * delta);
                }
                read.extend((0..VALUES).map(|j| of(&m, q, j)));
            }
            (read, m)
        }

        fn by_chunk(&self, first: usize, tokens: usize, state: &Tensor) -> (Tensor, Tensor) {
            let cut = |x: &[f32], width: usize| {
                let part = x[first * width..(first + tokens) * width].to_vec();
                Tensor::from_vec(part, (1, 1, tokens, width), &Device::Cpu).unwrap()
            };
            let (q, k, v) = (cut(&self.q, KEYS), cut(&self.k, KEYS), cut(&self.v, VALUES));
            let flat = |x: &[f32]| cut(x, 1).squeeze(3).unwrap();
            gated_delta_rule(&q, &k, &v, &flat(&self.decay), &flat(&self.beta), state).unwrap()
        }

        fn start(&self) -> Tensor {
            Tensor::from_vec(self.state.clone(), (1, 1, KEYS, VALUES), &Device::Cpu).unwrap()
        }
    }

    #[track_caller]
    fn close(got: &Tensor, want: &[f64]) {
        let got = got.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(got.len(), want.len());
        let norm = want.iter().map(|x| x * x).sum::<f64>().sqrt();
        let apart = got
            .iter()
            .zip(want)
            .map(|(a, b)| (f64::from(*a) - b).powi(2))
            .sum::<f64>();
        assert!(apart.sqrt() / norm < 1e-5, "{:.1e}", apart.sqrt() / norm);
    }

    #[test]
    fn chunks_give_what_tokens_give() {
        for (spread, decays) in [(1.0, 0.1), (0.05, 0.01), (1.0, 40.0), (0.3, 0.0)] {
            for tokens in [1, 2, 5, 64, 65, 200] {
                let case = case(tokens, spread, decays);
                let (want, end) = case.by_token();
                let (read, state) = case.by_chunk(0, tokens, &case.start());
                close(&read, &want);
                close(&state, &end);
            }
        }
    }

    #[test]
    fn the_state_carries_over_any_cut() {
        let case = case(150, 1.0, 0.1);
        let (want, end) = case.by_token();
        let (first, state) = case.by_chunk(0, 67, &case.start());
        let (second, state) = case.by_chunk(67, 83, &state);
        close(&Tensor::cat(&[first, second], 2).unwrap(), &want);
        close(&state, &end);
    }
}
