//! The KV geometry of a model, from its published `config.json`.
//!
//! ```text
//!   config.json ─► json.rs: an object, its fields, their types and bounds
//!                   └► family.rs: the cache of its `model_type`, and defaults of missing fields
//!                        └► layers.rs: the layers with full attention, a window, or a state
//!                             └► ModelGeometry: groups of layers, each with one geometry
//! ```
//!
//! The names of fields are those of `transformers`. A missing field has the default of its class there.
//! Without a default, or with an unknown architecture or field, the file is refused, and the error names
//! the field: a cache of the wrong size would be useless.
//!
//! Invariants:
//!
//! - **I1** Each layer of the model is in one group. The layers of an indexer have numbers after all others
//!   (`layers + i`).
//! - **I2** No number in a file makes a sum overflow, or allocates memory beyond the bounds of `json.rs`.

mod error;
mod family;
mod json;
mod layers;
#[cfg(test)]
mod tests;

pub use error::ModelError;

use family::Family;
use json::Object;
use kvstrata_core::layout::{DType, Model};
use std::path::Path;

/// The most bytes of a `config.json`.
const MOST_FILE_BYTES: u64 = 16 << 20;

/// The layers of a model and their KV cache.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelGeometry {
    /// The `model_type` of the file, or the name of the preset.
    pub name: String,
    /// The number of layers, without those for multi-token prediction.
    pub layers: u32,
    /// The element type of the cache: from the quantization, if it gives one for the cache, otherwise from
    /// the model.
    pub dtype: Option<DType>,
    /// Groups of layers, full attention first; a single group for most models.
    pub groups: Vec<LayerKind>,
}

/// Layers of one geometry.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerKind {
    /// The name of the group; `all` if it is the only one.
    pub name: &'static str,
    /// Layers of the model, ascending.
    pub layers: Vec<u32>,
    /// The cache that each layer keeps.
    pub keeps: Keeps,
}

/// The cache that a layer keeps.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Keeps {
    /// Keys and values of each head and token.
    Heads {
        /// KV heads of the whole model.
        kv_heads: u32,
        /// Elements per head and token.
        head_size: u32,
        /// Tokens that the layer attends to; none: all.
        window: Option<u32>,
    },
    /// One latent per token (MLA), the same on every rank.
    Latent {
        /// Elements of the latent, rotary key included.
        size: u32,
    },
    /// The keys of a sparse attention's indexer and their scales, in addition to the latent of the layer.
    Indexer {
        /// Bytes per token.
        bytes: u32,
    },
    /// A state of a fixed size.
    State(State),
}

/// A state of linear attention (gated delta net): the inputs of a convolution, and one recurrent matrix per
/// head.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct State {
    key_heads: u32,
    value_heads: u32,
    key_size: u32,
    value_size: u32,
    /// Inputs that the convolution keeps.
    kept: u32,
    conv: DType,
    recurrent: DType,
}

impl State {
    /// Returns the bytes of one layer's state on one of `degree` ranks.
    ///
    /// # Errors
    /// The number of heads is not divisible by `degree`, or the bytes exceed the limit of a layout.
    pub fn bytes(&self, degree: u32) -> Result<u32, ModelError> {
        for (field, heads) in
            [("linear_num_key_heads", self.key_heads), ("linear_num_value_heads", self.value_heads)]
        {
            if degree == 0 || !heads.is_multiple_of(degree) {
                return Err(ModelError::new(
                    field,
                    heads,
                    format!("must be divisible by the number of ranks, {degree}"),
                ));
            }
        }
        let [key_heads, value_heads] =
            [self.key_heads, self.value_heads].map(|heads| u64::from(heads / degree));
        let (key, value) = (u64::from(self.key_size), u64::from(self.value_size));
        let width = |dtype: DType| u64::from(dtype.bits() / 8);
        // Each factor is at most 65,536, so that a product of three fits 64 bits.
        let conv = (2 * key_heads * key + value_heads * value).saturating_mul(u64::from(self.kept));
        let bytes = conv
            .saturating_mul(width(self.conv))
            .saturating_add((value_heads * key * value).saturating_mul(width(self.recurrent)));
        match u32::try_from(bytes) {
            Ok(bytes @ 1..=json::MOST_BYTES) => Ok(bytes),
            _ => {
                let why = format!(
                    "makes a state of {bytes} bytes per layer, above the maximum of {}",
                    json::MOST_BYTES
                );
                Err(ModelError::new("linear_value_head_dim", self.value_size, why))
            }
        }
    }
}

