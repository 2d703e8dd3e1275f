//! In steady state neither a transfer nor a sum allocates: batches come back, events and slots are reused.

#![cfg(target_os = "linux")]

use core::ffi::c_void;
use kvstrata_core::BlockId;
use kvstrata_core::layout::{Arrangement, Layout as BlockLayout, LayoutConfig, Region};
use kvstrata_core::plan::CopyPlan;
use kvstrata_core::storage::{Storage, StorageKind};
use kvstrata_cuda_double::Double;
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::cuda::{
    Batch, CopyOptions, CudaCopy, CudaDevice, CudaDriver, CudaError, CudaFunction, CudaKernels, CudaModule,
    CudaSums, DeviceStorage, Held, PinOptions, PinnedStorage, Place, Purpose, QueueOptions, Route,
    SumOptions, TransferQueue,
};
use kvstrata_kernels::{Image, cpu};
use kvstrata_testing::counting::{Counting, counted};
use std::sync::Arc;

// The double, a shared library, has an allocator of its own.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PIECES: u64 = 4096;

unsafe extern "C" fn nothing(_grid: u32, _block: u32, _address: *const c_void) {}

/// Fills a batch, submits it, waits, and returns it empty.
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

/// The CPU's kernels in the place of a device's.
fn kernels(double: &Double, device: &Arc<CudaDevice>) -> CudaKernels {
    for kernel in cpu::kernels() {
        let name = kernel.name.to_str().expect("ASCII");
        // SAFETY: launched only by plans and sums, with their own parameters.
        unsafe { double.kernel(name, kernel.parameters_bytes, kernel.run) };
    }
    let images = ["copy", "permute", "sum"].map(|name| Image { name, bytes: b"image" });
    // SAFETY: the double takes any image.
    unsafe { CudaKernels::of(device, &images) }.expect("loaded")
}

/// A prepared plan's pieces: 4,096 of them, by each route.
fn a_prepared_copy_allocates_nothing_by_any_route(double: &Double) {
    double.reset();
    double.plain_addresses();
    let device = CudaDevice::open(&CudaDriver::load().expect("the double"), 0).expect("a device");
    let copy = CudaCopy::with(&device, Ok(kernels(double, &device)), CopyOptions::new());
    // 64 blocks of 32 layers, K and V apart; and 4 rows of each.
    let config = LayoutConfig::new().num_blocks(64).num_layers(32).outer_dim(2).page_size(2).heads(2, 32);
    let config = config.alignment(4096);
    let bytes = 64 * 4 * 32;
    let kind = StorageKind::Device { ordinal: 0 };
    let tensors: Vec<_> = (0..32)
        .map(|layer| DeviceStorage::allocate(&device, 2 * bytes + layer * 4096).expect("memory"))
        .collect();
    let regions: Vec<_> = tensors
        .iter()
        .map(|of| Region { address: of.base_address().next_multiple_of(128), size_bytes: 2 * bytes, kind })
        .collect();
    let engine = BlockLayout::layer_separated(config.alignment(128), Arrangement::OuterFirst, &regions)
        .expect("a layout");
    let arena = HostArena::new(64, config.block_bytes().expect("small") as usize).expect("an arena");
    let host =
        PinnedStorage::register(&device, arena, PinOptions::new(), &mut |_, _| {}).expect("registered");
    let tier = BlockLayout::fully_contiguous(config, Region::of(&*host)).expect("a layout");
    let plan = CopyPlan::new(&engine, &[], &tier, &[], .., ..).expect("alike");
    let place = tensors.iter().map(|of| of.range(0, of.size_bytes()).expect("all")).collect();
    let prepared =
        copy.prepare(&plan, Place::Device(place), Place::Host(Arc::clone(&host))).expect("prepared");
    let queue = TransferQueue::new(&device, Purpose::Offload, QueueOptions::new()).expect("a queue");
    let (from, to): (Vec<_>, Vec<_>) = (0..64).map(|block| (BlockId(63 - block), BlockId(block))).unzip();
    let mut batch = Batch::new();
    // By each route, and by the cheapest; and without kernels.
    let none = CudaCopy::with(
        &device,
        Err(CudaError::NoKernels { why: "as a test".to_owned() }),
        CopyOptions::new(),
    );
    let place = tensors.iter().map(|of| of.range(0, of.size_bytes()).expect("all")).collect();
    let without =
        none.prepare(&plan, Place::Device(place), Place::Host(Arc::clone(&host))).expect("prepared");
    let cases = Route::ALL.map(|route| (&prepared, Some(route))).into_iter();
    for (prepared, route) in cases.chain([(&prepared, None), (&without, None)]) {
        for round in 0..5 {
            let (pieces, count) = counted(|| {
                let mut full = core::mem::take(&mut batch);
                for block in 0..64 {
                    full.write(host.arena().write(block).expect("free"), &host).expect("registered");
                }
                let transfer = match route {
                    Some(route) => prepared.submit_by(route, &queue, &from, &to, full),
                    None => prepared.submit(&queue, &from, &to, full),
                };
                batch = transfer.expect("queued").wait().expect("executed");
                let pieces = batch.pieces();
                batch.release().for_each(drop);
                pieces
            });
            // The first round makes room.
            assert!(round == 0 || count == 0, "{count} allocations by {route:?}");
            match route {
                Some(Route::Single | Route::Batch) => assert_eq!(pieces, 4096, "{route:?}"),
                Some(Route::Rows) => assert_eq!(pieces, 2048),
                Some(Route::Kernel) => assert_eq!(pieces, 0),
                None => {}
            }
        }
    }
    drop((batch, queue, prepared, without, none, copy, tensors, host, device));
}

/// One test, since the count covers the whole program.
#[test]
fn steady_state_allocates_nothing() {
    let double = Double::new();
    a_transfer_allocates_nothing_whichever_way_its_pieces_go(&double);
    a_prepared_copy_allocates_nothing_by_any_route(&double);
    a_sum_allocates_nothing_by_kernel_or_cpu(&double);
    double.finish();
}

fn a_transfer_allocates_nothing_whichever_way_its_pieces_go(double: &Double) {
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
        let batch = round(&queue, &function, &host, &target, Batch::new());
        let again = || (0..5).fold(batch, |batch, _| round(&queue, &function, &host, &target, batch));
        let (batch, count) = counted(again);
        assert_eq!(count, 0, "allocations with a driver of {version}");
        drop((batch, queue, function, module, host, target, device));
    }
}

/// By the kernel, and by the CPU.
fn a_sum_allocates_nothing_by_kernel_or_cpu(double: &Double) {
    double.reset();
    double.plain_addresses();
    let device = CudaDevice::open(&CudaDriver::load().expect("the double"), 0).expect("a device");
    let options = SumOptions::new().calls(1);
    let sums = CudaSums::new(&device, &kernels(double, &device), options).expect("it has the kernel");
    let storage = DeviceStorage::allocate(&device, 3 << 20).expect("memory");
    let ranges = [(0, 3 << 20), (1, 2 << 20)].map(|(at, bytes)| storage.range(at, bytes).expect("in range"));
    for round in 0..5 {
        let ((), count) = counted(|| ranges.iter().for_each(|range| assert!(sums.of_range(range).is_ok())));
        // The first round makes room.
        assert!(round == 0 || count == 0, "{count} allocations");
    }
    assert_eq!((double.calls("cuLaunchKernel"), double.calls("cuMemcpyDtoHAsync_v2")), (5, 10));
    drop((sums, ranges, storage, device));
}
