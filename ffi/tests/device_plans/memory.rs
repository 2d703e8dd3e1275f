//! Memory of a side of a plan, on a device or in an arena, and the host's image of its bytes.
//!
//! ```text
//!   image     the host's copy of each stretch: an address on the side, and bytes
//!   up        image ──► side        through one block of pinned memory
//!   down      side  ──► bytes, to be compared with an image that the oracle has changed
//! ```

use crate::copy_cases::Side as CaseSide;
use core::time::Duration;
use kvstrata_core::BlockId;
use kvstrata_core::layout::{Arrangement, Layout, LayoutConfig, Region};
use kvstrata_core::storage::{Storage, StorageKind};
use kvstrata_ffi::cuda::{
    Batch, CopyOptions, CudaCopy, CudaDevice, CudaKernels, DeviceStorage, Held, PinOptions, PinnedStorage,
    Place, Purpose, QueueOptions, TransferQueue,
};
use std::sync::Arc;

/// The deadline of a transfer.
pub const DEADLINE: Duration = Duration::from_secs(60);
/// The maximum alignment of the cases' layouts.
const MOST_ALIGNMENT: u64 = 4096;
const STAGE_BYTES: usize = 1 << 20;

/// A device, its copies, and the path up and down.
pub struct Ground {
    pub device: Arc<CudaDevice>,
    pub copy: CudaCopy,
    pub queue: TransferQueue,
    stage: Arc<PinnedStorage>,
}

/// The place of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Device,
    Host,
}

/// A side of a plan.
pub struct Side {
    pub layout: Layout,
    /// The host's image of the bytes.
    pub image: Vec<(u64, Vec<u8>)>,
    home: Home,
}

enum Home {
    Device(Vec<Arc<DeviceStorage>>),
    Host(Arc<PinnedStorage>),
}

impl Ground {
    pub fn new(device: &Arc<CudaDevice>, kernels: CudaKernels) -> Ground {
        let copy = CudaCopy::with(device, Ok(kernels), CopyOptions::new());
        copy.kernels().expect("there");
        Ground {
            device: Arc::clone(device),
            copy,
            queue: TransferQueue::new(device, Purpose::Staging, QueueOptions::new()).expect("a queue"),
            stage: arena(device, 1, STAGE_BYTES),
        }
    }

    pub fn memory(&self, bytes: u64) -> Arc<DeviceStorage> {
        DeviceStorage::allocate(&self.device, bytes).expect("device memory")
    }

    /// Copies bytes to an offset of device memory.
    pub fn put(&self, to: &Arc<DeviceStorage>, offset: u64, bytes: &[u8]) {
        for (part, at) in bytes.chunks(STAGE_BYTES).zip((offset..).step_by(STAGE_BYTES)) {
            let mut stage = self.stage.arena().write(0).expect("free");
            stage[..part.len()].copy_from_slice(part);
            let mut batch = Batch::new();
            let from = batch.read(stage.into_read(), &self.stage).expect("registered");
            let to = batch.device(to.range(at, part.len() as u64).expect("in range"));
            batch.copy((from, 0), (to, 0), part.len() as u64).expect("in range");
            self.run(batch, |queue, batch| queue.submit(batch).expect("queued")).release().for_each(drop);
        }
    }

    /// Returns bytes from an offset of device memory.
    pub fn get(&self, from: &Arc<DeviceStorage>, offset: u64, bytes: usize) -> Vec<u8> {
        let mut found = Vec::with_capacity(bytes);
        while found.len() < bytes {
            let part = STAGE_BYTES.min(bytes - found.len());
            let mut batch = Batch::new();
            let to =
                batch.write(self.stage.arena().write(0).expect("free"), &self.stage).expect("registered");
            let from = batch.device(from.range(offset + found.len() as u64, part as u64).expect("in range"));
            batch.copy((from, 0), (to, 0), part as u64).expect("in range");
            let mut batch = self.run(batch, |queue, batch| queue.submit(batch).expect("queued"));
            let Some(Held::Write(stage, _)) = batch.release().next() else { panic!("the stage") };
            found.extend_from_slice(&stage[..part]);
        }
        found
    }

    /// Submits, and waits.
    pub fn run(
        &self,
        batch: Batch,
        submit: impl FnOnce(&TransferQueue, Batch) -> kvstrata_ffi::cuda::Transfer,
    ) -> Batch {
        submit(&self.queue, batch).wait_for(DEADLINE).expect("executed")
    }

