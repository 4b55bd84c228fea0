//! Names and shapes of the tensors in released files.

use std::collections::BTreeMap;

use super::config::{DrafterConfig, Geometry};

/// The eleven tensors of a decoder layer, by their names inside the layer.
pub(crate) fn layer_shapes(g: &Geometry) -> [(&'static str, Vec<usize>); 11] {
    let (h, i, d) = (g.hidden_size, g.intermediate_size, g.head_dim);
    let (q, kv) = (g.num_attention_heads * d, g.num_key_value_heads * d);
    [
        ("input_layernorm.weight", vec![h]),
        ("self_attn.q_proj.weight", vec![q, h]),
        ("self_attn.k_proj.weight", vec![kv, h]),
        ("self_attn.v_proj.weight", vec![kv, h]),
        ("self_attn.o_proj.weight", vec![h, q]),
        ("self_attn.q_norm.weight", vec![d]),
        ("self_attn.k_norm.weight", vec![d]),
        ("post_attention_layernorm.weight", vec![h]),
        ("mlp.gate_proj.weight", vec![i, h]),
        ("mlp.up_proj.weight", vec![i, h]),
        ("mlp.down_proj.weight", vec![h, i]),
    ]
}

fn layers(g: &Geometry, prefix: &str) -> impl Iterator<Item = (String, Vec<usize>)> {
    (0..g.num_hidden_layers).flat_map(move |n| {
        layer_shapes(g).map(|(name, shape)| (format!("{prefix}layers.{n}.{name}"), shape))
    })
}

/// Names and shapes of a drafter's 3 + 11·layers tensors.
pub fn drafter_shapes(config: &DrafterConfig) -> BTreeMap<String, Vec<usize>> {
    let g = &config.geometry;
    let mut shapes: BTreeMap<_, _> = layers(g, "").collect();
    let fused = config.target_layer_ids.len() * g.hidden_size;
    shapes.insert("fc.weight".into(), vec![g.hidden_size, fused]);
    shapes.insert("hidden_norm.weight".into(), vec![g.hidden_size]);
    shapes.insert("norm.weight".into(), vec![g.hidden_size]);
    shapes
}
