//! Names and shapes of a target's tensors, as this program calls them whatever the file.

use std::collections::BTreeMap;

use crate::model::config::{Family, Hybrid, LayerKind, TargetConfig};

type Shapes = Vec<(&'static str, Vec<usize>)>;

/// Names and shapes of a target's tensors; `lm_head.weight` only when it is not tied.
pub fn target_shapes(config: &TargetConfig) -> BTreeMap<String, Vec<usize>> {
    let g = &config.geometry;
    let mut shapes = BTreeMap::new();
    for n in 0..g.num_hidden_layers {
        let prefix = layer_prefix(n);
        for (name, shape) in layer_shapes(config, n) {
            shapes.insert(format!("{prefix}{name}"), shape);
        }
    }
    let table = vec![g.vocab_size, g.hidden_size];
    shapes.insert(EMBED.into(), table.clone());
    shapes.insert(NORM.into(), vec![g.hidden_size]);
    if !config.tie_word_embeddings {
        shapes.insert(LM_HEAD.into(), table);
    }
    shapes
}

/// This program's name of a tensor in a released file; none for those that a text target does not
/// read: the vision tower, the layers that predict several tokens, tables that follow from the config.
pub(super) fn own_name(name: &str) -> Option<String> {
    let other = ["model.visual.", "visual.", "mtp."];
    if other.iter().any(|prefix| name.starts_with(prefix)) || name.ends_with(".rotary_emb.inv_freq")
    {
        return None;
    }
    Some(match name.strip_prefix("model.language_model.") {
        Some(rest) => format!("model.{rest}"),
        None => name.to_owned(),
    })
}

/// Where the names of layer n begin.
pub(super) fn layer_prefix(n: usize) -> String {
    format!("model.layers.{n}.")
}

fn layer_shapes(config: &TargetConfig, n: usize) -> Shapes {
    let g = &config.geometry;
    let (h, i) = (g.hidden_size, g.intermediate_size);
    let mut shapes = match (&config.family, config.layer_kind(n)) {
        (Family::Qwen3_5(hybrid), LayerKind::GatedDelta) => delta_shapes(hybrid, h),
        _ => attention_shapes(config),
    };
    shapes.extend([
        ("input_layernorm.weight", vec![h]),
        ("post_attention_layernorm.weight", vec![h]),
        ("mlp.gate_proj.weight", vec![i, h]),
        ("mlp.up_proj.weight", vec![i, h]),
        ("mlp.down_proj.weight", vec![h, i]),
    ]);
    shapes
}

fn attention_shapes(config: &TargetConfig) -> Shapes {
    let g = &config.geometry;
    let (h, d) = (g.hidden_size, g.head_dim);
    let (q, kv) = (g.num_attention_heads * d, g.num_key_value_heads * d);
    // Gated attention keeps its gate in the query projection, head by head.
    let gates = match config.family {
        Family::Qwen3_5(_) => 2,
        Family::Qwen3 | Family::Llama => 1,
    };
    let mut shapes = vec![
        ("self_attn.q_proj.weight", vec![gates * q, h]),
        ("self_attn.k_proj.weight", vec![kv, h]),
        ("self_attn.v_proj.weight", vec![kv, h]),
        ("self_attn.o_proj.weight", vec![h, q]),
    ];
    if config.family != Family::Llama {
        shapes.push(("self_attn.q_norm.weight", vec![d]));
        shapes.push(("self_attn.k_norm.weight", vec![d]));
    }
    shapes
}

fn delta_shapes(hybrid: &Hybrid, h: usize) -> Shapes {
    let (heads, values) = (hybrid.value_heads, hybrid.value_width());
    vec![
        (
            "linear_attn.in_proj_qkv.weight",
            vec![hybrid.conv_width(), h],
        ),
        ("linear_attn.in_proj_z.weight", vec![values, h]),
        ("linear_attn.in_proj_b.weight", vec![heads, h]),
        ("linear_attn.in_proj_a.weight", vec![heads, h]),
        (
            "linear_attn.conv1d.weight",
            vec![hybrid.conv_width(), 1, hybrid.conv_kernel],
        ),
        ("linear_attn.dt_bias", vec![heads]),
        ("linear_attn.A_log", vec![heads]),
        (DELTA_NORM, vec![hybrid.value_head_dim]),
        ("linear_attn.out_proj.weight", vec![h, values]),
    ]
}

pub(in crate::model) const EMBED: &str = "model.embed_tokens.weight";
pub(in crate::model) const NORM: &str = "model.norm.weight";
pub(in crate::model) const LM_HEAD: &str = "lm_head.weight";
/// The only norm of Qwen3.5 that stores its weight as it is.
pub(super) const DELTA_NORM: &str = "linear_attn.norm.weight";
