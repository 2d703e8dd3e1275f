//! Ownership during a transfer: each object is dropped at each possible moment.

use crate::{copy_in, machine, memory, open, pattern, pinned, queue, read_back, until};
use core::pin::pin;
use core::task::{Context, Poll};
use core::time::Duration;
use kvstrata_core::storage::Storage;
use kvstrata_cuda_double::Double;
use kvstrata_ffi::cuda::{
    Batch, CudaError, CudaEvent, EventPool, Held, Purpose, QueueOptions, Rejected, TransferQueue,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

/// Counts its wake-ups.
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn future_is_woken_once_and_gives_the_batch_back() {
    let (double, device) = machine();
    let (host, target) = (pinned(&device, 1, 4096), memory(&device, 4096));
    let queue = queue(&device, Purpose::Onboard);
    double.hold();
    let woken = Arc::new(Woken(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    let mut transfer = Box::pin(copy_in(&queue, &host, 0, &target));
    assert!(transfer.as_mut().poll(&mut context).is_pending());
    assert!(transfer.as_mut().poll(&mut context).is_pending());
    double.step(1);
    assert!(transfer.as_mut().poll(&mut context).is_pending(), "copied, and the event has not happened");
    assert_eq!(queue.in_flight(), 1);
    double.step(1);
    until("the waker", || woken.0.load(Ordering::Relaxed) == 1);
    let Poll::Ready(Ok(mut batch)) = transfer.as_mut().poll(&mut context) else {
        panic!("woken for nothing")
    };
    assert_eq!((batch.pieces(), batch.bytes(), queue.in_flight()), (1, 4096, 0));
    let held: Vec<_> = batch.release().collect();
    assert!(matches!(&held[0], Held::Read(block, _) if block.block() == 0), "{held:?}");
    assert_eq!((batch.pieces(), batch.bytes(), batch.held().len()), (0, 0, 0));
    double.release();
    drop((transfer, held, batch, queue, host, target, device));
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    double.finish();
}

/// Drops everything when this many of the transfer's two operations have been executed.
fn let_go_after(steps: u64, polled: bool) {
    let (double, device) = machine();
    let (host, target) = (pinned(&device, 1, 4096), memory(&device, 4096));
    let queue = queue(&device, Purpose::Onboard);
    let arena = Arc::clone(host.arena());
    double.hold();
    let mut transfer = copy_in(&queue, &host, 0, &target);
    if polled {
        let mut context = Context::from_waker(Waker::noop());
        assert!(pin!(&mut transfer).poll(&mut context).is_pending());
    }
    if steps > 0 {
        double.step(steps);
    }
    drop((transfer, queue, host, target, device));
    if steps < 2 {
        assert!(arena.write(0).is_err(), "the device still reads the block");
        let left = double.left();
        assert_eq!((left.allocations, left.registrations, left.contexts), (1, 1, 1));
        assert_eq!(double.calls("cuMemFree_v2") + double.calls("cuMemHostUnregister"), 0);
    }
    double.release();
    until("the block's return", || arena.write(0).is_ok());
    until("the release", || double.left().contexts == 0);
    double.finish();
}

#[test]
fn transfer_dropped_at_any_moment_keeps_its_memory() {
    for steps in 0..=2 {
        for polled in [false, true] {
            let_go_after(steps, polled);
        }
    }
}

#[test]
fn transfer_that_is_not_finished_is_not_waited_for() {
    let (double, device) = machine();
    let (host, target) = (pinned(&device, 1, 4096), memory(&device, 4096));
    let queue = queue(&device, Purpose::Onboard);
    let batch = || {
        let mut batch = Batch::new();
        let from = batch.read(host.arena().read(0).expect("free"), &host).expect("registered");
        let to = batch.device(target.range(0, 4096).expect("in range"));
        batch.copy((from, 0), (to, 0), 4096).expect("in range");
        batch
    };
    double.hold();
    // Nothing is queued, but the transfer is recorded all the same, as an empty one.
    drop(queue.begin(batch()).expect("begun"));
    let mut work = queue.begin(batch()).expect("begun");
    work.copy();
    drop(work);
    assert!(host.arena().write(0).is_err());
    double.release();
    until("the block's return", || host.arena().write(0).is_ok());
    // A batch that was refused from the start is given back at once.
    double.fail("cuMemcpyHtoDAsync_v2", 1, 1);
    let mut work = queue.begin(batch()).expect("begun");
    work.copy();
    let Rejected { error, batch } = *work.finish().expect_err("refused");
    assert!(matches!(error, CudaError::Refused { fault, .. } if fault.operation == "cuMemcpyHtoDAsync"));
    assert_eq!(batch.pieces(), 1);
    drop((batch, queue, host, target, device));
    double.finish();
}

#[test]
fn piece_refused_half_way_fails_after_the_others_end() {
    let double = Double::new();
    double.version(12060);
    let device = open(0);
    let (host, target) = (pinned(&device, 1, 4096), memory(&device, 4096));
    let queue = queue(&device, Purpose::Onboard);
    let mut batch = Batch::new();
    let from = batch.read(host.arena().read(0).expect("free"), &host).expect("registered");
    let to = batch.device(target.range(0, 4096).expect("in range"));
    for part in 0..4 {
        batch.copy((from, part * 1024), (to, part * 1024), 1024).expect("in range");
    }
    double.hold();
    double.fail("cuMemcpyHtoDAsync_v2", 3, 1);
    let transfer = queue.submit(batch).expect("two pieces are queued");
    assert!(host.arena().write(0).is_err(), "they are under way");
    double.release();
    let refused = transfer.wait().expect_err("the third was refused");
    assert!(matches!(refused, CudaError::Refused { fault, .. } if fault.code.number() == 1), "{refused}");
    assert_eq!(double.calls("cuMemcpyHtoDAsync_v2"), 3, "the fourth was not tried");
    until("the block's return", || host.arena().write(0).is_ok());
    drop((queue, host, target, device));
    double.finish();
}

/// A caller that polls a failed transfer gets its batch when the device has answered, and no batch if it
/// never will.
#[test]
fn failed_transfer_returns_its_memory_unless_in_use() {
    for dies in [false, true] {
        let double = Double::new();
        double.version(12060);
        let device = open(0);
        let (host, target) = (pinned(&device, 1, 4096), memory(&device, 4096));
        let queue = queue(&device, Purpose::Onboard);
        let mut batch = Batch::new();
        let from = batch.read(host.arena().read(0).expect("free"), &host).expect("registered");
        let to = batch.device(target.range(0, 4096).expect("in range"));
        for part in 0..2 {
            batch.copy((from, part * 2048), (to, part * 2048), 2048).expect("in range");
        }
        double.hold();
        match dies {
            false => double.fail("cuMemcpyHtoDAsync_v2", 2, 1),
            true => double.break_at(0, 1, 719),
        }
        let mut transfer = queue.submit(batch).expect("something is queued");
        assert!(transfer.take_left().is_none(), "the device has it");
        double.release();
        let mut context = Context::from_waker(Waker::noop());
        let mut outcome = Poll::Pending;
        until("the outcome", || {
            outcome = pin!(&mut transfer).poll(&mut context);
            outcome.is_ready()
        });
        assert!(matches!(outcome, Poll::Ready(Err(_))), "{outcome:?}");
        let left = transfer.take_left();
        assert_eq!(left.map(|batch| batch.held().len()), (!dies).then_some(2));
        assert!(transfer.take_left().is_none(), "once");
        assert_eq!(host.arena().write(0).is_err(), dies);
        drop((transfer, queue, host, target, device));
        assert_eq!(double.misuse(), (0, String::new()));
        double.reset();
    }
}

#[test]
fn full_queue_gives_the_batch_back() {
    let (double, device) = machine();
    let (host, target) = (pinned(&device, 3, 4096), memory(&device, 4096));
    let options = QueueOptions::new().depth(2);
    let queue = TransferQueue::new(&device, Purpose::Onboard, options).expect("a queue");
    double.hold();
    let first = copy_in(&queue, &host, 0, &target);
    let second = copy_in(&queue, &host, 1, &target);
    let mut batch = Batch::new();
    batch.read(host.arena().read(2).expect("free"), &host).expect("registered");
    let rejected = queue.submit(batch).expect_err("full");
    assert_eq!(rejected.error, CudaError::Full { what: "transfers of the queue", limit: 2 });
    assert_eq!(rejected.batch.held().len(), 1);
    double.release();
    drop(first.wait().expect("copied"));
    // A slot is free when the outcome has been taken.
    drop(queue.submit(rejected.batch).expect("room again").wait().expect("nothing to copy"));
    drop(second.wait().expect("copied"));
    assert_eq!(double.left().events, 2, "events are made once");
    drop((queue, host, target, device));
    double.finish();
}

#[test]
fn events_are_pooled_and_bounded() {
    let (double, device) = machine();
    let pool = EventPool::new(&device, 2);
    let stream = queue(&device, Purpose::Staging);
    for _ in 0..10 {
        let event = pool.take().expect("idle");
        assert!(event.has_happened().expect("asked"), "not recorded");
        event.record(stream.stream()).expect("recorded");
        event.wait().expect("happens");
        assert!(event.has_happened().expect("asked"));
        pool.give(event);
    }
    assert_eq!((pool.made(), double.calls("cuEventCreate")), (1, 1));
    let taken = (pool.take().expect("idle"), pool.take().expect("a second"));
    assert_eq!(pool.take().expect_err("all taken"), CudaError::Full { what: "events", limit: 2 });
    pool.give(taken.0);
    pool.give(taken.1);
    double.fail("cuEventCreate", 1, 2);
    let refused = CudaEvent::new(&device).expect_err("refused");
    assert_eq!(refused.number(), 2);
    drop((pool, stream, device));
    double.finish();
}

#[test]
fn one_queue_waits_for_anothers_event() {
    for seed in 1..20 {
        let (double, device) = machine();
        double.seed(seed);
        let (host, target) = (pinned(&device, 2, 4096), memory(&device, 4096));
        let (up, down) = (queue(&device, Purpose::Onboard), queue(&device, Purpose::Offload));
        let event = CudaEvent::new(&device).expect("an event");
        double.hold();
        let first = copy_in(&up, &host, 0, &target);
        event.record(up.stream()).expect("recorded");
        down.stream().wait_for(&event).expect("queued");
        let mut batch = Batch::new();
        let to = batch.write(host.arena().write(1).expect("free"), &host).expect("registered");
        let from = batch.device(target.range(0, 4096).expect("in range"));
        batch.copy((from, 0), (to, 0), 4096).expect("in range");
        let second = down.submit(batch).expect("queued");
        double.release();
        let mut done = second.wait().expect("copied");
        let Some(Held::Write(block, _)) = done.release().next() else { panic!("the block") };
        assert!(*block == pattern(0, 4096), "read before it was written");
        drop((first.wait(), block, done, event, up, down, host, target, device));
        double.finish();
    }
}

#[test]
fn transfer_of_a_refused_event_is_kept_for_ever() {
    let (double, device) = machine();
    let (host, target) = (pinned(&device, 2, 4096), memory(&device, 4096));
    let queue = queue(&device, Purpose::Onboard);
    double.fail("cuEventRecord", 1, 400);
    let refused = copy_in(&queue, &host, 0, &target).wait().expect_err("nobody knows when it ends");
    assert_eq!(refused.number(), 400);
    assert!(host.arena().write(0).is_err(), "kept");
    assert_eq!((device.leaked().things, device.leaked().bytes), (2, 4096), "the event, and the transfer");
    // The queue continues.
    copy_in(&queue, &host, 1, &target).wait().expect("copied");
    drop((queue, host, target, device));
    let (misuse, words) = double.misuse();
    assert_eq!(misuse, 0, "{words}");
    double.idle();
    double.reset();
}

#[test]
fn deadline_leaves_the_transfer_to_the_device() {
    let (double, device) = machine();
    let (host, target) = (pinned(&device, 2, 4096), memory(&device, 4096));
    let queue = queue(&device, Purpose::Onboard);
    double.hold();
    let transfer = copy_in(&queue, &host, 0, &target);
    let late = transfer.wait_for(Duration::from_millis(3)).expect_err("held");
    assert_eq!(late, CudaError::Deadline { device: 0, waited_ms: 3 });
    assert!(host.arena().write(0).is_err());
    double.release();
    until("the block's return", || host.arena().write(0).is_ok());
    assert!(read_back(&host, 1, &target) == pattern(0, 4096), "carried out all the same");
    drop((queue, host, target, device));
    double.finish();
}

#[test]
fn queues_threads_and_devices_do_not_interfere() {
    for seed in [0, 3, 17] {
        let (double, device) = machine();
        double.seed(seed);
        let devices = [device, open(1)];
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let device = &devices[thread % 2];
                scope.spawn(move || {
                    let (host, target) = (pinned(device, 3, 4096), memory(device, 4096));
                    let queue = queue(device, Purpose::Staging);
                    for round in 0..20 {
                        let block = round % 2;
                        copy_in(&queue, &host, block, &target).wait().expect("copied");
                        assert!(read_back(&host, 2, &target) == pattern(block as u32, 4096));
                    }
                    assert_eq!(target.size_bytes(), 4096);
                });
            }
        });
        drop(devices);
        double.finish();
    }
}

