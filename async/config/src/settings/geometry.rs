//! Groups of layers and the layout of their blocks, from the model, the geometry and `[[group]]`.
//!
//! ```text
//!   [[group]] 0  full    layers 1 3 5   16 tokens   block of b0 bytes   share 1.0  of a tier's blocks
//!   [[group]] 1  window  layers 0 2 4   16 tokens   block of b1 bytes   share 0.25 of a tier's (rounded up)
//!   a tier of n blocks takes  n × b0 + ⌈n / 4⌉ × b1    with the padding of each block (`block.rs`)
//! ```
//!
//! A model without windows is one group of all its layers. A model in which some layers attend to a window is
//! two groups, `full` and `window`.
//!
//! I1. Each layer of the model is in exactly one group (the core's `LayerGroups` checks this), and the
//! layout of each group is valid.

use super::block::share_out;
use super::draft::{Draft, Origins};
use super::error::{Fault, Origin};
use super::kind::{Kind, LayerList, Named, bytes_text};
use super::lists::GroupSettings;
use super::model_file;
use super::words::GroupKind;
use kvstrata_core::layout::groups::{GroupsError, LayerGroup, LayerGroups};
use kvstrata_core::layout::{DType, LayoutConfig, LayoutError};
use kvstrata_core::plan::Shard;

/// Bytes of a block if no geometry is given.
const DEFAULT_BLOCK_BYTES: u64 = 64 << 10;

/// Layers with one geometry, and therefore with their own blocks.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The name, for messages, metrics and file names.
    pub name: String,
    /// The kind of cache that its layers keep.
    pub kind: GroupKind,
    /// Layers of the model, in the order of the layout.
    pub layers: Vec<u32>,
    /// Tokens per block. For a state: tokens between two stored states, while its layout has one "token".
    pub page_size: u32,
    /// Tokens that a window reaches back.
    pub window: Option<u32>,
    /// Fraction of a tier's number of blocks: as given, or as many as cover the tokens of the other groups'
    /// blocks.
    pub share: f64,
    /// The layout of one block on this rank.
    pub layout: LayoutConfig,
}

/// The parameters of a layout.
struct Shape {
    layers: u32,
    outer_dim: u32,
    page_size: u32,
    kv_heads: u32,
    head_size: u32,
    dtype: DType,
}

/// The model type, if a file gives it, and the groups.
pub(super) fn groups(builder: &Draft) -> Result<(Option<String>, Vec<Group>), Fault> {
    let maker = Maker { builder, origins: &builder.origins };
    let (name, of_model) = match model_file::groups(builder)? {
        Some((name, groups)) => (Some(name), groups),
        None => (None, windowed(builder)),
    };
    let entries = if builder.groups.is_empty() { &of_model } else { &builder.groups };
    if entries.is_empty() {
        return Ok((name, vec![maker.whole()?]));
    }
    let mut groups =
        entries.iter().enumerate().map(|(i, group)| maker.group(i, group)).collect::<Result<Vec<_>, _>>()?;
    let given: Vec<_> = entries.iter().map(|group| group.share).collect();
    share_out(&mut groups, &given);
    if let Some((i, group)) =
        groups.iter().enumerate().find(|(i, group)| groups[..*i].iter().any(|other| other.name == group.name))
    {
        let why = "another group has this name; rename one of them";
        return Err(maker.conflict(format!("group[{i}].name"), &group.name, why));
    }
    maker.check_layers(&groups)?;
    Ok((name, groups))
}

/// The groups of a preset with windows, as if `[[group]]` listed them. None if the preset has no windows,
/// or if the settings replace its layers.
fn windowed(builder: &Draft) -> Vec<GroupSettings> {
    let geometry = &builder.settings.geometry;
    let others = geometry.layers.is_some() || geometry.outer_dim.is_some() || geometry.block_bytes.is_some();
    let Some(model) = builder.settings.model.filter(|model| !others && model.window.is_some()) else {
        return Vec::new();
    };
    // The first group is the default group of the manager.
    [(GroupKind::Full, false, None), (GroupKind::Window, true, model.window)]
        .map(|(kind, windowed, window)| GroupSettings {
            name: Some(kind.name().to_owned()),
            kind,
            layers: (0..model.layers).filter(|layer| model.is_windowed(*layer) == windowed).collect(),
            window,
            ..GroupSettings::default()
        })
        .into()
}

struct Maker<'b> {
    builder: &'b Draft,
    origins: &'b Origins,
}

