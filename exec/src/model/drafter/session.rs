//! Drafting along a growing text: each context token is read once.
//!
//! A layer's context keys and values depend on the context's features and positions alone, not on
//! the block, so they are kept. A block then costs its own T slots and the tokens that became
//! certain since the last one.

use candle_core::{D, DType, Device, Result, Tensor};

use super::Drafter;
use crate::model::ModelError;
use crate::model::config::{DrafterConfig, Geometry};
use crate::model::layer::{LayerWeights, feed_forward};
use crate::model::ops::{Rope, linear, rms_norm};

/// A drafter behind the context of one text.
#[derive(Debug)]
pub struct DrafterSession {
    drafter: Drafter,
    layers: Vec<Layer>,
    len: usize,
}

/// One layer: its weights, and what it keeps of the context.
#[derive(Debug)]
struct Layer {
    w: LayerWeights,
    /// Keys with norm and rope [kv, room, D].
    keys: Tensor,
    /// Values [kv, room, D].
    values: Tensor,
    /// Window and in-block rule of a sliding layer.
    window: Option<Window>,
}

/// What a sliding layer's slots see, see [`super::sight`].
#[derive(Debug, Clone, Copy)]
struct Window {
    tokens: usize,
    causal: bool,
}

impl Window {
    /// The window of layer n, if it slides.
    fn of(config: &DrafterConfig, n: usize) -> Option<Self> {
        let sliding = config.sliding.as_ref()?;
        sliding.layers.get(n).filter(|slides| **slides)?;
        Some(Self {
            tokens: sliding.window,
            causal: sliding.causal,
        })
    }

    /// Additive mask [T, S + T] of a block behind S context tokens.
    fn bias(self, context: usize, slots: usize, device: &Device) -> Result<Tensor> {
        let sees = |slot: usize, key: usize| match key.checked_sub(context) {
            None => key + self.tokens > context + slot,
            Some(other) => !self.causal || other <= slot,
        };
        let pairs = (0..slots).flat_map(|slot| (0..context + slots).map(move |key| (slot, key)));
        let bias: Vec<f32> = pairs
            .map(|(slot, key)| {
                if sees(slot, key) {
                    0.0
                } else {
                    f32::NEG_INFINITY
                }
            })
            .collect();
        Tensor::from_vec(bias, (slots, context + slots), device)
    }
}

/// Context tokens that the first buffers hold; they double when they are full.
const ROOM: usize = 256;

impl Drafter {
    /// A session with an empty context.
    ///
    /// Errors: the tensor library's.
    pub fn session(&self) -> std::result::Result<DrafterSession, ModelError> {
        let g = &self.config.geometry;
        let layer = |n: usize| {
            let w = LayerWeights::of(&self.weights, &format!("layers.{n}."), g);
            let room = || {
                let shape = (g.num_key_value_heads, ROOM, g.head_dim);
                Tensor::zeros(shape, DType::F32, self.device())
            };
            Ok(Layer {
                w,
                keys: room()?,
                values: room()?,
                window: Window::of(&self.config, n),
            })
        };
        Ok(DrafterSession {
            layers: (0..g.num_hidden_layers).map(layer).collect::<Result<_>>()?,
            drafter: self.clone(),
            len: 0,
        })
    }
}

impl DrafterSession {
    /// Context tokens; the next anchor stands at this position.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no context yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes in the target's features [n, K·H] at the next n positions.
    ///
    /// Errors: features of another width than the config says, the tensor library's.
    pub fn append(&mut self, features: &Tensor) -> std::result::Result<(), ModelError> {
        let (count, have) = features.dims2()?;
        let config = &self.drafter.config;
        let width = config.target_layer_ids.len() * config.geometry.hidden_size;
        if have != width {
            let problem = format!("hidden states {have} wide, the drafter reads {width}");
            return Err(ModelError::Batch { row: 0, problem });
        }
        if count > 0 {
            self.take_in(features, count)?;
        }
        Ok(())
    }

