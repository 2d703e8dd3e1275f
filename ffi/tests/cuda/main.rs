//! The CUDA part over the test double of libcuda: host memory, no GPU, and a count of misuse at the end
//! of each test.

#![cfg(target_os = "linux")]

mod capture;
mod completion;
mod context;
mod copies;
#[allow(dead_code, reason = "its memory is the host's; a device's is elsewhere")]
#[path = "../copy_cases/mod.rs"]
mod copy_cases;
#[path = "../device_contract/mod.rs"]
mod device_contract;
#[path = "../device_plans/mod.rs"]
mod device_plans;
mod doctor;
mod double;
mod driver;
mod engine;
mod ipc;
mod kernels;
mod memory;
#[path = "../../../kernels/tests/numbers/mod.rs"]
mod numbers;
mod on_device;
mod pinned;
mod plans;
#[path = "../copy_cases/random.rs"]
mod random;
mod sticky;
mod sums;
mod tier;
mod transfers;
mod tune;

use kvstrata_core::storage::Storage;
use kvstrata_cuda_double::Double;
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::cuda::{
    Batch, CudaDevice, CudaDriver, DeviceStorage, Held, PinOptions, PinnedStorage, Purpose, QueueOptions,
    Transfer, TransferQueue,
};
use std::sync::Arc;

/// The double, held exclusively, and its first device.
pub fn machine() -> (Double, Arc<CudaDevice>) {
    let double = Double::new();
    let device = open(0);
    (double, device)
}

/// Opens a device of the double; the caller holds the double.
pub fn open(ordinal: u32) -> Arc<CudaDevice> {
    let driver = CudaDriver::load().expect("the double");
    CudaDevice::open(&driver, ordinal).expect("a device")
}

/// An arena that is registered with the device.
pub fn pinned(device: &Arc<CudaDevice>, blocks: usize, block_bytes: usize) -> Arc<PinnedStorage> {
    let arena = HostArena::new(blocks, block_bytes).expect("an arena");
    PinnedStorage::register(device, arena, PinOptions::new(), &mut |_, _| {}).expect("registered")
}

/// Memory of the device.
pub fn memory(device: &Arc<CudaDevice>, bytes: u64) -> Arc<DeviceStorage> {
    DeviceStorage::allocate(device, bytes).expect("memory")
}

/// A queue that waits by events.
pub fn queue(device: &Arc<CudaDevice>, purpose: Purpose) -> TransferQueue {
    TransferQueue::new(device, purpose, QueueOptions::new()).expect("a queue")
}

/// Bytes that differ from seed to seed and from place to place.
pub fn pattern(seed: u32, bytes: usize) -> Vec<u8> {
    (0..bytes as u32)
        .map(|at| (at.wrapping_mul(2_654_435_761).wrapping_add(seed * 977) >> 13) as u8)
        .collect()
}

/// Fills block `block` with a pattern, and queues its copy to the memory's start.
pub fn copy_in(
    queue: &TransferQueue,
    host: &Arc<PinnedStorage>,
    block: usize,
    to: &Arc<DeviceStorage>,
) -> Transfer {
    let mut bytes = host.arena().write(block).expect("free");
    let pattern = pattern(block as u32, bytes.len());
    bytes.copy_from_slice(&pattern);
    let mut batch = Batch::new();
    let from = batch.read(bytes.into_read(), host).expect("registered");
    let to = batch.device(to.range(0, pattern.len() as u64).expect("in range"));
    batch.copy((from, 0), (to, 0), pattern.len() as u64).expect("in range");
    queue.submit(batch).expect("queued")
}

/// Reads device memory through block `block`, by a queue of its own.
pub fn read_back(host: &Arc<PinnedStorage>, block: usize, from: &Arc<DeviceStorage>) -> Vec<u8> {
    let queue = queue(from.device(), Purpose::Offload);
    let mut batch = Batch::new();
    let target = batch.write(host.arena().write(block).expect("free"), host).expect("registered");
    let bytes = from.size_bytes().min(host.arena().block_bytes() as u64);
    let source = batch.device(from.range(0, bytes).expect("in range"));
    batch.copy((source, 0), (target, 0), bytes).expect("in range");
    let mut done = queue.submit(batch).expect("queued").wait().expect("copied");
    let held: Vec<Held> = done.release().collect();
    match &held[0] {
        Held::Write(block, _) => block[..bytes as usize].to_vec(),
        other => panic!("{other:?}"),
    }
}

/// Waits for a change by another thread.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !done() {
        assert!(begun.elapsed().as_secs() < 30, "{what} does not happen");
        std::thread::yield_now();
    }
}
