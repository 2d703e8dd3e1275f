//! One geometry, laid out in regions at made-up addresses.
//!
//! ```text
//!   address   0                                                 regions × bytes
//!             │ last region │ …  │ region 1     │ region 0     │
//! ```
//!
//! No memory is behind the regions, so their addresses encode region and offset. Addresses descend,
//! because layers at evenly spaced ascending addresses would be taken for one region.

use super::subject::Drawn;
use kvstrata_core::layout::{Arrangement, DType, Dim, HeadOrder, Layout, LayoutError, Model, Region};
use kvstrata_core::layout::{RegionNeed, ScalePlace};
use kvstrata_core::plan::Shard;
use std::rc::Rc;

/// The geometry that the options ask for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Geometry {
    pub(super) model: Model,
    pub(super) dtype: DType,
    pub(super) page: u32,
    pub(super) blocks: u32,
    pub(super) alignment: u64,
    pub(super) head_order: HeadOrder,
    pub(super) scales: ScalePlace,
    pub(super) arrangement: Arrangement,
}

/// One rank of a tensor-parallel group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rank {
    pub(super) degree: u32,
    pub(super) rank: u32,
    pub(super) shard: Shard,
}

impl Rank {
    /// Heads that all ranks keep together. A head that several ranks have counts once for each.
    pub(super) fn heads_of_all(&self, model: &Model) -> u32 {
        // The ranks share the heads. If there are more ranks than heads, each rank has one head.
        model.kv_heads.max(self.degree)
    }
}

/// One geometry on one rank, laid out.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) geometry: Geometry,
    pub(super) rank: Rank,
    pub(super) need: RegionNeed,
    pub(super) layout: Layout,
    /// The model and its layers that are laid out.
    pub(super) drawn: Rc<Drawn>,
}

/// A dimension in its nesting, and the size of one of its indices.
#[derive(Debug, Clone, Copy)]
pub(super) struct Level {
    pub(super) dim: Dim,
    pub(super) count: u32,
    /// Bytes of one index, padding and scales included; also the distance to the next.
    pub(super) bytes: u64,
    /// Padding in `bytes`.
    pub(super) padding: u64,
    /// Scales after a page, in `bytes`.
    pub(super) scales: u64,
}

/// The most ranks accepted.
const MOST_RANKS: u32 = 65_536;

/// Makes a rank, or names the wrong one of the two options.
pub(super) fn shard(model: &Model, options: [&str; 2], degree: u32, rank: u32) -> Result<Rank, String> {
    let [tp, of] = options;
    if degree == 0 || degree > MOST_RANKS {
        return Err(format!("{tp} {degree}: must be from 1 to 65,536"));
    }
    let shard = model.shard(degree, rank).map_err(|_| format!("{of} {rank}: must be below {tp} {degree}"))?;
    Ok(Rank { degree, rank, shard })
}

/// The first rank of `degree` that shares a head with `side`.
pub(super) fn first_with(side: &Side, degree: u32) -> u32 {
    let has = |rank: &u32| {
        let shard = side.geometry.model.shard(degree, *rank);
        shard.is_ok_and(|shard| side.rank.shard.slice_for(&shard).is_some())
    };
    if degree == side.rank.degree {
        side.rank.rank
    } else {
        (0..degree.min(MOST_RANKS)).find(has).unwrap_or(0)
    }
}

impl Side {
    pub(super) fn new(geometry: Geometry, rank: Rank, drawn: Rc<Drawn>) -> Result<Side, String> {
        let Geometry { model, arrangement, .. } = geometry;
        let config =
            model.config_for(geometry.page, &rank.shard).num_blocks(geometry.blocks).dtype(geometry.dtype);
        let config =
            config.alignment(geometry.alignment).head_order(geometry.head_order).scales(geometry.scales);
        let need = arrangement.needs(&config).map_err(by_option)?;
        if need.bytes.checked_mul(u64::from(need.count)).is_none() {
            let blocks = geometry.blocks;
            return Err(format!(
                "--blocks {blocks}: the bytes of all regions exceed 64 bits; use fewer or smaller blocks"
            ));
        }
        let region =
            |number: u32| Region::system(u64::from(need.count - 1 - number) * need.bytes, need.bytes);
        let regions: Vec<Region> = (0..need.count).map(region).collect();
        let layout = Layout::new(config, arrangement, &regions).map_err(by_option)?;
        Ok(Side { geometry, rank, need, layout, drawn })
    }

    /// The index of the layer whose bytes a region has; `None` if a region has several layers.
    pub(super) fn region_layer(&self, region: u32) -> Option<u32> {
        let apart = self.spread();
        let outers = apart.iter().find(|(dim, _)| *dim == Dim::Outer).map_or(1, |(_, count)| *count);
        apart.iter().any(|(dim, _)| *dim == Dim::Layer).then_some(region / outers)
    }

    /// The region of an address, and the offset in it.
    pub(super) fn locate(&self, address: u64) -> (u32, u64) {
        // Fits into u32, as the number of regions does.
        let from_the_last = (address / self.need.bytes) as u32;
        (self.need.count - 1 - from_the_last, address % self.need.bytes)
    }

    /// The region and offset of a row's elements, and the offset of its scales if they lie apart.
    pub(super) fn row(&self, index: [u32; 5]) -> Option<(u32, u64, Option<u64>)> {
        let (region, offset) = self.locate(self.layout.address(index).ok()?);
        let scales = self.layout.scales_address(index).ok()?;
        Some((region, offset, scales.map(|address| self.locate(address).1)))
    }

