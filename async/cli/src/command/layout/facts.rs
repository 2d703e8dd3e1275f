//! The facts of a layout, with the keys of the JSON.

use super::copy::CopyFacts;
use super::side::Side;
use super::subject::{GroupFacts, StageFacts};
use kvstrata_core::layout::Dim;
use serde::Serialize;

/// The JSON document.
#[derive(Debug, Serialize)]
pub(super) struct Document<'f> {
    #[serde(flatten)]
    pub(super) layout: &'f Facts,
    pub(super) plan: Option<&'f CopyFacts>,
}

/// A layout.
#[derive(Debug, Serialize)]
pub(super) struct Facts {
    pub(super) model: ModelFacts,
    pub(super) tensor_parallel: RankFacts,
    /// The layers drawn, numbered as in the model.
    pub(super) layers: Vec<u32>,
    /// The drawn layers that attend to a window only.
    pub(super) windowed_layers: Vec<u32>,
    /// Groups of the model's layers.
    pub(super) groups: Vec<GroupFacts>,
    /// Stages of the pipeline.
    pub(super) stages: Vec<StageFacts>,
    pub(super) arrangement: &'static str,
    pub(super) head_order: String,
    pub(super) scales: Option<String>,
    pub(super) dtype: &'static str,
    pub(super) alignment_bytes: u64,
    pub(super) bytes: Bytes,
    /// First the dimensions that are spread over regions, then the others, outermost first.
    pub(super) dims: Vec<DimFacts>,
    pub(super) regions: Regions,
    pub(super) block: u32,
    pub(super) pieces: Pieces,
    /// The block's first row, and the next one along each dimension.
    pub(super) offsets: Vec<Offset>,
}

