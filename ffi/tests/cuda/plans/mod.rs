//! Copy plans on a device, by every route: the bytes are the oracle's, and no other byte changes. The
//! kernels are their own source, compiled for the CPU and launched by the same calls as on a device.

mod kinds;
mod refused;
mod routes;

use crate::{machine, memory, pinned};
use kvstrata_core::BlockId;
use kvstrata_core::layout::{Arrangement, DType, HeadOrder, Layout, LayoutConfig, Region};
use kvstrata_core::plan::{Slice, naive};
use kvstrata_core::storage::{Storage, StorageKind};
use kvstrata_cuda_double::Double;
use kvstrata_ffi::cuda::{
    Batch, CopyOptions, CudaCopy, CudaDevice, CudaKernels, DeviceStorage, Direction, PinnedStorage, Place,
    PreparedCopy, Route, TransferQueue,
};
use kvstrata_kernels::{Image, cpu};
use proptest::prelude::*;
use std::sync::Arc;

/// The CPU's kernels in the place of a device's.
pub fn kernels(double: &Double, device: &Arc<CudaDevice>) -> CudaKernels {
    for kernel in cpu::kernels() {
        let name = kernel.name.to_str().expect("ASCII");
        // SAFETY: launched only by plans, with their own parameters.
        unsafe { double.kernel(name, kernel.parameters_bytes, kernel.run) };
    }
    let images = ["convert", "copy", "permute", "sum"].map(|name| Image { name, bytes: b"image" });
    // SAFETY: the double takes any image.
    unsafe { CudaKernels::of(device, &images) }.expect("loaded")
}

/// The double with kernels that follow its addresses, and the preparation of its copies.
pub fn copier(options: CopyOptions) -> (Double, Arc<CudaDevice>, CudaCopy) {
    let (double, device) = machine();
    double.plain_addresses();
    let kernels = kernels(&double, &device);
    let copy = CudaCopy::with(&device, Ok(kernels), options);
    copy.kernels().expect("there");
    (double, device, copy)
}

/// A side of a plan.
pub enum Memory {
    Device(Vec<Arc<DeviceStorage>>),
    Host(Arc<PinnedStorage>),
}

pub struct Side {
    pub layout: Layout,
    pub memory: Memory,
}

impl Side {
    /// Tensors of a device, each of them `shift` bytes from its memory's start.
    pub fn device(
        device: &Arc<CudaDevice>,
        config: LayoutConfig,
        arrangement: Arrangement,
        shift: u64,
        uneven: bool,
    ) -> Option<Side> {
        let need = arrangement.needs(&config).ok()?;
        // Layers at equal distances are a loop; at unequal ones they are a list of bases.
        let shift = |number: u64| {
            (shift + if uneven { (number * number % 11) * 512 } else { 0 }).next_multiple_of(config.alignment)
        };
        let storages: Vec<_> =
            (0..need.count as u64).map(|number| memory(device, need.bytes + shift(number))).collect();
        let kind = StorageKind::Device { ordinal: device.ordinal() };
        let region = |(number, of): (u64, &Arc<DeviceStorage>)| Region {
            address: of.base_address() + shift(number),
            size_bytes: need.bytes,
            kind,
        };
        let regions: Vec<_> = (0..).zip(&storages).map(region).collect();
        let layout = Layout::new(config, arrangement, &regions).expect("as it needs");
        Some(Side { layout, memory: Memory::Device(storages) })
    }

    /// Blocks of an arena.
    pub fn host(device: &Arc<CudaDevice>, config: LayoutConfig) -> Side {
        let config = config.alignment(4096);
        let block_bytes = config.block_bytes().expect("small") as usize;
        let pinned = pinned(device, config.num_blocks as usize, block_bytes);
        let layout = Layout::fully_contiguous(config, Region::of(&*pinned)).expect("as it needs");
        Side { layout, memory: Memory::Host(pinned) }
    }

    pub fn place(&self) -> Place {
        match &self.memory {
            Memory::Device(storages) => {
                let all = |of: &Arc<DeviceStorage>| of.range(0, of.size_bytes()).expect("all");
                Place::Device(storages.iter().map(all).collect())
            }
            Memory::Host(pinned) => Place::Host(Arc::clone(pinned)),
        }
    }

