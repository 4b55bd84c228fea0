//! Tensors of a GGUF file by the names and in the order of safetensors.

use std::io::BufReader;

use candle_core::{Device, Result as TensorResult, Tensor};

use super::GgufFile;
use crate::model::config::Family;
use crate::model::target::{self, target_shapes};
use crate::model::{ModelError, TargetConfig, Tensors};

/// The embedding.
pub(super) const EMBED: &str = "token_embd.weight";
/// Divisors of the rotary rates.
pub(super) const ROPE: &str = "rope_freqs.weight";

pub(super) fn read(
    file: &GgufFile,
    config: &TargetConfig,
    device: &Device,
) -> Result<Tensors, ModelError> {
    let infos = &file.content.tensor_infos;
    let wrong = |name: &str, problem: String| ModelError::Weights {
        origin: file.path.display().to_string(),
        name: name.to_owned(),
        problem,
    };
    let shapes = target_shapes(config);
    let names: Vec<(String, String)> = (shapes.keys())
        .map(|name| (name.clone(), stored_name(name)))
        .collect();
    let mut others = infos.keys().filter(|name| *name != ROPE);
    if let Some(name) = others.find(|name| !names.iter().any(|(_, stored)| stored == *name)) {
        return Err(wrong(name, "is not part of this architecture".to_owned()));
    }
    let mut reader = BufReader::new(super::read(&file.path)?);
    let mut tensors = Tensors::new();
    for (name, stored) in names {
        let shape = &shapes[&name];
        match infos.get(&stored).map(|info| info.shape.dims()) {
            None => {
                let problem = format!("is missing; expected shape {shape:?}");
                return Err(wrong(&stored, problem));
            }
            Some(have) if have != shape => {
                let problem = format!("has shape {have:?}, the metadata say {shape:?}");
                return Err(wrong(&stored, problem));
            }
            Some(_) => {}
        }
        let damaged = |error| wrong(&stored, format!("cannot be read: {error}; fetch it again"));
        let tensor = (file.content.tensor(&mut reader, &stored, device))
            .and_then(|tensor| tensor.dequantize(device))
            .map_err(damaged)?;
        tensors.insert(name, in_halves(tensor, &stored, config)?);
    }
    Ok(tensors)
}

/// The name in a GGUF of a tensor `model.layers.N.…`, `model.…` or `lm_head.weight`.
pub(super) fn stored_name(name: &str) -> String {
    match name {
        target::EMBED => EMBED.into(),
        target::NORM => "output_norm.weight".into(),
        target::LM_HEAD => "output.weight".into(),
        _ => {
            let inner = name.strip_prefix("model.layers.").unwrap_or(name);
            let (n, part) = inner.split_once('.').unwrap_or((inner, ""));
            let part = PARTS
                .iter()
                .find(|(ours, _)| part == *ours)
                .map_or(part, |(_, theirs)| theirs);
            format!("blk.{n}.{part}")
        }
    }
}

const PARTS: [(&str, &str); 11] = [
    ("input_layernorm.weight", "attn_norm.weight"),
    ("self_attn.q_proj.weight", "attn_q.weight"),
    ("self_attn.k_proj.weight", "attn_k.weight"),
    ("self_attn.v_proj.weight", "attn_v.weight"),
    ("self_attn.o_proj.weight", "attn_output.weight"),
    ("self_attn.q_norm.weight", "attn_q_norm.weight"),
    ("self_attn.k_norm.weight", "attn_k_norm.weight"),
    ("post_attention_layernorm.weight", "ffn_norm.weight"),
    ("mlp.gate_proj.weight", "ffn_gate.weight"),
    ("mlp.up_proj.weight", "ffn_up.weight"),
    ("mlp.down_proj.weight", "ffn_down.weight"),
];

/// Undoes the order of rows in which pairs of turned dimensions stand side by side.
fn in_halves(tensor: Tensor, stored: &str, config: &TargetConfig) -> TensorResult<Tensor> {
    let paired = stored.ends_with("attn_q.weight") || stored.ends_with("attn_k.weight");
    if config.family != Family::Llama || !paired {
        return Ok(tensor);
    }
    let (rows, width) = tensor.dims2()?;
    let d = config.geometry.head_dim;
    tensor
        .reshape((rows / d, d / 2, 2, width))?
        .transpose(1, 2)?
        .contiguous()?
        .reshape((rows, width))
}
