//! The future of a batch.

use crate::outcome::{Completion, JobId};
use futures_channel::oneshot;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A batch under way. It has begun at the call. Dropping it drops the answers: the transfers go on, and
/// the lent memory is released when the last of them has ended.
#[derive(Debug)]
#[must_use = "dropping it drops the answers"]
pub struct Batch {
    pub(crate) job: JobId,
    pub(crate) ended: oneshot::Receiver<Completion>,
}

impl Batch {
    /// Returns the batch's number.
    #[must_use]
    pub fn job(&self) -> JobId {
        self.job
    }
}

impl Future for Batch {
    /// `None` if the store ended without an answer, in a forked process or after a panic.
    type Output = Option<Completion>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Completion>> {
        Poll::Ready(ready!(Pin::new(&mut self.ended).poll(context)).ok())
    }
}
