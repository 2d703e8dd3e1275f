//! Offloads that a caller asks for: the blocks stay where they are, and the tier below gets a copy.

use crate::calls::blocks::Blocks;
use crate::engine::inner::Inner;
use crate::engine::request_span::RequestSpan;
use crate::state::{GroupId, OffloadOptions, Offloaded, OffloadingId, Waits};
use crate::transfer::Cause;
use kvstrata_core::SequenceHash;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Blocks on their way down. The copies go on if this is dropped.
pub struct Offload {
    inner: Arc<Inner>,
    key: Option<OffloadingId>,
    span: RequestSpan,
    /// Set in a process that was forked from the manager's: so many blocks, none of them copied.
    refused: Option<usize>,
}

impl Offload {
    pub(crate) fn of(inner: Arc<Inner>, key: OffloadingId, span: RequestSpan) -> Offload {
        Offload { inner, key: Some(key), span, refused: None }
    }

    pub(crate) fn refused(inner: &Arc<Inner>, blocks: usize) -> Offload {
        Offload { inner: Arc::clone(inner), key: None, span: RequestSpan::none(), refused: Some(blocks) }
    }

    pub(crate) fn begin(blocks: &Blocks, options: OffloadOptions) -> Offload {
        let inner = Arc::clone(blocks.inner());
        if inner.is_inherited() {
            return Offload::refused(&inner, blocks.len());
        }
        let span = RequestSpan::offload(&inner, blocks.group_id(), blocks.refs(), options.request);
        let due = inner.due_in(options.deadline.unwrap_or(inner.rules.offload_deadline));
        let key = inner.with(|traffic| {
            let key = traffic.offload(&inner, blocks.group_id(), blocks.refs(), options, false);
            traffic.offload_due(key, due);
            key
        });
        Offload::of(inner, key, span)
    }

    /// Records the outcome.
    fn ended(&mut self, outcome: Offloaded) -> Poll<Offloaded> {
        self.key = None;
        self.span.offloaded(&self.inner, outcome);
        Poll::Ready(outcome)
    }

    /// Offloads the blocks of a request that will come back for them: all blocks, even beyond the
    /// queue's bound, in any mode.
    pub(crate) fn begin_whole(blocks: &Blocks, request: u64) -> Offload {
        let inner = Arc::clone(blocks.inner());
        if inner.is_inherited() {
            return Offload::refused(&inner, blocks.len());
        }
        let options = OffloadOptions { request, ..OffloadOptions::default() };
        let span = RequestSpan::offload(&inner, blocks.group_id(), blocks.refs(), request);
        let due = inner.due_in(inner.rules.offload_deadline);
        let key = inner.with(|traffic| {
            let key = traffic.offload(&inner, blocks.group_id(), blocks.refs(), options, true);
            traffic.offload_due(key, due);
            key
        });
        Offload::of(inner, key, span)
    }

    /// Completes when no copy of these blocks is under way. Copies that have not begun to move are
    /// called back.
    pub(crate) fn call_back(
        inner: &Arc<Inner>,
        group: GroupId,
        hashes: &[SequenceHash],
        due: Option<Duration>,
    ) -> Offload {
        if inner.is_inherited() {
            return Offload::refused(inner, 0);
        }
        let key = inner.with(|traffic| {
            let key = traffic.offloadings.begin();
            hashes.iter().for_each(|hash| traffic.call_back(inner, key, group, *hash));
            traffic.offload_due(key, due);
            key
        });
        Offload::of(Arc::clone(inner), key, RequestSpan::none())
    }
}

impl Future for Offload {
    type Output = Offloaded;

    /// Ready once. Polled again, it stays pending.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Offloaded> {
        if let Some(refused) = self.refused.take() {
            return Poll::Ready(Offloaded { refused, ..Offloaded::default() });
        }
        let Some(key) = self.key else { return Poll::Pending };
        if self.inner.is_inherited() {
            self.key = None;
            return Poll::Ready(Offloaded { cause: Some(Cause::Abandoned), ..Offloaded::default() });
        }
        // Cloned before the lock and dropped after it: a waker is a caller's code.
        let mut waker = Some(context.waker().clone());
        let mut traffic = self.inner.look();
        let (outcome, spare) = traffic.offloadings.poll(key, &mut waker);
        drop(traffic);
        drop(spare);
        match outcome {
            Poll::Ready(outcome) => self.ended(outcome),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Offload {
    fn drop(&mut self) {
        if self.inner.is_inherited() {
            return self.inner.keep();
        }
        let Some(key) = self.key else { return };
        let mut traffic = self.inner.look();
        let (due, waker) = traffic.offloadings.abandon(key);
        traffic.not_due(due, Waits::Offloading(key));
        drop(traffic);
        drop(waker);
    }
}

impl fmt::Debug for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Offload({:?})", self.key)
    }
}
