//! The memory of one side of a plan, and the check that it contains every byte that the plan can name.
//!
//! ```text
//!   device   ranges, in any order: an engine's tensors       base + strides of all blocks ⊂ one of them
//!   host     a registered arena                              block n of the layout ⊂ block n of the arena;
//!                                                            the block's guard is the proof
//! ```

use super::super::batch::{Batch, Held};
use super::super::context::CudaDevice;
use super::super::error::CudaError;
use super::super::memory::DeviceRange;
use super::super::pinned::PinnedStorage;
use kvstrata_core::BlockId;
use kvstrata_core::layout::Region;
use kvstrata_core::plan::{CopyPlan, PlaneCopy};
use kvstrata_core::storage::{Storage, StorageKind};
use std::sync::Arc;

/// The memory of one side of a plan.
#[derive(Clone, Debug)]
pub enum Place {
    /// Device memory, in any number of ranges. A transfer holds the ranges. The pool must ensure that no
    /// one else uses their blocks meanwhile: [keep](Batch::keep) its handles in the batch.
    Device(Vec<DeviceRange>),
    /// A registered arena: its block `n` contains block `n` of the layout. A transfer needs the blocks'
    /// guards in its batch.
    Host(Arc<PinnedStorage>),
}

/// A side, and the divisor that the kernel applies to its addresses: above 1 for a
/// [stand-in](kvstrata_kernels::Conversion).
#[derive(Clone, Copy)]
pub(super) struct Of {
    pub side: usize,
    pub divided_by: u64,
}

impl Of {
    pub(super) const SIDES: [Of; 2] = [Of { side: 0, divided_by: 1 }, Of { side: 1, divided_by: 1 }];

    fn name(self) -> &'static str {
        ["source", "destination"][self.side]
    }
}

impl Place {
    pub(super) fn is_host(&self) -> bool {
        matches!(self, Place::Host(_))
    }

    /// Whether kernels reach the memory.
    pub(super) fn is_mapped(&self) -> bool {
        match self {
            Place::Device(_) => true,
            Place::Host(pinned) => pinned.is_mapped(),
        }
    }

    /// Whether the bytes from an address on meet these blocks; for a device, whether they meet any block.
    pub(super) fn meets(&self, (address, bytes): (u64, u64), blocks: &[BlockId]) -> bool {
        let meets = |from: u64, to: u64| address < to && from < address.saturating_add(bytes);
        match self {
            Place::Device(ranges) => {
                ranges.iter().any(|range| meets(range.address(), range.address() + range.size_bytes()))
            }
            Place::Host(pinned) => {
                let (base, stride) = (pinned.base_address(), pinned.arena().stride() as u64);
                blocks.iter().any(|block| {
                    let from = base + u64::from(block.0) * stride;
                    meets(from, from + stride)
                })
            }
        }
    }

    /// Returns the memory as stretches; one copy stays within one stretch.
    pub(super) fn stretches(&self) -> Stretches {
        Stretches::new(match self {
            Place::Device(ranges) => {
                ranges.iter().map(|range| (range.address(), range.address() + range.size_bytes())).collect()
            }
            Place::Host(pinned) => pinned.registered().collect(),
        })
    }

    /// Checks that this place contains all bytes that the plan, or a replan of it, has on this side.
    pub(super) fn check(&self, plan: &CopyPlan, of: Of, device: &Arc<CudaDevice>) -> Result<(), CudaError> {
        let others = |found: &&Arc<CudaDevice>| !Arc::ptr_eq(found, device);
        let found = match self {
            Place::Host(pinned) => Some(pinned.device()).filter(others),
            Place::Device(ranges) => ranges.iter().map(|range| range.storage().device()).find(others),
        };
        if let Some(found) = found {
            let (found, wanted) = (found.ordinal(), device.ordinal());
            return Err(CudaError::WrongDevice { what: "the memory", found, wanted });
        }
        let layout = if of.side == 0 { plan.src() } else { plan.dst() };
        let kind = |region: &&Region| match self {
            Place::Device(_) => region.kind == StorageKind::Device { ordinal: device.ordinal() },
            Place::Host(_) => region.kind.is_host(),
        };
        if let Some(other) = layout.regions().iter().find(|region| !kind(region)) {
            return Err(CudaError::OtherKind { side: of.name(), found: other.kind });
        }
        let blocks = layout.config().num_blocks;
        let joined = self.stretches().joined();
        plan.planes().try_for_each(|plane| {
            let extent = Extent::of(plane, of, blocks);
            plane.bases().iter().map(|base| base[of.side] / of.divided_by).try_for_each(|address| {
                let (inside, place) = match self {
                    Place::Device(_) => (extent.is_inside(address, &joined), "device ranges"),
                    Place::Host(pinned) => (extent.is_inside_blocks(address, pinned), "arena's blocks"),
                };
                let bytes = extent.of_a_block();
                inside.then_some(()).ok_or(CudaError::Outside { side: of.name(), address, bytes, place })
            })
        })
    }
}

/// Stretches of addresses, start and end, sorted by start.
#[derive(Debug)]
pub(super) struct Stretches(Vec<(u64, u64)>);

impl Stretches {
    fn new(mut of: Vec<(u64, u64)>) -> Stretches {
        of.sort_unstable();
        Stretches(of)
    }

    /// Returns the stretches, with those that adjoin or overlap joined.
    fn joined(&self) -> Stretches {
        let mut joined: Vec<(u64, u64)> = Vec::with_capacity(self.0.len());
        for (from, to) in &self.0 {
            match joined.last_mut() {
                Some(last) if *from <= last.1 => last.1 = last.1.max(*to),
                _ => joined.push((*from, *to)),
            }
        }
        Stretches(joined)
    }

