//! Order with an engine's own streams, in whichever order the device takes streams.

use crate::ground::{BLOCK_BYTES, Ground, Heard, LAYERS, pattern, until};
use core::ffi::c_void;
use core::ptr::null_mut;
use cudarc::driver::sys;
use kvstrata::movers::{CudaMoverOptions, EngineOrder};
use kvstrata::transfer::{Cause, Failure, HostSide};
use kvstrata_core::storage::Storage;
use kvstrata_ffi::cuda::{CudaDevice, DeviceStorage, EngineStream, LentStream};
use std::sync::Arc;

/// A stream as an engine makes it, past our own code.
struct Stream {
    device: Arc<CudaDevice>,
    handle: usize,
}

impl Stream {
    fn new(device: &Arc<CudaDevice>) -> Arc<Stream> {
        let mut stream = null_mut();
        // SAFETY: `stream` is ours.
        let made = device.bound(|| unsafe { sys::cuStreamCreateWithPriority(&mut stream, 1, 0) });
        made.expect("bound").result().expect("made");
        Arc::new(Stream { device: Arc::clone(device), handle: stream.expose_provenance() })
    }

    fn raw(&self) -> *mut c_void {
        core::ptr::with_exposed_provenance_mut(self.handle)
    }

    fn lent(self: &Arc<Stream>) -> LentStream {
        // SAFETY: the stream is of this device, and lives as long as its owner, which is lent with it.
        unsafe { LentStream::lend(&self.device, EngineStream::of(self.raw()), Arc::<Stream>::clone(self)) }
    }

    /// Writes over all of a tensor, as an engine's kernel does.
    fn fills(&self, tensor: &Arc<DeviceStorage>, byte: u8) {
        let (address, bytes) = (tensor.base_address(), tensor.size_bytes() as usize);
        // SAFETY: all of live memory, which the test alone uses.
        let filled =
            self.device.bound(|| unsafe { sys::cuMemsetD8Async(address, byte, bytes, self.raw().cast()) });
        filled.expect("bound").result().expect("queued");
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and destroyed once.
        let gone = self.device.bound(|| unsafe { sys::cuStreamDestroy_v2(self.raw().cast()) });
        gone.expect("bound").result().expect("destroyed");
    }
}

#[test]
fn offloads_come_after_writes_of_the_engine() {
    for seed in 1..25 {
        let ground = Ground::seeded(seed, CudaMoverOptions::new());
        let stream = Stream::new(&ground.device);
        let order = EngineOrder { offload_after: Some(stream.lent()), ..EngineOrder::default() };
        ground.mover().set_engine_order(order);
        ground.double.hold();
        ground.tensors.iter().for_each(|tensor| stream.fills(tensor, 7));
        let heard = Heard::new();
        // Two transfers of one list.
        ground.start(vec![ground.down(3, 3, 0..LAYERS), ground.down(4, 4, 1..2)], &heard);
        until("the transfers and the mark before them", || ground.double.calls("cuEventRecord") == 3);
        ground.double.release();
        assert!(heard.wait(1)[0].iter().all(|copy| copy.outcome == Ok(())));
        assert!(ground.host(3) == [7; BLOCK_BYTES], "seed {seed}: read too early");
        let layer = ground.memory.layer(1).expect("one");
        assert!(ground.host(4)[layer].iter().all(|byte| *byte == 7), "seed {seed}: read too early");
        ground.mover().set_engine_order(EngineOrder::default());
        drop(stream);
        ground.finish();
    }
}

#[test]
fn zeros_come_after_writes_of_the_engine() {
    for seed in 1..25 {
        let ground = Ground::seeded(seed, CudaMoverOptions::new());
        let stream = Stream::new(&ground.device);
        let order = EngineOrder { offload_after: Some(stream.lent()), ..EngineOrder::default() };
        ground.mover().set_engine_order(order);
        ground.double.hold();
        ground.tensors.iter().for_each(|tensor| stream.fills(tensor, 7));
        let heard = Heard::new();
        ground.start(vec![ground.zeros(3)], &heard);
        until("the transfer and the mark before it", || ground.double.calls("cuEventRecord") == 2);
        ground.double.release();
        assert_eq!(heard.wait(1)[0][0].outcome, Ok(()));
        assert!(ground.peek(3) == [0; BLOCK_BYTES], "seed {seed}: overwritten too early");
        assert!(ground.peek(4) == [7; BLOCK_BYTES]);
        ground.mover().set_engine_order(EngineOrder::default());
        drop(stream);
        ground.finish();
    }
}