    fn take_in(&mut self, features: &Tensor, count: usize) -> Result<()> {
        let g = &self.drafter.config.geometry;
        let weights = &self.drafter.weights;
        let features = features.to_dtype(DType::F32)?.contiguous()?;
        let fused = linear(&features, &weights["fc.weight"])?;
        let context = rms_norm(&fused, &weights["hidden_norm.weight"], g.rms_norm_eps)?.y;
        let rope = rope(self.len, count, g, &self.drafter)?;
        for layer in &mut self.layers {
            let (keys, values) = keys_values(&context, &layer.w, &rope, g)?;
            put(&mut layer.keys, &keys, self.len)?;
            put(&mut layer.values, &values, self.len)?;
        }
        self.len += count;
        Ok(())
    }

    /// Hidden states after the final norm [T, H] of the block that `anchor`, the token behind the
    /// context, opens.
    ///
    /// Errors: a token outside the vocabulary, the tensor library's.
    pub fn draft(&mut self, anchor: u32) -> std::result::Result<Tensor, ModelError> {
        let drafter = &self.drafter;
        let config = &drafter.config;
        let g = &config.geometry;
        if anchor as usize >= g.vocab_size {
            let problem = format!(
                "token {anchor} is outside the vocabulary of {}",
                g.vocab_size
            );
            return Err(ModelError::Batch { row: 0, problem });
        }
        let mut tokens = vec![config.mask_token_id; config.block_size];
        tokens[0] = anchor;
        let tokens = Tensor::new(tokens, drafter.device())?;
        let mut x = drafter.embed.index_select(&tokens, 0)?;
        let rope = rope(self.len, config.block_size, g, drafter)?;
        for layer in &mut self.layers {
            x = layer.forward(&x, self.len, &rope, g)?;
        }
        Ok(rms_norm(&x, &drafter.weights["norm.weight"], g.rms_norm_eps)?.y)
    }
}

impl Layer {
    /// The block's slots x [T, H] behind `context` kept tokens, to [T, H].
    fn forward(&mut self, x: &Tensor, context: usize, rope: &Rope, g: &Geometry) -> Result<Tensor> {
        let w = &self.w;
        let y = rms_norm(x, &w.input_layernorm, g.rms_norm_eps)?.y;
        let q = by_head(&linear(&y, &w.q_proj)?, g)?;
        let q = rope.rotate(&rms_norm(&q, &w.q_norm, g.rms_norm_eps)?.y)?;
        // The block's own keys and values lie behind the context until the next ones overwrite them.
        let (keys, values) = keys_values(&y, w, rope, g)?;
        put(&mut self.keys, &keys, context)?;
        put(&mut self.values, &values, context)?;
        let (slots, seen) = (x.dim(0)?, context + x.dim(0)?);
        let bias = self
            .window
            .map(|window| window.bias(context, slots, x.device()))
            .transpose()?;
        let mixed = attend(
            &q.affine((g.head_dim as f64).powf(-0.5), 0.0)?,
            &self.keys.narrow(1, 0, seen)?,
            &self.values.narrow(1, 0, seen)?,
            bias.as_ref(),
        )?;
        let x = (x + linear(&mixed, &w.o_proj)?)?;
        Ok(feed_forward(&x, w, g.rms_norm_eps)?.0)
    }
}

