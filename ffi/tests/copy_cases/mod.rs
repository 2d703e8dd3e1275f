//! Random copies between regions that end at guard pages, and the oracle's results: for the property test
//! and the fuzzer.

pub mod guarded;

use guarded::Guarded;
use kvstrata_core::BlockId;
use kvstrata_core::layout::{Arrangement, DType, HeadOrder, Layout, LayoutConfig, ScalePlace};
use kvstrata_core::plan::{CopyPlan, PlanError, Slice, naive};

/// Numbers that define a case; each is brought into its range.
#[derive(Clone, Debug)]
pub struct Picks {
    /// Blocks, layers, outer indices, tokens, heads, elements.
    pub sizes: [u8; 6],
    pub dtype: u8,
    /// For either side: its name in [`Case`].
    pub arrangements: [u8; 2],
    pub alignments: [u8; 2],
    pub hnd: [bool; 2],
    pub scales_apart: [bool; 2],
    /// Whether regions end at their guard page, or begin near it, and the distance from it.
    pub at_end: [bool; 2],
    pub shifts: [u8; 2],
    /// Blocks of the destination.
    pub of: u8,
    pub blocks: Vec<(u8, u8)>,
    /// Of layers and heads: all of them, or some.
    pub all: [bool; 2],
    pub slices: [[u8; 3]; 2],
    /// Whether picks that a plan would refuse are brought into range, too.
    pub tame: bool,
}

/// A copy, and the memory of both sides.
pub struct Case {
    pub src: Side,
    pub dst: Side,
    src_blocks: Vec<BlockId>,
    dst_blocks: Vec<BlockId>,
    layers: Slice,
    heads: Slice,
}

/// A layout and the memory behind it.
pub struct Side {
    pub layout: Layout,
    pub memory: Vec<Guarded>,
}

/// More is slow, byte by byte.
const MOST_BYTES: u64 = 512 << 10;

impl Side {
    fn new(config: LayoutConfig, arrangement: Arrangement, at_end: bool, shift: u8) -> Option<Side> {
        let need = arrangement.needs(&config).ok()?;
        if need.bytes.checked_mul(need.count.into())? > MOST_BYTES {
            return None;
        }
        let region = |_| Guarded::new(need.bytes as usize, config.alignment as usize, at_end, shift.into());
        let memory: Vec<Guarded> = (0..need.count).map(region).collect();
        let regions: Vec<_> = memory.iter().map(Guarded::region).collect();
        let layout = Layout::new(config, arrangement, &regions).expect("as it needs");
        Some(Side { layout, memory })
    }

    /// Gives every byte, gaps included, a value that depends on `salt` and its place.
    pub fn fill(&mut self, salt: u64) {
        for (number, memory) in (0u64..).zip(&mut self.memory) {
            for (at, byte) in (0u64..).zip(memory.all_mut()) {
                let mixed =
                    (at ^ (number << 40) ^ (salt << 56)).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                *byte = (mixed >> 56) as u8;
            }
        }
    }

    /// All bytes, gaps included.
    pub fn bytes(&self) -> Vec<Vec<u8>> {
        self.memory.iter().map(|memory| memory.all().to_vec()).collect()
    }
}

fn in_order(order: bool) -> HeadOrder {
    if order { HeadOrder::Hnd } else { HeadOrder::Nhd }
}

fn place(apart: bool) -> ScalePlace {
    if apart { ScalePlace::Page } else { ScalePlace::Row }
}

fn slice(all: bool, of: u32, pick: [u8; 3], tame: bool) -> Slice {
    let [count, src, dst] = pick.map(u32::from);
    if all {
        return Slice::All;
    }
    if !tame {
        return Slice::Moved { src: src % 8, dst: dst % 8, count: count % 8 };
    }
    let moved =
        Slice::Moved { src: src % of, dst: dst % of, count: 1 + count % (of - (src % of).max(dst % of)) };
    match moved {
        Slice::Moved { src, count, .. } if dst.is_multiple_of(3) => Slice::Same(src..src + count),
        moved => moved,
    }
}

impl Case {
    /// `None` if the picks make no layout, or take too long.
    pub fn new(picks: &Picks) -> Option<Case> {
        let [blocks, layers, outers, tokens, heads, elements] = picks.sizes.map(u32::from);
        let dtype = DType::ALL[usize::from(picks.dtype) % DType::ALL.len()];
        let head_size = match dtype.scale() {
            Some(scale) => scale.group * (1 + elements % 3),
            None => 1 + elements % 140,
        };
        let config = LayoutConfig::new()
            .num_layers(1 + layers % 3)
            .outer_dim(1 + outers % 2)
            .page_size(1 + tokens % 32);
        let config = config.heads(1 + heads % 4, head_size).dtype(dtype);
        let side = |i: usize, blocks: u32| {
            let alignment = dtype.alignment() << (picks.alignments[i] % 8);
            let config = config.num_blocks(blocks).alignment(alignment).head_order(in_order(picks.hnd[i]));
            let arrangement = Arrangement::ALL[usize::from(picks.arrangements[i]) % Arrangement::ALL.len()];
            Side::new(
                config.scales(place(picks.scales_apart[i])),
                arrangement,
                picks.at_end[i],
                picks.shifts[i],
            )
        };
        let (of_src, of_dst) = (1 + blocks % 5, 1 + u32::from(picks.of) % 5);
        let (src, dst) = (side(0, of_src)?, side(1, of_dst)?);
        let block =
            |pick: u8, of: u32| BlockId(if picks.tame { u32::from(pick) % of } else { u32::from(pick) % 8 });
        let (mut src_blocks, mut dst_blocks) = (vec![], vec![]);
        for (from, to) in &picks.blocks {
            let to = block(*to, of_dst);
            if !picks.tame || !dst_blocks.contains(&to) {
                src_blocks.push(block(*from, of_src));
                dst_blocks.push(to);
            }
        }
        let layers = slice(picks.all[0], config.num_layers, picks.slices[0], picks.tame);
        let heads = slice(picks.all[1], config.num_heads, picks.slices[1], picks.tame);
        Some(Case { src, dst, src_blocks, dst_blocks, layers, heads })
    }

    pub fn plan(&self) -> Result<CopyPlan, PlanError> {
        let (layers, heads) = (self.layers.clone(), self.heads.clone());
        CopyPlan::new(&self.src.layout, &self.src_blocks, &self.dst.layout, &self.dst_blocks, layers, heads)
    }

    /// The blocks, layers and heads of the copy, for a plan between other memory of the same layouts.
    #[allow(dead_code, reason = "not every test copies elsewhere")]
    pub fn selection(&self) -> ([&[BlockId]; 2], [Slice; 2]) {
        ([&self.src_blocks, &self.dst_blocks], [self.layers.clone(), self.heads.clone()])
    }

    /// Returns the destination's bytes after the oracle has copied, gaps included.
    pub fn oracle(&self) -> Vec<Vec<u8>> {
        let mut after = self.dst.bytes();
        let (src, dst) = ((&self.src.layout, &*self.src_blocks), (&self.dst.layout, &*self.dst_blocks));
        let place = |memory: &[Guarded], address: u64| {
            let found =
                memory.iter().enumerate().find_map(|(number, memory)| Some((number, memory.place(address)?)));
            found.expect("an address of a region")
        };
        let read = |address| {
            let (number, at) = place(&self.src.memory, address);
            self.src.memory[number].all()[at]
        };
        let write = |address, byte| {
            let (number, at) = place(&self.dst.memory, address);
            after[number][at] = byte;
        };
        naive::copy(src, dst, self.layers.clone(), self.heads.clone(), read, write);
        after
    }
}