impl Maker<'_> {
    fn conflict(&self, key: String, value: impl ToString, why: impl ToString) -> Fault {
        let origin = self.origins.of(&key);
        Fault::Conflict { key, value: value.to_string(), origin, why: why.to_string() }
    }

    /// The error for a needed setting that was not given.
    fn missing(&self, key: String, why: &str) -> Fault {
        self.conflict(key, "none", why)
    }

    /// Refuses settings that conflict with opaque blocks.
    fn check_opaque(&self) -> Result<(), Fault> {
        let geometry = &self.builder.settings.geometry;
        let Some(bytes) = geometry.block_bytes else { return Ok(()) };
        let others = [
            ("model", self.builder.settings.model.is_some()),
            ("geometry.layers", geometry.layers.is_some()),
            ("geometry.kv_heads", geometry.kv_heads.is_some()),
            ("geometry.head_size", geometry.head_size.is_some()),
            ("geometry.outer_dim", geometry.outer_dim.is_some()),
            ("geometry.dtype", geometry.dtype.is_some()),
            ("geometry.tp", geometry.tp != 1),
            ("group", !self.builder.groups.is_empty()),
        ];
        match others.into_iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((other, _)) => {
                let why = format!(
                    "conflicts with {other} ({}): opaque blocks have no layers; remove one of them",
                    self.origins.of(other)
                );
                Err(self.conflict("geometry.block_bytes".to_owned(), bytes_text(bytes), why))
            }
        }
    }

    /// All layers of the model, or opaque blocks.
    fn whole(&self) -> Result<Group, Fault> {
        self.check_opaque()?;
        let (settings, geometry) = (&self.builder.settings, &self.builder.settings.geometry);
        let given = settings.model.is_some()
            || [geometry.layers, geometry.kv_heads, geometry.head_size, geometry.outer_dim]
                .iter()
                .any(Option::is_some)
            || geometry.dtype.is_some()
            || geometry.tp != 1;
        if !given {
            let bytes = geometry.block_bytes.unwrap_or(DEFAULT_BLOCK_BYTES);
            let layout = LayoutConfig::new().inner_dim(bytes as u32); // at most 1 GiB
            return self.finish("geometry.", "all", GroupKind::Full, vec![0], geometry.page_size, layout);
        }
        let model = settings.model;
        let why = "without a model, set layers, kv_heads and head_size (latent: outer_dim = 1, no kv_heads)";
        let need = |field: &str, value: Option<u32>| {
            value.ok_or_else(|| self.missing(format!("geometry.{field}"), why))
        };
        let outer_dim = geometry.outer_dim.or(model.map(|model| model.outer_dim)).unwrap_or(2);
        let latent = (outer_dim == 1).then_some(1);
        let shape = Shape {
            layers: need("layers", geometry.layers.or(model.map(|model| model.layers)))?,
            outer_dim,
            page_size: geometry.page_size,
            kv_heads: need("kv_heads", geometry.kv_heads.or(latent).or(model.map(|model| model.kv_heads)))?,
            head_size: need("head_size", geometry.head_size.or(model.map(|model| model.head_size)))?,
            dtype: geometry.dtype.or(model.map(|model| model.dtype)).unwrap_or(DType::BF16),
        };
        if let (1, 2..) = (outer_dim, shape.kv_heads) {
            let why = "a latent (MLA, geometry.outer_dim = 1) has no KV heads; remove it";
            return Err(self.conflict("geometry.kv_heads".to_owned(), shape.kv_heads, why));
        }
        let (kind, name) = if outer_dim == 1 { (GroupKind::Mla, "all") } else { (GroupKind::Full, "all") };
        let layers = (0..shape.layers).collect();
        self.finish("geometry.", name, kind, layers, shape.page_size, self.layout(&shape)?)
    }

    /// An entry of `[[group]]`.
    fn group(&self, i: usize, group: &GroupSettings) -> Result<Group, Fault> {
        self.check_opaque()?;
        let (model, geometry) = (self.builder.settings.model, &self.builder.settings.geometry);
        let (key, kind) = (|field: &str| format!("group[{i}].{field}"), group.kind);
        // Fields that only some kinds have.
        let has_heads = kind != GroupKind::State;
        let fields = [
            ("window", group.window, kind == GroupKind::Window),
            ("state_bytes", group.state_bytes, kind == GroupKind::State),
            ("kv_heads", group.kv_heads, has_heads && kind != GroupKind::Mla),
            ("head_size", group.head_size, has_heads),
        ];
        if let Some((field, Some(value), _)) =
            fields.into_iter().find(|(_, value, has)| value.is_some() && !has)
        {
            let why = format!("groups of kind {kind} do not have it; remove it, or change group[{i}].kind");
            return Err(self.conflict(key(field), value, why));
        }
        let page_size = group.page_size.unwrap_or(geometry.page_size);
        let need = |field: &str, value: Option<u32>| {
            let why = format!("missing; groups of kind {kind} need it, here or (heads only) in geometry");
            value.ok_or_else(|| self.missing(key(field), &why))
        };
        let layout = if kind == GroupKind::State {
            let bytes = need("state_bytes", group.state_bytes)?;
            LayoutConfig::new().num_layers(group.layers.len() as u32).inner_dim(bytes)
        } else {
            let latent = kind == GroupKind::Mla;
            let model = model.filter(|model| (model.outer_dim == 1) == latent);
            let kv_heads = group.kv_heads.or(geometry.kv_heads).or(model.map(|model| model.kv_heads));
            let head_size = group.head_size.or(geometry.head_size).or(model.map(|model| model.head_size));
            if kind == GroupKind::Window {
                need("window", group.window)?;
            }
            let dtype =
                group.dtype.or(geometry.dtype).or(self.builder.settings.model.map(|model| model.dtype));
            self.layout(&Shape {
                layers: group.layers.len() as u32, // at most 65,536
                outer_dim: if latent { 1 } else { 2 },
                page_size,
                kv_heads: need("kv_heads", if latent { Some(1) } else { kv_heads })?,
                head_size: need("head_size", head_size)?,
                dtype: dtype.unwrap_or(DType::BF16),
            })?
        };
        let name = group.name.clone().unwrap_or_else(|| format!("{}-{i}", kind.name()));
        let made = self.finish(&key(""), &name, kind, group.layers.clone(), page_size, layout)?;
        Ok(Group { window: group.window, ..made })
    }

    fn layout(&self, shape: &Shape) -> Result<LayoutConfig, Fault> {
        let geometry = &self.builder.settings.geometry;
        let shard = Shard::new(shape.kv_heads, geometry.tp, geometry.rank).map_err(|_| {
            let why =
                format!("must be below geometry.tp = {} ({})", geometry.tp, self.origins.of("geometry.tp"));
            self.conflict("geometry.rank".to_owned(), geometry.rank, why)
        })?;
        let heads = shard.heads();
        let config = LayoutConfig::new().num_layers(shape.layers).outer_dim(shape.outer_dim);
        let config = config.page_size(shape.page_size).heads(heads.end - heads.start, shape.head_size);
        Ok(config.dtype(shape.dtype).alignment(shape.dtype.alignment()).head_order(geometry.head_order))
    }

    /// A group with an aligned and checked layout. `prefix` is the prefix of its keys, for errors.
    fn finish(
        &self,
        prefix: &str,
        name: &str,
        kind: GroupKind,
        layers: Vec<u32>,
        page_size: u32,
        layout: LayoutConfig,
    ) -> Result<Group, Fault> {
        let layout = layout.alignment(self.builder.settings.geometry.alignment.unwrap_or(layout.alignment));
        layout.validate().map_err(|error| {
            let (key, value) = match error {
                LayoutError::NotPowerOfTwo { value, .. }
                | LayoutError::AlignmentBelowElement { value, .. } => {
                    ("geometry.alignment".to_owned(), value)
                }
                LayoutError::HeadSize { value, .. } => (format!("{prefix}head_size"), value.into()),
                _ => (format!("{prefix}layers"), layers.len() as u64),
            };
            self.conflict(key, value, error)
        })?;
        let share = 1.0;
        Ok(Group { name: name.to_owned(), kind, layers, page_size, window: None, share, layout })
    }

    /// Checks I1, by the core.
    fn check_layers(&self, groups: &[Group]) -> Result<(), Fault> {
        let settings = &self.builder.settings;
        let listed: usize = groups.iter().map(|group| group.layers.len()).sum();
        let of_model = settings.geometry.layers.or(settings.model.map(|model| model.layers));
        let num_layers = of_model.unwrap_or(u32::try_from(listed).unwrap_or(u32::MAX));
        let mut placed = Vec::new();
        for (i, group) in groups.iter().enumerate() {
            let layout = group.placed(1).map_err(|error| {
                self.conflict(format!("group[{i}].layers"), LayerList.toml(&group.layers), error)
            })?;
            placed.push(LayerGroup { layers: group.layers.clone(), layout });
        }
        let Err(error) = LayerGroups::new(num_layers, placed) else { return Ok(()) };
        let at = |i: u32| {
            let layers = groups.get(i as usize).map_or(String::new(), |group| LayerList.toml(&group.layers));
            (format!("group[{i}].layers"), layers)
        };
        let (key, value) = match error {
            GroupsError::Twice { groups: [_, second], .. } => at(second),
            GroupsError::NoSuchLayer { group, .. } => at(group),
            _ => ("group".to_owned(), format!("{} of {num_layers} layers", listed)),
        };
        let said = if self.origins.of("geometry.layers") == Origin::Default && of_model.is_none() {
            "; geometry.layers, if unset, is the number of listed layers"
        } else {
            ""
        };
        Err(self.conflict(key, value, format!("{error}; each layer must be in one group{said}")))
    }
}
