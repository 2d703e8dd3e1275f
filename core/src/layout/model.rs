//! The KV geometry of well-known models.
//!
//! ```text
//!   bytes of a block = layers × outer dim × tokens a page × KV heads × head size × bytes of an element
//!   llama-3-70b        80     × 2         × 16            × 8        × 128       × 2          = 5,242,880
//! ```
//!
//! | `config.json` | this module |
//! |---|---|
//! | `num_hidden_layers` | `layers`: the served ones, without layers for multi-token prediction |
//! | `num_key_value_heads` | `kv_heads` |
//! | `head_dim`, or `hidden_size / num_attention_heads` if it is absent | `head_size` |
//! | `kv_lora_rank + qk_rope_head_dim` (MLA) | `head_size`, with one head and outer dim 1 |
//! | `torch_dtype` | `dtype`: the cache's type unless the engine is told otherwise |
//!
//! Only models with one geometry for all layers are here. In some models, most layers attend to a window
//! only: `window` and `full_every` tell which. A model of another kind is described by its own `config.json`.

use super::{DType, LayoutConfig};
use super::{Shard, ShardError};
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
    /// The number of layers.
    pub layers: u32,
    /// 2 if keys and values are apart, 1 if one latent stands for both (MLA).
    pub outer_dim: u32,
    /// KV heads; 1 for MLA.
    pub kv_heads: u32,
    /// Elements per head and token; the latent's size for MLA.
    pub head_size: u32,
    /// The elements' type.
    pub dtype: DType,
    /// Tokens that a windowed layer attends to; none if every layer attends to all.
    pub window: Option<u32>,
    /// In a model with windows: the last of every `full_every` layers attends to all tokens, and the
    /// others are windowed.
    pub full_every: u32,
    /// The source of the numbers.
    pub source: &'static str,
    /// A note on its cache; empty for most.
    pub note: &'static str,
}

/// The error for a name that is not a model's.
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

/// Windows of `window` tokens, except in the last of every `full_every` layers.
const fn windowed(window: u32, full_every: u32, note: &'static str, model: Model) -> Model {
    Model { window: Some(window), full_every, note, ..model }
}

/// Keys and values in bfloat16, as all models have except MLA.
const fn gqa(name: &'static str, layers: u32, kv_heads: u32, head_size: u32, source: &'static str) -> Model {
    let dtype = DType::BF16;
    Model {
        name,
        layers,
        outer_dim: 2,
        kv_heads,
        head_size,
        dtype,
        window: None,
        full_every: 1,
        source,
        note: "",
    }
}

/// A latent of 512 and a rotary key of 64, as all models of DeepSeek since V2.
const fn mla(name: &'static str, layers: u32, source: &'static str) -> Model {
    let note = "MLA: a latent of 512 and a rotary key of 64, the same on every rank";
    Model { outer_dim: 1, note, ..gqa(name, layers, 1, 576, source) }
}

/// Notes of windowed models.
const OTHER_128: &str = "every other layer attends to the last 128 tokens only";
const OTHER_4096: &str = "every other layer attends to the last 4,096 tokens only";
const FIVE_OF_SIX: &str = "five of six layers attend to the last 1,024 tokens only";
const FIVE_OF_SIX_512: &str = "five of six layers attend to the last 512 tokens only";
const CHUNKED: &str = "three of four layers attend to chunks of 8,192 tokens only";

