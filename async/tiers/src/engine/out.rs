//! What follows from a change, and is done when the lock has been given back: movers started, waiters woken, blocks handed over.
//!
//! Invariants
//! - I1: all of it is done, whatever a waker, a mover, a disk or a subscriber does: one that panics has said so by the panic hook, and keeps neither others from
//!   being woken nor blocks from their owner, and ends no thread of a mover's and no task. What it was given and drops is answered by that.

use super::blocks::BlocksMut;
use super::checked::Checked;
use super::inner::Inner;
use super::line::{Grant, Late};
use super::tenants::TenantId;
use crate::contained::contained;
use crate::transfer::{Copies, Copy, HostMemory, Path, TierPort, TierRead, TierWrite};
use futures_channel::oneshot;
use kvstrata_core::BlockId;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;
use tracing::{debug, trace};

/// A write, the memory with whose sums it is compared, and whose request it is of.
type Writing = (Arc<dyn TierPort>, TierWrite, Option<Arc<HostMemory>>, u64);

/// Work that must not be done under the lock.
#[derive(Default)]
pub(super) struct Out {
    pub(super) wakes: Vec<Waker>,
    copies: Vec<(u16, Path, Vec<Copy>)>,
    reads: Vec<(Arc<dyn TierPort>, TierRead, u64)>,
    writes: Vec<Writing>,
    grants: Vec<(oneshot::Sender<Grant>, u16, Vec<BlockId>, TenantId)>,
    /// Who gets nothing: told by being dropped.
    pub(super) gone: Vec<oneshot::Sender<Grant>>,
    /// Who gets nothing in time.
    pub(super) late: Vec<(oneshot::Sender<Grant>, Late)>,
    /// Who waits for a moment that has come.
    pub(super) come: Vec<oneshot::Sender<()>>,
    /// Slots of disks have been given back.
    pub(super) given_back: bool,
    /// A deadline comes before all others: when.
    pub(super) wake_at: Option<Duration>,
    /// Nothing is under way, and somebody waits for that.
    pub(super) idle: bool,
}

impl Out {
    pub(super) fn copy(
        &mut self,
        spare: &mut Vec<Vec<Copy>>,
        inner: &Inner,
        (stack, path): (u16, Path),
        copy: Copy,
    ) {
        let most = inner.stack(stack).mover.blocks_at_once();
        let fits =
            |(of, by, list): &&mut (u16, Path, Vec<Copy>)| (*of, *by) == (stack, path) && list.len() < most;
        // The last one of its kind: those before it are full.
        match self.copies.iter_mut().rev().find(fits) {
            Some((_, _, list)) => list.push(copy),
            None => {
                let mut list = spare.pop().unwrap_or_default();
                list.push(copy);
                self.copies.push((stack, path, list));
            }
        }
    }

    pub(super) fn read(&mut self, disk: Arc<dyn TierPort>, read: TierRead, request: u64) {
        self.reads.push((disk, read, request));
    }

    /// With `memory`, the bytes are compared with its sums first.
    pub(super) fn write(
        &mut self,
        disk: Arc<dyn TierPort>,
        write: TierWrite,
        memory: Option<Arc<HostMemory>>,
        request: u64,
    ) {
        self.writes.push((disk, write, memory, request));
    }

    pub(super) fn grant(
        &mut self,
        to: oneshot::Sender<Grant>,
        stack: u16,
        blocks: Vec<BlockId>,
        tenant: TenantId,
    ) {
        self.grants.push((to, stack, blocks, tenant));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.wakes.is_empty()
            && self.copies.is_empty()
            && self.reads.is_empty()
            && self.writes.is_empty()
            && self.grants.is_empty()
            && self.gone.is_empty()
            && self.late.is_empty()
            && self.come.is_empty()
            && !self.given_back
            && self.wake_at.is_none()
            && !self.idle
    }

    /// Does it all. What lands meanwhile is for whoever settles.
    pub(super) fn perform(&mut self, inner: &Arc<Inner>) {
        // Reads first: they take longest.
        for (disk, read, request) in self.reads.drain(..) {
            contained(|| trace!(request, slot = read.slot.0, token = read.token.0, "a read begins"));
            contained(|| disk.read(read));
        }
        for (stack, path, list) in self.copies.drain(..) {
            contained(|| {
                debug!(%path, blocks = ?list.iter().map(|copy| copy.device.0).collect::<Vec<_>>(), "copies begin");
            });
            let copies = Copies::new(list, inner.landing());
            contained(|| inner.stack(stack).mover.start(copies));
        }
        for (disk, write, memory, request) in self.writes.drain(..) {
            contained(|| trace!(request, slot = write.slot.0, token = write.token.0, "a write begins"));
            match memory {
                None => contained(|| disk.write(write)),
                Some(memory) => {
                    let checked = Checked::new(disk, memory, write);
                    contained(|| inner.checks.push(&inner.runtime, checked));
                }
            }
        }
        // They may ring a volume's thread: a call to the system. A port keeps such slots from being taken until then.
        if std::mem::take(&mut self.given_back) {
            let disks = inner.stacks.iter().flat_map(|of| &of.disk);
            disks.for_each(|disk| contained(|| disk.forget_released()));
        }
        // They came before those who are served now.
        for (to, late) in self.late.drain(..) {
            contained(|| _ = to.send(Err(late)));
        }
        for (to, stack, blocks, tenant) in self.grants.drain(..) {
            let blocks = BlocksMut::new(Arc::clone(inner), stack, blocks, tenant);
            // Whoever has gone away gives the blocks back by dropping them.
            contained(|| _ = to.send(Ok(blocks)));
        }
        self.gone.drain(..).for_each(|to| contained(|| drop(to)));
        self.come.drain(..).for_each(|to| contained(|| _ = to.send(())));
        if let Some(at) = self.wake_at.take() {
            contained(|| inner.runtime.wake_at(at));
        }
        if std::mem::take(&mut self.idle) {
            contained(|| inner.idle.tell());
        }
        self.wakes.drain(..).for_each(|waker| contained(|| waker.wake()));
    }
}
