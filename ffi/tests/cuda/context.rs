//! Contexts: bound when needed, gone afterwards, one per device.

use crate::{machine, memory, open};
use core::ffi::c_void;
use core::ptr::null_mut;
use cudarc::driver::sys;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;

/// Returns the context of this thread.
fn current() -> *mut c_void {
    let mut context = null_mut();
    // SAFETY: `context` is ours.
    let asked = unsafe { sys::cuCtxGetCurrent(&mut context) };
    assert_eq!(asked, sys::CUresult::CUDA_SUCCESS);
    context.cast()
}

#[test]
fn call_leaves_the_threads_contexts_as_they_were() {
    let (double, device) = machine();
    assert!(current().is_null());
    let other = open(1);
    device.memory().expect("asked");
    assert!(current().is_null(), "bound for the call alone");
    let (outer, inner, again) = device
        .bound(|| {
            let outer = current();
            let inner = other.bound(current).expect("bound");
            other.memory().expect("asked");
            (outer, inner, current())
        })
        .expect("bound");
    assert!(!outer.is_null() && !inner.is_null() && inner != outer);
    assert_eq!(again, outer);
    assert!(current().is_null());
    drop((device, other));
    assert_eq!(double.calls("cuDevicePrimaryCtxRelease_v2"), 2);
    double.finish();
}

#[test]
fn calls_in_a_bound_thread_bind_no_more() {
    let (double, device) = machine();
    device.memory().expect("asked");
    assert_eq!(double.calls("cuCtxPushCurrent_v2"), 1);
    let bound =
        device.bound(|| (0..5).all(|_| device.bound(|| device.memory().is_ok()).is_ok_and(|asked| asked)));
    assert_eq!(bound, Ok(true));
    assert_eq!(double.calls("cuCtxPushCurrent_v2"), 2);
    assert_eq!(double.calls("cuCtxPopCurrent_v2"), 2);
    drop(device);
    double.finish();
}

#[test]
fn panic_leaves_no_context_behind() {
    let (double, device) = machine();
    let caught =
        catch_unwind(AssertUnwindSafe(|| device.bound(|| std::panic::resume_unwind(Box::new("gone")))));
    assert!(caught.is_err());
    assert!(current().is_null());
    // The record of the thread is right, too.
    device.memory().expect("bound anew");
    drop(device);
    double.finish();
}

/// An owner that leaves the thread, in its drop, with another context or none.
struct Leaves(Option<usize>);

impl Drop for Leaves {
    fn drop(&mut self) {
        match self.0 {
            Some(other) => {
                let other = core::ptr::with_exposed_provenance_mut(other);
                // SAFETY: a context that the test holds. `cudaSetDevice` does the same.
                assert_eq!(unsafe { sys::cuCtxSetCurrent(other) }, sys::CUresult::CUDA_SUCCESS);
            }
            None => {
                let mut popped = null_mut();
                // SAFETY: `popped` is ours.
                assert_eq!(unsafe { sys::cuCtxPopCurrent_v2(&mut popped) }, sys::CUresult::CUDA_SUCCESS);
            }
        }
    }
}

#[test]
fn context_changed_by_an_owners_drop_is_restored() {
    let (double, device) = machine();
    let other = open(1);
    let context = other.bound(|| current().expose_provenance()).expect("bound");
    for leaves in [Some(context), None] {
        let queue = crate::queue(&device, kvstrata_ffi::cuda::Purpose::Staging);
        let memory = memory(&device, 4096);
        double.hold();
        let mut first = kvstrata_ffi::cuda::Batch::new();
        first.keep(std::sync::Arc::new(Leaves(leaves)));
        drop(queue.submit(first).expect("queued"));
        let mut second = kvstrata_ffi::cuda::Batch::new();
        second.device(memory.range(0, 4096).expect("in range"));
        drop(memory);
        drop(queue.submit(second).expect("queued"));
        double.release();
        // Freed by the queue's thread, in the memory's own context.
        crate::until("the memory's end", || double.left().allocations == 0);
        drop(queue);
        assert_eq!(double.misuse(), (0, String::new()));
    }
    crate::until("the queues' end", || double.left().streams == 0);
    drop((device, other));
    double.finish();
}

#[test]
fn threads_of_two_devices_do_not_interfere() {
    let (double, device) = machine();
    let devices = [device, open(1)];
    let barrier = Barrier::new(4);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (devices, barrier) = (&devices, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for round in 0..50 {
                    let device = &devices[(thread + round) % 2];
                    let memory = memory(device, 4096);
                    let address = kvstrata_core::storage::Storage::base_address(&*memory);
                    // The double's addresses contain the device's ordinal.
                    assert_eq!((address >> 40) & 0xff, u64::from(device.ordinal()));
                }
            });
        }
    });
    drop(devices);
    double.finish();
}

#[test]
fn device_is_open_once_in_a_process() {
    let (double, device) = machine();
    let again = open(0);
    assert!(std::sync::Arc::ptr_eq(&device, &again), "who else has it learns of its quarantine too");
    let other = open(1);
    assert!(!std::sync::Arc::ptr_eq(&device, &other));
    assert_eq!(double.left().contexts, 2);
    drop((device, again, other));
    assert_eq!(double.left().contexts, 0);
    drop(open(0));
    double.finish();
}
