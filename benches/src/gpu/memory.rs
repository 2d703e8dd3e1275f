//! Memory of both sides, and layouts in it. Bytes are determined by their place, so that no copy of them
//! is kept.
//!
//! ```text
//!   device   ├ layer 0 ┼ gap ┼ layer 1 ┼ gap ┼ … an engine's tensors: no stride reaches from one to the next
//!   tier     ├ block 0 ┼ block 1 ┼ …
//! ```

use super::{DEADLINE, Failure};
use core::cell::RefCell;
use kvstrata_core::BlockId;
use kvstrata_core::layout::{Arrangement, Layout, LayoutConfig, Region};
use kvstrata_core::storage::Storage;
use kvstrata_ffi::cuda::{
    Batch, CudaDevice, DeviceStorage, Held, PinOptions, PinnedStorage, Place, Purpose, QueueOptions,
    TransferQueue,
};
use std::sync::Arc;

/// A stretch of device memory, in which layouts come and go.
#[derive(Clone)]
pub struct Side {
    /// The whole stretch.
    pub storage: Arc<DeviceStorage>,
}

/// The alignment of every region's start.
const REGION_ALIGNMENT: u64 = 512;

/// Returns the distance of region `n` from the end of the one before it: uneven, as between tensors
/// that were allocated one by one.
fn gap(n: u64) -> u64 {
    (n * n % 5) * REGION_ALIGNMENT
}

/// Returns the bytes of device memory that a layout needs.
///
/// # Errors
/// There is no such layout.
pub fn bytes_of(config: &LayoutConfig, arrangement: Arrangement) -> Result<u64, Failure> {
    let need = arrangement.needs(config)?;
    let regions = (0..u64::from(need.count)).map(|n| need.bytes.next_multiple_of(REGION_ALIGNMENT) + gap(n));
    Ok(regions.sum())
}

impl Side {
    /// Allocates the stretch.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn new(device: &Arc<CudaDevice>, bytes: u64) -> Result<Side, Failure> {
        Ok(Side { storage: DeviceStorage::allocate(device, bytes)? })
    }

    /// Makes a layout in it, from its start on, with regions at uneven distances.
    ///
    /// # Errors
    /// The stretch is too small.
    pub fn lay(&self, config: LayoutConfig, arrangement: Arrangement) -> Result<Layout, Failure> {
        let need = arrangement.needs(&config)?;
        let mut at = self.storage.base_address();
        let regions = (0..u64::from(need.count)).map(|n| {
            let region = Region { address: at + gap(n), size_bytes: need.bytes, kind: self.storage.kind() };
            at = region.address + need.bytes.next_multiple_of(REGION_ALIGNMENT);
            region
        });
        let regions: Vec<Region> = regions.collect();
        if at > self.storage.base_address() + self.storage.size_bytes() {
            return Err(format!("{arrangement} needs more than {} bytes", self.storage.size_bytes()).into());
        }
        Ok(Layout::new(config, arrangement, &regions)?)
    }

    /// Returns all of it, for a prepared copy.
    ///
    /// # Errors
    /// None in practice.
    pub fn place(&self) -> Result<Place, Failure> {
        Ok(Place::Device(vec![self.storage.range(0, self.storage.size_bytes())?]))
    }
}

/// Allocates pinned memory for blocks that lie one behind the other.
///
/// # Errors
/// An error of the system or the driver.
pub fn pinned(
    device: &Arc<CudaDevice>,
    blocks: usize,
    block_bytes: usize,
) -> Result<Arc<PinnedStorage>, Failure> {
    Ok(PinnedStorage::allocate(device, blocks, block_bytes, PinOptions::new(), &mut |_, _| {})?)
}

/// Returns the layout of an arena's blocks.
///
/// # Errors
/// The blocks are too small.
pub fn tier(pinned: &Arc<PinnedStorage>, config: LayoutConfig) -> Result<Layout, Failure> {
    // The configuration of an arena.
    let config = config.num_blocks(pinned.arena().blocks() as u32).alignment(4096);
    Ok(Layout::fully_contiguous(config, Region::of(&**pinned))?)
}

/// Returns `count` blocks of the engine's in no order, no two adjacent, from
/// `first` on; it has twice as many.
#[must_use]
pub fn scattered(first: u32, count: u32) -> Vec<BlockId> {
    let step = (1..).map(|n| 97 + 2 * n).find(|step| gcd(*step, count) == 1).unwrap_or(1);
    (0..count).map(|n| BlockId(first + 2 * (n * step % count) + 1)).collect()
}

