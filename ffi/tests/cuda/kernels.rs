//! Modules, functions and launches; the kernel is a function of this test.

use crate::{machine, memory, open, queue};
use core::ffi::c_void;
use kvstrata_core::storage::Storage;
use kvstrata_cuda_double::{Double, POISON};
use kvstrata_ffi::cuda::{Batch, CudaError, CudaModule, Purpose};
use std::sync::OnceLock;

#[repr(C)]
struct Arguments {
    target: u64,
    words: u64,
    start: u32,
}

static TRANSLATE: OnceLock<extern "C" fn(u64, u64) -> *mut c_void> = OnceLock::new();

/// Writes `start + thread` to each word of the target.
unsafe extern "C" fn count(grid: u32, block: u32, args: *const c_void) {
    // SAFETY: the double passes a copy of the launch's struct.
    let Arguments { target, words, start } = unsafe { args.cast::<Arguments>().read() };
    let translate = TRANSLATE.get().expect("set by the test");
    let place = translate(target, words * 4).cast::<u32>();
    for thread in (0..grid * block).take(words as usize) {
        // SAFETY: below `words`, which exist.
        let word = unsafe { place.add(thread as usize) };
        // SAFETY: as above; the allocation is aligned.
        unsafe { word.write_unaligned(start + thread) };
    }
}

fn kernel(double: &Double) {
    TRANSLATE.get_or_init(|| double.translator());
    // SAFETY: `count` takes a copy of `Arguments`, and is only launched with those.
    unsafe { double.kernel("count", size_of::<Arguments>(), count) };
}

#[test]
fn launch_is_given_its_struct_and_its_memory_is_held() {
    let (double, device) = machine();
    kernel(&double);
    // SAFETY: the double takes any image.
    let module = unsafe { CudaModule::load(&device, b"image") }.expect("loaded");
    let function = module.function("count").expect("there");
    assert_eq!((function.registers(), function.local_bytes(), function.block_threads()), (32, 0, 1024));
    let target = memory(&device, 400);
    let queue = queue(&device, Purpose::Offload);
    double.hold();
    let mut batch = Batch::new();
    let region = batch.device(target.range(0, 400).expect("in range"));
    let mut work = queue.begin(batch).expect("begun");
    work.fill((region, 0), 400, 0xEE);
    let address = work.target_address((region, 0), 400).expect("in range");
    assert_eq!(work.source_address((region, 1), 400).expect_err("outside").number(), -1);
    let mut arguments = Box::new(Arguments { target: address, words: 99, start: 1000 });
    // SAFETY: the kernel takes `Arguments`, and writes 396 bytes of the target.
    unsafe { work.launch(&function, 10, 10, &*arguments) };
    // Copied at the launch.
    core::hint::black_box(&mut arguments).start = 0;
    let transfer = work.finish().expect("queued");
    // Everything is dropped, but the device keeps the module and the memory.
    drop((module, function, target, transfer));
    assert_eq!((double.left().modules, double.left().allocations), (1, 1));
    double.step(2);
    let words: Vec<u8> = (1000..1099_u32).flat_map(u32::to_ne_bytes).chain([0xEE; 4]).collect();
    assert_eq!(double.peek(address, 400), words);
    assert_ne!(words[0], POISON);
    double.release();
    drop(queue);
    crate::until("the end", || double.left().streams == 0);
    drop(device);
    crate::until("the release", || double.left().contexts == 0);
    double.finish();
}

#[test]
fn impossible_launches_and_images_are_refused() {
    let (double, device) = machine();
    kernel(&double);
    // SAFETY: empty, which is detected before it is read.
    let refused = unsafe { CudaModule::load(&device, &[]) }.expect_err("empty");
    assert_eq!(refused, CudaError::ZeroBytes { what: "image" });
    double.fail("cuModuleLoadData", 1, 209);
    // SAFETY: the double takes any image.
    let refused = unsafe { CudaModule::load(&device, b"image") }.expect_err("for another device");
    assert!(refused.to_string().contains("install a newer NVIDIA driver"), "{refused}");
    // SAFETY: as above.
    let module = unsafe { CudaModule::load(&device, b"image") }.expect("loaded");
    let refused = module.function("nothing").expect_err("not there");
    assert!(
        refused.to_string().starts_with("cuModuleGetFunction answered 500 CUDA_ERROR_NOT_FOUND"),
        "{refused}"
    );
    assert!(matches!(module.function("a\0b"), Err(CudaError::Name { .. })));
    let function = module.function("count").expect("there");
    let arguments = Arguments { target: 0, words: 0, start: 0 };
    let queue = queue(&device, Purpose::Offload);
    for (grid, block) in [(0, 1), (1, 0), (1, 1025)] {
        let mut work = queue.begin(Batch::new()).expect("begun");
        // SAFETY: refused, and no word is written anyway.
        unsafe { work.launch(&function, grid, block, &arguments) };
        let rejected = work.finish().expect_err("refused");
        assert_eq!(rejected.error, CudaError::Shape { grid, block, most: 1024 });
    }
    let other = open(1);
    let elsewhere = crate::queue(&other, Purpose::Offload);
    // SAFETY: as above.
    let refused = unsafe { elsewhere.stream().launch(&function, 1, 1, &arguments) };
    assert_eq!(refused, Err(CudaError::WrongDevice { what: "the kernel", found: 0, wanted: 1 }));
    assert_eq!(double.calls("cuLaunchKernel"), 0);
    drop((function, module, queue, elsewhere, other, device));
    double.finish();
}