#[derive(Debug, Serialize)]
pub(super) struct ModelFacts {
    pub(super) name: String,
    pub(super) layers: u32,
    pub(super) outer_dim: u32,
    pub(super) kv_heads: u32,
    pub(super) head_size: u32,
    pub(super) source: Option<String>,
    pub(super) note: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct RankFacts {
    pub(super) degree: u32,
    pub(super) rank: u32,
    /// Numbered as in the model.
    pub(super) first_head: u32,
    pub(super) heads: u32,
}

#[derive(Debug, Serialize)]
pub(super) struct Bytes {
    /// Of one (block, layer, outer, token, head), scales included.
    pub(super) row: u64,
    /// Of a token, over all layers and heads of the rank.
    pub(super) token: u64,
    pub(super) block: u64,
    /// Of a token, over all heads of the model.
    pub(super) token_of_the_model: u64,
    pub(super) block_of_the_model: u64,
    /// Of a block on all ranks together; a replicated head counts once for each rank.
    pub(super) block_of_all_ranks: u64,
    /// Of a block, in each region.
    pub(super) padding: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct DimFacts {
    pub(super) dim: String,
    pub(super) count: u32,
    /// To the next index; `None` if that is in another region, or if there is one index.
    pub(super) stride_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(super) struct Regions {
    pub(super) count: u32,
    pub(super) bytes: u64,
    pub(super) total_bytes: u64,
}

/// The contiguous pieces of the block's bytes, without padding.
#[derive(Debug, Serialize)]
pub(super) struct Pieces {
    pub(super) count: u64,
    pub(super) smallest_bytes: u64,
    pub(super) largest_bytes: u64,
    pub(super) first: Vec<Piece>,
}

#[derive(Debug, Serialize)]
pub(super) struct Piece {
    pub(super) region: u32,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Offset {
    pub(super) block: u32,
    pub(super) layer: u32,
    pub(super) outer: u32,
    pub(super) token: u32,
    pub(super) head: u32,
    pub(super) region: u32,
    pub(super) offset: u64,
    pub(super) scales_offset: Option<u64>,
}

/// The most pieces listed.
pub(super) const SHOWN: usize = 4;

impl Facts {
    pub(super) fn new(side: &Side, block: u32) -> Facts {
        let (config, geometry) = (side.layout.config(), &side.geometry);
        let model = geometry.model;
        let row = config.row_data_bytes() + config.row_scale_bytes();
        let of_block = |heads: u32| {
            let rows = [config.num_layers, config.outer_dim, config.page_size, heads];
            // The rank's bytes fit into 64 bits, since they have a layout; the model's may not.
            rows.into_iter().fold(row, |bytes, count| bytes.saturating_mul(u64::from(count)))
        };
        let levels = side.levels();
        let spread = side.spread().into_iter().map(|(dim, count)| (dim, count, None));
        let nested = levels.iter().map(|level| (level.dim, level.count, Some(level.bytes)));
        let dims = spread.chain(nested).map(|(dim, count, stride_bytes)| DimFacts {
            dim: dim.to_string(),
            count,
            stride_bytes: stride_bytes.filter(|_| count > 1),
        });
        let page = u64::from(config.page_size);
        let (of_rank, of_model) = (of_block(config.num_heads), of_block(model.kv_heads));
        let of_ranks = of_block(side.rank.heads_of_all(&model));
        let drawn = &side.drawn;
        let some = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        Facts {
            model: ModelFacts {
                name: drawn.name.clone(),
                layers: drawn.of_model,
                outer_dim: model.outer_dim,
                kv_heads: model.kv_heads,
                head_size: model.head_size,
                source: some(&drawn.source),
                note: some(&drawn.note),
            },
            layers: drawn.layers.clone(),
            windowed_layers: drawn.windowed(),
            groups: drawn.groups.clone(),
            stages: drawn.stages.clone(),
            tensor_parallel: RankFacts::new(side),
            arrangement: geometry.arrangement.name(),
            head_order: geometry.head_order.to_string().to_lowercase(),
            scales: geometry.dtype.scale().map(|_| geometry.scales.to_string()),
            dtype: geometry.dtype.name(),
            alignment_bytes: geometry.alignment,
            bytes: Bytes {
                row,
                token: of_rank / page,
                block: of_rank,
                token_of_the_model: of_model / page,
                block_of_the_model: of_model,
                block_of_all_ranks: of_ranks,
                padding: levels.iter().map(|level| level.padding).sum(),
            },
            dims: dims.collect(),
            regions: Regions {
                count: side.need.count,
                bytes: side.need.bytes,
                total_bytes: u64::from(side.need.count) * side.need.bytes,
            },
            block,
            pieces: pieces(side, block),
            offsets: offsets(side, block),
        }
    }
}

impl RankFacts {
    pub(super) fn new(side: &Side) -> RankFacts {
        let heads = side.rank.shard.heads();
        let (degree, rank) = (side.rank.degree, side.rank.rank);
        RankFacts { degree, rank, first_head: heads.start, heads: heads.end - heads.start }
    }
}

/// The pieces of a block. No arrangement has more than two for each layer.
fn pieces(side: &Side, block: u32) -> Pieces {
    let mut pieces = Pieces { count: 0, smallest_bytes: u64::MAX, largest_bytes: 0, first: Vec::new() };
    for range in side.layout.block(block).iter().flat_map(|block| block.ranges()) {
        pieces.count += 1;
        pieces.smallest_bytes = pieces.smallest_bytes.min(range.size_bytes);
        pieces.largest_bytes = pieces.largest_bytes.max(range.size_bytes);
        if pieces.first.len() < SHOWN {
            let (region, offset) = side.locate(range.address);
            pieces.first.push(Piece { region, offset, bytes: range.size_bytes });
        }
    }
    pieces
}

fn offsets(side: &Side, block: u32) -> Vec<Offset> {
    let shape = side.layout.config().shape();
    let first = [block, 0, 0, 0, 0];
    // Innermost dimension first, so that offsets grow where the arrangement permits it.
    let next = [Dim::Head, Dim::Token, Dim::Outer, Dim::Layer, Dim::Block].map(|dim| {
        let mut index = first;
        index[dim as usize] += 1;
        (index, index[dim as usize] < shape[dim as usize])
    });
    let rows = std::iter::once((first, true)).chain(next).filter(|(_, exists)| *exists);
    rows.filter_map(|(index, _)| {
        let (region, offset, scales_offset) = side.row(index)?;
        let [block, layer, outer, token, head] = index;
        Some(Offset { block, layer, outer, token, head, region, offset, scales_offset })
    })
    .collect()
}
