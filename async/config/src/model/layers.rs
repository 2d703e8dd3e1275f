//! The kind of each layer: attention to all tokens, attention to a window, or a state of linear attention.
//!
//! `layer_types` gives the kinds. Where it is missing, the rule of the family applies:
//!
//! ```text
//!   mistral        window: all layers, if `sliding_window` is not null
//!   qwen2, qwen3   window: layers from `max_window_layers` on, if `use_sliding_window`
//!   gemma, gpt-oss window: all but the last of every `sliding_window_pattern` layers
//!   llama4         chunks of `attention_chunk_size`: layers with a 1 in `no_rope_layers`
//!   qwen3-next     linear attention: all but the last of every `full_attention_interval` layers
//! ```

use super::json::{MOST_LAYERS, MOST_WINDOW, Object, short};
use super::{Keeps, LayerKind, ModelError};
use serde_json::Value;

/// The rule of a family.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Windows {
    None,
    /// All layers, if `sliding_window` is a number; with its default.
    All(Option<u32>),
    /// Layers from `max_window_layers` on.
    From,
    /// All but the last of every `full` layers; both are defaults.
    Every {
        full: u32,
        window: u32,
    },
    Chunks,
    Linear,
}

/// The layers of each kind.
#[derive(Default)]
pub(super) struct Kinds {
    pub(super) full: Vec<u32>,
    pub(super) windowed: Vec<u32>,
    pub(super) linear: Vec<u32>,
    /// Tokens that the windowed layers attend to.
    pub(super) window: Option<u32>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Full,
    Sliding,
    Chunked,
    Linear,
}

/// The kind of each layer.
pub(super) fn kinds(object: &Object<'_>, windows: Windows, layers: u32) -> Result<Kinds, ModelError> {
    let each = match listed(object, windows, layers)? {
        Some(listed) => listed,
        None => by_rule(object, windows, layers)?,
    };
    let mut kinds = Kinds::default();
    for (layer, kind) in (0..layers).zip(&each) {
        match kind {
            Kind::Full => kinds.full.push(layer),
            Kind::Sliding | Kind::Chunked => kinds.windowed.push(layer),
            Kind::Linear => kinds.linear.push(layer),
        }
    }
    let field = match (each.contains(&Kind::Sliding), each.contains(&Kind::Chunked)) {
        (false, false) => return Ok(kinds),
        (true, false) => "sliding_window",
        (false, true) => "attention_chunk_size",
        (true, true) => {
            let why = "sliding_attention and chunked_attention in one model are not supported";
            return Err(ModelError::new(object.path("layer_types"), "a list", why));
        }
    };
    let missing = match (field, windows) {
        // The defaults of the classes; `null` is no value.
        (_, _) if object.names(field) => None,
        ("sliding_window", Windows::All(window)) => window,
        ("sliding_window", Windows::Every { window, .. }) => Some(window),
        ("attention_chunk_size", Windows::Chunks) => Some(8192),
        _ => None,
    };
    let window = object.number(field, MOST_WINDOW)?.or(missing);
    let why = "needed for the layers with a window";
    kinds.window = Some(window.ok_or_else(|| ModelError::missing(object.path(field), why))?);
    Ok(kinds)
}

/// The kinds by `layer_types`, if the file has it.
fn listed(object: &Object<'_>, windows: Windows, layers: u32) -> Result<Option<Vec<Kind>>, ModelError> {
    let Some(listed) = object.list("layer_types")? else { return Ok(None) };
    if listed.len() != layers as usize {
        let why = format!("must have an entry for each of the {layers} layers");
        return Err(ModelError::new(
            object.path("layer_types"),
            format!("a list of length {}", listed.len()),
            why,
        ));
    }
    let kind = |(at, entry): (usize, &Value)| match (entry.as_str(), windows) {
        (Some("full_attention"), _) => Ok(Kind::Full),
        (Some("sliding_attention"), Windows::All(_) | Windows::From | Windows::Every { .. }) => {
            Ok(Kind::Sliding)
        }
        (Some("chunked_attention"), Windows::Chunks) => Ok(Kind::Chunked),
        (Some("linear_attention"), Windows::Linear) => Ok(Kind::Linear),
        _ => {
            let field = object.path(&format!("layer_types[{at}]"));
            Err(ModelError::new(field, short(entry), "not supported for this model_type"))
        }
    };
    listed.iter().enumerate().map(kind).collect::<Result<_, _>>().map(Some)
}