    /// A layout with regions at `offsets` from the start of their memory.
    pub fn on_device(&self, config: LayoutConfig, arrangement: Arrangement, offsets: &[u64]) -> Side {
        let need = arrangement.needs(&config).expect("a layout");
        let kind = StorageKind::Device { ordinal: self.device.ordinal() };
        let (mut regions, mut storages, mut image) = (vec![], vec![], vec![]);
        for offset in offsets {
            // There is room behind it too; no copy may write there.
            let bytes = need.bytes + offset + 64;
            let storage = self.memory(bytes + MOST_ALIGNMENT);
            let start = storage.base_address().next_multiple_of(MOST_ALIGNMENT);
            regions.push(Region { address: start + offset, size_bytes: need.bytes, kind });
            image.push((start, vec![0; bytes as usize]));
            storages.push(storage);
        }
        let layout = Layout::new(config, arrangement, &regions).expect("as it needs");
        Side { layout, image, home: Home::Device(storages) }
    }

    /// Blocks of an arena.
    pub fn on_host(&self, config: LayoutConfig) -> Side {
        let config = config.alignment(4096);
        let block_bytes = config.block_bytes().expect("a block") as usize;
        let pinned = arena(&self.device, config.num_blocks as usize, block_bytes);
        let layout = Layout::fully_contiguous(config, Region::of(&*pinned)).expect("as it needs");
        let at = |block: usize| pinned.base_address() + (block * pinned.arena().stride()) as u64;
        let image = (0..pinned.arena().blocks()).map(|block| (at(block), vec![0; block_bytes])).collect();
        Side { layout, image, home: Home::Host(pinned) }
    }

    /// Makes the same layout elsewhere: on the device, at the same distance from a multiple of 4 KiB; or
    /// in an arena's blocks.
    pub fn like(&self, case: &CaseSide, end: End) -> Side {
        match end {
            End::Host => self.on_host(*case.layout.config()),
            End::Device => {
                let offset = |region: &Region| region.address % MOST_ALIGNMENT;
                let offsets: Vec<u64> = case.layout.regions().iter().map(offset).collect();
                let arrangement = case.layout.arrangement().expect("one of them");
                self.on_device(*case.layout.config(), arrangement, &offsets)
            }
        }
    }

    /// Copies a side's image up.
    pub fn up(&self, side: &Side) {
        match &side.home {
            Home::Device(storages) => {
                for (storage, (address, bytes)) in storages.iter().zip(&side.image) {
                    self.put(storage, address - storage.base_address(), bytes);
                }
            }
            Home::Host(pinned) => {
                for (block, (_, bytes)) in side.image.iter().enumerate() {
                    pinned.arena().write(block).expect("free").copy_from_slice(bytes);
                }
            }
        }
    }

    /// Returns the bytes of a side.
    pub fn down(&self, side: &Side) -> Vec<Vec<u8>> {
        match &side.home {
            Home::Device(storages) => {
                let stretches = storages.iter().zip(&side.image);
                let get = |(storage, (address, bytes)): (&Arc<DeviceStorage>, &(u64, Vec<u8>))| {
                    self.get(storage, address - storage.base_address(), bytes.len())
                };
                stretches.map(get).collect()
            }
            Home::Host(pinned) => (0..side.image.len())
                .map(|block| pinned.arena().read(block).expect("free").to_vec())
                .collect(),
        }
    }
}

impl Side {
    /// Gives every byte of the image, gaps included, a value that depends on `salt` and its place.
    pub fn fill(&mut self, salt: u64) {
        for (number, (_, bytes)) in (0_u64..).zip(&mut self.image) {
            for (at, byte) in (0_u64..).zip(bytes) {
                let mixed =
                    (at ^ (number << 40) ^ (salt << 56)).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                *byte = (mixed >> 56) as u8;
            }
        }
    }

    pub fn place(&self) -> Place {
        match &self.home {
            Home::Device(storages) => {
                let all = |of: &Arc<DeviceStorage>| of.range(0, of.size_bytes()).expect("all");
                Place::Device(storages.iter().map(all).collect())
            }
            Home::Host(pinned) => Place::Host(Arc::clone(pinned)),
        }
    }

    /// Returns the place of an address in the image.
    pub fn find(&self, address: u64) -> (usize, usize) {
        let lies = |(base, bytes): &(u64, Vec<u8>)| address >= *base && address - *base < bytes.len() as u64;
        let stretch = self.image.iter().position(lies).expect("an address of the side");
        (stretch, (address - self.image[stretch].0) as usize)
    }

    /// Adds guards of these blocks, if they are the host's.
    pub fn guard(&self, blocks: &[BlockId], write: bool, batch: &mut Batch) {
        let Home::Host(pinned) = &self.home else { return };
        for block in blocks.iter().map(|block| block.0 as usize) {
            let region = match write {
                true => batch.write(pinned.arena().write(block).expect("free"), pinned),
                false => batch.read(pinned.arena().read(block).expect("free"), pinned),
            };
            region.expect("registered");
        }
    }
}

pub fn arena(device: &Arc<CudaDevice>, blocks: usize, block_bytes: usize) -> Arc<PinnedStorage> {
    PinnedStorage::allocate(device, blocks, block_bytes, PinOptions::new(), &mut |_, _| {})
        .expect("registered")
}
