//! Families of models: for each `model_type`, the cache that its layers keep, and the defaults of its class
//! in `transformers` for missing fields.

use super::json::{MOST_BYTES, MOST_ELEMENTS, MOST_HEADS, MOST_LAYERS, Object, shown};
use super::layers::{Windows, kinds, named};
use super::{Keeps, LayerKind, ModelError, State};
use kvstrata_core::layout::DType;

/// The meaning of a missing `num_key_value_heads`.
#[derive(Clone, Copy)]
enum KvHeads {
    /// The number of query heads.
    All,
    Of(u32),
    /// Required: the file is refused.
    Needed,
}

/// The cache of a layer without linear attention, and the fields that describe it.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Cache {
    Heads,
    /// As [`Heads`](Cache::Heads), in the field names of ChatGLM.
    GroupHeads,
    Latent,
    /// A latent and the keys of an indexer.
    Indexed,
}

/// Models with the same meaning of fields.
pub(super) struct Family {
    types: &'static [&'static str],
    cache: Cache,
    kv_heads: KvHeads,
    /// The default of `head_dim`; none: `hidden_size / num_attention_heads`.
    head_dim: Option<u32>,
    windows: Windows,
}

const PLAIN: Family = Family {
    types: &[],
    cache: Cache::Heads,
    kv_heads: KvHeads::All,
    head_dim: None,
    windows: Windows::None,
};
const LATENT: Family = Family { cache: Cache::Latent, ..PLAIN };

const FAMILIES: [Family; 16] = [
    Family { types: &["llama"], ..PLAIN },
    Family {
        types: &["llama4", "llama4_text"],
        kv_heads: KvHeads::Of(8),
        head_dim: Some(128),
        windows: Windows::Chunks,
        ..PLAIN
    },
    Family {
        types: &["mistral", "mistral3"],
        kv_heads: KvHeads::Of(8),
        windows: Windows::All(Some(4096)),
        ..PLAIN
    },
    Family { types: &["mixtral"], kv_heads: KvHeads::Of(8), windows: Windows::All(None), ..PLAIN },
    Family { types: &["phi3"], windows: Windows::All(None), ..PLAIN },
    Family {
        types: &[
            "qwen2",
            "qwen2_moe",
            "qwen2_vl",
            "qwen2_vl_text",
            "qwen2_5_vl",
            "qwen2_5_vl_text",
            "qwen3_moe",
        ],
        kv_heads: KvHeads::Needed,
        windows: Windows::From,
        ..PLAIN
    },
    Family {
        types: &["qwen3", "qwen3_vl", "qwen3_vl_text", "qwen3_vl_moe", "qwen3_vl_moe_text"],
        kv_heads: KvHeads::Needed,
        head_dim: Some(128),
        windows: Windows::From,
        ..PLAIN
    },
    Family {
        types: &["qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"],
        kv_heads: KvHeads::Needed,
        head_dim: Some(256),
        windows: Windows::Linear,
        ..PLAIN
    },
    Family { types: &["gemma"], kv_heads: KvHeads::Of(16), head_dim: Some(256), ..PLAIN },
    Family {
        types: &["gemma2"],
        kv_heads: KvHeads::Of(4),
        head_dim: Some(256),
        windows: Windows::Every { full: 2, window: 4096 },
        ..PLAIN
    },
    Family {
        types: &["gemma3", "gemma3_text"],
        kv_heads: KvHeads::Of(4),
        head_dim: Some(256),
        windows: Windows::Every { full: 6, window: 4096 },
        ..PLAIN
    },
    Family {
        types: &["gpt_oss"],
        kv_heads: KvHeads::Of(8),
        head_dim: Some(64),
        windows: Windows::Every { full: 2, window: 128 },
        ..PLAIN
    },
    Family { types: &["glm", "glm4", "glm4_moe"], kv_heads: KvHeads::Needed, head_dim: Some(128), ..PLAIN },
    Family { types: &["chatglm"], cache: Cache::GroupHeads, ..PLAIN },
    Family { types: &["deepseek_v2", "deepseek_v3", "kimi_k2"], ..LATENT },
    Family { types: &["deepseek_v32"], cache: Cache::Indexed, ..LATENT },
];

/// The error for a `model_type` that no family has.
pub(super) fn unknown(field: String, name: &str) -> ModelError {
    let known: Vec<&str> = FAMILIES.iter().flat_map(|family| family.types).copied().collect();
    ModelError::new(field, shown(name), format!("not supported; supported are {}", known.join(", ")))
}