    /// Returns every stretch of bytes: its address and its contents.
    pub fn bytes(&self) -> Vec<(u64, Vec<u8>)> {
        match &self.memory {
            Memory::Device(storages) => {
                let read =
                    |of: &Arc<DeviceStorage>| (of.base_address(), peek(of.base_address(), of.size_bytes()));
                storages.iter().map(read).collect()
            }
            Memory::Host(pinned) => {
                let read = |block| {
                    let at = pinned.base_address() + (block * pinned.arena().stride()) as u64;
                    (at, pinned.arena().read(block).expect("free").to_vec())
                };
                (0..pinned.arena().blocks()).map(read).collect()
            }
        }
    }

    pub fn fill(&self, seed: u32) {
        match &self.memory {
            Memory::Device(storages) => {
                for (number, of) in (seed..).zip(storages) {
                    poke(of.base_address(), &crate::pattern(number, of.size_bytes() as usize));
                }
            }
            Memory::Host(pinned) => {
                for block in 0..pinned.arena().blocks() {
                    let mut guard = pinned.arena().write(block).expect("free");
                    let pattern = crate::pattern(seed + block as u32, guard.len());
                    guard.copy_from_slice(&pattern);
                }
            }
        }
    }

    /// Guards of these blocks, for a batch.
    pub fn guard(&self, blocks: &[BlockId], write: bool, batch: &mut Batch) {
        let Memory::Host(pinned) = &self.memory else { return };
        for block in blocks.iter().map(|block| block.0 as usize) {
            let region = match write {
                true => batch.write(pinned.arena().write(block).expect("free"), pinned),
                false => batch.read(pinned.arena().read(block).expect("free"), pinned),
            };
            region.expect("registered");
        }
    }
}

/// Reads device memory, whose addresses are the host's here.
pub fn peek(address: u64, bytes: u64) -> Vec<u8> {
    let place = core::ptr::with_exposed_provenance::<u8>(address as usize);
    // SAFETY: an allocation of the double's with plain addresses; nothing is in flight.
    unsafe { core::slice::from_raw_parts(place, bytes as usize) }.to_vec()
}