/// Kernels that use a block are still queued when the CPU has released it. Then an onboard or zeros
/// replace its bytes.
#[test]
fn onboards_and_zeros_come_after_queued_uses_of_the_blocks() {
    for seed in 1..25 {
        let ground = Ground::seeded(seed, CudaMoverOptions::new());
        let stream = Stream::new(&ground.device);
        let order = EngineOrder { onboard_after: Some(stream.lent()), ..EngineOrder::default() };
        ground.mover().set_engine_order(order);
        let fresh = pattern(11, BLOCK_BYTES);
        ground.seal(0, &fresh);
        ground.double.hold();
        ground.tensors.iter().for_each(|tensor| stream.fills(tensor, 7));
        let heard = Heard::new();
        // Two transfers of one list, behind one mark.
        ground.start(vec![ground.up(0, 5, 0..LAYERS, true), ground.up(0, 6, 1..2, true)], &heard);
        until("the transfers and the mark before them", || ground.double.calls("cuEventRecord") == 3);
        ground.start(vec![ground.zeros(3)], &heard);
        until("the zeros and the mark before them", || ground.double.calls("cuEventRecord") == 5);
        ground.double.release();
        assert!(heard.wait(2).iter().flatten().all(|copy| copy.outcome == Ok(())));
        assert!(ground.peek(5) == fresh, "seed {seed}: brought up too early");
        let layer = ground.memory.layer(1).expect("one");
        assert!(ground.peek(6)[layer.clone()] == fresh[layer], "seed {seed}: brought up too early");
        assert!(ground.peek(3) == [0; BLOCK_BYTES], "seed {seed}: overwritten too early");
        assert!(ground.peek(4) == [7; BLOCK_BYTES]);
        ground.mover().set_engine_order(EngineOrder::default());
        drop(stream);
        ground.finish();
    }
}

#[test]
fn later_work_of_the_engine_comes_after_onboards() {
    for seed in 1..25 {
        let ground = Ground::seeded(seed, CudaMoverOptions::new());
        let stream = Stream::new(&ground.device);
        let order = EngineOrder { onboard_before: Some(stream.lent()), ..EngineOrder::default() };
        ground.mover().set_engine_order(order);
        ground.seal(0, &pattern(1, BLOCK_BYTES));
        ground.double.hold();
        let heard = Heard::new();
        ground.start(vec![ground.up(0, 5, 0..LAYERS, true)], &heard);
        until("the engine's wait", || ground.double.calls("cuStreamWaitEvent") == 1);
        ground.tensors.iter().for_each(|tensor| stream.fills(tensor, 9));
        ground.double.release();
        assert_eq!(heard.wait(1)[0][0].outcome, Ok(()));
        ground.double.idle();
        assert!(ground.peek(5) == [9; BLOCK_BYTES], "seed {seed}: the engine came first");
        ground.mover().set_engine_order(EngineOrder::default());
        drop(stream);
        ground.finish();
    }
}

/// Nothing is copied out of order: the failure passes, as the capture does.
#[test]
fn capture_of_an_engine_stream_is_a_passing_failure() {
    let ground = Ground::new(CudaMoverOptions::new());
    let stream = Stream::new(&ground.device);
    ground.seal(0, &pattern(1, BLOCK_BYTES));
    ground.double.capture_stream(stream.handle as u64, true);
    let (before, after) = (Some(stream.lent()), Some(stream.lent()));
    let orders = [
        EngineOrder { offload_after: after.clone(), onboard_before: before, ..EngineOrder::default() },
        EngineOrder { offload_after: after.clone(), onboard_after: after, ..EngineOrder::default() },
    ];
    for (block, order) in (5..).zip(orders) {
        ground.mover().set_engine_order(order);
        let list = ground.carry_out(vec![ground.down(1, 1, 0..LAYERS), ground.up(0, block, 0..LAYERS, true)]);
        for copy in &list {
            assert_eq!(copy.outcome, Err(Failure::passing(Cause::Device)), "{copy:?}");
            assert!(!matches!(copy.host, HostSide::Kept { .. }));
        }
        drop(list);
        assert!(ground.host(1) == [0; BLOCK_BYTES], "not offloaded");
    }
    assert!(ground.peek(6) == pattern(6, BLOCK_BYTES), "nor brought up, where that was to come after");
    ground.double.capture_stream(stream.handle as u64, false);
    let list = ground.carry_out(vec![ground.down(1, 1, 0..LAYERS), ground.up(0, 5, 0..LAYERS, true)]);
    assert!(list.iter().all(|copy| copy.outcome == Ok(())));
    drop(list);
    ground.mover().set_engine_order(EngineOrder::default());
    drop(stream);
    ground.finish();
}
