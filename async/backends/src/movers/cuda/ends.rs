//! Both ends of a copy, the queues between them, and the order with the engine's streams.

use super::plans::{Plans, Way};
use super::zeros::Zeros;
use super::{CudaMoverError, EngineOrder};
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::cuda::{CudaError, PinnedStorage, Purpose, QueueOptions, TransferQueue};
use kvstrata_tiers::transfer::{Cause, Copy, Failure, HostMemory, HostSide};
use std::sync::{Arc, PoisonError, RwLock};

/// State that all lists share.
pub(super) struct Ends {
    memory: Arc<HostMemory>,
    pub(super) pinned: Arc<PinnedStorage>,
    pub(super) plans: Plans,
    pub(super) zeros: Zeros,
    device_blocks: u32,
    offload: TransferQueue,
    onboard: TransferQueue,
    order: RwLock<EngineOrder>,
}

impl Ends {
    pub(super) fn new(
        (memory, pinned): (Arc<HostMemory>, Arc<PinnedStorage>),
        (plans, zeros, device_blocks): (Plans, Zeros, u32),
        options: QueueOptions,
    ) -> Result<Ends, CudaMoverError> {
        let queue = |purpose| TransferQueue::new(pinned.device(), purpose, options);
        let (offload, onboard) = (queue(Purpose::Offload)?, queue(Purpose::Onboard)?);
        Ok(Ends { memory, pinned, plans, zeros, device_blocks, offload, onboard, order: RwLock::default() })
    }

    pub(super) fn memory(&self) -> &Arc<HostMemory> {
        &self.memory
    }

    pub(super) fn queue(&self, way: Way) -> &TransferQueue {
        match way {
            // After the engine's last writes.
            Way::Offload | Way::Erase => &self.offload,
            Way::Onboard => &self.onboard,
        }
    }

    pub(super) fn set_order(&self, order: EngineOrder) {
        // Nothing panics under the lock. The streams' owners are dropped outside it.
        let old = std::mem::replace(&mut *self.order.write().unwrap_or_else(PoisonError::into_inner), order);
        drop(old);
    }

    /// Orders copies queued from now on after the engine's queued work, if the engine wants that: reads
    /// after its writes, writes after its reads, overwrites after both.
    pub(super) fn follow_engine(&self, way: Way) -> Result<(), CudaError> {
        let order = self.order.read().unwrap_or_else(PoisonError::into_inner);
        let (reads, writes) = (order.offload_after.as_ref(), order.onboard_after.as_ref());
        let streams = match way {
            Way::Offload => [reads, None],
            Way::Onboard => [None, writes],
            Way::Erase => [reads, writes],
        };
        let queue = self.queue(way);
        streams.into_iter().flatten().try_for_each(|stream| queue.wait_for_lent(stream))
    }

    /// Orders the engine's later work after the queued onboards, if the engine wants that.
    pub(super) fn hold_engine(&self) -> Result<(), CudaError> {
        let order = self.order.read().unwrap_or_else(PoisonError::into_inner);
        order.onboard_before.as_ref().map_or(Ok(()), |stream| self.onboard.hold_lent(stream))
    }

    /// Returns the way of a copy, or why it cannot be carried out.
    pub(super) fn way_of(&self, copy: &Copy) -> Result<Way, Failure> {
        let possible = copy.layers.end <= self.memory.layers() && copy.device.0 < self.device_blocks;
        let ours = |arena: &Arc<HostArena>| possible && Arc::ptr_eq(arena, self.memory.arena());
        match &copy.host {
            HostSide::Write(held) if ours(held.arena()) => Ok(Way::Offload),
            HostSide::Read(held) if ours(held.arena()) => Ok(Way::Onboard),
            HostSide::Zeros if possible => Ok(Way::Erase),
            _ => Err(Failure::of(Cause::Device)),
        }
    }

    pub(super) fn describe(&self) -> String {
        let (device, layers) = (self.pinned.device(), self.memory.layers());
        let by = match self.plans.kernels() {
            Ok(()) => "kernels and the copy engine",
            Err(_) => "the copy engine",
        };
        format!("{}: {} blocks of {layers} layers, by {by}", device.describe(), self.device_blocks)
    }
}