impl Family {
    pub(super) fn of(name: &str) -> Option<&'static Family> {
        FAMILIES.iter().find(|family| family.types.contains(&name))
    }

    /// The number of layers.
    pub(super) fn layers(&self, object: &Object<'_>) -> Result<u32, ModelError> {
        let field = if self.cache == Cache::GroupHeads { "num_layers" } else { "num_hidden_layers" };
        object.needed(field, MOST_LAYERS, "needed for the number of layers")
    }

    /// The groups of layers.
    pub(super) fn groups(
        &self,
        object: &Object<'_>,
        dtype: Option<DType>,
    ) -> Result<Vec<LayerKind>, ModelError> {
        let layers = self.layers(object)?;
        if matches!(self.cache, Cache::Latent | Cache::Indexed) {
            return self.latent(object, layers);
        }
        let (kv_heads, head_size) = self.heads(object)?;
        let of = kinds(object, self.windows, layers)?;
        let heads = |window| Keeps::Heads { kv_heads, head_size, window };
        let mut groups = vec![LayerKind { name: "full", layers: of.full, keeps: heads(None) }];
        if let Some(window) = of.window {
            groups.push(LayerKind { name: "window", layers: of.windowed, keeps: heads(Some(window)) });
        }
        if !of.linear.is_empty() {
            let keeps = Keeps::State(state(object, dtype)?);
            groups.push(LayerKind { name: "state", layers: of.linear, keeps });
        }
        groups.retain(|group| !group.layers.is_empty());
        Ok(named(groups))
    }

    /// The number of KV heads, and the size of each.
    fn heads(&self, object: &Object<'_>) -> Result<(u32, u32), ModelError> {
        let asking = object.number("num_attention_heads", MOST_HEADS)?;
        let why = "needed for the number of KV heads";
        let all = |field: &str| asking.ok_or_else(|| ModelError::missing(object.path(field), why));
        if self.cache == Cache::GroupHeads {
            let grouped = object.flag("multi_query_attention")?.unwrap_or(true);
            let kv_heads = match grouped {
                true => object.needed("multi_query_group_num", MOST_HEADS, why)?,
                false => all("num_attention_heads")?,
            };
            return Ok((kv_heads, object.number("kv_channels", MOST_ELEMENTS)?.unwrap_or(128)));
        }
        let kv_heads = match (object.number("num_key_value_heads", MOST_HEADS)?, self.kv_heads) {
            (Some(heads), _) | (None, KvHeads::Of(heads)) => heads,
            (None, KvHeads::All) => all("num_key_value_heads")?,
            (None, KvHeads::Needed) => {
                return Err(ModelError::missing(object.path("num_key_value_heads"), why));
            }
        };
        let head_size = match object.number("head_dim", MOST_ELEMENTS)?.or(self.head_dim) {
            Some(size) => size,
            None => {
                let why = "without head_dim, the head size is hidden_size / num_attention_heads";
                let hidden = object.needed("hidden_size", MOST_ELEMENTS, why)?;
                let heads = object.needed("num_attention_heads", MOST_HEADS, why)?;
                if !hidden.is_multiple_of(heads) {
                    let why = format!(
                        "must be a multiple of num_attention_heads = {heads}, unless head_dim is set"
                    );
                    return Err(ModelError::new(object.path("hidden_size"), hidden, why));
                }
                hidden / heads
            }
        };
        Ok((kv_heads, head_size))
    }

    fn latent(&self, object: &Object<'_>, layers: u32) -> Result<Vec<LayerKind>, ModelError> {
        let why = "needed for the size of the latent";
        let rank = object.needed("kv_lora_rank", MOST_ELEMENTS / 2, why)?;
        let rope = object.needed("qk_rope_head_dim", MOST_ELEMENTS / 2, why)?;
        kinds(object, Windows::None, layers)?;
        let all: Vec<u32> = (0..layers).collect();
        let keeps = Keeps::Latent { size: rank + rope };
        let mut groups = vec![LayerKind { name: "latent", layers: all.clone(), keeps }];
        if self.cache == Cache::Indexed {
            let why = "needed for the size of the indexer's keys";
            let key = object.needed("index_head_dim", MOST_BYTES / 4, why)?;
            if !key.is_multiple_of(INDEX_GROUP) || layers > MOST_LAYERS / 2 {
                let why =
                    format!("must be a multiple of {INDEX_GROUP}, with at most {} layers", MOST_LAYERS / 2);
                return Err(ModelError::new(object.path("index_head_dim"), key, why));
            }
            // One byte per element and a scale of four bytes per group, as vLLM stores them.
            let bytes = key + key / INDEX_GROUP * 4;
            let layers = all.iter().map(|layer| layers + layer).collect();
            groups.push(LayerKind { name: "indexer", layers, keeps: Keeps::Indexer { bytes } });
        }
        Ok(named(groups))
    }
}

/// Elements of an indexer's key that share a scale.
const INDEX_GROUP: u32 = 128;

/// The state of a gated delta net.
fn state(object: &Object<'_>, dtype: Option<DType>) -> Result<State, ModelError> {
    let why = "needed for the size of a linear_attention layer's state";
    let number = |field: &str, most: u32| object.needed(field, most, why);
    let kernel = number("linear_conv_kernel_dim", 65_536)?;
    let conv = dtype.ok_or_else(|| ModelError::missing(object.path("dtype"), why))?;
    let recurrent = match object.text("mamba_ssm_dtype")? {
        None => conv,
        Some(name) => name
            .parse::<DType>()
            .map_err(|error| ModelError::new(object.path("mamba_ssm_dtype"), shown(name), error))?,
    };
    if let Some(packed) = [conv, recurrent].into_iter().find(|dtype| dtype.bits() < 8) {
        let why = "not supported for a state; supported are float32, float16 and bfloat16";
        return Err(ModelError::new(object.path("mamba_ssm_dtype"), packed, why));
    }
    let state = State {
        key_heads: number("linear_num_key_heads", MOST_HEADS)?,
        value_heads: number("linear_num_value_heads", MOST_HEADS)?,
        key_size: number("linear_key_head_dim", 65_536)?,
        value_size: number("linear_value_head_dim", 65_536)?,
        kept: kernel - 1,
        conv,
        recurrent,
    };
    state.bytes(1)?;
    Ok(state)
}