impl ModelGeometry {
    /// Reads a `config.json`, given by its path or by its folder.
    ///
    /// # Errors
    /// The file cannot be read, is not a JSON object, or a field is missing, out of bounds or not supported.
    pub fn read(path: &Path) -> Result<ModelGeometry, ModelError> {
        use std::io::Read;
        let path = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
        let mut bytes = Vec::new();
        std::fs::File::open(&path)
            .and_then(|file| file.take(MOST_FILE_BYTES + 1).read_to_end(&mut bytes))
            .map_err(|source| ModelError::Unreadable { path, source })?;
        ModelGeometry::from_json(&bytes)
    }

    /// Reads the bytes of a `config.json`.
    ///
    /// # Errors
    /// As [`read`](ModelGeometry::read).
    pub fn from_json(bytes: &[u8]) -> Result<ModelGeometry, ModelError> {
        if bytes.len() as u64 > MOST_FILE_BYTES {
            return Err(ModelError::TooLong { most: MOST_FILE_BYTES });
        }
        let value: serde_json::Value =
            serde_json::from_slice(bytes).map_err(|error| ModelError::NotJson { why: error.to_string() })?;
        let file = Object::new(&value)?;
        // Multimodal models nest the config of their language model.
        let text = file.object("text_config")?;
        let of_text = text.as_ref().unwrap_or(&file);
        let (name, field) = match (of_text.text("model_type")?, file.text("model_type")?) {
            (Some(name), _) => (name, of_text.path("model_type")),
            (None, Some(name)) => (name, file.path("model_type")),
            (None, None) => {
                return Err(ModelError::missing(
                    of_text.path("model_type"),
                    "needed to interpret the other fields",
                ));
            }
        };
        let Some(family) = Family::of(name) else { return Err(family::unknown(field, name)) };
        of_text.refuse_what_changes_the_cache()?;
        let own_dtype = dtype(of_text, &file)?;
        let groups = family.groups(of_text, own_dtype)?;
        let layers = family.layers(of_text)?;
        let dtype = match json::cache_dtype(of_text, &file)? {
            Some(dtype) => Some(dtype),
            None => own_dtype,
        };
        Ok(ModelGeometry { name: name.to_owned(), layers, dtype, groups })
    }
}

/// The element type of the model.
fn dtype(of_text: &Object<'_>, file: &Object<'_>) -> Result<Option<DType>, ModelError> {
    for object in [of_text, file] {
        // The newer name first.
        for field in ["dtype", "torch_dtype"] {
            if let Some(name) = object.text(field)? {
                let known = name.parse::<DType>();
                return known
                    .map(Some)
                    .map_err(|error| ModelError::new(object.path(field), json::shown(name), error));
            }
        }
    }
    Ok(None)
}

/// Converts a preset.
impl From<&Model> for ModelGeometry {
    fn from(model: &Model) -> ModelGeometry {
        let of = |windowed: bool| {
            (0..model.layers).filter(|layer| model.is_windowed(*layer) == windowed).collect()
        };
        let (full, windowed): (Vec<u32>, Vec<u32>) = (of(false), of(true));
        let keeps = |window| match model.outer_dim {
            1 => Keeps::Latent { size: model.head_size },
            _ => Keeps::Heads { kv_heads: model.kv_heads, head_size: model.head_size, window },
        };
        let groups = [("full", full, keeps(None)), ("window", windowed, keeps(model.window))];
        let groups = groups.into_iter().map(|(name, layers, keeps)| LayerKind { name, layers, keeps });
        let groups = layers::named(groups.filter(|group| !group.layers.is_empty()).collect());
        let (name, layers, dtype) = (model.name.to_owned(), model.layers, Some(model.dtype));
        ModelGeometry { name, layers, dtype, groups }
    }
}
