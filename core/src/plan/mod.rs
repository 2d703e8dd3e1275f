//! Copy plans: from any layout to any other, in the fewest pieces that loops make.
//!
//! A [`CopyPlan`] is checked when it is made, and cannot fail when it is executed. It does not hold its
//! pieces: a formula gives them, in memory that does not grow with their number. Every executor (memcpy,
//! copy engine, kernel, ring or fabric) runs the same plan, and is tested against [`naive`].
//!
//! ```text
//!   plan ─► planes: elements, and scales if these lie apart on one side
//!             └► runs: blocks s, s+1, … become d, d+1, …              sorted by destination
//!                  └► bases: a pair of addresses for each (layer, outer) that no stride reaches
//!                       └► nest: loops around a piece, merged to the fewest pieces
//! ```
//!
//! ```
//! use kvstrata_core::BlockId;
//! use kvstrata_core::layout::{Arrangement, DType, Layout, LayoutConfig, Region};
//! use kvstrata_core::plan::CopyPlan;
//! // Two layers of an engine, [2][blocks][page][heads][size], to a host tier whose blocks are in one piece.
//! let config = LayoutConfig::new().num_layers(2).outer_dim(2).page_size(16).heads(8, 128);
//! let config = config.dtype(DType::BF16).alignment(2);
//! let engine = config.num_blocks(100);
//! let layer = |n: u64| Region::system(n << 32, 100 * 65_536);
//! let engine = Layout::layer_separated(engine, Arrangement::OuterFirst, &[layer(1), layer(2)])?;
//! let host = config.num_blocks(4).alignment(4096);
//! let host = Layout::fully_contiguous(host, Region::system(0x1000, 4 * 131_072))?;
//! let plan = CopyPlan::new(&engine, &[BlockId(7), BlockId(50)], &host, &[BlockId(0), BlockId(3)], .., ..)?;
//! assert_eq!((plan.bytes(), plan.pieces_count()), (2 * 131_072, 2 * 2 * 2));
//! assert_eq!((plan.smallest_piece(), plan.largest_piece(), plan.alignment()), (32_768, 32_768, 16));
//! assert_eq!(plan.pieces().next().map(|piece| piece.src), Some((1 << 32) + 7 * 32_768));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! With one page size on both sides the plan is a [`CopyPlan`]; between page sizes a [`PagePlan`] has a
//! plan for each slice of tokens.
//!
//! Invariants:
//!
//! - **I1** Every byte of the selection is in exactly one piece; no piece has another byte.
//! - **I2** No byte is written twice, and none is both read and written.
//! - **I3** Plans that a plan is split into have its pieces' bytes, each byte in one of them.

pub mod naive;

mod check;
mod error;
mod facts;
mod nest;
mod overlap;
mod pages;
mod pieces;
mod runs;
mod split;
#[cfg(test)]
mod tests;

use crate::layout::Span;
pub use crate::layout::{Shard, ShardError, Slice};
pub use error::{PlanError, Side};
pub use nest::{Loop, Nest};
pub use pages::PagePlan;
pub use pieces::{Families, Family, Piece, Pieces};
pub use runs::Run;

use crate::id::BlockId;
use crate::layout::{Dim, Layout, Plane};
use alloc::sync::Arc;
use alloc::vec::Vec;
use facts::Facts;