/// An owner that panics in its drop.
struct Fused;

impl Drop for Fused {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new("an owner's own trouble"));
    }
}

#[test]
fn owner_that_panics_does_not_stop_the_queue() {
    let (double, device) = machine();
    let (host, target) = (pinned(&device, 1, 4096), memory(&device, 4096));
    let queue = queue(&device, Purpose::Onboard);
    let mut batch = Batch::new();
    batch.keep(Arc::new(Fused));
    double.hold();
    drop(queue.submit(batch).expect("queued"));
    double.release();
    copy_in(&queue, &host, 0, &target).wait().expect("copied");
    drop((queue, host, target, device));
    double.finish();
}

#[test]
fn free_slot_has_its_event() {
    let (double, device) = machine();
    let options = QueueOptions::new().depth(1);
    let queue = TransferQueue::new(&device, Purpose::Staging, options).expect("a queue");
    let mut batch = Batch::new();
    let mut accepted = 0;
    while accepted < 5000 {
        batch = match queue.submit(batch) {
            // Given up, so that its end meets the beginning of the next.
            Ok(_transfer) => {
                accepted += 1;
                Batch::new()
            }
            Err(rejected) => {
                assert_eq!(rejected.error, CudaError::Full { what: "transfers of the queue", limit: 1 });
                rejected.batch
            }
        };
    }
    drop((batch, queue, device));
    until("the release", || double.left().contexts == 0);
    double.finish();
}
