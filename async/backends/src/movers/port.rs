//! Copies through a device's own port ([`DevicePort`]), on threads ([`pool.rs`](super::pool)). Works for
//! every device with a port. A device that can do better, with many blocks at once or sums on the way,
//! has its own mover.
//!
//! Invariants
//! - I1: a copy that returns Ok has moved the bytes of all its layers in one call of the port; zeros may
//!   take several. An offload has sealed each layer. An onboard that verifies has compared each before
//!   it gave any to the device.

use super::pool::{Pool, zero};
use super::threads::ThreadsError;
use kvstrata_core::DevicePort;
use kvstrata_tiers::transfer::{Cause, Copies, Copy, DeviceMover, Failure, HostMemory, HostSide};
use std::sync::Arc;

/// Moves blocks of any device that has a port.
#[derive(Debug)]
pub struct PortMover(Pool);

impl PortMover {
    /// Makes a mover between these two, with this many threads. A block's layers are contiguous in the
    /// device.
    ///
    /// # Errors
    /// [`ThreadsError`], if threads or layers do not fit.
    pub fn new(
        port: Arc<dyn DevicePort>,
        memory: Arc<HostMemory>,
        threads: usize,
    ) -> Result<PortMover, ThreadsError> {
        let bytes = memory.arena().block_bytes();
        if port.block_bytes() != bytes {
            return Err(ThreadsError::Layers { device: vec![port.block_bytes()], host: vec![bytes] });
        }
        Pool::new(threads, Box::new(move |copy| carry_out(&*port, &memory, copy))).map(PortMover)
    }
}

impl DeviceMover for PortMover {
    fn start(&self, copies: Copies) {
        self.0.start(copies);
    }

    fn blocks_at_once(&self) -> usize {
        1
    }

    fn describe(&self) -> String {
        format!("the device's port, {} threads", self.0.threads())
    }
}

fn carry_out(port: &dyn DevicePort, memory: &Arc<HostMemory>, copy: &mut Copy) -> Result<(), Failure> {
    let (block, verify, layers) = (copy.device.0, copy.verify, copy.layers.clone());
    let (arena, bytes) = match &copy.host {
        HostSide::Read(block) => (block.arena(), block.len()),
        HostSide::Write(block) => (block.arena(), block.len()),
        HostSide::Zeros => (memory.arena(), memory.arena().block_bytes()),
        HostSide::Kept { .. } => return Err(Failure::of(Cause::Device)),
    };
    // The sums of another memory's blocks are not kept here.
    if !Arc::ptr_eq(arena, memory.arena()) || layers.end > memory.layers() {
        return Err(Failure::of(Cause::Device));
    }
    let each = || layers.clone().filter_map(|layer| Some((layer, memory.layer(layer)?)));
    let (Some((_, first)), Some((_, last))) = (each().next(), each().next_back()) else { return Ok(()) };
    let all = first.start..last.end;
    // A narrowed guard has too few.
    if bytes < all.end {
        return Err(Failure::of(Cause::Device));
    }
    match &mut copy.host {
        HostSide::Write(host) => {
            port.copy_out(block, all.start, &mut host[all])?;
            each().for_each(|(layer, range)| memory.seal(host, layer, HostMemory::sum_of(&host[range])));
        }
        HostSide::Read(host) => {
            if verify
                && !each().all(|(layer, range)| memory.matches(host, layer, HostMemory::sum_of(&host[range])))
            {
                return Err(Failure::of(Cause::Mismatch));
            }
            port.copy_in(block, all.start, &host[all])?;
        }
        HostSide::Zeros => zero(port, block, all)?,
        HostSide::Kept { .. } => {}
    }
    Ok(())
}
