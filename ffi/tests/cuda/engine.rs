//! Order between a queue and an engine's own streams, in any order in which the device serves streams.

use crate::{copy_in, machine, memory, pattern, pinned, queue, read_back};
use core::ffi::c_void;
use core::ptr::null_mut;
use cudarc::driver::sys;
use kvstrata_core::storage::Storage;
use kvstrata_ffi::cuda::{
    Batch, CudaDevice, CudaError, DeviceStorage, EngineEvent, EngineStream, Held, LentStream, PinnedStorage,
    Purpose, Transfer, TransferQueue,
};
use std::sync::Arc;

const BYTES: u64 = 4096;

/// Makes a stream as an engine does, past our own code.
fn engine_stream(device: &Arc<CudaDevice>) -> *mut c_void {
    let mut stream = null_mut();
    // SAFETY: `stream` is ours.
    let made = device.bound(|| unsafe { sys::cuStreamCreateWithPriority(&mut stream, 1, 0) }).expect("bound");
    made.result().expect("made");
    stream.cast()
}

fn destroy(device: &Arc<CudaDevice>, stream: *mut c_void) {
    // SAFETY: made by `engine_stream`, and destroyed once.
    device
        .bound(|| unsafe { sys::cuStreamDestroy_v2(stream.cast()) })
        .expect("bound")
        .result()
        .expect("destroyed");
}

/// Writes as an engine's kernel does.
fn engine_fills(stream: *mut c_void, memory: &Arc<DeviceStorage>, byte: u8) {
    let (device, address) = (memory.device(), memory.base_address());
    // SAFETY: all of live memory that only the test uses.
    let filled =
        device.bound(|| unsafe { sys::cuMemsetD8Async(address, byte, BYTES as usize, stream.cast()) });
    filled.expect("bound").result().expect("queued");
}

fn copy_out(
    queue: &TransferQueue,
    host: &Arc<PinnedStorage>,
    block: usize,
    from: &Arc<DeviceStorage>,
) -> Transfer {
    let mut batch = Batch::new();
    let to = batch.write(host.arena().write(block).expect("free"), host).expect("registered");
    let from = batch.device(from.range(0, BYTES).expect("in range"));
    batch.copy((from, 0), (to, 0), BYTES).expect("in range");
    queue.submit(batch).expect("queued")
}

fn bytes_of(transfer: Transfer) -> Vec<u8> {
    let mut done = transfer.wait().expect("copied");
    match done.release().next() {
        Some(Held::Write(block, _)) => block.to_vec(),
        other => panic!("{other:?}"),
    }
}

/// The engine writes, we read, the engine writes again: in each order of the double's that the marks allow.
fn ordered(seed: u64, kind: Option<EngineStream>, handle: *mut c_void) {
    let (double, device) = machine();
    double.seed(seed);
    double.default_streams();
    let own = kind.is_none().then(|| engine_stream(&device));
    let handle = own.unwrap_or(handle);
    let stream = kind.unwrap_or(EngineStream::of(handle));
    let (host, target) = (pinned(&device, 2, BYTES as usize), memory(&device, BYTES));
    let queue = queue(&device, Purpose::Offload);
    double.hold();
    engine_fills(handle, &target, 7);
    // SAFETY: the stream is the test's, of this device, and lives.
    unsafe { queue.wait_for_stream(stream) }.expect("queued");
    let out = copy_out(&queue, &host, 0, &target);
    // SAFETY: as above.
    unsafe { queue.hold_stream(stream) }.expect("queued");
    engine_fills(handle, &target, 9);
    double.release();
    assert!(bytes_of(out) == [7; BYTES as usize], "seed {seed}: read too early, or overwritten");
    double.idle();
    assert!(read_back(&host, 1, &target) == [9; BYTES as usize]);
    own.into_iter().for_each(|stream| destroy(&device, stream));
    drop((queue, host, target, device));
    double.finish();
}

#[test]
fn transfers_and_an_engines_stream_wait_for_each_other() {
    for seed in 1..25 {
        ordered(seed, None, null_mut());
    }
    for seed in 1..8 {
        ordered(seed, Some(EngineStream::NULL), null_mut());
        ordered(seed, Some(EngineStream::LEGACY), null_mut());
        ordered(seed, Some(EngineStream::PER_THREAD), core::ptr::without_provenance_mut(2));
    }
}

#[test]
fn transfer_waits_for_an_engines_event() {
    for seed in 1..25 {
        let (double, device) = machine();
        double.seed(seed);
        let stream = engine_stream(&device);
        let (host, target) = (pinned(&device, 2, BYTES as usize), memory(&device, BYTES));
        let queue = queue(&device, Purpose::Offload);
        let mut event = null_mut();
        // SAFETY: `event` is ours.
        let made = device.bound(|| unsafe { sys::cuEventCreate(&mut event, 2) }).expect("bound");
        made.result().expect("made");
        double.hold();
        engine_fills(stream, &target, 5);
        // SAFETY: both are live.
        let recorded = device.bound(|| unsafe { sys::cuEventRecord(event, stream.cast()) }).expect("bound");
        recorded.result().expect("recorded");
        // SAFETY: the event is live.
        unsafe { queue.wait_for_event(EngineEvent::of(event.cast())) }.expect("queued");
        let out = copy_out(&queue, &host, 0, &target);
        double.release();
        assert!(bytes_of(out) == [5; BYTES as usize], "seed {seed}");
        // SAFETY: made above, and has happened.
        let gone = device.bound(|| unsafe { sys::cuEventDestroy_v2(event) }).expect("bound");
        gone.result().expect("destroyed");
        destroy(&device, stream);
        drop((queue, host, target, device));
        double.finish();
    }
}

