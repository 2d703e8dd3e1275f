//! A purge: all blocks of a tenant leave all tiers. It is over when none is left.
//!
//! ```text
//!   begin   the tenant gets nothing more; its waiters are answered; unstarted copies are called back
//!   sweep   idle blocks are taken out; held ones are withdrawn, under a reference of the purge ◄────────┐
//!   erase   the taken blocks are overwritten, forgotten, freed                                          │
//!   over?   no credit, no transfer, no held block ── no: wait for a release, a drop or a landing ───────┘
//!           └── yes: blocks that given-up slots held before are forgotten for good
//! ```
//!
//! A purge is a task of its own, so it ends even if the caller drops the future. The deadline limits the
//! answer, not the task. A held block is withdrawn under a reference of the purge, so its last holder's
//! release frees nothing: the purge is then the only holder, and takes the block. A block that lands for
//! the tenant is not registered. On the disk it is registered for a moment, under one of the tenant's
//! hashes, and a sweep takes it (`sweep.rs`).
//!
//! Blocks that a failed device keeps (`quarantine.rs`) are withdrawn too, and not waited for. Blocks of
//! a volume that is out of service, or that cannot record what it forgets, are counted: the next opening
//! may find them.
//!
//! A slot taken for another tenant's copy still has this tenant's block and its record until the copy is
//! written. The purge takes that slot, and the copy gets another. If the copy already moves, the purge
//! waits for it.
//!
//! The purge does not reach:
//! - bytes left in free blocks by earlier evictions and releases. Exception: a purge with zeros
//!   overwrites disk slots that an earlier purge of this process freed without zeros;
//! - blocks on the disk that an earlier process wrote without an owner, or whose owner got no number
//!   (`names.rs`);
//! - blocks given up and not yet forgotten when a volume was lost before the purge;
//! - files that are not open.
//!
//! Invariants
//! - I1: between `begin` and the end no block of the tenant is registered, except by a call that was
//!   about to register; that call tells the purge (`register`). No block of the tenant is free before it
//!   is erased. Exception: slots whose write fails belong to their port, and are counted if bytes are to
//!   be overwritten.
//! - I2: each block that a sweep has found is counted once: as purged when it is erased or quarantined,
//!   and as busy until then.
//!
//! # Orderings
//! A registering thread publishes the block, then looks for purges. A purging thread records its purge,
//! then sweeps. By the fences of [`Waiting`](kvstrata_core::waiting::Waiting) one of the two sees the
//! other, as `core/tests/loom_sweep.rs` shows.

#[cfg(test)]
mod tests;

use crate::calls::erase::{erase, erase_left, forget};
use crate::calls::moment::first_of;
use crate::engine::inherited::INHERITED;
use crate::engine::inner::Inner;
use crate::state::{GroupId, Purge, Purged, Work};
use crate::tier::{MOST_BELOW, Tier};
use futures_channel::oneshot;
use kvstrata_core::{SequenceHash, TenantId};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// As good as no deadline: 30 years.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// Why a purge does not begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PurgeError {
    /// The handle is not a tenant's.
    #[error("this handle has no tenant; purge through a handle returned by tenant()")]
    NoTenant,
    /// The tenant is being purged already.
    #[error("a purge of this tenant is already running; wait for it to end")]
    UnderWay,
    /// The manager or its runtime has been shut down.
    #[error("the manager is shut down")]
    Closed,
    /// This process was forked from the manager's.
    #[error("{INHERITED}")]
    Inherited,
}

/// Begins a purge. The answer comes by the channel; a task that ends early closes it.
pub(crate) fn purge(
    inner: &Arc<Inner>,
    tenant: TenantId,
    options: Purge,
) -> Result<oneshot::Receiver<Purged>, PurgeError> {
    if inner.is_inherited() {
        return Err(PurgeError::Inherited);
    }
    let done = Purged::default();
    let (held, turn, heard, hashes) = (BTreeMap::new(), None, Vec::new(), Vec::new());
    let mut work = Work { tenant, held, turn, heard, hashes, erasing: [0; 2 + MOST_BELOW], done };
    inner.with(|traffic| {
        if traffic.refuses() {
            return Err(PurgeError::Closed);
        }
        if traffic.is_purging(tenant) {
            return Err(PurgeError::UnderWay);
        }
        work.done.in_flight = traffic.begin_purge(inner, tenant, options.zero);
        // Before a consequence of this purge evicts one of the tenant's blocks.
        traffic.first_sweep(inner, &mut work);
        // After this, no transfer that is called back can be given a slot with the tenant's block.
        traffic.take_slots(inner, tenant);
        Ok(())
    })?;
    let task = Task { work, begun: Some(Begun(Arc::clone(inner), tenant)) };
    let (answer, answered) = oneshot::channel();
    inner.runtime.spawn(Box::pin(task.run(Arc::clone(inner), options, answer)));
    Ok(answered)
}

