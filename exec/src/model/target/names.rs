//! Names and shapes of a target's tensors, as this program calls them whatever the file.

use std::collections::BTreeMap;

use crate::model::config::{Family, TargetConfig};

/// Names and shapes of a target's tensors; `lm_head.weight` only when it is not tied.
pub fn target_shapes(config: &TargetConfig) -> BTreeMap<String, Vec<usize>> {
    let g = &config.geometry;
    let mut shapes: BTreeMap<_, _> = (0..g.num_hidden_layers)
        .flat_map(|n| {
            let prefix = layer_prefix(n);
            layer_shapes(config)
                .into_iter()
                .map(move |(name, shape)| (format!("{prefix}{name}"), shape))
        })
        .collect();
    let table = vec![g.vocab_size, g.hidden_size];
    shapes.insert(EMBED.into(), table.clone());
    shapes.insert(NORM.into(), vec![g.hidden_size]);
    if !config.tie_word_embeddings {
        shapes.insert(LM_HEAD.into(), table);
    }
    shapes
}

/// Where the names of layer n begin.
pub(super) fn layer_prefix(n: usize) -> String {
    format!("model.layers.{n}.")
}

fn layer_shapes(config: &TargetConfig) -> Vec<(&'static str, Vec<usize>)> {
    let g = &config.geometry;
    let (h, i, d) = (g.hidden_size, g.intermediate_size, g.head_dim);
    let (q, kv) = (g.num_attention_heads * d, g.num_key_value_heads * d);
    let mut shapes = vec![
        ("input_layernorm.weight", vec![h]),
        ("post_attention_layernorm.weight", vec![h]),
        ("mlp.gate_proj.weight", vec![i, h]),
        ("mlp.up_proj.weight", vec![i, h]),
        ("mlp.down_proj.weight", vec![h, i]),
        ("self_attn.q_proj.weight", vec![q, h]),
        ("self_attn.k_proj.weight", vec![kv, h]),
        ("self_attn.v_proj.weight", vec![kv, h]),
        ("self_attn.o_proj.weight", vec![h, q]),
    ];
    if config.family == Family::Qwen3 {
        shapes.push(("self_attn.q_norm.weight", vec![d]));
        shapes.push(("self_attn.k_norm.weight", vec![d]));
    }
    shapes
}

pub(in crate::model) const EMBED: &str = "model.embed_tokens.weight";
pub(in crate::model) const NORM: &str = "model.norm.weight";
pub(in crate::model) const LM_HEAD: &str = "lm_head.weight";
