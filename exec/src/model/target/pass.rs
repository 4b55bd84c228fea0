//! What all layers of one forward share: which tokens stand where.

use candle_core::{Device, Result, Tensor};

use crate::model::config::TargetConfig;
use crate::model::ops::Rope;

/// The new tokens of one row and those before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// Tokens that the cache holds.
    pub(super) past: usize,
    /// Tokens of this forward, padding not counted.
    pub(super) new: usize,
}

impl Span {
    /// Tokens up to and with the new ones.
    pub(super) fn end(self) -> usize {
        self.past + self.new
    }
}

/// One forward over B rows of S new tokens each, right-padded.
pub(super) struct Pass<'a> {
    pub(super) config: &'a TargetConfig,
    pub(super) spans: Vec<Span>,
    /// New tokens a row with padding (S).
    pub(super) tokens: usize,
    pub(super) rope: Rope,
    /// For one new token a row: visibility of keys [B, 1, 1, longest row], 0 or −∞.
    pub(super) seen: Option<Tensor>,
    /// Where some rows are shorter than S: 1 at tokens, 0 at pads [B, S, 1].
    pub(super) real: Option<Tensor>,
}

impl<'a> Pass<'a> {
    pub(super) fn new(
        config: &'a TargetConfig,
        spans: Vec<Span>,
        tokens: usize,
        device: &Device,
    ) -> Result<Self> {
        let rates = &config.rotary.rates;
        let from = |past: usize| (past..past + tokens).map(|p| p as u32);
        let rope = match even_past(&spans) {
            Some(past) => Rope::at(&from(past).collect::<Vec<_>>(), &[tokens], rates, device)?,
            None => {
                let positions: Vec<u32> = spans.iter().flat_map(|span| from(span.past)).collect();
                Rope::at(&positions, &[spans.len(), 1, tokens], rates, device)?
            }
        };
        let seen = match tokens == 1 && spans.len() > 1 {
            true => Some(seen(&spans, device)?),
            false => None,
        };
        let real = match spans.iter().any(|span| span.new < tokens) {
            true => Some(real(&spans, tokens, device)?),
            false => None,
        };
        Ok(Self {
            config,
            spans,
            tokens,
            rope,
            seen,
            real,
        })
    }

    /// Rows (B).
    pub(super) fn rows(&self) -> usize {
        self.spans.len()
    }
}

/// The tokens before the new ones, where all rows have as many.
pub(super) fn even_past(spans: &[Span]) -> Option<usize> {
    let past = spans.first()?.past;
    spans.iter().all(|span| span.past == past).then_some(past)
}

fn seen(spans: &[Span], device: &Device) -> Result<Tensor> {
    let longest = spans
        .iter()
        .map(|span| span.end())
        .max()
        .unwrap_or(1)
        .max(1);
    let bias: Vec<f32> = spans
        .iter()
        // A row without any token sees the first place, whose value nobody reads.
        .flat_map(|span| (0..longest).map(move |key| key < span.end().max(1)))
        .map(|seen| if seen { 0.0 } else { f32::NEG_INFINITY })
        .collect();
    Tensor::from_vec(bias, (spans.len(), 1, 1, longest), device)
}

fn real(spans: &[Span], tokens: usize, device: &Device) -> Result<Tensor> {
    let real: Vec<f32> = spans
        .iter()
        .flat_map(|span| (0..tokens).map(move |at| at < span.new))
        .map(|real| if real { 1.0 } else { 0.0 })
        .collect();
    Tensor::from_vec(real, (spans.len(), tokens, 1), device)
}
