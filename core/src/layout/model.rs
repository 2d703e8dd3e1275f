//! The KV geometry of well-known models.
//!
//! ```text
//!   bytes of a block = layers × outer dim × tokens a page × KV heads × head size × bytes of an element
//!   llama-3-70b        80     × 2         × 16            × 8        × 128       × 2          = 5,242,880
//! ```
//!
//! | `config.json` says | here |
//! |---|---|
//! | `num_hidden_layers` | `layers`: those that are served, without layers for multi-token prediction |
//! | `num_key_value_heads` | `kv_heads` |
//! | `head_dim`, or `hidden_size / num_attention_heads` where it does not | `head_size` |
//! | `kv_lora_rank + qk_rope_head_dim` (MLA) | `head_size`, with one head and outer dim 1 |
//! | `torch_dtype` | `dtype`: what the cache is in unless the engine is told otherwise |
//!
//! Only models whose layers all have one geometry are here; where every other one attends to a window only, `window` says so.

use super::{DType, LayoutConfig};
use crate::plan::{Shard, ShardError};
use core::fmt;

/// A model, as far as its KV cache is concerned.
///
/// ```
/// use kvstrata_core::layout::Model;
/// let model = Model::find("llama-3-70b")?;
/// assert_eq!(model.config(16).block_bytes()?, 5_242_880);
/// assert_eq!(model.config_for(16, &model.shard(4, 0)?).block_bytes()?, 1_310_720);
/// // One latent, which every rank has.
/// let model = Model::find("deepseek-v3")?;
/// assert_eq!(model.config_for(64, &model.shard(8, 5)?).block_bytes()?, 61 * 64 * 576 * 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Model {
    /// The name, as options spell it.
    pub name: &'static str,
    /// Layers.
    pub layers: u32,
    /// 2 where keys and values are apart, 1 where one latent stands for both (MLA).
    pub outer_dim: u32,
    /// KV heads; 1 for MLA.
    pub kv_heads: u32,
    /// Elements a head and token; the latent's size for MLA.
    pub head_size: u32,
    /// The elements' type.
    pub dtype: DType,
    /// Tokens that every other layer attends to, the first one included; the others, and all where there is none, attend to all.
    pub window: Option<u32>,
    /// Where the numbers are from.
    pub source: &'static str,
    /// What else one must know of its cache; empty for most.
    pub note: &'static str,
}

/// No such model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownModel;