/// The bytes to be copied, and their targets. Cheap to clone except for its list of blocks. It has no
/// lifetime, so that its owner can keep it while hardware copies.
///
/// # Example
///
/// ```
/// use core::num::{NonZeroU32, NonZeroU64};
/// use kvstrata_core::layout::Region;
/// use kvstrata_core::plan::CopyPlan;
/// use kvstrata_core::{Arrangement, BlockId, Layout, LayoutConfig};
/// let config = LayoutConfig::new().num_blocks(8).num_layers(2).outer_dim(2).page_size(4).heads(2, 16);
/// let layout = |arrangement: Arrangement, base: u64| {
///     let need = arrangement.needs(&config)?;
///     let regions = (0..u64::from(need.count)).map(|n| Region::system(base + (n << 32), need.bytes));
///     Layout::new(config, arrangement, &regions.collect::<Vec<_>>())
/// };
/// let engine = layout(Arrangement::OuterFirst, 1 << 32)?;
/// let host = layout(Arrangement::FullyContiguous, 1 << 40)?;
/// let (from, to) = ([BlockId(2), BlockId(5)], [BlockId(0), BlockId(1)]);
/// let mut plan = CopyPlan::new(&engine, &from, &host, &to, .., ..)?;
/// assert_eq!((plan.blocks(), plan.bytes()), (2, 2 * engine.block_bytes()));
/// assert_eq!((plan.src().regions().len(), plan.dst().regions().len()), (2, 1));
///
/// // An executor copies pieces, or families of equal pieces, or turns the loops of `planes` over `runs`.
/// let bytes: u64 = plan.pieces().map(|piece| piece.bytes).sum();
/// assert_eq!((bytes, plan.pieces().count() as u64), (plan.bytes(), plan.pieces_count()));
/// assert_eq!(plan.families().count() as u64, plan.families_count());
/// assert!(plan.smallest_piece() <= plan.largest_piece() && plan.alignment() <= 16);
/// assert_eq!((plan.runs().len(), plan.planes().count()), (2, 1));
///
/// // Parts: by blocks, by layers, or by bytes. Then the same plan for other blocks, in its own memory.
/// let one = NonZeroU32::MIN;
/// assert_eq!((plan.split_blocks(one).count(), plan.split_layers(one).count()), (2, 2));
/// let block = NonZeroU64::new(plan.block_bytes()).expect("not empty");
/// assert!(plan.split_bytes(block).all(|part| part.bytes() <= block.get()));
/// plan.replan(&[BlockId(1)], &[BlockId(7)])?;
/// assert_eq!(plan.blocks(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct CopyPlan {
    src: Layout,
    dst: Layout,
    /// Layers, outer indices, tokens, heads.
    spans: [Span; 4],
    /// Elements, and scales if these lie apart on one side.
    planes: [Option<PlaneCopy>; 2],
    /// Whether the two layouts' rows may share bytes.
    shares_memory: bool,
    runs: Vec<Run>,
    /// Empty; memory for sorting.
    spare: Vec<Run>,
    facts: Facts,
}

/// The rows of one plane, as one side has them.
#[derive(Clone, Copy)]
struct Rows<'l> {
    plane: &'l Plane,
    /// Bytes from a row of the plane to the copied part, and the size of that part.
    offset: u64,
    bytes: u64,
    /// Bytes from one head to the next, if the plane has one row for all heads.
    head_stride: Option<u64>,
    /// Bytes from one token to the next, including those of the next block, if that is as far.
    pitch: Option<u64>,
}

/// The copy of one plane of rows: the part that does not depend on the blocks. With the
/// [runs](CopyPlan::runs) it is complete, for an executor that turns the loops itself, as a kernel does:
///
/// ```text
///   for run in plan.runs(), block in 0..run.len, base in plane.bases(), turns of plane.nest().loops():
///       copy nest.piece_bytes() from base[0] + (run.src + block) × block_strides[0] + Σ turn × src_stride
///                                 to base[1] + (run.dst + block) × block_strides[1] + Σ turn × dst_stride
/// ```
#[derive(Clone, Debug)]
pub struct PlaneCopy {
    /// The loops within a block, and merged.
    within: Nest,
    single: Nest,
    /// Bytes from one block to the next, source and destination.
    block: [u64; 2],
    /// Whether neighbouring blocks make longer pieces.
    grows: bool,
    /// Addresses of the selection in block 0, for each (layer, outer) that no stride reaches.
    bases: Arc<[[u64; 2]]>,
}

impl CopyPlan {
    /// Plans to copy `src_blocks[i]` of one layout over `dst_blocks[i]` of another,
    /// for some layers and heads.
    ///
    /// `layers` and `heads` are `..` for all, a range that is the same on both sides, or a [`Slice`];
    /// [`Shard`] makes slices of heads for a change of the tensor-parallel degree. Blocks may be in any
    /// order; a source block may be copied to several places.
    ///
    /// See the [example](CopyPlan#example).
    ///
    /// # Errors
    ///
    /// The lists differ in length; blocks, layers or heads are outside their layout; a destination
    /// block is named twice; a copy of bytes cannot bridge the element types or shapes; or bytes
    /// would be both read and written.
    pub fn new(
        src: &Layout,
        src_blocks: &[BlockId],
        dst: &Layout,
        dst_blocks: &[BlockId],
        layers: impl Into<Slice>,
        heads: impl Into<Slice>,
    ) -> Result<CopyPlan, PlanError> {
        let spans = check::spans(src.config(), dst.config(), layers.into(), heads.into())?;
        let mut plan = CopyPlan::assemble(src, dst, spans, Vec::new());
        plan.shares_memory = overlap::share_memory(src, dst);
        plan.replan(src_blocks, dst_blocks)?;
        Ok(plan)
    }

