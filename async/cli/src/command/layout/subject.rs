//! The subject of the drawing: a model (a preset, a `config.json`, options), one of its groups of
//! layers, one stage of a pipeline.
//!
//! ```text
//!   model      0 1 2 3 │ 4 5 6 7     --pp 2: two stages; --stage chooses one
//!   group full   ·   ·     ·   ·     --group: one group; default: all, if of one geometry, else the first
//! ```

use super::LayoutArgs;
use super::units::plural;
use kvstrata::model::{Keeps, ModelGeometry};
use kvstrata_core::layout::{DType, LayoutConfig, Model};
use kvstrata_core::plan::Shard;
use serde::Serialize;

/// The most layers that a layout takes.
const MOST_LAYERS: u32 = 65_536;

/// The model and its layers that are drawn.
#[derive(Debug, Default)]
pub(super) struct Drawn {
    pub(super) name: String,
    pub(super) source: String,
    pub(super) note: String,
    /// Layers of the whole model.
    pub(super) of_model: u32,
    /// The layers drawn, numbered as in the model.
    pub(super) layers: Vec<u32>,
    /// The window of each drawn layer.
    windows: Vec<Option<u32>>,
    pub(super) groups: Vec<GroupFacts>,
    pub(super) stages: Vec<StageFacts>,
}

impl Drawn {
    /// The number in the model of a layer of the layout.
    pub(super) fn layer(&self, index: u32) -> u32 {
        self.layers.get(index as usize).copied().unwrap_or(index)
    }

    /// The window of a layer of the layout in tokens; `None` if it attends to all tokens.
    pub(super) fn window(&self, index: u32) -> Option<u32> {
        self.windows.get(index as usize).copied().flatten()
    }

    pub(super) fn has_windows(&self) -> bool {
        self.windows.iter().any(Option::is_some)
    }

    /// The drawn layers with a window, numbered as in the model.
    pub(super) fn windowed(&self) -> Vec<u32> {
        let with = self.layers.iter().zip(&self.windows).filter(|(_, window)| window.is_some());
        with.map(|(layer, _)| *layer).collect()
    }
}

/// A group of layers, on one rank and in one stage.
#[derive(Debug, Clone, Serialize)]
pub(super) struct GroupFacts {
    pub(super) name: &'static str,
    /// Numbered as in the model; layers of an indexer are numbered after all others.
    pub(super) layers: Vec<u32>,
    pub(super) window: Option<u32>,
    /// Bytes of a token over all its layers; 0 for a state.
    pub(super) token_bytes: u64,
    /// Bytes of a layer's state.
    pub(super) state_bytes: Option<u64>,
    pub(super) drawn: bool,
}

/// A stage of a pipeline: the bytes of one of its ranks, without states.
#[derive(Debug, Clone, Serialize)]
pub(super) struct StageFacts {
    pub(super) first_layer: u32,
    pub(super) layers: u32,
    pub(super) token_bytes: u64,
    pub(super) block_bytes: u64,
    pub(super) drawn: bool,
}

/// The drawn layers as a model of one geometry, and the type of its cache.
pub(super) struct Subject {
    pub(super) model: Model,
    pub(super) dtype: DType,
    /// Whether the group has tokens; a state has none.
    pub(super) paged: bool,
    pub(super) drawn: Drawn,
}

/// The number of layers of each stage.
fn partition(arguments: &LayoutArgs, layers: u32) -> Result<Vec<u32>, String> {
    if let Some(partition) = &arguments.layer_partition {
        let text = partition.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let sum: u64 = partition.iter().map(|layers| u64::from(*layers)).sum();
        if partition.contains(&0) {
            return Err(format!("--layer-partition {text}: each stage needs at least one layer"));
        }
        if sum != u64::from(layers) {
            return Err(format!(
                "--layer-partition {text}: has {}, and the model has {layers}; make them equal",
                plural(sum, "layer")
            ));
        }
        if let Some(stages) = arguments.pp.filter(|stages| *stages as usize != partition.len()) {
            return Err(format!(
                "--layer-partition {text}: has {}, not --pp {stages}; make them equal, or leave --pp out",
                plural(partition.len() as u64, "stage")
            ));
        }
        return Ok(partition.clone());
    }
    let stages = arguments.pp.unwrap_or(1);
    if stages == 0 || stages > layers {
        return Err(format!("--pp {stages}: must be from 1 to the model's {layers} layers"));
    }
    // As in vLLM, remaining layers go to the last stages except the very last, which
    // also has the output layers.
    let mut partition = vec![layers / stages; stages as usize];
    let left = (layers % stages) as usize;
    partition.iter_mut().rev().skip(1).take(left).for_each(|layers| *layers += 1);
    Ok(partition)
}

/// One layer as a model of one layer, its type, and whether it has tokens.
fn of_layer(keeps: &Keeps, dtype: DType, degree: u32) -> Result<(Model, DType, bool), String> {
    let model = |outer_dim, kv_heads, head_size, dtype| Model {
        name: "",
        layers: 1,
        outer_dim,
        kv_heads,
        head_size,
        dtype,
        window: None,
        full_every: 1,
        source: "",
        note: "",
    };
    let (model, paged) = match *keeps {
        Keeps::Heads { kv_heads, head_size, .. } => (model(2, kv_heads, head_size, dtype), true),
        Keeps::Latent { size } => (model(1, 1, size, dtype), true),
        Keeps::Indexer { bytes } => (model(1, 1, bytes, DType::U8), true),
        Keeps::State(state) => {
            let bytes = state.bytes(degree).map_err(|error| format!("--tp {degree}: {error}"))?;
            (model(1, 1, bytes, DType::U8), false)
        }
        _ => return Err("--config: the model has layers that this command cannot draw".to_owned()),
    };
    Ok((model, model.dtype, paged))
}

