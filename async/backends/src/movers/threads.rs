//! Copies between host memory and a simulated device, by threads ([`pool.rs`](super::pool)), layer by layer.
//!
//! Blocks come one after the other, and seldom the same one twice: what is copied is spread over the whole of
//! both memories. So it is their size that says whether copies go past the caches, not a block's or a list's:
//! they do where a copy of the smaller one would ([`HostCopy::goes_past_caches`]: from half the last-level
//! cache on).
//!
//! Invariants
//! - I1: a copy that says Ok has moved the bytes of all its layers. Offload has sealed each; onboard, where
//!   it verifies, has compared each.

use super::pool::{Pool, zero};
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::copy::HostCopy;
use kvstrata_ffi::device::SimDevice;
use kvstrata_tiers::transfer::{Cause, Copies, Copy, DeviceMover, Failure, HostMemory, HostSide};
use std::sync::Arc;

/// A list of about so many bytes takes long enough to copy that its start and its landing, some microseconds, do not count.
const LIST_BYTES: usize = 1 << 20;
/// Blocks of a list: who waits for the first one waits for all of them.
const MOST_AT_ONCE: usize = 32;

/// Why there is no such mover.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ThreadsError {
    /// Nobody would carry out a copy.
    #[error("threads = 0: a mover needs at least one thread")]
    NoThreads,
    /// Device and host memory do not have the same layers.
    #[error("bytes of each layer: {device:?} on the device, {host:?} in host memory; make them equal")]
    Layers {
        /// Of the device, in bytes.
        device: Vec<usize>,
        /// Of the host memory.
        host: Vec<usize>,
    },
    /// The system gives no more threads.
    #[error("cannot start thread {number} of a mover: {source}; use fewer threads, or raise ulimit -u")]
    Spawn {
        /// Which one, from 0.
        number: usize,
        /// The system's answer.
        source: std::io::Error,
    },
}

/// Moves blocks by threads of its own.
#[derive(Debug)]
pub struct ThreadsMover {
    pool: Pool,
    copy: HostCopy,
    at_once: usize,
}

impl ThreadsMover {
    /// A mover between these, with so many threads.
    ///
    /// # Errors
    /// [`ThreadsError`].
    pub fn new(
        device: Arc<SimDevice>,
        memory: Arc<HostMemory>,
        threads: usize,
    ) -> Result<ThreadsMover, ThreadsError> {
        ThreadsMover::with_copy(device, memory, threads, HostCopy::new())
    }

    /// The same, by this vector code, and past the caches from this size of the smaller memory on.
    ///
    /// # Errors
    /// [`ThreadsError`].
    pub fn with_copy(
        device: Arc<SimDevice>,
        memory: Arc<HostMemory>,
        threads: usize,
        copy: HostCopy,
    ) -> Result<ThreadsMover, ThreadsError> {
        let of_host = (0..memory.layers()).filter_map(|layer| Some(memory.layer(layer)?.len()));
        if !device.layer_bytes().eq(of_host.clone()) {
            return Err(ThreadsError::Layers {
                device: device.layer_bytes().collect(),
                host: of_host.collect(),
            });
        }
        let blocks = device.blocks().min(memory.arena().blocks());
        let past_caches = copy.goes_past_caches(blocks as u64 * memory.arena().block_bytes() as u64);
        let copy = copy.stream_from_bytes(if past_caches { 0 } else { u64::MAX });
        let at_once = (LIST_BYTES / memory.arena().block_bytes()).clamp(1, MOST_AT_ONCE);
        let ends = Ends { device, memory, copy };
        let pool = Pool::new(threads, Box::new(move |copy| ends.carry_out(copy)))?;
        Ok(ThreadsMover { pool, copy, at_once })
    }
}

impl DeviceMover for ThreadsMover {
    fn start(&self, copies: Copies) {
        self.pool.start(copies);
    }

    fn blocks_at_once(&self) -> usize {
        self.at_once
    }

    fn describe(&self) -> String {
        let way = if self.copy.goes_past_caches(0) { "past" } else { "through" };
        format!("simulated device, {} threads, {} {way} the caches", self.pool.threads(), self.copy.path())
    }
}

/// What copies go between.
struct Ends {
    device: Arc<SimDevice>,
    memory: Arc<HostMemory>,
    copy: HostCopy,
}

impl Ends {
    /// Copies layer by layer.
    fn carry_out(&self, copy: &mut Copy) -> Result<(), Failure> {
        let (block, verify) = (copy.device.0, copy.verify);
        for layer in copy.layers.clone() {
            let Some(bytes) = self.memory.layer(layer) else { return Err(Failure::of(Cause::Device)) };
            match &mut copy.host {
                HostSide::Write(host) if self.is_ours(host.arena()) => {
                    let sum = self.device.copy_layer_out(block, layer, &mut host[bytes], &self.copy)?;
                    self.memory.seal(host, layer, sum);
                }
                HostSide::Read(host) if self.is_ours(host.arena()) && !verify => {
                    self.device.copy_layer_in_unsummed(block, layer, &host[bytes], &self.copy)?;
                }
                HostSide::Read(host) if self.is_ours(host.arena()) => {
                    let sum = self.device.copy_layer_in(block, layer, &host[bytes], &self.copy)?;
                    if !self.memory.matches(host, layer, sum) {
                        return Err(Failure::of(Cause::Mismatch));
                    }
                }
                HostSide::Zeros => zero(&*self.device, block, bytes)?,
                // A block of another memory: its sums are elsewhere.
                _ => return Err(Failure::of(Cause::Device)),
            }
        }
        Ok(())
    }

    fn is_ours(&self, arena: &Arc<HostArena>) -> bool {
        Arc::ptr_eq(arena, self.memory.arena())
    }
}
