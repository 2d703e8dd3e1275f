//! Sticky errors: the device is quarantined, memory that it may still write is kept, and everything
//! else continues.

use crate::{copy_in, machine, memory, open, pattern, pinned, queue, read_back, until};
use core::time::Duration;
use kvstrata_cuda_double::{Double, Leftovers};
use kvstrata_ffi::cuda::{
    Batch, CudaDevice, CudaError, CudaModule, DeviceStorage, Leaked, Purpose, QueueOptions, TransferQueue,
    Way,
};
use std::sync::Arc;

#[test]
fn first_sticky_error_is_kept_and_ends_driver_calls() {
    let (double, device) = machine();
    let other = open(1);
    double.fail_for_good("cuMemGetInfo_v2", 1, 700);
    let first = device.memory().expect_err("illegal address");
    let CudaError::Sticky { device: 0, fault } = first else { panic!("{first}") };
    assert_eq!(
        first.to_string(),
        "device 0 has failed for good: cuMemGetInfo answered 700 CUDA_ERROR_ILLEGAL_ADDRESS; restart the \
         process; Xid messages in the system log name the cause"
    );
    assert_eq!((device.fault(), first.fault(), first.number()), (Some(fault), Some(fault), 700));
    let calls = double.all_calls();
    let quarantined = CudaError::Quarantined { device: 0, fault };
    assert_eq!(device.memory(), Err(quarantined.clone()));
    assert_eq!(device.bound(|| ()), Err(quarantined.clone()));
    assert_eq!(DeviceStorage::allocate(&device, 8).expect_err("quarantined"), quarantined);
    assert_eq!(
        TransferQueue::new(&device, Purpose::Onboard, QueueOptions::new()).expect_err("quarantined"),
        quarantined
    );
    // SAFETY: refused.
    assert_eq!(unsafe { CudaModule::load(&device, b"image") }.expect_err("quarantined"), quarantined);
    assert_eq!(double.all_calls(), calls, "not asked");
    other.memory().expect("the other device is well");
    drop((device, other));
    // The context is not released.
    double.finish_with(Leftovers { contexts: 1, ..Leftovers::default() });
}

#[test]
fn every_sticky_code_quarantines_and_no_other_does() {
    for code in
        [4, 46, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 806, 810, 911, 999]
    {
        let (double, device) = machine();
        double.fail("cuMemGetInfo_v2", 1, code);
        assert!(matches!(device.memory(), Err(CudaError::Sticky { .. })), "{code}");
        assert!(device.fault().is_some());
        drop(device);
        double.finish_with(Leftovers { contexts: 1, ..Leftovers::default() });
    }
    let (double, device) = machine();
    for code in [1, 2, 3, 100, 201, 400, 600, 701, 800, 801, 900, 12345] {
        double.fail("cuMemGetInfo_v2", 1, code);
        let refused = device.memory().expect_err("refused");
        assert!(
            matches!(refused, CudaError::Refused { fault, .. } if fault.code.number() == code),
            "{refused}"
        );
    }
    device.memory().expect("well");
    drop(device);
    double.finish();
}