    /// Replans for other blocks, in the memory that the plan has: the cost of a plan
    /// that is made over and over.
    ///
    /// See the [example](CopyPlan#example).
    ///
    /// # Errors
    ///
    /// As [`new`](CopyPlan::new), about the blocks; the plan is empty then.
    pub fn replan(&mut self, src_blocks: &[BlockId], dst_blocks: &[BlockId]) -> Result<(), PlanError> {
        // Tokens may lie in the blocks behind a listed one, which must exist then.
        let [src_beyond, dst_beyond] = self.blocks_beyond();
        let of_src = self.src.config().num_blocks.saturating_sub(src_beyond);
        let of_dst = self.dst.config().num_blocks.saturating_sub(dst_beyond);
        let (src, dst) = ((src_blocks, of_src), (dst_blocks, of_dst));
        // Two listed blocks have no token in common if they are as far apart as the tokens of one reach.
        let fills = self.span(Dim::Token).count.div_ceil(self.dst.config().page_size);
        let paired = runs::pair(&mut self.runs, &mut self.spare, src, dst, fills);
        self.facts = Facts::of(self);
        let checked = paired.and_then(|()| overlap::check(self));
        if checked.is_err() {
            self.runs.clear();
            self.facts = Facts::default();
        }
        checked
    }

    /// A plan whose parts were checked, with its facts.
    fn assemble(src: &Layout, dst: &Layout, spans: [Span; 4], runs: Vec<Run>) -> CopyPlan {
        let apart = src.scales_apart() || dst.scales_apart();
        let mut planes = [None, None];
        for (plane, scales) in planes.iter_mut().zip([false, true]) {
            if !scales || apart {
                *plane =
                    Some(PlaneCopy::new(rows(src, dst, apart, scales), rows(dst, src, apart, scales), spans));
            }
        }
        if let [Some(data), Some(scales)] = &planes
            && let Some(joined) = data.joined(scales)
        {
            planes = [Some(joined), None];
        }
        let (src, dst) = (src.clone(), dst.clone());
        let mut plan = CopyPlan {
            src,
            dst,
            spans,
            planes,
            shares_memory: false,
            runs,
            spare: Vec::new(),
            facts: Facts::default(),
        };
        plan.facts = Facts::of(&plan);
        plan
    }

    /// The layout that the bytes come from.
    ///
    /// See the [example](CopyPlan#example).
    #[must_use]
    pub fn src(&self) -> &Layout {
        &self.src
    }

    /// The layout that they go to.
    ///
    /// See the [example](CopyPlan#example).
    #[must_use]
    pub fn dst(&self) -> &Layout {
        &self.dst
    }

    /// The pairs of blocks, sorted by destination.
    ///
    /// See the [example](CopyPlan#example).
    #[must_use]
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The number of blocks.
    ///
    /// See the [example](CopyPlan#example).
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.len)).sum()
    }

    /// The number of blocks behind each listed one that the plan's tokens reach, for source and
    /// destination: 0, except in a part of a [`PagePlan`] with a pageless side.
    fn blocks_beyond(&self) -> [u32; 2] {
        let tokens = self.span(Dim::Token);
        let beyond = |first: u32, layout: &Layout| {
            // `first + count` is within the tokens of the listed blocks, which `u32` counts.
            (first + tokens.count.max(1) - 1) / layout.config().page_size
        };
        [beyond(tokens.src, &self.src), beyond(tokens.dst, &self.dst)]
    }

    fn span(&self, dim: Dim) -> Span {
        self.spans[dim as usize - 1]
    }

    /// The copies of the plan's planes: one, or two if elements and scales lie apart on one side.
    ///
    /// See the [example](CopyPlan#example).
    pub fn planes(&self) -> impl Iterator<Item = &PlaneCopy> {
        self.planes.iter().flatten()
    }
}

/// The rows that a plan copies of one layout: whole rows, or, if either side has its scales
/// apart, elements or scales. If the other side separates heads and this one has them in one row,
/// its row is theirs side by side.
fn rows<'l>(layout: &'l Layout, other: &Layout, apart: bool, scales: bool) -> Rows<'l> {
    let (config, theirs) = (layout.config(), other.config());
    let data = config.row_data_bytes();
    let (plane, offset, bytes) = match (layout.scales_plane(), apart, scales) {
        (Some(plane), _, true) => (plane, 0, plane.row_bytes),
        (None, _, true) => (layout.data_plane(), data, config.row_scale_bytes()),
        (_, true, false) => (layout.data_plane(), 0, data),
        (_, false, false) => (layout.data_plane(), 0, layout.data_plane().row_bytes),
    };
    let pitch = plane.pitch(config.shape());
    if config.num_heads == 1 && theirs.head_size < config.head_size {
        let head = theirs.row_data_bytes();
        return Rows { plane, offset, bytes: head, head_stride: Some(head), pitch };
    }
    Rows { plane, offset, bytes, head_stride: None, pitch }
}

