//! Copies between host memory and a simulated device, on threads ([`pool.rs`](super::pool)), layer by
//! layer.
//!
//! Blocks come one after the other, and the same one seldom twice, so copies are spread over the whole
//! of both memories. Therefore the memories' size decides whether copies bypass the caches, not the size
//! of a block or a list. They do if a copy of the smaller memory would ([`HostCopy::goes_past_caches`]:
//! from half the last-level cache on).
//!
//! Invariants
//! - I1: a copy that returns Ok has moved the bytes of all its layers. An offload has sealed each; an
//!   onboard that verifies has compared each.

use super::pool::{Pool, zero};
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::copy::HostCopy;
use kvstrata_ffi::device::SimDevice;
use kvstrata_tiers::transfer::{Cause, Copies, Copy, DeviceMover, Failure, HostMemory, HostSide};
use std::sync::Arc;

/// A list of this many bytes takes so long to copy that its start and landing, some microseconds, do not
/// matter.
const LIST_BYTES: usize = 1 << 20;
/// The most blocks of a list: a caller that waits for the first block waits for all of them.
const MOST_AT_ONCE: usize = 32;

/// Why the mover cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ThreadsError {
    /// A mover needs a thread.
    #[error("threads = 0: a mover needs at least one thread")]
    NoThreads,
    /// Device and host memory do not have the same layers.
    #[error("bytes of each layer: {device:?} on the device, {host:?} in host memory; make them equal")]
    Layers {
        /// Bytes of the device's layers.
        device: Vec<usize>,
        /// Bytes of the host memory's layers.
        host: Vec<usize>,
    },
    /// The system gives no more threads.
    #[error("cannot start thread {number} of a mover: {source}; use fewer threads, or raise ulimit -u")]
    Spawn {
        /// The thread's number, from 0.
        number: usize,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Moves blocks on its own threads.
#[derive(Debug)]
pub struct ThreadsMover {
    pool: Pool,
    copy: HostCopy,
    at_once: usize,
}

impl ThreadsMover {
    /// Makes a mover between these two, with this many threads.
    ///
    /// # Errors
    /// [`ThreadsError`], if the layers differ, or the threads cannot be started.
    pub fn new(
        device: Arc<SimDevice>,
        memory: Arc<HostMemory>,
        threads: usize,
    ) -> Result<ThreadsMover, ThreadsError> {
        ThreadsMover::with_copy(device, memory, threads, HostCopy::new())
    }

    /// The same with this copier: its vector code, and its memory size from which copies bypass the
    /// caches.
    ///
    /// # Errors
    /// [`ThreadsError`], as for [`new`](ThreadsMover::new).
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

/// Both ends of the copies.
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
            let has = match &copy.host {
                HostSide::Read(host) => host.len(),
                HostSide::Write(host) => host.len(),
                HostSide::Zeros | HostSide::Kept { .. } => usize::MAX,
            };
            // A narrowed guard has too few bytes.
            if has < bytes.end {
                return Err(Failure::of(Cause::Device));
            }
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
                // The sums of another memory's blocks are kept elsewhere.
                _ => return Err(Failure::of(Cause::Device)),
            }
        }
        Ok(())
    }

    fn is_ours(&self, arena: &Arc<HostArena>) -> bool {
        Arc::ptr_eq(arena, self.memory.arena())
    }
}
