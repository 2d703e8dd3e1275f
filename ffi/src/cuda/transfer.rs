//! A submitted transfer: a future, or an object to block on. Its memory belongs to its queue until the
//! device has answered.

use super::batch::Batch;
use super::error::CudaError;
use super::slots::{Ended, Shared};
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::Arc;

/// A transfer in flight. It ends with its batch when the device has answered. A dropped transfer is
/// carried out all the same, and its batch is dropped when the device has answered.
#[must_use = "dropping it discards the transfer's outcome"]
pub struct Transfer {
    shared: Arc<Shared>,
    /// `None` after the outcome was taken.
    slot: Option<usize>,
    /// The batch of a failed transfer, if it came back.
    left: Option<Batch>,
}

impl Transfer {
    pub(super) fn new(shared: Arc<Shared>, slot: usize) -> Transfer {
        Transfer { shared, slot: Some(slot), left: None }
    }

    /// Blocks the thread until the device has answered.
    ///
    /// # Errors
    /// [`CudaError`]: a part was refused when it was queued, or the device has failed. Memory that the
    /// device may still write is kept then.
    pub fn wait(mut self) -> Result<Batch, CudaError> {
        self.blocked(None).unwrap_or_else(|| Ok(Batch::new()))
    }

    /// Blocks as [`wait`](Transfer::wait) does, for at most `patience`.
    ///
    /// # Errors
    /// Also [`CudaError::Deadline`]: the device has not answered; the transfer continues without a waiter.
    pub fn wait_for(mut self, patience: Duration) -> Result<Batch, CudaError> {
        self.blocked(Some(patience)).unwrap_or_else(|| {
            let waited_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
            Err(CudaError::Deadline { device: self.shared.device().ordinal(), waited_ms })
        })
    }

    fn blocked(&mut self, patience: Option<Duration>) -> Option<Result<Batch, CudaError>> {
        let ended = self.shared.block(self.slot?, patience)?;
        Some(self.end(ended))
    }

    fn end(&mut self, (outcome, batch): Ended) -> Result<Batch, CudaError> {
        self.slot = None;
        match outcome {
            Ok(()) => Ok(batch.unwrap_or_default()),
            Err(error) => {
                self.left = batch;
                Err(error)
            }
        }
    }

    /// Returns, once, the batch of a transfer that was polled to its failure; `None` if the device keeps
    /// it, because it may still use the memory.
    pub fn take_left(&mut self) -> Option<Batch> {
        self.left.take()
    }
}

impl Future for Transfer {
    type Output = Result<Batch, CudaError>;

    /// After it was ready once, the transfer stays pending for ever.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(slot) = self.slot else { return Poll::Pending };
        match self.shared.poll(slot, context.waker()) {
            Some(ended) => Poll::Ready(self.end(ended)),
            None => Poll::Pending,
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.shared.abandon(slot);
        }
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transfer(of device:{})", self.shared.device().ordinal())
    }
}