impl Model {
    /// All models.
    pub const ALL: &'static [Model] = &[
        Model {
            dtype: DType::F16,
            ..gqa("llama-2-7b", 32, 32, 128, "huggingface.co/meta-llama/Llama-2-7b-hf")
        },
        Model {
            dtype: DType::F16,
            ..gqa("llama-2-70b", 80, 8, 128, "huggingface.co/meta-llama/Llama-2-70b-hf")
        },
        gqa("llama-3-8b", 32, 8, 128, "huggingface.co/meta-llama/Meta-Llama-3-8B"),
        gqa("llama-3-70b", 80, 8, 128, "huggingface.co/meta-llama/Meta-Llama-3-70B"),
        gqa("llama-3.1-8b", 32, 8, 128, "huggingface.co/meta-llama/Llama-3.1-8B"),
        gqa("llama-3.1-70b", 80, 8, 128, "huggingface.co/meta-llama/Llama-3.1-70B"),
        gqa("llama-3.1-405b", 126, 8, 128, "huggingface.co/meta-llama/Llama-3.1-405B"),
        gqa("llama-3.2-1b", 16, 8, 64, "huggingface.co/meta-llama/Llama-3.2-1B"),
        gqa("llama-3.2-3b", 28, 8, 128, "huggingface.co/meta-llama/Llama-3.2-3B"),
        gqa("llama-3.3-70b", 80, 8, 128, "huggingface.co/meta-llama/Llama-3.3-70B-Instruct"),
        windowed(
            8192,
            4,
            CHUNKED,
            gqa("llama-4-scout", 48, 8, 128, "huggingface.co/meta-llama/Llama-4-Scout-17B-16E"),
        ),
        windowed(
            8192,
            4,
            CHUNKED,
            gqa("llama-4-maverick", 48, 8, 128, "huggingface.co/meta-llama/Llama-4-Maverick-17B-128E"),
        ),
        gqa("qwen2.5-7b", 28, 4, 128, "huggingface.co/Qwen/Qwen2.5-7B"),
        gqa("qwen2.5-14b", 48, 8, 128, "huggingface.co/Qwen/Qwen2.5-14B"),
        gqa("qwen2.5-32b", 64, 8, 128, "huggingface.co/Qwen/Qwen2.5-32B"),
        gqa("qwen2.5-72b", 80, 8, 128, "huggingface.co/Qwen/Qwen2.5-72B"),
        gqa("qwen3-4b", 36, 8, 128, "huggingface.co/Qwen/Qwen3-4B"),
        gqa("qwen3-8b", 36, 8, 128, "huggingface.co/Qwen/Qwen3-8B"),
        gqa("qwen3-14b", 40, 8, 128, "huggingface.co/Qwen/Qwen3-14B"),
        gqa("qwen3-32b", 64, 8, 128, "huggingface.co/Qwen/Qwen3-32B"),
        gqa("qwen3-30b-a3b", 48, 4, 128, "huggingface.co/Qwen/Qwen3-30B-A3B"),
        gqa("qwen3-235b-a22b", 94, 4, 128, "huggingface.co/Qwen/Qwen3-235B-A22B"),
        gqa("mistral-7b", 32, 8, 128, "huggingface.co/mistralai/Mistral-7B-v0.3"),
        gqa("mistral-nemo", 40, 8, 128, "huggingface.co/mistralai/Mistral-Nemo-Base-2407"),
        gqa("mistral-small-24b", 40, 8, 128, "huggingface.co/mistralai/Mistral-Small-24B-Base-2501"),
        gqa("mistral-large-2", 88, 8, 128, "huggingface.co/mistralai/Mistral-Large-Instruct-2407"),
        gqa("mixtral-8x7b", 32, 8, 128, "huggingface.co/mistralai/Mixtral-8x7B-v0.1"),
        gqa("mixtral-8x22b", 56, 8, 128, "huggingface.co/mistralai/Mixtral-8x22B-v0.1"),
        gqa("gemma-7b", 28, 16, 256, "huggingface.co/google/gemma-7b"),
        windowed(4096, 2, OTHER_4096, gqa("gemma-2-9b", 42, 8, 256, "huggingface.co/google/gemma-2-9b")),
        windowed(4096, 2, OTHER_4096, gqa("gemma-2-27b", 46, 16, 128, "huggingface.co/google/gemma-2-27b")),
        windowed(
            512,
            6,
            FIVE_OF_SIX_512,
            gqa("gemma-3-1b", 26, 1, 256, "huggingface.co/google/gemma-3-1b-pt"),
        ),
        windowed(1024, 6, FIVE_OF_SIX, gqa("gemma-3-4b", 34, 4, 256, "huggingface.co/google/gemma-3-4b-pt")),
        windowed(
            1024,
            6,
            FIVE_OF_SIX,
            gqa("gemma-3-12b", 48, 8, 256, "huggingface.co/google/gemma-3-12b-pt"),
        ),
        windowed(
            1024,
            6,
            FIVE_OF_SIX,
            gqa("gemma-3-27b", 62, 16, 128, "huggingface.co/google/gemma-3-27b-pt"),
        ),
        windowed(128, 2, OTHER_128, gqa("gpt-oss-20b", 24, 8, 64, "huggingface.co/openai/gpt-oss-20b")),
        windowed(128, 2, OTHER_128, gqa("gpt-oss-120b", 36, 8, 64, "huggingface.co/openai/gpt-oss-120b")),
        gqa("glm-4-9b", 40, 2, 128, "huggingface.co/zai-org/glm-4-9b"),
        gqa("glm-4.5", 92, 8, 128, "huggingface.co/zai-org/GLM-4.5"),
        gqa("glm-4.5-air", 46, 8, 128, "huggingface.co/zai-org/GLM-4.5-Air"),
        mla("deepseek-v2-lite", 27, "huggingface.co/deepseek-ai/DeepSeek-V2-Lite"),
        mla("deepseek-v2", 60, "huggingface.co/deepseek-ai/DeepSeek-V2"),
        mla("deepseek-v3", 61, "huggingface.co/deepseek-ai/DeepSeek-V3"),
        mla("deepseek-r1", 61, "huggingface.co/deepseek-ai/DeepSeek-R1"),
        mla("kimi-k2", 61, "huggingface.co/moonshotai/Kimi-K2-Instruct"),
    ];

    /// The model of that name, in any case.
    ///
    /// # Errors
    ///
    /// The model is unknown; the error lists all.
    pub fn find(name: &str) -> Result<&'static Model, UnknownModel> {
        Model::ALL.iter().find(|model| model.name.eq_ignore_ascii_case(name)).ok_or(UnknownModel)
    }

    /// Returns whether a layer attends to the [`window`](Model::window) only.
    #[must_use]
    pub const fn is_windowed(&self, layer: u32) -> bool {
        // In 64 bits: `layer` may be the last number.
        self.window.is_some() && !(layer as u64 + 1).is_multiple_of(self.full_every as u64)
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
    /// The rank does not exist.
    pub const fn shard(&self, degree: u32, rank: u32) -> Result<Shard, ShardError> {
        Shard::new(self.kv_heads, degree, rank)
    }

    /// The geometry of one block of a rank: its heads, all layers. `shard` is one of [`shard`](Model::shard).
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

    /// Bytes per token, by common knowledge: a preset with a wrong number is a cache of a wrong size.
    #[test]
    fn model_bytes_per_token_match_published_figures() {
        let kib = [
            ("llama-2-7b", 512.0),
            ("llama-2-70b", 320.0),
            ("llama-3-8b", 128.0),
            ("llama-3-70b", 320.0),
            ("llama-3.1-8b", 128.0),
            ("llama-3.1-70b", 320.0),
            ("llama-3.1-405b", 504.0),
            ("llama-3.2-1b", 32.0),
            ("llama-3.2-3b", 112.0),
            ("llama-3.3-70b", 320.0),
            ("llama-4-scout", 192.0),
            ("llama-4-maverick", 192.0),
            ("qwen2.5-7b", 56.0),
            ("qwen2.5-14b", 192.0),
            ("qwen2.5-32b", 256.0),
            ("qwen2.5-72b", 320.0),
            ("qwen3-4b", 144.0),
            ("qwen3-8b", 144.0),
            ("qwen3-14b", 160.0),
            ("qwen3-32b", 256.0),
            ("qwen3-30b-a3b", 96.0),
            ("qwen3-235b-a22b", 188.0),
            ("mistral-7b", 128.0),
            ("mistral-nemo", 160.0),
            ("mistral-small-24b", 160.0),
            ("mistral-large-2", 352.0),
            ("mixtral-8x7b", 128.0),
            ("mixtral-8x22b", 224.0),
            ("gemma-7b", 448.0),
            ("gemma-2-9b", 336.0),
            ("gemma-2-27b", 368.0),
            ("gemma-3-1b", 26.0),
            ("gemma-3-4b", 136.0),
            ("gemma-3-12b", 384.0),
            ("gemma-3-27b", 496.0),
            ("gpt-oss-20b", 48.0),
            ("gpt-oss-120b", 72.0),
            ("glm-4-9b", 40.0),
            ("glm-4.5", 368.0),
            ("glm-4.5-air", 184.0),
            ("deepseek-v2-lite", 30.375),
            ("deepseek-v2", 67.5),
            ("deepseek-v3", 68.625),
            ("deepseek-r1", 68.625),
            ("kimi-k2", 68.625),
        ];
        assert_eq!(kib.len(), Model::ALL.len());
        for (name, kib) in kib {
            let bytes = Model::find(name).unwrap().config(1).block_bytes().unwrap();
            assert_eq!(bytes as f64 / 1024.0, kib, "{name}");
        }
    }

    #[test]
    fn model_shards_together_have_all_heads() {
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
    fn model_names_are_found_in_any_case() {
        for model in Model::ALL {
            assert_eq!(Model::find(&model.name.to_uppercase()), Ok(model));
            assert!(model.source.starts_with("huggingface.co/"), "{}", model.name);
        }
        let error = Model::find("gpt-5").unwrap_err().to_string();
        assert!(error.starts_with("unknown model: known are llama-2-7b, llama-2-70b,"), "{error}");
    }

    /// Layers that attend to all tokens: every other one from 1 on, every sixth from 5 on, or all.
    #[test]
    fn model_windows_match_the_published_layers() {
        let full = |name: &str| -> alloc::vec::Vec<u32> {
            let model = Model::find(name).unwrap();
            (0..model.layers).filter(|layer| !model.is_windowed(*layer)).collect()
        };
        assert_eq!(full("gpt-oss-20b"), (1..24).step_by(2).collect::<alloc::vec::Vec<_>>());
        assert_eq!(full("gemma-3-4b"), [5, 11, 17, 23, 29]);
        assert_eq!(full("llama-4-scout"), (3..48).step_by(4).collect::<alloc::vec::Vec<_>>());
        assert_eq!(full("llama-3-8b").len(), 32);
        assert!(Model::find("gpt-oss-20b").unwrap().is_windowed(u32::MAX - 1));
        let noted = |model: &Model| {
            let (Some(window), note) = (model.window, model.note) else { return true };
            note.replace(',', "").contains(&window.to_string())
        };
        assert!(Model::ALL.iter().all(noted), "a note names its window");
    }
}