#[test]
fn kernel_gets_only_addresses_that_its_batch_holds() {
    let (double, device) = machine();
    let (host, target) = (crate::pinned(&device, 2, 100), memory(&device, 100));
    let queue = queue(&device, Purpose::Offload);
    let mut batch = Batch::new();
    let read = batch.read(host.arena().read(0).expect("free"), &host).expect("registered");
    let write = batch.write(host.arena().write(1).expect("free"), &host).expect("registered");
    let range = batch.device(target.range(10, 50).expect("in range"));
    let mut work = queue.begin(batch).expect("begun");
    let (host_base, device_base) = (host.base_address(), target.base_address());
    assert_eq!(work.source_address((read, 7), 93), Ok(host_base + 7));
    assert_eq!(work.source_address((write, 0), 100), Ok(host_base + host.arena().stride() as u64));
    assert_eq!(work.target_address((write, 1), 1), Ok(host_base + host.arena().stride() as u64 + 1));
    assert_eq!(work.target_address((range, 5), 45), Ok(device_base + 15));
    assert!(matches!(work.target_address((read, 0), 1), Err(CudaError::OutOfRange { .. })), "read only");
    assert!(matches!(work.source_address((read, 8), 93), Err(CudaError::OutOfRange { .. })));
    assert!(matches!(work.target_address((range, 6), 45), Err(CudaError::OutOfRange { .. })));
    drop(work.finish().expect("nothing queued").wait().expect("ended"));
    drop((queue, host, target, device));
    double.finish();
}

#[test]
fn memory_mapped_elsewhere_is_for_copies_only() {
    let (double, device) = machine();
    double.mapped_at(1 << 40);
    let (host, target) = (crate::pinned(&device, 2, 100), memory(&device, 100));
    assert!(!host.is_mapped());
    let queue = queue(&device, Purpose::Onboard);
    drop(crate::copy_in(&queue, &host, 0, &target).wait().expect("copied"));
    let mut batch = Batch::new();
    let read = batch.read(host.arena().read(0).expect("free"), &host).expect("registered");
    let mut work = queue.begin(batch).expect("begun");
    assert_eq!(work.source_address((read, 0), 1), Err(CudaError::NotMapped));
    drop(work);
    // Many copies go one by one; these calls take the host's addresses as such. A batch that is used
    // again forgets the fact.
    let mut batch = Batch::new();
    let read = batch.read(host.arena().read(1).expect("free"), &host).expect("registered");
    let range = batch.device(target.range(0, 100).expect("in range"));
    for at in [0, 50] {
        batch.copy((read, at), (range, at), 50).expect("in range");
    }
    let mut batch = queue.submit(batch).expect("queued").wait().expect("copied");
    batch.release().for_each(drop);
    assert_eq!(double.calls("cuMemcpyBatchAsync_v2"), 0);
    let range = batch.device(target.range(0, 100).expect("in range"));
    for at in [0, 25] {
        batch.copy((range, at), (range, at + 50), 25).expect("in range");
    }
    drop(queue.submit(batch).expect("queued").wait().expect("copied"));
    assert_eq!(double.calls("cuMemcpyBatchAsync_v2"), 1);
    let options = kvstrata_ffi::cuda::QueueOptions::new().way(kvstrata_ffi::cuda::Way::Flag);
    let refused = kvstrata_ffi::cuda::TransferQueue::new(&device, Purpose::Onboard, options);
    assert_eq!(refused.expect_err("the stream cannot write the word"), CudaError::NotMapped);
    drop((queue, host, target, device));
    crate::until("the release", || double.left().contexts == 0);
    double.finish();
}

/// As `count`, compiled for the CPU: follows the given pointer.
unsafe extern "C" fn count_plainly(grid: u32, block: u32, args: *const c_void) {
    // SAFETY: the double passes a copy of the launch's struct.
    let Arguments { target, words, start } = unsafe { args.cast::<Arguments>().read() };
    let place = core::ptr::with_exposed_provenance_mut::<u32>(target as usize);
    for thread in (0..grid * block).take(words as usize) {
        // SAFETY: below `words`, which exist.
        let word = unsafe { place.add(thread as usize) };
        // SAFETY: as above, and aligned as CUDA's allocations are.
        unsafe { word.write(start + thread) };
    }
}

#[test]
fn kernels_for_the_cpu_run_where_addresses_are_the_hosts() {
    let (double, device) = machine();
    double.plain_addresses();
    // SAFETY: `count_plainly` takes a copy of `Arguments`, and is only launched with those.
    unsafe { double.kernel("count_plainly", size_of::<Arguments>(), count_plainly) };
    // SAFETY: the double takes any image.
    let module = unsafe { CudaModule::load(&device, b"image") }.expect("loaded");
    let function = module.function("count_plainly").expect("there");
    let (host, target) = (crate::pinned(&device, 1, 400), memory(&device, 400));
    let queue = queue(&device, Purpose::Offload);
    let mut batch = Batch::new();
    let region = batch.device(target.range(0, 400).expect("in range"));
    let mut work = queue.begin(batch).expect("begun");
    let address = work.target_address((region, 0), 400).expect("in range");
    assert_eq!(address % 256, 0);
    // SAFETY: the kernel takes `Arguments`, and writes 400 bytes of the target.
    unsafe { work.launch(&function, 10, 10, &Arguments { target: address, words: 100, start: 5 }) };
    drop(work.finish().expect("queued").wait().expect("executed"));
    let words: Vec<u8> = (5..105_u32).flat_map(u32::to_ne_bytes).collect();
    assert!(crate::read_back(&host, 0, &target) == words);
    drop((function, module, queue, host, target, device));
    double.finish();
}