/// The purge's task.
struct Task {
    work: Work,
    begun: Option<Begun>,
}

impl Task {
    async fn run(mut self, inner: Arc<Inner>, options: Purge, answer: oneshot::Sender<Purged>) {
        let now = inner.elapsed();
        let deadline = now.checked_add(options.deadline).unwrap_or(now + FAR);
        let mut late = pin!(inner.moment(deadline));
        let mut answer = Some(answer);
        // Whether blocks that given-up slots held, also by this purge, are forgotten.
        let mut forgotten = inner.groups.iter().all(|of| of.lower.is_empty());
        loop {
            // Listens before the look, so that no signal is missed.
            let told = inner.purge_told.listen();
            let (pieces, over) = inner.change(|traffic| traffic.sweep(&inner, &mut self.work));
            if !pieces.is_empty() {
                let erasing = erase(&inner, pieces, options.zero);
                let erased = self.ends(&inner, erasing, late.as_mut(), &mut answer).await;
                self.work.done.zeroed_bytes += erased.zeroed_bytes;
                for (tier, blocks) in Tier::all(MOST_BELOW).zip(std::mem::take(&mut self.work.erasing)) {
                    self.work.done.tier(tier).purged += blocks;
                }
                inner.change(|traffic| traffic.put_back(&inner, self.work.tenant, erased));
                continue;
            }
            if over && forgotten {
                break;
            }
            if over {
                let known = self.ends(&inner, forget(&inner), late.as_mut(), &mut answer).await;
                let left = match options.zero {
                    true => self.ends(&inner, erase_left(&inner), late.as_mut(), &mut answer).await,
                    false => true,
                };
                self.work.done.failed += usize::from(!known) + usize::from(!left);
                forgotten = true;
                continue;
            }
            if answer.is_none() {
                let _ = told.await;
            } else if first_of(told, late.as_mut()).await.is_none() {
                self.answer(&inner, answer.take(), false);
            }
        }
        drop(self.begun.take());
        self.answer(&inner, answer, true);
    }

    /// Waits for one part of the purge, and answers meanwhile if the deadline passes.
    async fn ends<T>(
        &mut self,
        inner: &Arc<Inner>,
        part: impl Future<Output = T>,
        late: impl Future<Output = ()>,
        answer: &mut Option<oneshot::Sender<Purged>>,
    ) -> T {
        let mut part = std::pin::pin!(part);
        if answer.is_some() {
            if let Some(ended) = first_of(part.as_mut(), late).await {
                return ended;
            }
            self.answer(inner, answer.take(), false);
        }
        part.await
    }

    fn answer(&mut self, inner: &Inner, answer: Option<oneshot::Sender<Purged>>, complete: bool) {
        let Some(answer) = answer else { return };
        let failed = self.work.done.failed + inner.look().quarantine.of(self.work.tenant);
        let mut done = Purged { complete, failed, ..self.work.done };
        for (tier, blocks) in Tier::all(MOST_BELOW).zip(self.work.erasing) {
            done.tier(tier).busy += blocks;
        }
        for (_, tier, _) in self.work.held.keys() {
            done.tier(*tier).busy += 1;
        }
        let found = |(group, hash): &&(GroupId, SequenceHash)| {
            inner.tiers().any(|tier| inner.group(*group).pool(tier).is_some_and(|pool| pool.contains(*hash)))
        };
        done.still_found = self.work.hashes.iter().filter(found).count();
        let _ = answer.send(done);
    }
}

/// Ends the purge when its task ends in any way. Blocks that the task had then are never used again.
struct Begun(Arc<Inner>, TenantId);

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.change(|traffic| traffic.end_purge(&self.0, self.1));
    }
}
