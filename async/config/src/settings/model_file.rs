//! Groups of layers from a model's `config.json`, as if `[[group]]` had listed them.

use super::draft::Draft;
use super::error::Fault;
use super::lists::GroupSettings;
use super::words::GroupKind;
use crate::model::{Keeps, LayerKind, ModelError, ModelGeometry};
use kvstrata_core::layout::DType;

/// The model type and the groups from the file that `geometry.config` names; none if it names none.
pub(super) fn groups(builder: &Draft) -> Result<Option<(String, Vec<GroupSettings>)>, Fault> {
    let geometry = &builder.settings.geometry;
    let Some(path) = &geometry.config else { return Ok(None) };
    let refused = |why: String| {
        let key = "geometry.config".to_owned();
        let origin = builder.origins.of(&key);
        Fault::Conflict { key, value: path.display().to_string(), origin, why }
    };
    let others = [
        ("model", builder.settings.model.is_some()),
        ("geometry.layers", geometry.layers.is_some()),
        ("geometry.kv_heads", geometry.kv_heads.is_some()),
        ("geometry.head_size", geometry.head_size.is_some()),
        ("geometry.outer_dim", geometry.outer_dim.is_some()),
        ("geometry.block_bytes", geometry.block_bytes.is_some()),
        ("group", !builder.groups.is_empty()),
    ];
    if let Some((other, _)) = others.into_iter().find(|(_, given)| *given) {
        let origin = builder.origins.of(other);
        return Err(refused(format!("the file conflicts with {other} ({origin}); remove one of them")));
    }
    let model = ModelGeometry::read(path).map_err(|error| refused(error.to_string()))?;
    let Some(dtype) = geometry.dtype.or(model.dtype) else {
        return Err(refused(
            "torch_dtype: missing; set geometry.dtype to the element type of the cache".to_owned(),
        ));
    };
    let groups = model.groups.iter().map(|group| settings_of(group, dtype, geometry.tp));
    let groups = groups.collect::<Result<_, _>>().map_err(|error: ModelError| refused(error.to_string()))?;
    Ok(Some((model.name, groups)))
}

fn settings_of(group: &LayerKind, dtype: DType, degree: u32) -> Result<GroupSettings, ModelError> {
    let (name, layers) = (Some(group.name.to_owned()), group.layers.clone());
    let of = GroupSettings { name, layers, dtype: Some(dtype), ..GroupSettings::default() };
    Ok(match group.keeps {
        Keeps::Heads { kv_heads, head_size, window } => {
            let kind = if window.is_some() { GroupKind::Window } else { GroupKind::Full };
            GroupSettings { kind, window, kv_heads: Some(kv_heads), head_size: Some(head_size), ..of }
        }
        Keeps::Latent { size } => GroupSettings { kind: GroupKind::Mla, head_size: Some(size), ..of },
        // Counted in bytes, independent of the element type of the latents.
        Keeps::Indexer { bytes } => {
            GroupSettings { kind: GroupKind::Mla, head_size: Some(bytes), dtype: Some(DType::U8), ..of }
        }
        Keeps::State(state) => {
            let state_bytes = Some(state.bytes(degree)?);
            GroupSettings { kind: GroupKind::State, state_bytes, dtype: None, ..of }
        }
    })
}