/// Attention of slots to keys: q [heads, T, D], k and v [kv, S + T, D], and what is not seen
/// [T, S + T], giving [T, heads·D].
fn attend(q: &Tensor, k: &Tensor, v: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let (heads, slots, width) = q.dims3()?;
    let kv = k.dim(0)?;
    // The query heads of a group follow one another: their queries become rows of one product.
    let q = q.contiguous()?.reshape((kv, heads / kv * slots, width))?;
    let mut scores = q.matmul(&k.transpose(1, 2)?)?;
    if let Some(bias) = bias {
        let by_head = (heads, slots, k.dim(1)?);
        let rows = scores.shape().clone();
        scores = scores
            .reshape(by_head)?
            .broadcast_add(bias)?
            .reshape(rows)?;
    }
    let p = scores
        .broadcast_sub(&scores.max_keepdim(D::Minus1)?)?
        .exp()?;
    let out = p.matmul(v)?.broadcast_div(&p.sum_keepdim(D::Minus1)?)?;
    out.reshape((heads, slots, width))?
        .transpose(0, 1)?
        .contiguous()?
        .reshape((slots, heads * width))
}

/// Keys with norm and rope, and values, of rows x [n, H]: each [kv, n, D].
fn keys_values(
    x: &Tensor,
    w: &LayerWeights,
    rope: &Rope,
    g: &Geometry,
) -> Result<(Tensor, Tensor)> {
    let keys = by_head(&linear(x, &w.k_proj)?, g)?;
    let keys = rope.rotate(&rms_norm(&keys, &w.k_norm, g.rms_norm_eps)?.y)?;
    Ok((keys, by_head(&linear(x, &w.v_proj)?, g)?))
}

/// Rows [n, heads·D] as [heads, n, D].
fn by_head(x: &Tensor, g: &Geometry) -> Result<Tensor> {
    x.reshape((x.dim(0)?, (), g.head_dim))?
        .transpose(0, 1)?
        .contiguous()
}

/// Rotary tables of `count` positions from `first` [n, D].
fn rope(first: usize, count: usize, g: &Geometry, drafter: &Drafter) -> Result<Rope> {
    let positions: Vec<u32> = (first..first + count).map(|p| p as u32).collect();
    Rope::new(
        &positions,
        &[count],
        g.head_dim,
        g.rope_theta,
        drafter.device(),
    )
}

