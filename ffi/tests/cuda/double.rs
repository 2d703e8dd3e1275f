//! The double itself: it must see every misuse that the other tests rule out. Calls go past
//! kvstrata's own code.

use crate::{copy_in, machine, memory, open, pinned, queue};
use core::ffi::c_void;
use core::ptr::{null_mut, without_provenance_mut};
use cudarc::driver::sys::{self, CUresult};
use kvstrata_core::storage::Storage;
use kvstrata_cuda_double::{Double, POISON};
use kvstrata_ffi::cuda::{Batch, CudaDevice, CudaEvent, Held, Purpose};
use std::sync::Arc;

/// Makes a wrong call in the device's context, and returns the double's report.
fn wrong(double: &Double, device: &Arc<CudaDevice>, call: impl FnOnce() -> CUresult) -> String {
    assert_eq!(double.misuse().0, 0, "nothing before");
    let answer = device.bound(call).expect("bound");
    let (count, words) = double.misuse();
    assert_eq!(count, 1, "{words}");
    println!("{answer:?}: {words}");
    words
}

#[test]
fn call_without_a_context_is_seen() {
    let (double, device) = machine();
    let mut address = 0;
    // SAFETY: `address` is ours.
    assert_eq!(unsafe { sys::cuMemAlloc_v2(&mut address, 8) }, CUresult::CUDA_ERROR_INVALID_CONTEXT);
    assert_eq!(double.misuse(), (1, "cuMemAlloc_v2 with no context current".to_owned()));
    drop(device);
    double.finish();
}

#[test]
fn call_that_breaks_a_capture_is_seen() {
    let (double, device) = machine();
    double.capture(true);
    let mut context = null_mut();
    // SAFETY: `context` is ours.
    let answer = unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, 0) };
    assert_eq!(answer, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    let words = "cuDevicePrimaryCtxRetain broke another thread's capture".to_owned();
    assert_eq!(double.misuse(), (1, words));
    // One version's call is not another's.
    let words = wrong(&double, &device, || {
        let none = null_mut();
        type Old = unsafe extern "C" fn(
            *mut u64,
            *mut u64,
            *mut usize,
            usize,
            *mut c_void,
            *mut usize,
            usize,
            *mut usize,
            *mut c_void,
        ) -> CUresult;
        // Not RTLD_DEFAULT: with a sanitizer this program exports a copy of its own.
        let path =
            std::ffi::CString::new(Double::path().into_os_string().into_encoded_bytes()).expect("no NUL");
        // SAFETY: a library that is loaded, and stays.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        assert!(!library.is_null());
        // SAFETY: a handle of a library, and a C string.
        let found = unsafe { libc::dlsym(library, c"cuMemcpyBatchAsync".as_ptr()) };
        assert!(!found.is_null());
        // SAFETY: the declaration of 12.8.
        let call = unsafe { core::mem::transmute::<*mut c_void, Old>(found) };
        let mut failed = 0;
        // SAFETY: refused before any pointer is followed, except `failed`, which is ours.
        unsafe { call(null_mut(), null_mut(), null_mut(), 1, none, null_mut(), 1, &mut failed, none) }
    });
    assert!(words.contains("of a driver of version 13000"));
    double.capture(false);
    drop(device);
    double.finish();
}

#[test]
fn memory_in_flight_or_missing_is_seen() {
    let (double, device) = machine();
    let (host, target) = (pinned(&device, 2, 4096), memory(&device, 4096));
    let stream = queue(&device, Purpose::Onboard);
    double.hold();
    let transfer = copy_in(&stream, &host, 0, &target);
    let base = without_provenance_mut::<c_void>(host.base_address() as usize);
    // SAFETY: wrong on purpose; the double keeps the bytes.
    let words = wrong(&double, &device, || unsafe { sys::cuMemFree_v2(target.base_address()) });
    assert!(words.contains("while it is in flight"));
    // SAFETY: wrong on purpose; the double only forgets the registration.
    let words = wrong(&double, &device, || unsafe { sys::cuMemHostUnregister(base) });
    assert!(words.contains("while it is in flight"));
    double.release();
    transfer.wait().expect("copied");
    let raw = |from: u64, to: u64, bytes: usize| {
        let mut handle = null_mut();
        // SAFETY: `handle` is ours; wrong on purpose.
        let made = unsafe { sys::cuStreamCreateWithPriority(&mut handle, 1, 0) };
        assert_eq!(made, CUresult::CUDA_SUCCESS);
        // SAFETY: wrong on purpose; the double refuses before it follows an address.
        let answer = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, handle) };
        // SAFETY: made above.
        unsafe { sys::cuStreamDestroy_v2(handle) };
        answer
    };
    let at = target.base_address();
    assert!(wrong(&double, &device, || raw(at, at + 1, 4096)).contains("is in no allocation"));
    assert!(wrong(&double, &device, || raw(at, 0x0C01_00F0_0000_0000, 1)).contains("is in no allocation"));
    assert!(wrong(&double, &device, || raw(at, 0x1000, 1)).contains("on the wrong side"));
    let other = open(1);
    // SAFETY: wrong on purpose.
    assert!(wrong(&double, &other, || unsafe { sys::cuMemFree_v2(at) }).contains("another device's context"));
    drop((stream, target, host, other));
    // The registration has gone already: the device counts it as leaked.
    assert_eq!(device.leaked().things, 1);
    drop(device);
    double.finish();
}

#[test]
fn unregistered_memory_is_seen() {
    let (double, device) = machine();
    let target = memory(&device, 64);
    let source = [1_u8; 64];
    let words = wrong(&double, &device, || {
        // SAFETY: wrong on purpose; the double refuses.
        unsafe { sys::cuMemcpyHtoDAsync_v2(target.base_address(), source.as_ptr().cast(), 64, null_mut()) }
    });
    assert!(words.contains("is not registered"));
    drop((target, device));
    double.finish();
}