    pub(super) fn are_many(&self) -> bool {
        self.0.len() > 1
    }

    /// Whether a piece of some block lies across two stretches.
    pub(super) fn cut(&self, plan: &CopyPlan, of: Of) -> bool {
        let layout = if of.side == 0 { plan.src() } else { plan.dst() };
        self.are_many()
            && plan.planes().any(|plane| {
                let extent = Extent::of(plane, of, layout.config().num_blocks);
                plane.bases().iter().any(|base| !extent.is_inside(base[of.side], self))
            })
    }

    /// Returns the end of the stretch that contains this address; the address itself if none does.
    pub(super) fn end_of(&self, address: u64) -> u64 {
        let behind = self.0.partition_point(|(from, _)| *from <= address);
        self.0[..behind].last().map_or(address, |(_, to)| (*to).max(address))
    }

    pub(super) fn has(&self, address: u64, bytes: u64) -> bool {
        self.end_of(address) - address >= bytes
    }
}

/// A plane's bytes on one side, from each of its bases on: the loops around a piece, blocks among them,
/// the longest strides last.
struct Extent {
    bytes: u64,
    loops: Vec<(u64, u64)>,
    blocks: (u64, u64),
}

impl Extent {
    fn of(plane: &PlaneCopy, of: Of, blocks: u32) -> Extent {
        let loops = plane.nest().loops().iter().map(|l| {
            (u64::from(l.count), if of.side == 0 { l.src_stride } else { l.dst_stride } / of.divided_by)
        });
        let mut loops: Vec<_> = loops.collect();
        loops.sort_unstable_by_key(|(_, stride)| *stride);
        let blocks = (u64::from(blocks), plane.block_strides()[of.side] / of.divided_by);
        Extent { bytes: plane.nest().piece_bytes() / of.divided_by, loops, blocks }
    }

    /// Returns the span of a block in bytes.
    fn of_a_block(&self) -> u64 {
        span(&self.loops, self.bytes).unwrap_or(u64::MAX)
    }

    /// Whether all blocks lie in stretches. Layers at equal distances are a loop that leads from one
    /// tensor to the next.
    fn is_inside(&self, address: u64, stretches: &Stretches) -> bool {
        let mut loops = self.loops.clone();
        loops.insert(loops.partition_point(|(_, stride)| *stride < self.blocks.1), self.blocks);
        inside(address, self.bytes, &loops, stretches)
    }

    /// Whether each block lies in the arena's block of the same number.
    fn is_inside_blocks(&self, address: u64, pinned: &PinnedStorage) -> bool {
        let (arena, base) = (pinned.arena(), pinned.base_address());
        let (blocks, stride) = self.blocks;
        let fits = |bytes: u64| {
            address >= base
                && (address - base).checked_add(bytes).is_some_and(|end| end <= arena.block_bytes() as u64)
        };
        blocks <= arena.blocks() as u64
            && (blocks <= 1 || stride == arena.stride() as u64)
            && span(&self.loops, self.bytes).is_some_and(fits)
    }
}

/// Returns the bytes from the first to the last.
fn span(loops: &[(u64, u64)], bytes: u64) -> Option<u64> {
    loops.iter().try_fold(bytes, |bytes, (count, stride)| {
        count.saturating_sub(1).checked_mul(*stride).and_then(|more| more.checked_add(bytes))
    })
}

fn inside(address: u64, bytes: u64, loops: &[(u64, u64)], stretches: &Stretches) -> bool {
    if span(loops, bytes).is_some_and(|span| stretches.has(address, span)) {
        return true;
    }
    let Some(((count, stride), inner)) = loops.split_last() else { return false };
    (0..*count).all(|turn| inside(address.wrapping_add(turn.wrapping_mul(*stride)), bytes, inner, stretches))
}

/// A set of block numbers, for lookups. Sized once, for all blocks of a place.
#[derive(Debug, Default)]
pub(super) struct Blocks(Vec<u64>);

impl Blocks {
    pub(super) fn with_room_for(blocks: usize) -> Blocks {
        Blocks(vec![0; blocks.div_ceil(64)])
    }

    /// Checks that the batch has the guard of each of these arena blocks; for writing if `write`.
    pub(super) fn are_held(
        &mut self,
        batch: &Batch,
        pinned: &Arc<PinnedStorage>,
        write: bool,
        mut wanted: impl Iterator<Item = u32>,
    ) -> Result<(), CudaError> {
        let held = || batch.held().iter().filter_map(|held| guarded(held, pinned, write));
        for block in held() {
            self.0[block / 64] |= 1 << (block % 64);
        }
        let missing = wanted.find(|block| {
            self.0.get(*block as usize / 64).is_none_or(|word| word & (1 << (block % 64)) == 0)
        });
        for block in held() {
            self.0[block / 64] = 0;
        }
        match missing {
            None => Ok(()),
            Some(block) => {
                let side = if write { "destination" } else { "source" };
                Err(CudaError::NotHeld { side, block })
            }
        }
    }
}

/// Returns the arena's block that this owner guards. A writer may also read.
fn guarded(held: &Held, arena: &Arc<PinnedStorage>, write: bool) -> Option<usize> {
    match held {
        Held::Write(block, of) if Arc::ptr_eq(of, arena) => Some(block.block()),
        Held::Read(block, of) if !write && Arc::ptr_eq(of, arena) => Some(block.block()),
        _ => None,
    }
}