/// Returns `count` blocks in their order, from `first` on.
#[must_use]
pub fn ascending(first: u32, count: u32) -> Vec<BlockId> {
    (first..first + count).map(BlockId).collect()
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Returns the byte at this offset of a filled side.
#[must_use]
pub fn byte_at(seed: u64, offset: u64) -> u8 {
    word_at(seed, offset / 8).to_le_bytes()[(offset % 8) as usize]
}

fn word_at(seed: u64, word: u64) -> u64 {
    (word ^ seed << 48).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
}

/// Carries bytes up and down through one block of pinned memory.
pub struct Ferry {
    queue: TransferQueue,
    stage: Arc<PinnedStorage>,
    batch: RefCell<Batch>,
}

impl Ferry {
    /// Makes a stage of so many bytes.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn new(device: &Arc<CudaDevice>, stage_bytes: usize) -> Result<Ferry, Failure> {
        Ok(Ferry {
            queue: TransferQueue::new(device, Purpose::Staging, QueueOptions::new())?,
            stage: pinned(device, 1, stage_bytes)?,
            batch: RefCell::default(),
        })
    }

    /// Fills all of a side with [bytes by their place](byte_at).
    ///
    /// # Errors
    /// An error of the driver.
    pub fn fill(&self, side: &Side, seed: u64) -> Result<(), Failure> {
        self.by_place(side, (0, side.storage.size_bytes()), seed)
    }

    /// Fills from a multiple of 8 on.
    fn by_place(&self, side: &Side, (offset, bytes): (u64, u64), seed: u64) -> Result<(), Failure> {
        self.up(&side.storage, offset, bytes, |at, part| {
            for (word, bytes) in (at / 8..).zip(part.chunks_mut(8)) {
                bytes.copy_from_slice(&word_at(seed, word).to_le_bytes()[..bytes.len()]);
            }
        })
    }

    /// Fills the pages of these blocks of a layout with pages of one piece each.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn fill_pages(
        &self,
        side: &Side,
        layout: &Layout,
        blocks: &[BlockId],
        seed: u64,
    ) -> Result<(), Failure> {
        let config = layout.config();
        let bytes = u64::from(config.page_size * config.num_heads) * layout.row_bytes();
        for block in blocks {
            for layer in 0..config.num_layers {
                for outer in 0..config.outer_dim {
                    let at = layout.address([block.0, layer, outer, 0, 0])? - side.storage.base_address();
                    self.by_place(side, (at, bytes), seed)?;
                }
            }
        }
        Ok(())
    }

    /// Writes these bytes at an offset of device memory.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn put(&self, storage: &Arc<DeviceStorage>, offset: u64, bytes: &[u8]) -> Result<(), Failure> {
        self.up(storage, offset, bytes.len() as u64, |at, part| {
            let from = (at - offset) as usize;
            part.copy_from_slice(&bytes[from..from + part.len()]);
        })
    }

    fn up(
        &self,
        storage: &Arc<DeviceStorage>,
        offset: u64,
        bytes: u64,
        mut make: impl FnMut(u64, &mut [u8]),
    ) -> Result<(), Failure> {
        // Whole words a step, so that bytes by their place are whole words too.
        let step = (self.stage.arena().block_bytes() as u64) & !7;
        let mut at = offset;
        while at < offset + bytes {
            let part = step.min(offset + bytes - at);
            let mut stage = self.stage.arena().write(0)?;
            make(at, &mut stage[..part as usize]);
            let mut batch = self.batch.take();
            let from = batch.read(stage.into_read(), &self.stage)?;
            let to = batch.device(storage.range(at, part)?);
            batch.copy((from, 0), (to, 0), part)?;
            let mut batch =
                self.queue.submit(batch).map_err(|rejected| rejected.error)?.wait_for(DEADLINE)?;
            batch.release().for_each(drop::<Held>);
            self.batch.replace(batch);
            at += part;
        }
        Ok(())
    }

    /// Reads bytes at an offset of device memory.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn get(&self, storage: &Arc<DeviceStorage>, offset: u64, bytes: u64) -> Result<Vec<u8>, Failure> {
        let step = self.stage.arena().block_bytes() as u64;
        let mut found = Vec::with_capacity(bytes as usize);
        while (found.len() as u64) < bytes {
            let part = step.min(bytes - found.len() as u64);
            let mut batch = self.batch.take();
            let from = batch.device(storage.range(offset + found.len() as u64, part)?);
            let to = batch.write(self.stage.arena().write(0)?, &self.stage)?;
            batch.copy((from, 0), (to, 0), part)?;
            let mut batch =
                self.queue.submit(batch).map_err(|rejected| rejected.error)?.wait_for(DEADLINE)?;
            for held in batch.release() {
                if let Held::Write(stage, _) = held {
                    found.extend_from_slice(&stage[..part as usize]);
                }
            }
            self.batch.replace(batch);
        }
        Ok(found)
    }
}