/// The kinds by the rule of the family.
fn by_rule(object: &Object<'_>, windows: Windows, layers: u32) -> Result<Vec<Kind>, ModelError> {
    let all_but_every = |full: u32, other: Kind| {
        (1..=layers).map(|number| if number.is_multiple_of(full) { Kind::Full } else { other }).collect()
    };
    let sliding = object.number("sliding_window", MOST_WINDOW);
    match windows {
        Windows::None => match object.get("sliding_window") {
            None => Ok(vec![Kind::Full; layers as usize]),
            Some(value) => {
                let why = "this field is not supported for this model_type";
                Err(ModelError::new(object.path("sliding_window"), short(value), why))
            }
        },
        Windows::All(default) => {
            let given = if object.names("sliding_window") { sliding? } else { default };
            let kind = if given.is_some() { Kind::Sliding } else { Kind::Full };
            Ok(vec![kind; layers as usize])
        }
        Windows::From => {
            let used = object.flag("use_sliding_window")?.unwrap_or(false) && sliding?.is_some();
            let first = match used {
                false => layers,
                true => {
                    let field = "max_window_layers";
                    let why = "needed for the layers with a window, as use_sliding_window is set";
                    let first = object.count(field, MOST_LAYERS)?;
                    first.ok_or_else(|| ModelError::missing(object.path(field), why))?
                }
            };
            Ok((0..layers).map(|layer| if layer < first { Kind::Full } else { Kind::Sliding }).collect())
        }
        Windows::Every { full, .. } if object.names("sliding_window") && sliding?.is_none() => {
            let _ = full;
            Ok(vec![Kind::Full; layers as usize])
        }
        Windows::Every { full, .. } => {
            let mut every = full;
            for field in ["sliding_window_pattern", "_sliding_window_pattern"] {
                every = object.number(field, MOST_LAYERS)?.unwrap_or(every);
            }
            Ok(all_but_every(every, Kind::Sliding))
        }
        Windows::Chunks => match object.list("no_rope_layers")? {
            Some(rope) if !rope.is_empty() => {
                if rope.len() != layers as usize {
                    let why = format!("must have an entry for each of the {layers} layers");
                    let value = format!("a list of length {}", rope.len());
                    return Err(ModelError::new(object.path("no_rope_layers"), value, why));
                }
                let kind = |(at, entry): (usize, &Value)| match entry.as_u64() {
                    Some(0) => Ok(Kind::Full),
                    Some(1) => Ok(Kind::Chunked),
                    _ => {
                        let field = object.path(&format!("no_rope_layers[{at}]"));
                        Err(ModelError::new(field, short(entry), "must be 0 or 1"))
                    }
                };
                rope.iter().enumerate().map(kind).collect()
            }
            _ => {
                let every = object.number("no_rope_layer_interval", MOST_LAYERS)?.unwrap_or(4);
                Ok(all_but_every(every, Kind::Chunked))
            }
        },
        Windows::Linear => {
            let every = object.number("full_attention_interval", MOST_LAYERS)?.unwrap_or(4);
            Ok(all_but_every(every, Kind::Linear))
        }
    }
}

/// Names a single group `all`.
pub(super) fn named(mut groups: Vec<LayerKind>) -> Vec<LayerKind> {
    if let [group] = groups.as_mut_slice() {
        group.name = "all";
    }
    debug_assert!(groups.iter().all(|group| !matches!(group.keeps, Keeps::Heads { kv_heads: 0, .. })));
    groups
}