impl fmt::Display for UnknownModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown model: known are")?;
        for (i, model) in Model::ALL.iter().enumerate() {
            write!(f, "{} {}", if i == 0 { "" } else { "," }, model.name)?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownModel {}

/// As gpt-oss: layers 0, 2, 4 … attend to a window.
const fn windowed(model: Model) -> Model {
    Model { window: Some(128), note: "every other layer attends to the last 128 tokens only", ..model }
}

/// Keys and values in bfloat16, as all of them but MLA.
const fn gqa(name: &'static str, layers: u32, kv_heads: u32, head_size: u32, source: &'static str) -> Model {
    let dtype = DType::BF16;
    Model { name, layers, outer_dim: 2, kv_heads, head_size, dtype, window: None, source, note: "" }
}

impl Model {
    /// All of them.
    pub const ALL: &'static [Model] = &[
        gqa("llama-3-8b", 32, 8, 128, "huggingface.co/meta-llama/Meta-Llama-3-8B"),
        gqa("llama-3-70b", 80, 8, 128, "huggingface.co/meta-llama/Meta-Llama-3-70B"),
        gqa("llama-3.1-405b", 126, 8, 128, "huggingface.co/meta-llama/Llama-3.1-405B"),
        gqa("qwen2.5-7b", 28, 4, 128, "huggingface.co/Qwen/Qwen2.5-7B"),
        gqa("qwen3-32b", 64, 8, 128, "huggingface.co/Qwen/Qwen3-32B"),
        gqa("qwen3-30b-a3b", 48, 4, 128, "huggingface.co/Qwen/Qwen3-30B-A3B"),
        gqa("mistral-7b", 32, 8, 128, "huggingface.co/mistralai/Mistral-7B-v0.3"),
        gqa("mixtral-8x7b", 32, 8, 128, "huggingface.co/mistralai/Mixtral-8x7B-v0.1"),
        gqa("gemma-7b", 28, 16, 256, "huggingface.co/google/gemma-7b"),
        windowed(gqa("gpt-oss-20b", 24, 8, 64, "huggingface.co/openai/gpt-oss-20b")),
        windowed(gqa("gpt-oss-120b", 36, 8, 64, "huggingface.co/openai/gpt-oss-120b")),
        Model {
            outer_dim: 1,
            note: "MLA: a latent of 512 and a rotary key of 64, the same on every rank",
            ..gqa("deepseek-v3", 61, 1, 576, "huggingface.co/deepseek-ai/DeepSeek-V3")
        },
    ];

    /// The model of that name, in any case.
    ///
    /// # Errors
    ///
    /// There is none; the error lists all.
    pub fn find(name: &str) -> Result<&'static Model, UnknownModel> {
        Model::ALL.iter().find(|model| model.name.eq_ignore_ascii_case(name)).ok_or(UnknownModel)
    }

    /// Whether a layer attends to the [`window`](Model::window) only.
    #[must_use]
    pub const fn is_windowed(&self, layer: u32) -> bool {
        self.window.is_some() && layer.is_multiple_of(2)
    }

    /// The geometry of one block of the whole model, aligned to its elements.
    #[must_use]
    pub const fn config(&self, tokens_a_page: u32) -> LayoutConfig {
        let config = LayoutConfig::new().num_layers(self.layers).outer_dim(self.outer_dim);
        let config = config.page_size(tokens_a_page).heads(self.kv_heads, self.head_size);
        config.dtype(self.dtype).alignment(self.dtype.alignment())
    }

    /// A rank of a tensor-parallel group that serves this model.
    ///
    /// # Errors
    ///
    /// There is no such rank.
    pub const fn shard(&self, degree: u32, rank: u32) -> Result<Shard, ShardError> {
        Shard::new(self.kv_heads, degree, rank)
    }

    /// The geometry of one block of a rank: its heads, all of its layers. `shard` is one of [`shard`](Model::shard).
    #[must_use]
    pub const fn config_for(&self, tokens_a_page: u32, shard: &Shard) -> LayoutConfig {
        let heads = shard.heads();
        self.config(tokens_a_page).num_heads(heads.end - heads.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    /// Bytes a token, as one knows them: a preset with a wrong number is a cache of a wrong size.
    #[test]
    fn a_token_takes_what_it_does() {
        let kib = [
            ("llama-3-8b", 128.0),
            ("llama-3-70b", 320.0),
            ("llama-3.1-405b", 504.0),
            ("qwen2.5-7b", 56.0),
            ("qwen3-32b", 256.0),
            ("qwen3-30b-a3b", 96.0),
            ("mistral-7b", 128.0),
            ("mixtral-8x7b", 128.0),
            ("gemma-7b", 448.0),
            ("gpt-oss-20b", 48.0),
            ("gpt-oss-120b", 72.0),
            ("deepseek-v3", 68.625),
        ];
        assert_eq!(kib.len(), Model::ALL.len());
        for (name, kib) in kib {
            let bytes = Model::find(name).unwrap().config(1).block_bytes().unwrap();
            assert_eq!(bytes as f64 / 1024.0, kib, "{name}");
        }
    }

    #[test]
    fn ranks_have_the_model_between_them() {
        for model in Model::ALL {
            let whole = model.config(16);
            whole.validate().unwrap();
            for degree in [1, 2, 3, 4, 8, 32] {
                let heads = |rank| model.config_for(16, &model.shard(degree, rank).unwrap()).num_heads;
                let heads: u32 = (0..degree).map(heads).sum();
                assert_eq!(heads, model.kv_heads.max(degree), "{} on {degree}", model.name);
            }
            assert!(model.shard(4, 4).is_err());
        }
    }

    #[test]
    fn names_are_found() {
        for model in Model::ALL {
            assert_eq!(Model::find(&model.name.to_uppercase()), Ok(model));
            assert!(model.source.starts_with("huggingface.co/"), "{}", model.name);
        }
        let error = Model::find("gpt-5").unwrap_err().to_string();
        assert!(error.starts_with("unknown model: known are llama-3-8b, llama-3-70b,"), "{error}");
    }
}