#[test]
fn marks_of_a_queue_share_one_event() {
    let (double, device) = machine();
    let stream = engine_stream(&device);
    let (host, target) = (pinned(&device, 3, BYTES as usize), memory(&device, BYTES));
    let queue = queue(&device, Purpose::Onboard);
    let calls = |name| double.calls(name);
    let before = (calls("cuEventCreate"), calls("cuEventSynchronize"));
    double.hold();
    for _ in 0..10 {
        // SAFETY: the stream is the test's, of this device, and lives.
        unsafe { queue.wait_for_stream(EngineStream::of(stream)) }.expect("queued");
        // SAFETY: as above.
        unsafe { queue.hold_stream(EngineStream::of(stream)) }.expect("queued");
    }
    assert_eq!((calls("cuEventCreate") - before.0, calls("cuEventSynchronize") - before.1), (1, 0));
    drop(copy_in(&queue, &host, 0, &target));
    // SAFETY: as above.
    unsafe { queue.hold_stream(EngineStream::of(stream)) }.expect("queued");
    engine_fills(stream, &target, 3);
    drop(queue);
    double.release();
    double.idle();
    assert!(read_back(&host, 1, &target) == [3; BYTES as usize], "the engine came after the copy");
    destroy(&device, stream);
    drop((host, target, device));
    crate::until("the queue's end", || double.left().contexts == 0);
    double.finish();
}

#[test]
fn queue_that_is_gone_still_stands_between_two_streams() {
    for seed in 1..25 {
        let (double, device) = machine();
        double.seed(seed);
        let streams = [(); 2].map(|()| engine_stream(&device));
        let (host, target) = (pinned(&device, 1, BYTES as usize), memory(&device, BYTES));
        let queue = queue(&device, Purpose::Staging);
        double.hold();
        engine_fills(streams[0], &target, 1);
        // SAFETY: the streams are the test's, of this device, and live.
        unsafe { queue.wait_for_stream(EngineStream::of(streams[0])) }.expect("queued");
        // SAFETY: as above.
        unsafe { queue.hold_stream(EngineStream::of(streams[1])) }.expect("queued");
        engine_fills(streams[1], &target, 2);
        drop(queue);
        double.release();
        double.idle();
        assert!(read_back(&host, 0, &target) == [2; BYTES as usize], "seed {seed}");
        streams.into_iter().for_each(|stream| destroy(&device, stream));
        drop((host, target, device));
        double.finish();
    }
}

#[test]
fn stream_that_is_captured_is_left_alone() {
    let (double, device) = machine();
    let stream = engine_stream(&device);
    let (host, target) = (pinned(&device, 2, BYTES as usize), memory(&device, BYTES));
    let queue = queue(&device, Purpose::Onboard);
    double.capture_stream(stream.addr() as u64, true);
    let marks = || double.calls("cuEventRecord") + double.calls("cuStreamWaitEvent");
    let before = marks();
    // SAFETY: the stream is the test's, of this device, and lives.
    assert_eq!(unsafe { queue.wait_for_stream(EngineStream::of(stream)) }, Err(CudaError::Capturing));
    // SAFETY: as above.
    assert_eq!(unsafe { queue.hold_stream(EngineStream::of(stream)) }, Err(CudaError::Capturing));
    // The default stream answers this while a stream that it waits for is captured.
    double.fail("cuStreamIsCapturing", 1, 906);
    // SAFETY: as above.
    assert_eq!(unsafe { queue.wait_for_stream(EngineStream::NULL) }, Err(CudaError::Capturing));
    assert_eq!(marks(), before, "nothing is queued");
    double.capture_stream(stream.addr() as u64, false);
    // SAFETY: as above.
    unsafe { queue.wait_for_stream(EngineStream::of(stream)) }.expect("queued");
    drop(copy_in(&queue, &host, 0, &target).wait().expect("copied"));
    assert!(read_back(&host, 1, &target) == pattern(0, BYTES as usize));
    destroy(&device, stream);
    drop((queue, host, target, device));
    double.finish();
}

#[test]
fn stream_that_is_lent_is_ordered_and_held() {
    for seed in 1..25 {
        let (double, device) = machine();
        double.seed(seed);
        let (stream, owner) = (engine_stream(&device), Arc::new(()));
        // SAFETY: the stream is of this device, and destroyed when all other shares of the owner are gone.
        let lent = unsafe { LentStream::lend(&device, EngineStream::of(stream), owner.clone()) };
        let (host, target) = (pinned(&device, 2, BYTES as usize), memory(&device, BYTES));
        let queue = queue(&device, Purpose::Offload);
        double.hold();
        engine_fills(stream, &target, 7);
        queue.wait_for_lent(&lent).expect("queued");
        let out = copy_out(&queue, &host, 0, &target);
        queue.hold_lent(&lent).expect("queued");
        engine_fills(stream, &target, 9);
        double.release();
        assert!(bytes_of(out) == [7; BYTES as usize], "seed {seed}");
        double.idle();
        assert!(read_back(&host, 1, &target) == [9; BYTES as usize]);
        // Another device's queue cannot be ordered with it.
        let other = crate::open(1);
        let elsewhere = crate::queue(&other, Purpose::Offload);
        let refused = CudaError::WrongDevice { what: "the stream", found: 0, wanted: 1 };
        assert_eq!(elsewhere.wait_for_lent(&lent), Err(refused.clone()));
        assert_eq!(elsewhere.hold_lent(&lent), Err(refused));
        assert_eq!(Arc::strong_count(&owner), 2);
        drop(lent);
        assert_eq!(Arc::strong_count(&owner), 1);
        destroy(&device, stream);
        drop((queue, elsewhere, host, target, device, other));
        double.finish();
    }
}
