//! What follows from a change, and is done when the lock has been given back: movers started, waiters woken, blocks handed over.
//!
//! Invariants
//! - I1: all of it is done, whatever a waker, a mover, a disk or a subscriber does: one that panics has said so by the panic hook, and keeps neither others from
//!   being woken nor blocks from their owner, and ends no thread of a mover's and no task. What it was given and drops is answered by that.

use crate::state::{Grant, Late};
use crate::transfer::{Copy, DiskPort, DiskRead, DiskWrite, HostMemory, Path};
use futures_channel::oneshot;
use kvstrata_core::{BlockId, TenantId};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// A write, the memory with whose sums it is compared, and whose request it is of.
pub(crate) type Writing = (Arc<dyn DiskPort>, DiskWrite, Option<Arc<HostMemory>>, u64);

/// Work that must not be done under the lock.
#[derive(Default)]
pub(crate) struct Out {
    pub(crate) wakes: Vec<Waker>,
    pub(crate) copies: Vec<(u16, Path, Vec<Copy>)>,
    pub(crate) reads: Vec<(Arc<dyn DiskPort>, DiskRead, u64)>,
    pub(crate) writes: Vec<Writing>,
    pub(crate) grants: Vec<(oneshot::Sender<Grant>, u16, Vec<BlockId>, TenantId)>,
    /// Who gets nothing: told by being dropped.
    pub(crate) gone: Vec<oneshot::Sender<Grant>>,
    /// Who gets nothing in time.
    pub(crate) late: Vec<(oneshot::Sender<Grant>, Late)>,
    /// Who waits for a moment that has come.
    pub(crate) come: Vec<oneshot::Sender<()>>,
    /// Slots of disks have been given back.
    pub(crate) given_back: bool,
    /// A deadline comes before all others: when.
    pub(crate) wake_at: Option<Duration>,
    /// Nothing is under way, and somebody waits for that.
    pub(crate) idle: bool,
}

impl Out {
    /// A copy, in a list of at most so many.
    pub(crate) fn copy(
        &mut self,
        spare: &mut Vec<Vec<Copy>>,
        most: usize,
        (stack, path): (u16, Path),
        copy: Copy,
    ) {
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

    pub(crate) fn read(&mut self, disk: Arc<dyn DiskPort>, read: DiskRead, request: u64) {
        self.reads.push((disk, read, request));
    }

    /// With `memory`, the bytes are compared with its sums first.
    pub(crate) fn write(
        &mut self,
        disk: Arc<dyn DiskPort>,
        write: DiskWrite,
        memory: Option<Arc<HostMemory>>,
        request: u64,
    ) {
        self.writes.push((disk, write, memory, request));
    }

    pub(crate) fn grant(
        &mut self,
        to: oneshot::Sender<Grant>,
        stack: u16,
        blocks: Vec<BlockId>,
        tenant: TenantId,
    ) {
        self.grants.push((to, stack, blocks, tenant));
    }

    pub(crate) fn is_empty(&self) -> bool {
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
}