impl PlaneCopy {
    fn new(src: Rows<'_>, dst: Rows<'_>, spans: [Span; 4]) -> PlaneCopy {
        debug_assert_eq!(src.bytes, dst.bytes);
        let held = |dim| src.plane.bases.hold(dim) || dst.plane.bases.hold(dim);
        let mut within = Nest::new(src.bytes);
        let mut offsets = [src.offset, dst.offset];
        for (dim, span) in Dim::ALL.into_iter().skip(1).zip(spans) {
            if held(dim) {
                continue;
            }
            let (s, d) = (src.stride(dim), dst.stride(dim));
            within = within.around(span.count, s, d);
            offsets[0] += u64::from(span.src) * s;
            offsets[1] += u64::from(span.dst) * d;
        }
        let [layers, outers, ..] = spans;
        let count = |dim, span: Span| if held(dim) { span.count } else { 1 };
        let first = |dim, first: u32| if held(dim) { first } else { 0 };
        let mut bases =
            Vec::with_capacity(count(Dim::Layer, layers) as usize * count(Dim::Outer, outers) as usize);
        for layer in 0..count(Dim::Layer, layers) {
            for outer in 0..count(Dim::Outer, outers) {
                let of = |rows: &Rows<'_>, l: u32, o: u32| {
                    rows.plane.base(first(Dim::Layer, l) + layer, first(Dim::Outer, o) + outer)
                };
                bases.push([
                    of(&src, layers.src, outers.src) + offsets[0],
                    of(&dst, layers.dst, outers.dst) + offsets[1],
                ]);
            }
        }
        let block = [src.stride(Dim::Block), dst.stride(Dim::Block)];
        PlaneCopy {
            single: within.merged(),
            grows: within.would_merge(block[0], block[1]),
            within,
            block,
            bases: bases.into(),
        }
    }

    /// The loops within one block, around a piece.
    #[must_use]
    pub fn nest(&self) -> &Nest {
        &self.single
    }

    /// Bytes from one block to the next, at the source and at the destination.
    #[must_use]
    pub fn block_strides(&self) -> [u64; 2] {
        self.block
    }

    /// Addresses of the selection in block 0, source and destination, for each (layer, outer) that no
    /// stride reaches.
    #[must_use]
    pub fn bases(&self) -> &[[u64; 2]] {
        &self.bases
    }

    /// Elements and scales as one, if on both sides the scales follow the elements: a page with its
    /// scales behind it.
    fn joined(&self, scales: &PlaneCopy) -> Option<PlaneCopy> {
        let (piece, loops) = (self.single.piece_bytes(), self.single.loops());
        let follows =
            |(data, scales): (&[u64; 2], &[u64; 2])| [0, 1].map(|side| data[side] + piece) == *scales;
        let alike = loops == scales.single.loops() && self.block == scales.block;
        if !alike
            || self.bases.len() != scales.bases.len()
            || !self.bases.iter().zip(&*scales.bases).all(follows)
        {
            return None;
        }
        let nest = Nest::new(piece + scales.single.piece_bytes());
        let within = loops.iter().fold(nest, |nest, l| nest.around(l.count, l.src_stride, l.dst_stride));
        let [src, dst] = self.block;
        let (single, grows) = (within.merged(), within.would_merge(src, dst));
        Some(PlaneCopy { within, single, grows, block: self.block, bases: self.bases.clone() })
    }

    /// The loops over a run of `blocks` blocks.
    #[inline]
    fn nest_over(&self, blocks: u32) -> Nest {
        let [src, dst] = self.block;
        match blocks {
            1 => self.single,
            _ if self.grows => self.within.around(blocks, src, dst).merged(),
            _ => self.single.around(blocks, src, dst).merged(),
        }
    }

    /// Bytes of one block.
    fn block_bytes(&self) -> u64 {
        self.bases.len() as u64 * self.single.pieces() * self.single.piece_bytes()
    }
}

impl Rows<'_> {
    fn stride(&self, dim: Dim) -> u64 {
        match (dim, self.head_stride, self.pitch) {
            (Dim::Head, Some(stride), _) | (Dim::Token, _, Some(stride)) => stride,
            _ => self.plane.strides[dim as usize],
        }
    }
}