/// A machine whose first device breaks at this operation, with three transfers in flight in two queues.
fn broken(way: Way, operation: u64) {
    let (double, device) = machine();
    let well = open(1);
    let (host, target) = (pinned(&device, 4, 1000), memory(&device, 1000));
    let (well_host, well_target) = (pinned(&well, 2, 1000), memory(&well, 1000));
    let options = QueueOptions::new().way(way).watch(Duration::from_millis(5));
    let queues = [Purpose::Onboard, Purpose::Offload]
        .map(|purpose| TransferQueue::new(&device, purpose, options).expect("a queue"));
    let well_queue = queue(&well, Purpose::Onboard);
    double.hold();
    let taken: Vec<_> = [0, 1].map(|at| copy_in(&queues[at], &host, at, &target)).into();
    drop(copy_in(&queues[0], &host, 2, &target));
    let on_the_well = copy_in(&well_queue, &well_host, 0, &well_target);
    double.break_at(0, operation, 719);
    double.release();
    let mut failed = 0;
    for (at, transfer) in taken.into_iter().enumerate() {
        match transfer.wait() {
            Ok(batch) => {
                drop(batch);
                assert!(host.arena().write(at).is_ok(), "it had ended before");
            }
            Err(error) => {
                assert_eq!(error.fault().expect("for good").code.number(), 719, "{error}");
                assert!(host.arena().write(at).is_err(), "the device may still read it");
                failed += 1;
            }
        }
    }
    assert!(failed >= 1, "operation {operation}");
    // The abandoned transfer has ended too, and its block is kept.
    until("an empty queue", || queues[0].in_flight() == 0);
    assert!(host.arena().write(2).is_err());
    // The other device's transfer continues.
    drop(on_the_well.wait().expect("copied"));
    assert!(read_back(&well_host, 1, &well_target) == pattern(0, 1000));
    let calls = (
        double.calls("cuMemFree_v2"),
        double.calls("cuMemHostUnregister"),
        double.calls("cuStreamDestroy_v2"),
    );
    let arena = Arc::downgrade(host.arena());
    drop((queues, host, target));
    until("the queues' end", || device.leaked().things >= 5);
    assert!(arena.upgrade().is_some(), "not unmapped");
    let now = (
        double.calls("cuMemFree_v2"),
        double.calls("cuMemHostUnregister"),
        double.calls("cuStreamDestroy_v2"),
    );
    assert_eq!(now, calls, "nothing is given back");
    assert!(device.leaked().bytes >= 1000 * (failed + 1));
    drop((device, well_queue, well_host, well_target, well));
    let (misuse, words) = double.misuse();
    assert_eq!(misuse, 0, "{words}");
    let left = double.left();
    assert_eq!((left.contexts, left.allocations), (1, 1), "the broken one's");
    double.reset();
}

#[test]
fn device_that_breaks_under_transfers_keeps_them() {
    for way in Way::ALL {
        for operation in 1..=4 {
            broken(way, operation);
        }
    }
}

#[test]
fn memory_of_a_dead_device_is_kept_and_its_lenders_too() {
    let (double, device) = machine();
    let engine = Arc::new(memory(&device, 64));
    let address = kvstrata_core::storage::Storage::base_address(&**engine);
    // SAFETY: the owner keeps the allocation, and it has no other user.
    let lent = unsafe { DeviceStorage::lend(&device, address, 64, engine.clone()) }.expect("lent");
    let own = memory(&device, 100);
    let host = pinned(&device, 1, 4096);
    let arena = Arc::downgrade(host.arena());
    let event = kvstrata_ffi::cuda::CudaEvent::new(&device).expect("an event");
    kill(&double, &device);
    let calls = double.all_calls();
    drop((lent, own, event, host));
    assert_eq!(device.leaked(), Leaked { things: 4, bytes: 164 + 4096 });
    assert!(arena.upgrade().is_some(), "not unmapped");
    assert_eq!(Arc::strong_count(&engine), 2, "the lent memory's owner is held for ever");
    assert_eq!(double.all_calls(), calls);
    core::mem::forget(engine);
    drop(device);
    double.finish_with(Leftovers {
        contexts: 1,
        allocations: 2,
        registrations: 1,
        events: 1,
        ..Leftovers::default()
    });
}

/// Makes the device fail for good.
fn kill(double: &Double, device: &Arc<CudaDevice>) {
    double.fail_for_good("cuMemGetInfo_v2", 1, 214);
    device.memory().expect_err("uncorrectable");
}

#[test]
fn dead_device_queues_nothing_and_returns_batches() {
    let (double, device) = machine();
    let (host, target) = (pinned(&device, 1, 1000), memory(&device, 1000));
    let queue = queue(&device, Purpose::Onboard);
    kill(&double, &device);
    let mut batch = Batch::new();
    let from = batch.read(host.arena().read(0).expect("free"), &host).expect("registered");
    let to = batch.device(target.range(0, 1000).expect("in range"));
    batch.copy((from, 0), (to, 0), 1000).expect("in range");
    let rejected = queue.submit(batch).expect_err("quarantined");
    assert!(matches!(rejected.error, CudaError::Quarantined { .. }));
    drop(rejected);
    assert!(host.arena().write(0).is_ok(), "nothing was queued: it is free");
    drop((queue, host, target, device));
    let (misuse, words) = double.misuse();
    assert_eq!(misuse, 0, "{words}");
    double.reset();
}