/// Puts `more` [kv, n, D] behind the first `len` tokens of `buffer`, which grows when it is full.
fn put(buffer: &mut Tensor, more: &Tensor, len: usize) -> Result<()> {
    let (heads, room, width) = buffer.dims3()?;
    let needed = len + more.dim(1)?;
    if needed > room {
        let shape = (heads, needed.next_power_of_two(), width);
        let larger = Tensor::zeros(shape, buffer.dtype(), buffer.device())?;
        larger.slice_set(&buffer.narrow(1, 0, len)?.contiguous()?, 1, 0)?;
        *buffer = larger;
    }
    buffer.slice_set(&more.contiguous()?, 1, len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixture::{drafter_config, microbatch, models, row};
    use crate::model::{HiddenStates, SlidingAttention};

    fn largest(x: &Tensor) -> f32 {
        let x = x.abs().unwrap().flatten_all().unwrap();
        x.max(0).unwrap().to_scalar::<f32>().unwrap()
    }

    /// Features [S, K·H] of a row, and what the drafter gives for its blocks [A, T, H].
    fn reference(tokens: usize, anchors: &[u32]) -> (Vec<u32>, Tensor, Tensor) {
        let (target, drafter) = models();
        let mut row = row(1, tokens, 0);
        row.anchors = anchors.to_vec();
        let (batch, plan) = microbatch(&[&row], tokens);
        let states = target.forward(&batch).unwrap();
        let hidden = drafter.hidden(&states, &plan).unwrap();
        let features = states.features.get(0).unwrap();
        (row.input_ids, features, hidden.get(0).unwrap())
    }

    #[test]
    fn a_session_drafts_as_the_training_forward_does() {
        // Beyond the first buffers, and in uneven pieces.
        let anchors = [1, 2, 7, 40, 41, 300];
        let (ids, features, expected) = reference(305, &anchors);
        let mut session = models().1.session().unwrap();
        for (block, &anchor) in anchors.iter().enumerate() {
            let new = anchor as usize - session.len();
            let new = features.narrow(0, session.len(), new).unwrap();
            session.append(&new).unwrap();
            assert_eq!(session.len(), anchor as usize);
            let hidden = session.draft(ids[anchor as usize]).unwrap();
            let error = largest(&(hidden - expected.get(block).unwrap()).unwrap());
            assert!(error < 1e-5, "block {block}: {error}");
        }
    }

    #[test]
    fn sliding_layers_see_their_window() {
        let (target, _) = models();
        for causal in [true, false] {
            let sliding = SlidingAttention::all_but_last(2, 1, 6, causal);
            let config = drafter_config().with_sliding(sliding).unwrap();
            let drafter = Drafter::random(config, 12, &target).unwrap();
            let mut row = row(1, 40, 0);
            row.anchors = vec![2, 5, 6, 30];
            let (batch, plan) = microbatch(&[&row], 40);
            let states = target.forward(&batch).unwrap();
            let expected = drafter.hidden(&states, &plan).unwrap().get(0).unwrap();
            let full = models().1.hidden(&states, &plan).unwrap().get(0).unwrap();
            let features = states.features.get(0).unwrap();
            for (block, &anchor) in row.anchors.iter().enumerate() {
                let anchor = anchor as usize;
                let mut session = drafter.session().unwrap();
                session
                    .append(&features.narrow(0, 0, anchor).unwrap())
                    .unwrap();
                let hidden = session.draft(row.input_ids[anchor]).unwrap();
                let error = largest(&(&hidden - expected.get(block).unwrap()).unwrap());
                assert!(error < 1e-5, "causal {causal}, block {block}: {error}");
                if anchor > 6 {
                    let other = largest(&(hidden - full.get(block).unwrap()).unwrap());
                    assert!(other > 1e-3, "the window changes nothing: {other}");
                }
            }
        }
    }

    #[test]
    fn drafting_leaves_the_context_as_it_was() {
        let (ids, features, _) = reference(30, &[1]);
        let mut session = models().1.session().unwrap();
        session.append(&features.narrow(0, 0, 20).unwrap()).unwrap();
        let first = session.draft(ids[20]).unwrap();
        session.draft(3).unwrap();
        let again = session.draft(ids[20]).unwrap();
        assert_eq!(largest(&(first - again).unwrap()), 0.0);
        assert_eq!(session.len(), 20);
    }

    #[test]
    fn states_at_and_behind_the_anchor_are_not_seen() {
        let anchor = 12;
        let (_, features, expected) = reference(20, &[anchor]);
        let (target, drafter) = models();
        let mut row = row(1, 20, 0);
        row.anchors = vec![anchor];
        let (_, plan) = microbatch(&[&row], 20);
        let seen = features.narrow(0, 0, anchor as usize).unwrap();
        let other = features.narrow(0, anchor as usize, 8).unwrap();
        let other = other.affine(-3.0, 1.0).unwrap();
        let changed = HiddenStates {
            features: Tensor::cat(&[seen, other], 0)
                .unwrap()
                .unsqueeze(0)
                .unwrap(),
            last_hidden: None,
        };
        let hidden = drafter.hidden(&changed, &plan).unwrap().get(0).unwrap();
        assert_eq!(largest(&(hidden - expected).unwrap()), 0.0);
        assert_eq!(target.captured(), drafter_config().target_layer_ids);
    }

    #[test]
    fn features_of_another_width_and_wild_tokens_are_refused() {
        let mut session = models().1.session().unwrap();
        let narrow = Tensor::zeros((2, 7), DType::F32, &Device::Cpu).unwrap();
        let width = drafter_config().target_layer_ids.len() * 32;
        assert_eq!(
            session.append(&narrow).unwrap_err().to_string(),
            format!("batch row 0: hidden states 7 wide, the drafter reads {width}")
        );
        assert_eq!(
            session.draft(50).unwrap_err().to_string(),
            "batch row 0: token 50 is outside the vocabulary of 50"
        );
    }
}
