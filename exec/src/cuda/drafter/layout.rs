//! Where each weight lies in the flat vectors of weights, moments and gradients.

use std::collections::BTreeMap;
use std::ops::Range;

use super::shape::Shape;

/// Every group of weights begins at a multiple of this. (elements)
const ALIGNMENT: usize = 64;

/// The weights of one layer, as ranges of elements. Matrices that are multiplied with the same input lie side by side, so that one
/// product serves them.
#[derive(Debug, Clone)]
pub(super) struct LayerLayout {
    pub(super) input_norm: Range<usize>,
    /// Queries, keys and values: [(heads + 2 key heads) · D, H].
    pub(super) qkv: Range<usize>,
    pub(super) q_norm: Range<usize>,
    pub(super) k_norm: Range<usize>,
    pub(super) output: Range<usize>,
    pub(super) post_norm: Range<usize>,
    /// Gate and up: [2 · inner, H].
    pub(super) gate_up: Range<usize>,
    pub(super) down: Range<usize>,
}

/// All weights.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) fuse: Range<usize>,
    pub(super) hidden_norm: Range<usize>,
    pub(super) norm: Range<usize>,
    pub(super) layers: Vec<LayerLayout>,
    /// Elements of the vectors, gaps included (they hold zeros).
    pub(super) len: usize,
    /// Each released tensor: its elements and its shape.
    pub(super) tensors: BTreeMap<String, (Range<usize>, Vec<usize>)>,
}

/// Lays tensors out one behind the other.
struct Builder {
    len: usize,
    tensors: BTreeMap<String, (Range<usize>, Vec<usize>)>,
}

impl Builder {
    /// A group of tensors side by side.
    fn group(&mut self, prefix: &str, members: &[(&str, &[usize])]) -> Range<usize> {
        let start = self.len;
        for (name, shape) in members {
            let next = self.len + shape.iter().product::<usize>();
            let place = (self.len..next, shape.to_vec());
            self.tensors.insert(format!("{prefix}{name}.weight"), place);
            self.len = next;
        }
        let end = self.len;
        self.len = end.next_multiple_of(ALIGNMENT);
        start..end
    }
}

impl Layout {
    pub(super) fn new(s: &Shape) -> Self {
        let mut b = Builder {
            len: 0,
            tensors: BTreeMap::new(),
        };
        let (h, i, d) = (s.hidden, s.inner, s.head_dim);
        let fuse = b.group("", &[("fc", &[h, s.features])]);
        let hidden_norm = b.group("", &[("hidden_norm", &[h])]);
        let norm = b.group("", &[("norm", &[h])]);
        let layers = (0..s.layers)
            .map(|n| {
                let prefix = format!("layers.{n}.");
                let mut group = |members: &[(&str, &[usize])]| b.group(&prefix, members);
                LayerLayout {
                    input_norm: group(&[("input_layernorm", &[h])]),
                    qkv: group(&[
                        ("self_attn.q_proj", &[s.queries(), h]),
                        ("self_attn.k_proj", &[s.keys(), h]),
                        ("self_attn.v_proj", &[s.keys(), h]),
                    ]),
                    q_norm: group(&[("self_attn.q_norm", &[d])]),
                    k_norm: group(&[("self_attn.k_norm", &[d])]),
                    output: group(&[("self_attn.o_proj", &[h, s.queries()])]),
                    post_norm: group(&[("post_attention_layernorm", &[h])]),
                    gate_up: group(&[("mlp.gate_proj", &[i, h]), ("mlp.up_proj", &[i, h])]),
                    down: group(&[("mlp.down_proj", &[h, i])]),
                }
            })
            .collect();
        Self {
            fuse,
            hidden_norm,
            norm,
            layers,
            len: b.len,
            tensors: b.tensors,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::shape::tests::shape;
    use super::*;

    #[test]
    fn tensors_have_their_released_names_and_do_not_overlap() {
        let layout = Layout::new(&shape());
        assert_eq!(layout.tensors.len(), 3 + 11 * 2);
        let mut ranges: Vec<_> = layout
            .tensors
            .values()
            .map(|(range, _)| range.clone())
            .collect();
        ranges.sort_by_key(|range| range.start);
        assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
        assert!(ranges.last().unwrap().end <= layout.len);
        for (name, (range, shape)) in &layout.tensors {
            assert_eq!(range.len(), shape.iter().product::<usize>(), "{name}");
        }
        let layer = &layout.layers[1];
        let q = &layout.tensors["layers.1.self_attn.q_proj.weight"].0;
        let k = &layout.tensors["layers.1.self_attn.k_proj.weight"].0;
        assert_eq!((q.start, q.end), (layer.qkv.start, k.start));
        assert_eq!(layer.gate_up.len(), 2 * 40 * 64);
    }
}