    /// The dimensions within a region, outermost first.
    pub(super) fn levels(&self) -> Vec<Level> {
        let (config, layout) = (self.layout.config(), &self.layout);
        let apart = matches!(layout.scales_address([0; 5]), Ok(Some(_)));
        let mut bytes = layout.row_bytes();
        let mut levels = Vec::new();
        let mut scales = 0;
        for (depth, dim) in self.order().iter().copied().rev().enumerate() {
            let count = config.shape()[dim as usize];
            if apart && depth == 2 {
                // Scales lie apart only if a page is in one piece, that is, if
                // tokens and heads are innermost.
                scales = config.row_scale_bytes() * u64::from(config.page_size) * u64::from(config.num_heads);
                bytes += scales;
            }
            let padding = if dim == Dim::Block { self.need.block_stride - bytes } else { 0 };
            bytes += padding;
            let own = if depth == 2 { scales } else { 0 };
            levels.push(Level { dim, count, bytes, padding, scales: own });
            bytes *= u64::from(count);
        }
        debug_assert_eq!(bytes.max(self.need.bytes), self.need.bytes);
        levels.reverse();
        levels
    }

    /// The dimensions whose indices are each in another region.
    pub(super) fn spread(&self) -> Vec<(Dim, u32)> {
        let shape = self.layout.config().shape();
        let apart = |dim: &Dim| !self.order().contains(dim);
        Dim::ALL.into_iter().filter(apart).map(|dim| (dim, shape[dim as usize])).collect()
    }

    fn order(&self) -> &'static [Dim] {
        self.geometry.arrangement.order(self.geometry.head_order)
    }
}

/// Replaces the field that a layout error names by its option.
fn by_option(error: LayoutError) -> String {
    const OPTIONS: [(&str, &str); 7] = [
        ("num_blocks", "--blocks"),
        ("num_layers", "--layers"),
        ("page_size", "--page"),
        ("num_heads", "--heads"),
        ("head_size", "--head-size"),
        ("alignment", "--alignment"),
        ("scales", "--scales"),
    ];
    let message = error.to_string();
    let option = |field: &str| OPTIONS.into_iter().find(|(known, _)| *known == field);
    match message.split_once(" = ").map(|(field, rest)| (option(field), rest)) {
        Some((Some((_, option)), rest)) => format!("{option} {rest}"),
        _ => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(geometry: Geometry, degree: u32) -> Option<Side> {
        let rank = shard(&geometry.model, ["--tp", "--rank"], degree, 0).expect("a rank");
        Side::new(geometry, rank, Rc::default()).ok()
    }

    fn preset(name: &str) -> Model {
        *Model::find(name).expect("a preset")
    }

    #[test]
    fn levels_have_the_strides_of_the_layout() {
        let mut seen = 0;
        for model in [
            preset("llama-3-70b"),
            Model { layers: 2, kv_heads: 3, head_size: 64, ..preset("llama-3-8b") },
            preset("deepseek-v3"),
        ] {
            for (dtype, scales) in [
                (DType::BF16, ScalePlace::Row),
                (DType::NvFp4, ScalePlace::Row),
                (DType::NvFp4, ScalePlace::Page),
            ] {
                for arrangement in Arrangement::ALL {
                    for (head_order, alignment) in
                        [(HeadOrder::Nhd, 2), (HeadOrder::Hnd, 4096), (HeadOrder::Nhd, 1 << 20)]
                    {
                        let (page, blocks) = (4, 3);
                        let geometry = Geometry {
                            model,
                            dtype,
                            page,
                            blocks,
                            alignment,
                            head_order,
                            scales,
                            arrangement,
                        };
                        let Some(side) = side(geometry, 1) else { continue };
                        seen += 1;
                        for level in side.levels().iter().filter(|level| level.count > 1) {
                            assert_eq!(
                                Some(level.bytes),
                                side.layout.stride(level.dim),
                                "{level:?} of {geometry:?}"
                            );
                        }
                        let outermost = side.levels()[0];
                        let whole = outermost.bytes * u64::from(outermost.count);
                        assert_eq!(whole, side.need.bytes, "{geometry:?}");
                        for (dim, count) in side.spread() {
                            assert!(count == 1 || side.layout.stride(dim).is_none(), "{dim} of {geometry:?}");
                        }
                    }
                }
            }
        }
        assert!(seen > 100, "{seen} geometries");
    }

    #[test]
    fn address_gives_region_and_offset() {
        let (model, arrangement) = (preset("llama-3-8b"), Arrangement::TokenMajor);
        let geometry = Geometry {
            model,
            dtype: model.dtype,
            page: 16,
            blocks: 2,
            alignment: 2,
            head_order: HeadOrder::Nhd,
            scales: ScalePlace::Row,
            arrangement,
        };
        let side = side(geometry, 1).expect("a layout");
        // Layer 3, values: the 8th region. Block 1, token 2, head 5.
        assert_eq!(side.row([1, 3, 1, 2, 5]), Some((7, ((16 + 2) * 8 + 5) * 256, None)));
        assert_eq!(side.row([0, 0, 0, 0, 0]), Some((0, 0, None)));
        assert_eq!(side.row([2, 0, 0, 0, 0]), None);
    }
}