pub fn poke(address: u64, bytes: &[u8]) {
    let place = core::ptr::with_exposed_provenance_mut::<u8>(address as usize);
    // SAFETY: as above.
    unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

/// Returns the destination's bytes after the oracle has copied.
pub fn oracle(src: &Side, dst: &Side, blocks: &[(u32, u32)], slices: [Slice; 2]) -> Vec<(u64, Vec<u8>)> {
    let (before, mut after) = (src.bytes(), dst.bytes());
    let [from, to] = split(blocks);
    let [layers, heads] = slices;
    let find = |all: &[(u64, Vec<u8>)], address: u64| {
        let lies = |(base, bytes): &(u64, Vec<u8>)| address >= *base && address - *base < bytes.len() as u64;
        all.iter().position(lies).expect("an address of the side")
    };
    let read = |address| {
        let at = find(&before, address);
        before[at].1[(address - before[at].0) as usize]
    };
    naive::copy((&src.layout, &from), (&dst.layout, &to), layers, heads, read, |address, byte| {
        let at = find(&after, address);
        let base = after[at].0;
        after[at].1[(address - base) as usize] = byte;
    });
    after
}

pub fn split(blocks: &[(u32, u32)]) -> [Vec<BlockId>; 2] {
    [blocks.iter().map(|pair| BlockId(pair.0)).collect(), blocks.iter().map(|pair| BlockId(pair.1)).collect()]
}

/// A random copy.
#[derive(Debug, Clone)]
pub struct Picks {
    pub direction: Direction,
    sizes: [u32; 6],
    dtype: u8,
    arrangements: [u8; 2],
    hnd: [bool; 2],
    shifts: [u64; 2],
    uneven: bool,
    pub blocks: Vec<(u32, u32)>,
    layer: Option<u32>,
    head: Option<u32>,
}

pub fn picks() -> impl Strategy<Value = Picks> {
    let sizes = (1..7_u32, 1..4_u32, 1..3_u32, 1..9_u32, 1..5_u32, 1..70_u32);
    let sides = (any::<[u8; 2]>(), any::<[bool; 2]>(), [0..40_u64, 0..40], any::<bool>());
    let slices = (proptest::option::of(0..3_u32), proptest::option::of(0..5_u32));
    let blocks = proptest::collection::vec((0..7_u32, 0..7_u32), 1..7);
    (proptest::sample::select(&Direction::ALL[..]), sizes, any::<u8>(), sides, blocks, slices).prop_map(
        |(direction, s, dtype, (arrangements, hnd, shifts, uneven), mut blocks, (layer, head))| {
            let sizes = [s.0, s.1, s.2, s.3, s.4, s.5];
            blocks.iter_mut().for_each(|pair| *pair = (pair.0 % sizes[0], pair.1 % sizes[0]));
            let mut seen = std::collections::BTreeSet::new();
            blocks.retain(|pair| seen.insert(pair.1));
            // A block is borrowed once.
            let mut seen = std::collections::BTreeSet::new();
            blocks.retain(|pair| seen.insert(pair.0));
            let (layer, head) = (layer.filter(|l| *l < sizes[1]), head.filter(|h| *h < sizes[4]));
            Picks { direction, sizes, dtype, arrangements, hnd, shifts, uneven, blocks, layer, head }
        },
    )
}

impl Picks {
    pub fn slices(&self) -> [Slice; 2] {
        [self.layer, self.head].map(|one| one.map_or(Slice::All, |first| Slice::Same(first..first + 1)))
    }

    pub fn sides(&self, device: &Arc<CudaDevice>) -> Option<[Side; 2]> {
        let [blocks, layers, outers, tokens, heads, elements] = self.sizes;
        let dtype = DType::ALL[usize::from(self.dtype) % DType::ALL.len()];
        let head_size = dtype.scale().map_or(elements, |scale| scale.group * (1 + elements % 3));
        let config = LayoutConfig::new().num_blocks(blocks).num_layers(layers).outer_dim(outers);
        let config =
            config.page_size(tokens).heads(heads, head_size).dtype(dtype).alignment(dtype.alignment());
        let side = |at: usize, host: bool| {
            let config = config.head_order(if self.hnd[at] { HeadOrder::Hnd } else { HeadOrder::Nhd });
            let arrangement = Arrangement::ALL[usize::from(self.arrangements[at]) % Arrangement::ALL.len()];
            match host {
                true => Some(Side::host(device, config)),
                false => Side::device(device, config, arrangement, self.shifts[at], self.uneven),
            }
        };
        let host = [self.direction == Direction::HostToDevice, self.direction == Direction::DeviceToHost];
        Some([side(0, host[0])?, side(1, host[1])?])
    }
}

/// Copies by one route, with the guards that it needs; returns the batch.
pub fn submit(
    prepared: &PreparedCopy,
    route: Option<Route>,
    queue: &TransferQueue,
    [src, dst]: [&Side; 2],
    blocks: &[(u32, u32)],
    mut batch: Batch,
) -> Batch {
    let [from, to] = split(blocks);
    src.guard(&from, false, &mut batch);
    dst.guard(&to, true, &mut batch);
    let transfer = match route {
        Some(route) => prepared.submit_by(route, queue, &from, &to, batch),
        None => prepared.submit(queue, &from, &to, batch),
    };
    let mut batch = transfer.expect("queued").wait().expect("executed");
    batch.release().for_each(drop);
    batch
}

/// Three layers of an engine, and a tier's blocks of the same.
pub fn engine_and_tier(device: &Arc<CudaDevice>, blocks: u32) -> [Side; 2] {
    let config = LayoutConfig::new().num_blocks(blocks).num_layers(3).outer_dim(2).page_size(16);
    let config = config.heads(2, 64).dtype(DType::BF16).alignment(2);
    [
        Side::device(device, config, Arrangement::OuterFirst, 0, true).expect("a layout"),
        Side::host(device, config),
    ]
}
