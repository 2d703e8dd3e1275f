//! In steady state a transfer allocates nothing: batches come back, events and slots are used again.

#![cfg(target_os = "linux")]

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use kvstrata_cuda_double::Double;
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::cuda::{
    Batch, CudaDevice, CudaDriver, CudaFunction, CudaModule, DeviceStorage, Held, PinOptions, PinnedStorage,
    Purpose, QueueOptions, TransferQueue,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;

/// The system's allocator, which counts what all threads of this program ask of it while it is told to. The double has its own.
struct Counting;

// Relaxed: the queue's locks order the threads that count.
static COUNTS: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);

// SAFETY: passes everything on to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(u64::from(COUNTS.load(Relaxed)), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PIECES: u64 = 4096;

unsafe extern "C" fn nothing(_grid: u32, _block: u32, _address: *const c_void) {}

/// Fills a batch, submits it, waits, and gives it back empty.
fn round(
    queue: &TransferQueue,
    function: &CudaFunction,
    host: &Arc<PinnedStorage>,
    target: &Arc<DeviceStorage>,
    mut batch: Batch,
) -> Batch {
    let from = batch.read(host.arena().read(0).expect("free"), host).expect("registered");
    let to = batch.device(target.range(0, PIECES * 8).expect("in range"));
    for piece in 0..PIECES {
        batch.copy((from, piece * 8), (to, (PIECES - 1 - piece) * 8), 8).expect("in range");
    }
    batch.copy_rows((from, 0), (to, 0), (4, 2), (8, 16)).expect("in range");
    let mut work = queue.begin(batch).expect("begun");
    work.copy();
    let argument = work.target_address((to, 0), 8).expect("in range");
    // SAFETY: the kernel takes an address, and does nothing.
    unsafe { work.launch(function, 1, 1, &argument) };
    let mut batch = work.finish().expect("queued").wait().expect("executed");
    assert!(matches!(batch.release().next(), Some(Held::Read(..))));
    batch
}

#[test]
fn a_transfer_allocates_nothing_whichever_way_its_pieces_go() {
    let double = Double::new();
    for version in [13000, 12080] {
        double.reset();
        double.version(version);
        let device = CudaDevice::open(&CudaDriver::load().expect("the double"), 0).expect("a device");
        let arena = HostArena::new(1, PIECES as usize * 8).expect("an arena");
        let host =
            PinnedStorage::register(&device, arena, PinOptions::new(), &mut |_, _| {}).expect("registered");
        let target = DeviceStorage::allocate(&device, PIECES * 8).expect("memory");
        // SAFETY: `nothing` takes an address, and is only launched with one.
        unsafe { double.kernel("nothing", 8, nothing) };
        // SAFETY: the double takes any image.
        let module = unsafe { CudaModule::load(&device, b"image") }.expect("loaded");
        let function = module.function("nothing").expect("there");
        let queue = TransferQueue::new(&device, Purpose::Onboard, QueueOptions::new()).expect("a queue");
        let mut batch = round(&queue, &function, &host, &target, Batch::new());
        let before = COUNT.load(Relaxed);
        COUNTS.store(true, Relaxed);
        for _ in 0..5 {
            batch = round(&queue, &function, &host, &target, batch);
        }
        COUNTS.store(false, Relaxed);
        assert_eq!(COUNT.load(Relaxed) - before, 0, "allocations with a driver of {version}");
        drop((batch, queue, function, module, host, target, device));
    }
    double.finish();
}
