//! A stream with its transfers: the memory that they own, and the thread that ends them.
//!
//! ```text
//!   submit ─► slot: batch, event, number ─► fifo ─► thread: waits for the oldest ─► outcome ─► waker
//!                     │                                                               │
//!                     └── the device reads and writes the batch's memory ─────────────┘ batch back, or drop
//! ```
//!
//! Invariants
//! - I1: once any part of a batch is queued, the batch stays in its slot until the device has answered
//!   for it, whatever happens to the [`Transfer`]. If the device never answers, the batch stays for ever
//!   (leaked, counted). Nothing is freed or reused before.
//! - I2: the order of `fifo` is the order in the stream: both change under `turn`.
//! - I3: each transfer in `fifo` gets an outcome: once the device is quarantined, every wait answers at
//!   once. A wait that is refused otherwise is no answer, and is repeated.
//! - I4: foreign code (wakers, owners' drops) runs under no lock, and its panic ends neither the thread
//!   nor other transfers.

use super::batch::Batch;
use super::completion::Way;
use super::context::CudaDevice;
use super::error::CudaError;
use super::rejected::Rejected;
use super::slots::Shared;
use super::stream::{CudaStream, Purpose};
use super::transfer::Transfer;
use super::work::Work;
use core::fmt;
use core::time::Duration;
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};

/// The options of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct QueueOptions {
    way: Way,
    depth: usize,
    watch: Duration,
}

impl QueueOptions {
    /// Waits by events; at most 256 transfers, in flight or not yet taken; a missing host function is
    /// checked for every 100 ms.
    pub fn new() -> QueueOptions {
        QueueOptions { way: Way::Event, depth: 256, watch: Duration::from_millis(100) }
    }

    /// Sets how the thread waits.
    pub fn way(mut self, way: Way) -> Self {
        self.way = way;
        self
    }

    /// Sets the maximum number of transfers; at least 1.
    pub fn depth(mut self, depth: usize) -> Self {
        self.depth = depth.max(1);
        self
    }

    /// Sets how long an error can stay unseen if the queue waits by [`Way::HostFunction`].
    pub fn watch(mut self, watch: Duration) -> Self {
        self.watch = watch;
        self
    }
}

impl Default for QueueOptions {
    fn default() -> QueueOptions {
        QueueOptions::new()
    }
}

/// A stream of a device, and the transfers in it.
pub struct TransferQueue {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl TransferQueue {
    /// Creates a queue with a stream of its own, and a thread that waits for its transfers.
    ///
    /// # Errors
    /// [`CudaError`]: the driver refuses, or a thread cannot be started.
    pub fn new(
        device: &Arc<CudaDevice>,
        purpose: Purpose,
        options: QueueOptions,
    ) -> Result<TransferQueue, CudaError> {
        let QueueOptions { way, depth, watch } = options;
        let shared = Arc::new(Shared::new(device, purpose, depth, (way, watch))?);
        let served = Arc::clone(&shared);
        let thread = thread::Builder::new().name(format!("kvstrata-{purpose}"));
        let thread = thread.spawn(move || {
            // The context is bound once for the thread's life. If the device is quarantined, the thread
            // still ends pending transfers.
            if served.device().bound(|| served.serve()).is_err() {
                served.serve();
            }
        });
        let thread =
            thread.map_err(|error| CudaError::Thread { errno: error.raw_os_error().unwrap_or(0) })?;
        Ok(TransferQueue { shared, thread: Some(thread) })
    }

    /// Returns the queue's device.
    #[must_use]
    pub fn device(&self) -> &Arc<CudaDevice> {
        self.shared.device()
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Returns the queue's stream, to make it wait for foreign events.
    #[must_use]
    pub fn stream(&self) -> &CudaStream {
        &self.shared.stream
    }

    /// Queues all pieces of a batch.
    ///
    /// # Errors
    /// [`Rejected`] with the batch: the queue is full, memory belongs to another device, the driver
    /// refuses, or the device is quarantined. An error after the first piece was queued is the
    /// [`Transfer`]'s outcome instead.
    pub fn submit(&self, batch: Batch) -> Result<Transfer, Box<Rejected>> {
        let mut work = self.begin(batch)?;
        work.copy();
        work.finish()
    }

    /// Begins a transfer made of parts: copies, fills and kernels, in the order of the calls. Until it
    /// ends, any other caller that queues a transfer waits. If that caller is this very thread, it waits
    /// for ever.
    ///
    /// # Errors
    /// [`Rejected`] with the batch: the queue is full, memory belongs to another device, or the
    /// device is quarantined.
    pub fn begin(&self, batch: Batch) -> Result<Work<'_>, Box<Rejected>> {
        match self.shared.reserve(&batch) {
            Ok((slot, event)) => {
                let turn = self.shared.turn.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(Work::new(&self.shared, turn, slot, (batch, event)))
            }
            Err(error) => Err(Box::new(Rejected { error, batch })),
        }
    }

    /// Returns the number of transfers that the device has not answered for.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.shared.lock().fifo.len()
    }
}

impl Drop for TransferQueue {
    /// Does not wait for the device: the thread ends pending transfers, and then itself. An idle thread
    /// ends now.
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closing = true;
        let idle = state.fifo.is_empty();
        drop(state);
        self.shared.work.notify_all();
        if let Some(thread) = self.thread.take()
            && idle
            && thread.thread().id() != thread::current().id()
        {
            // It does not panic (I4).
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for TransferQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TransferQueue({:?}, {} in flight)", self.shared.stream, self.in_flight())
    }
}