/// Bytes of a token over `layers` layers on a rank.
fn token_bytes(model: &Model, dtype: DType, rank: &Shard, layers: usize) -> u64 {
    let heads = rank.heads();
    let config: LayoutConfig = model.config_for(1, rank).dtype(dtype).num_heads(heads.end - heads.start);
    config.block_bytes().map_or(u64::MAX, |bytes| bytes.saturating_mul(layers as u64))
}

impl Subject {
    pub(super) fn new(arguments: &LayoutArgs) -> Result<Subject, String> {
        let (geometry, source, note) = match &arguments.config {
            Some(path) => {
                let read = ModelGeometry::read(path);
                let geometry = read.map_err(|error| format!("--config {}: {error}", path.display()))?;
                (geometry, path.display().to_string(), "")
            }
            None => {
                let model = super::model(arguments)?;
                if model.layers == 0 || model.layers > MOST_LAYERS {
                    let rule = if model.layers == 0 { "at least 1" } else { "at most 65536" };
                    return Err(format!("--layers {}: must be {rule}", model.layers));
                }
                (ModelGeometry::from(&model), model.source.to_owned(), model.note)
            }
        };
        let needed = "--dtype: missing; the file has no torch_dtype, so give the type of the cache, for example --dtype bfloat16";
        let dtype = arguments.dtype.or(geometry.dtype);
        let dtype = dtype.ok_or_else(|| needed.to_owned())?;
        let partition = partition(arguments, geometry.layers)?;
        let stage = arguments.stage;
        if stage as usize >= partition.len() {
            let last = partition.len() - 1;
            return Err(format!(
                "--stage {stage}: must be from 0 to {last}; --pp or --layer-partition set the number of stages"
            ));
        }
        let first: u32 = partition[..stage as usize].iter().sum();
        let here = first..first + partition[stage as usize];
        // A layer of an indexer is in the stage of the layer that it indexes.
        let in_stage = |layer: &u32| here.contains(&(layer % geometry.layers));
        let shown = shown(arguments, &geometry)?;
        let mut groups = Vec::new();
        let mut layers: Vec<(u32, Option<u32>)> = Vec::new();
        let mut one = None;
        // Bytes of a token in each layer of the model.
        let mut of_layers = vec![0u64; geometry.layers as usize];
        for (i, group) in geometry.groups.iter().enumerate() {
            let (model, own, paged) = of_layer(&group.keeps, dtype, arguments.tp)?;
            let rank = super::side::shard(&model, ["--tp", "--rank"], arguments.tp, arguments.rank)?;
            let of_token = if paged { token_bytes(&model, own, &rank.shard, 1) } else { 0 };
            for layer in &group.layers {
                let of = &mut of_layers[(layer % geometry.layers) as usize];
                *of = of.saturating_add(of_token);
            }
            let window = match group.keeps {
                Keeps::Heads { window, .. } => window,
                _ => None,
            };
            let of_group: Vec<u32> = group.layers.iter().copied().filter(in_stage).collect();
            let drawn = shown.contains(&i);
            if drawn {
                layers.extend(of_group.iter().map(|layer| (*layer, window)));
                one = Some((model, own, paged));
            }
            groups.push(GroupFacts {
                name: group.name,
                window,
                token_bytes: of_token.saturating_mul(of_group.len() as u64),
                state_bytes: (!paged).then_some(u64::from(model.head_size)),
                layers: of_group,
                drawn,
            });
        }
        let Some((model, dtype, paged)) = one.filter(|_| !layers.is_empty()) else {
            return Err(format!(
                "--stage {stage}: none of its layers {} to {} is in the group; choose another --stage or --group",
                here.start,
                here.end - 1
            ));
        };
        layers.sort_unstable();
        let mut next = 0;
        let stages = partition.iter().enumerate().map(|(i, count)| {
            let first_layer = next;
            next += count;
            let of = &of_layers[first_layer as usize..next as usize];
            let token_bytes = of.iter().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
            let block_bytes = token_bytes.saturating_mul(u64::from(arguments.page));
            StageFacts { first_layer, layers: *count, token_bytes, block_bytes, drawn: i == stage as usize }
        });
        let drawn = Drawn {
            name: geometry.name.clone(),
            source,
            note: note.to_owned(),
            of_model: geometry.layers,
            windows: layers.iter().map(|(_, window)| *window).collect(),
            stages: stages.collect(),
            layers: layers.into_iter().map(|(layer, _)| layer).collect(),
            groups,
        };
        let model = Model { layers: drawn.layers.len() as u32, ..model };
        Ok(Subject { model, dtype, paged, drawn })
    }
}

/// The groups to draw: that of `--group`; else all, if their layers have one geometry; else the first.
fn shown(arguments: &LayoutArgs, geometry: &ModelGeometry) -> Result<Vec<usize>, String> {
    let groups = &geometry.groups;
    if let Some(name) = &arguments.group {
        let found = groups.iter().position(|group| group.name.eq_ignore_ascii_case(name));
        let names = || groups.iter().map(|group| group.name).collect::<Vec<_>>().join(", ");
        let found = found.ok_or_else(|| {
            let number = plural(groups.len() as u64, "group");
            format!("--group {name}: {} has {number} of layers; choose from: {}", geometry.name, names())
        })?;
        return Ok(vec![found]);
    }
    let of = |i: usize| match groups[i].keeps {
        Keeps::Heads { kv_heads, head_size, .. } => Some((kv_heads, head_size)),
        _ => None,
    };
    let alike = (0..groups.len()).all(|i| of(i).is_some() && of(i) == of(0));
    Ok(if alike { (0..groups.len()).collect() } else { vec![0] })
}
