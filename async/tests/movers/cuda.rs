//! The mover between a CUDA device and pinned memory, over the test double of libcuda.
#![cfg(target_os = "linux")]

use crate::ground::{DeviceBytes, Field, Ground};
use kvstrata::movers::{CudaMover, CudaMoverOptions};
use kvstrata::transfer::HostMemory;
use kvstrata_core::layout::{Arrangement, Layout, LayoutConfig, Region};
use kvstrata_core::storage::{Storage, StorageKind};
use kvstrata_cuda_double::{Double, Leftovers};
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::cuda::{
    CopyOptions, CudaCopy, CudaDevice, CudaDriver, CudaError, DeviceStorage, PinOptions, PinnedStorage, Place,
};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

pub struct Cuda {
    threads: usize,
    /// K and V apart, or blocks in one piece.
    arrangement: Arrangement,
    double: Rc<Double>,
}

impl Cuda {
    fn new(threads: usize, arrangement: Arrangement, seed: u64) -> Cuda {
        let double = Double::new();
        double.seed(seed);
        Cuda { threads, arrangement, double: Rc::new(double) }
    }
}

impl Drop for Cuda {
    /// Waits until nothing of this machine is left: the next test has one of its own. A queue's
    /// thread may drop the last of it.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let begun = std::time::Instant::now();
        while self.double.left() != Leftovers::default() {
            assert!(begun.elapsed().as_secs() < 30, "{:?}", self.double.left());
            std::thread::yield_now();
        }
        assert_eq!(self.double.misuse(), (0, String::new()));
    }
}

/// An engine's memory, reached past all of our code.
struct Tensors {
    layout: Layout,
    _memory: Vec<Arc<DeviceStorage>>,
    double: Rc<Double>,
}

impl Tensors {
    /// Each row of a block: its address as the host sees it, and its range in the block as host memory
    /// has it.
    fn rows(&self, block: u32) -> impl Iterator<Item = (*mut u8, Range<usize>)> {
        let [_, layers, outers, tokens, heads] = self.layout.config().shape();
        let rows = (0..layers * outers * tokens * heads).map(move |row| {
            let (head, row) = (row % heads, row / heads);
            let (token, row) = (row % tokens, row / tokens);
            [block, row / outers, row % outers, token, head]
        });
        let bytes = self.layout.row_bytes() as usize;
        rows.enumerate().map(move |(at, index)| {
            let address = self.layout.address(index).expect("there is one");
            let place = self.double.translator()(address, bytes as u64).cast::<u8>();
            assert!(!place.is_null(), "{address:#x} is in no allocation");
            (place, at * bytes..(at + 1) * bytes)
        })
    }
}

impl DeviceBytes for Tensors {
    fn peek(&self, block: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (place, row) in self.rows(block) {
            // SAFETY: so many bytes of an allocation of the double's, which nothing reaches at rest.
            bytes.extend_from_slice(unsafe { core::slice::from_raw_parts(place, row.len()) });
        }
        bytes
    }

    fn poke(&self, block: u32, bytes: &[u8]) {
        for (place, row) in self.rows(block) {
            // SAFETY: as above.
            unsafe { core::ptr::copy_nonoverlapping(bytes[row.clone()].as_ptr(), place, row.len()) };
        }
    }
}

impl Ground for Cuda {
    fn make(&self, blocks: u32, layers: &[usize]) -> Option<Field> {
        // K and V of two tokens of two heads; layers are alike.
        let config = LayoutConfig::new().num_blocks(blocks).num_layers(layers.len() as u32).outer_dim(2);
        let config = config.page_size(2).heads(2, layers[0] as u32 / 8);
        let device = CudaDevice::open(&CudaDriver::load().expect("the double"), 0).expect("a device");
        let need = self.arrangement.needs(&config).expect("small");
        let allocate = |_| DeviceStorage::allocate(&device, need.bytes).expect("memory");
        let memory: Vec<_> = (0..need.count).map(allocate).collect();
        let kind = StorageKind::Device { ordinal: 0 };
        let region =
            |of: &Arc<DeviceStorage>| Region { address: of.base_address(), size_bytes: need.bytes, kind };
        let regions: Vec<_> = memory.iter().map(region).collect();
        let layout = Layout::new(config, self.arrangement, &regions).expect("a layout");
        let place = Place::Device(memory.iter().map(|of| of.range(0, need.bytes).expect("all")).collect());
        let arena = HostArena::new(blocks as usize, layers.iter().sum()).expect("memory");
        let host = HostMemory::over(Arc::clone(&arena), layers).expect("the arena's");
        let pinned = PinnedStorage::register(&device, arena, PinOptions::new(), &mut |_, _| {});
        let copy = CudaCopy::with(
            &device,
            Err(CudaError::NoKernels { why: "as a test".into() }),
            CopyOptions::new(),
        );
        let options = CudaMoverOptions::new().threads(self.threads);
        let ends = (Arc::clone(&host), pinned.expect("registered"));
        let mover = CudaMover::new(copy, (&layout, place), ends, options).expect("a mover");
        let tensors = Tensors { layout, _memory: memory, double: Rc::clone(&self.double) };
        Some(Field { mover: Arc::new(mover), memory: host, device: Box::new(tensors), blocks, faulty: None })
    }
}

mod tensors {
    use super::{Arrangement, Cuda};
    contract!(Cuda::new(2, Arrangement::OuterFirst, 0));
}

mod one_piece_one_thread {
    use super::{Arrangement, Cuda};
    contract!(Cuda::new(1, Arrangement::FullyContiguous, 3));
}
