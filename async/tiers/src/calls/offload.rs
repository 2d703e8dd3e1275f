//! Copies down that a caller asks for: the blocks stay where they are, and the tier below has them too.

use crate::calls::blocks::Blocks;
use crate::engine::inner::Inner;
use crate::engine::notices::About;
use crate::engine::request_span::RequestSpan;
use crate::metrics::Refusal;
use crate::state::{GroupId, OffloadOptions, Offloaded, OffloadingId, Waits};
use crate::transfer::{Cause, Path};
use kvstrata_core::{ImmutableBlock, SequenceHash};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Blocks on their way down. Dropped, they go all the same.
pub struct Offload {
    inner: Arc<Inner>,
    key: Option<OffloadingId>,
    span: RequestSpan,
    /// In a process that was forked from the manager's: so many blocks, none of which goes anywhere.
    refused: Option<usize>,
}

impl Offload {
    fn of(inner: Arc<Inner>, key: OffloadingId, span: RequestSpan) -> Offload {
        Offload { inner, key: Some(key), span, refused: None }
    }

    fn refused(inner: &Arc<Inner>, blocks: usize) -> Offload {
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

    /// It is answered.
    fn ended(&mut self, outcome: Offloaded) -> Poll<Offloaded> {
        self.key = None;
        self.span.offloaded(&self.inner, outcome);
        Poll::Ready(outcome)
    }

    /// Of a request that will come back for them: all of them, also beyond the queue's bound, and whatever
    /// the mode.
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

    /// Ends when no copy of these blocks is under way: what has not begun to move is called back.
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

/// See [`Tiers::persist`](crate::Tiers::persist).
pub(crate) async fn persist(inner: &Arc<Inner>, group: GroupId, hashes: &[SequenceHash]) -> Offloaded {
    if inner.is_inherited() {
        return Offload::refused(inner, hashes.len()).await;
    }
    let span = RequestSpan::persist(inner, group, hashes);
    let outcome = bring_down(inner, group, hashes).await;
    span.offloaded(inner, outcome);
    outcome
}

/// From wherever they are, down to the tiers below host memory.
async fn bring_down(inner: &Arc<Inner>, group: GroupId, hashes: &[SequenceHash]) -> Offloaded {
    let of = inner.group(group);
    let in_host = |hash: &SequenceHash| of.host.as_ref().is_some_and(|host| host.pool().contains(*hash));
    let is_below = |hash: &SequenceHash| !of.lower.is_empty() && of.all_lower_contain(*hash);
    // What no tier above has goes no further: it is there.
    let is_in_one = |hash: &SequenceHash| of.any_lower_contains(*hash);
    let (mut there, mut nowhere) = (0, Vec::new());
    let (mut refs, mut missing) = (Vec::new(), Vec::new());
    for hash in hashes.iter().copied() {
        match () {
            () if is_below(&hash) => there += 1,
            () if in_host(&hash) => {}
            () => match of.device.pool().find(hash).map(ImmutableBlock::into_ref) {
                Some(block) => refs.push(block),
                None => missing.push(hash),
            },
        }
    }
    let blocks = Blocks::new(Arc::clone(inner), group, refs);
    // One for both halves.
    let due = inner.due_in(inner.rules.offload_deadline);
    let key = inner.with(|traffic| {
        let key = traffic.offload(inner, group, blocks.refs(), OffloadOptions::default(), false);
        // Victims, which the device has no more and the host not yet; or they have come down since.
        for hash in missing {
            match traffic.join_down(key, group, hash, None) {
                false if is_in_one(&hash) && !in_host(&hash) => there += 1,
                false if !in_host(&hash) => nowhere.push(hash),
                _ => {}
            }
        }
        traffic.offload_due(key, due);
        key
    });
    inner.counts.refused(Refusal::Room, nowhere.len());
    let first = Offload::of(Arc::clone(inner), key, RequestSpan::none()).await;
    if of.host.is_none() {
        return Offloaded { there: first.there + there, refused: first.refused + nowhere.len(), ..first };
    }
    let late = first.cause == Some(Cause::Deadline) && due.is_some_and(|due| due <= inner.elapsed());
    if late {
        // What has come to the host has not come further.
        let there = hashes.iter().filter(|hash| is_in_one(hash)).count();
        let left = hashes.len() - there;
        let refused = left.min(first.refused + nowhere.len());
        let failed = left - refused;
        let further = failed.saturating_sub(first.failed);
        (0..further)
            .for_each(|_| inner.counts.failed(Path::ToBelow(0), Cause::Deadline, About::of_group(group)));
        inner.say();
        return Offloaded { copied: 0, there, refused, failed, cause: first.cause.filter(|_| failed > 0) };
    }
    let (key, left) = inner.with(|traffic| {
        // In the order of `hashes`.
        let mut gone = nowhere.iter().copied().peekable();
        let known = hashes.iter().copied().filter(|hash| gone.next_if_eq(hash).is_none());
        let (key, left) = traffic.offload_below(inner, group, known);
        traffic.offload_due(key, due);
        (key, left)
    });
    let second = Offload::of(Arc::clone(inner), key, RequestSpan::none()).await;
    // What was in the host by then is counted there, whatever has become of it before. Of the others some
    // have failed; what has left the host again is refused as the rest.
    let failed = left.min(first.failed);
    inner.counts.refused(Refusal::Room, left.saturating_sub(first.failed + first.refused));
    Offloaded {
        refused: second.refused + nowhere.len() + left - failed,
        failed: second.failed + failed,
        cause: second.cause.or(first.cause.filter(|_| failed > 0)),
        ..second
    }
}

impl Future for Offload {
    type Output = Offloaded;

    /// Ready once; polled after that it stays pending.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Offloaded> {
        if let Some(refused) = self.refused.take() {
            return Poll::Ready(Offloaded { refused, ..Offloaded::default() });
        }
        let Some(key) = self.key else { return Poll::Pending };
        if self.inner.is_inherited() {
            self.key = None;
            return Poll::Ready(Offloaded { cause: Some(Cause::Abandoned), ..Offloaded::default() });
        }
        // Cloned before and dropped after the lock: a waker is a caller's code.
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
