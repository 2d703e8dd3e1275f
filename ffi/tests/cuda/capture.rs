//! An engine's graph capture and our calls leave each other alone, and temporary refusals lose nothing.

use crate::{copy_in, machine, memory, open, pattern, pinned, queue, read_back, until};
use core::time::Duration;
use cudarc::driver::sys;
use kvstrata_cuda_double::{Double, Leftovers};
use kvstrata_ffi::cuda::{Leaked, Purpose, QueueOptions, TransferQueue, Way};
use std::sync::Arc;

/// The calling thread's mode of capture.
fn mode() -> sys::CUstreamCaptureMode {
    let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    // SAFETY: `mode` is ours; the double answers only with modes.
    unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) }.result().expect("exchanged");
    let found = mode;
    // SAFETY: as above.
    unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) }.result().expect("set back");
    found
}

#[test]
fn all_calls_work_beside_an_engines_capture() {
    for way in Way::ALL {
        let double = Double::new();
        let before = open(1);
        double.capture(true);
        let device = open(0);
        let (host, target) = (pinned(&device, 3, 4096), memory(&device, 4096));
        let queue =
            TransferQueue::new(&device, Purpose::Onboard, QueueOptions::new().way(way)).expect("a queue");
        for round in 0..3 {
            drop(copy_in(&queue, &host, round % 2, &target).wait().expect("copied"));
        }
        assert!(read_back(&host, 2, &target) == pattern(0, 4096));
        // Dropped by the queue's thread.
        let transfer = copy_in(&queue, &host, 1, &target);
        drop((transfer, queue, host, target));
        until("the transfer's end", || double.left().registrations + double.left().streams == 0);
        assert_eq!(device.leaked(), Leaked::default());
        drop((device, before));
        until("the release", || double.left().contexts == 0);
        double.finish();
    }
}

#[test]
fn capture_mode_of_a_thread_is_restored() {
    use sys::CUstreamCaptureMode::{
        CU_STREAM_CAPTURE_MODE_GLOBAL as GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED as RELAXED,
    };
    let (double, device) = machine();
    let other = open(1);
    assert_eq!(mode(), GLOBAL);
    let exchanges = double.calls("cuThreadExchangeStreamCaptureMode");
    let inside = device.bound(|| [mode(), other.bound(mode).expect("bound"), mode()]).expect("bound");
    assert_eq!((inside, mode()), ([RELAXED; 3], GLOBAL));
    // Two for each of the four queries, and two for the outermost.
    assert_eq!(double.calls("cuThreadExchangeStreamCaptureMode") - exchanges, 10);
    let caught = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
        device.bound(|| std::panic::resume_unwind(Box::new("gone")))
    }));
    assert!(caught.is_err());
    assert_eq!(mode(), GLOBAL);
    double.fail_for_good("cuMemGetInfo_v2", 1, 700);
    device.memory().expect_err("broken");
    assert_eq!(mode(), GLOBAL, "also when the device has failed");
    drop((device, other));
    double.finish_with(Leftovers { contexts: 1, ..Leftovers::default() });
}

#[test]
fn wait_that_is_refused_is_repeated() {
    for code in [900, 400, 1] {
        let (double, device) = machine();
        let (host, target) = (pinned(&device, 2, 4096), memory(&device, 4096));
        let queue = queue(&device, Purpose::Onboard);
        for _ in 0..3 {
            double.fail("cuEventSynchronize", 1, code);
        }
        drop(copy_in(&queue, &host, 0, &target).wait().expect("copied: the device is well"));
        assert_eq!(double.calls("cuEventSynchronize"), 4);
        assert_eq!(device.leaked(), Leaked::default());
        assert!(host.arena().write(0).is_ok(), "given back");
        assert!(read_back(&host, 1, &target) == pattern(0, 4096));
        drop((queue, host, target, device));
        double.finish();
    }
}

#[test]
fn look_that_is_refused_is_repeated() {
    let (double, device) = machine();
    let (host, target) = (pinned(&device, 1, 4096), memory(&device, 4096));
    let options = QueueOptions::new().way(Way::HostFunction).watch(Duration::from_millis(1));
    let queue = TransferQueue::new(&device, Purpose::Onboard, options).expect("a queue");
    double.hold();
    for _ in 0..3 {
        double.fail("cuEventQuery", 1, 900);
    }
    let transfer = copy_in(&queue, &host, 0, &target);
    double.called("cuEventQuery", 4);
    assert!(host.arena().write(0).is_err(), "under way");
    double.release();
    drop(transfer.wait().expect("copied: the device is well"));
    assert_eq!(device.leaked(), Leaked::default());
    drop((queue, host, target, device));
    until("the release", || double.left().contexts == 0);
    double.finish();
}

#[test]
fn refused_release_is_retried_later() {
    let (double, device) = machine();
    let (host, first, second) = (pinned(&device, 1, 4096), memory(&device, 64), memory(&device, 64));
    let arena = Arc::downgrade(host.arena());
    double.fail("cuMemFree_v2", 1, 901);
    drop(first);
    // Tried again, and refused again.
    double.fail("cuMemFree_v2", 1, 900);
    double.fail("cuMemHostUnregister", 1, 900);
    drop(host);
    let left = double.left();
    assert_eq!((left.registrations, left.allocations), (1, 2));
    assert!(arena.upgrade().is_some(), "mapped as long as it is registered");
    assert_eq!(device.leaked(), Leaked::default());
    drop(second);
    let left = double.left();
    assert_eq!((left.registrations, left.allocations), (0, 0), "with the next");
    assert!(arena.upgrade().is_none());
    // By the next allocation, by a transfer's end, and by the device's own end.
    double.fail("cuMemFree_v2", 1, 900);
    drop(memory(&device, 64));
    let third = memory(&device, 64);
    assert_eq!(double.left().allocations, 1);
    let queue = queue(&device, Purpose::Onboard);
    double.fail("cuMemFree_v2", 1, 900);
    drop(third);
    drop(queue.submit(kvstrata_ffi::cuda::Batch::new()).expect("queued"));
    until("the memory's end", || double.left().allocations == 0);
    drop(queue);
    let fourth = memory(&device, 64);
    double.fail("cuMemFree_v2", 1, 900);
    drop((fourth, device));
    double.finish();
}

#[test]
fn unreleasable_registration_keeps_its_arena() {
    let (double, device) = machine();
    let host = pinned(&device, 1, 4096);
    let arena = Arc::downgrade(host.arena());
    for _ in 0..2 {
        double.fail("cuMemHostUnregister", 1, 900);
    }
    drop((host, device));
    assert!(arena.upgrade().is_some(), "the device may still write there");
    double.finish_with(Leftovers { registrations: 1, ..Leftovers::default() });
}
