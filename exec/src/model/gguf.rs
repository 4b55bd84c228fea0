//! GGUF files as targets: metadata to a config, quantised tensors to f32, and the tokenizer within.
//!
//! The format is llama.cpp's. Its `llama` architecture turns neighbouring dimensions of a head where
//! this program turns halves, so the rows of the query and key projections are put back in order.

mod metadata;
mod tensors;
#[cfg(test)]
mod tests;
mod tokenizer;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use candle_core::quantized::gguf_file::Content;
use candle_core::{DType, Device};

use super::config::{Family, Geometry, Rotary};
use super::{ModelError, TargetConfig, Tensors};
use metadata::Metadata;
pub use tokenizer::{GgufTokenizer, TokenKind};

/// Whether `path` names a GGUF file, by its ending.
pub fn is_gguf(path: &Path) -> bool {
    path.extension()
        .is_some_and(|ending| ending.eq_ignore_ascii_case("gguf"))
}

/// An open GGUF file: its metadata is in memory, its tensors are not.
#[derive(Debug)]
pub struct GgufFile {
    path: PathBuf,
    content: Content,
}

impl GgufFile {
    /// Reads the header of `path`.
    ///
    /// Errors: the file is missing, damaged, or in a version that is not read (1, 2 and 3 are).
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let mut reader = BufReader::new(read(path)?);
        let content = Content::read(&mut reader).map_err(|error| ModelError::Gguf {
            path: path.to_owned(),
            problem: format!("not a valid GGUF file: {error}; fetch it again"),
        })?;
        Ok(Self {
            path: path.to_owned(),
            content,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The target that the metadata describe: architecture `llama` or `qwen3`.
    ///
    /// Errors: another architecture, a key missing or of a wrong type, rope scaled in a way that is
    /// not supported.
    pub fn target_config(&self) -> Result<TargetConfig, ModelError> {
        let m = self.metadata();
        let architecture = m.text("general.architecture")?;
        let family = match architecture {
            "llama" => Family::Llama,
            "qwen3" => Family::Qwen3,
            _ => {
                let problem = "only \"llama\" and \"qwen3\" are supported; give the target as a folder of safetensors";
                return Err(m.wrong("general.architecture", problem));
            }
        };
        let key = |name: &str| format!("{architecture}.{name}");
        let hidden_size = m.size(&key("embedding_length"))?;
        let heads = m.size(&key("attention.head_count"))?;
        let head_dim = m.size_or(&key("attention.key_length"), hidden_size / heads)?;
        m.expect_or_absent(&key("rope.dimension_count"), head_dim)?;
        m.expect_or_absent(&key("attention.value_length"), head_dim)?;
        m.expect_or_absent(&key("expert_count"), 0)?;
        let scaling = key("rope.scaling.type");
        if m.has(&scaling) && m.text(&scaling)? != "none" {
            let problem =
                "scaled rope is not supported; give the target as a folder of safetensors";
            return Err(m.wrong(&scaling, problem));
        }
        let rope_theta = m.positive_or(&key("rope.freq_base"), 10_000.0)?;
        let geometry = Geometry {
            hidden_size,
            intermediate_size: m.size(&key("feed_forward_length"))?,
            num_hidden_layers: m.size(&key("block_count"))?,
            num_attention_heads: heads,
            num_key_value_heads: m.size_or(&key("attention.head_count_kv"), heads)?,
            head_dim,
            vocab_size: self.vocab_size()?,
            rms_norm_eps: m.positive_or(&key("attention.layer_norm_rms_epsilon"), 1e-6)?,
            rope_theta,
            max_position_embeddings: m.size_or(&key("context_length"), 4096)?,
        };
        super::config::check_geometry(&geometry, &self.path.display().to_string())?;
        Ok(TargetConfig {
            rotary: self.rotary(Rotary::new(head_dim, rope_theta))?,
            family,
            geometry,
            tie_word_embeddings: !self.content.tensor_infos.contains_key("output.weight"),
            initializer_range: 0.02,
            bos_token_id: m.token("tokenizer.ggml.bos_token_id")?,
            eos_token_id: m.token("tokenizer.ggml.eos_token_id")?,
            pad_token_id: m.token("tokenizer.ggml.padding_token_id")?,
        })
    }

    /// All tensors of the target by the names of its safetensors, widened to f32.
    ///
    /// Errors: a tensor missing, of a wrong shape or damaged, one that the architecture does not
    /// have.
    pub fn tensors(&self, config: &TargetConfig, device: &Device) -> Result<Tensors, ModelError> {
        tensors::read(self, config, device)
    }

    /// The tokenizer and chat template, as the file stores them.
    ///
    /// Errors: the file has no tokenizer, or lists of it do not fit each other.
    pub fn tokenizer(&self) -> Result<GgufTokenizer, ModelError> {
        GgufTokenizer::read(&self.metadata())
    }

    fn metadata(&self) -> Metadata<'_> {
        Metadata::new(&self.path, &self.content.metadata)
    }

    /// Rows of the embedding, which the metadata need not name.
    fn vocab_size(&self) -> Result<usize, ModelError> {
        let embed = self.content.tensor_infos.get(tensors::EMBED);
        let rows = embed.and_then(|info| info.shape.dims().first().copied());
        rows.ok_or_else(|| ModelError::Gguf {
            path: self.path.clone(),
            problem: format!("tensor {} is missing; fetch the file again", tensors::EMBED),
        })
    }

    /// Rope scaled by a tensor of divisors, as Llama 3.1 and later are stored.
    fn rotary(&self, plain: Rotary) -> Result<Rotary, ModelError> {
        if !self.content.tensor_infos.contains_key(tensors::ROPE) {
            return Ok(plain);
        }
        let mut reader = BufReader::new(read(&self.path)?);
        let tensor = self
            .content
            .tensor(&mut reader, tensors::ROPE, &Device::Cpu)?;
        let divisors = tensor.dequantize(&Device::Cpu)?.to_dtype(DType::F32)?;
        let divisors = divisors.flatten_all()?.to_vec1::<f32>()?;
        plain
            .divided(&divisors)
            .map_err(|problem| ModelError::Weights {
                origin: self.path.display().to_string(),
                name: tensors::ROPE.to_owned(),
                problem,
            })
    }
}

fn read(path: &Path) -> Result<File, ModelError> {
    File::open(path).map_err(|source| ModelError::Read {
        path: path.to_owned(),
        source,
    })
}