#[test]
fn destroyed_handles_and_other_contexts_streams_are_seen() {
    let (double, device) = machine();
    let (mut event, mut stream) = (null_mut(), null_mut());
    device
        .bound(|| {
            // SAFETY: `event` is ours.
            assert_eq!(unsafe { sys::cuEventCreate(&mut event, 2) }, CUresult::CUDA_SUCCESS);
            // SAFETY: `stream` is ours.
            assert_eq!(unsafe { sys::cuStreamCreateWithPriority(&mut stream, 1, 0) }, CUresult::CUDA_SUCCESS);
        })
        .expect("bound");
    let other = open(1);
    // SAFETY: wrong on purpose, like all calls below: the handle is of another context, or gone. The
    // double looks it up.
    let words = wrong(&double, &other, || unsafe { sys::cuEventRecord(event, stream) });
    assert!(words.contains("another context's"));
    double.hold();
    // SAFETY: both are live.
    let recorded = device.bound(|| unsafe { sys::cuEventRecord(event, stream) });
    assert_eq!(recorded, Ok(CUresult::CUDA_SUCCESS));
    // SAFETY: as above.
    let words = wrong(&double, &device, || unsafe { sys::cuEventDestroy_v2(event) });
    assert!(words.contains("before it has happened"));
    double.release();
    double.idle();
    // SAFETY: as above.
    assert!(wrong(&double, &device, || unsafe { sys::cuEventQuery(event) }).contains("destroyed event"));
    // SAFETY: made above.
    assert_eq!(device.bound(|| unsafe { sys::cuStreamDestroy_v2(stream) }), Ok(CUresult::CUDA_SUCCESS));
    // SAFETY: as above.
    let words = wrong(&double, &device, || unsafe { sys::cuStreamDestroy_v2(stream) });
    assert!(words.contains("destroyed twice"));
    drop((device, other));
    double.finish();
}

#[test]
fn driver_call_from_a_host_function_is_seen() {
    unsafe extern "C" fn calls(_: *mut c_void) {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are ours. The call is not allowed here; that is the test.
        let answer = unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) };
        assert_eq!(answer, CUresult::CUDA_ERROR_NOT_PERMITTED);
    }
    let (double, device) = machine();
    let mut stream = null_mut();
    device
        .bound(|| {
            // SAFETY: `stream` is ours.
            assert_eq!(unsafe { sys::cuStreamCreateWithPriority(&mut stream, 1, 0) }, CUresult::CUDA_SUCCESS);
            // SAFETY: the function takes nothing.
            let queued = unsafe { sys::cuLaunchHostFunc(stream, Some(calls), null_mut()) };
            assert_eq!(queued, CUresult::CUDA_SUCCESS);
            double.idle();
            // SAFETY: made above.
            assert_eq!(unsafe { sys::cuStreamDestroy_v2(stream) }, CUresult::CUDA_SUCCESS);
        })
        .expect("bound");
    assert_eq!(double.misuse(), (1, "cuMemGetInfo_v2 from within a host function".to_owned()));
    drop(device);
    double.finish();
}

#[test]
fn target_is_poisoned_until_it_is_written() {
    let (double, device) = machine();
    let (host, target) = (pinned(&device, 1, 100), memory(&device, 4096));
    let stream = queue(&device, Purpose::Onboard);
    double.hold();
    let transfer = copy_in(&stream, &host, 0, &target);
    assert_eq!(double.peek(target.base_address(), 100), [POISON; 100]);
    assert_ne!(double.peek(target.base_address() + 100, 1), [POISON], "and nothing else");
    double.step(1);
    assert_eq!(double.peek(target.base_address(), 100), crate::pattern(0, 100));
    double.release();
    transfer.wait().expect("copied");
    drop((stream, host, target, device));
    double.finish();
}

#[test]
fn stream_order_keeps_a_source_that_is_a_later_target() {
    let (double, device) = machine();
    let (host, target) = (pinned(&device, 3, 100), memory(&device, 100));
    let stream = queue(&device, Purpose::Staging);
    double.hold();
    let first = copy_in(&stream, &host, 0, &target);
    let mut batch = Batch::new();
    let to = batch.write(host.arena().write(2).expect("free"), &host).expect("registered");
    let from = batch.device(target.range(0, 100).expect("in range"));
    batch.copy((from, 0), (to, 0), 100).expect("in range");
    let out = stream.submit(batch).expect("queued");
    // The first copy has been executed; the copy out of its target has not.
    double.step(2);
    let second = copy_in(&stream, &host, 1, &target);
    assert_eq!(double.peek(target.base_address(), 100), crate::pattern(0, 100), "not poisoned by the second");
    double.release();
    let mut done = out.wait().expect("copied");
    let Some(Held::Write(block, _)) = done.release().next() else { panic!("the block") };
    assert!(*block == crate::pattern(0, 100));
    drop((first, second, block, done, stream, host, target, device));
    crate::until("the release", || double.left().contexts == 0);
    double.finish();
}

#[test]
fn leftovers_are_counted() {
    let (double, device) = machine();
    let (memory, host) = (memory(&device, 64), pinned(&device, 1, 64));
    let (stream, event) = (queue(&device, Purpose::Staging), CudaEvent::new(&device).expect("an event"));
    let left = double.left();
    assert_eq!((left.contexts, left.allocations, left.registrations, left.imports), (1, 1, 1, 0));
    assert_eq!((left.streams, left.events, left.modules), (1, 1, 0));
    drop((memory, host, stream, event, device));
    double.finish();
}
