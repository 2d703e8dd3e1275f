//! A purge: all blocks of a tenant leave all tiers, and it is over when none is left.
//!
//! ```text
//!   begin     the tenant gets nothing more; who waits for it is answered; what has not begun to move is called back
//!   sweep     idle blocks are taken out, held ones withdrawn, by a reference of the purge's own ◄─────┐
//!   erase     what is in its hands is overwritten, forgotten, free                                    │ told: something was released,
//!   over?     no credit, no transfer, nothing held ── no: wait ─────────────────────────────────────────┘ dropped, or has landed
//!             └── yes: what slots held that were given up before is forgotten for good
//! ```
//!
//! A task of its own, so that it ends whoever drops the future; the deadline is the answer's, not the task's.
//! What is held is withdrawn with the purge's reference on it, so that its last holder's release frees
//! nothing: the purge finds itself alone with the block, and has it. What lands for the tenant is not
//! registered; on the disk it is for a moment, under a hash of the tenant's, and is swept (`sweep.rs`).
//!
//! What a failed device keeps (`quarantine.rs`) is withdrawn too, and not waited for. What a volume has that
//! is out of service, or cannot write down what it forgets, is counted: the next opening may find it.
//!
//! A slot that another's copy has taken has the tenant's block until it is written, record and all. The purge
//! has that slot, and the copy gets another; or the purge waits, if it moves.
//!
//! What the purge does not reach: bytes that are left in free blocks, of what was evicted or released
//! before (but for slots of the disk that an earlier purge of this process has freed without zeros: one
//! with zeros overwrites those); on the disk, blocks that were written as nobody's, in a process before
//! this one, or whose owner no number was left for (`names.rs`); what was given up and not yet forgotten
//! when a volume was lost before the purge; and files that are not open.
//!
//! Invariants
//! - I1: between `begin` and the end no block of the tenant is registered but by who was about to, who tells
//!   the purge (`register`); and no block that was the tenant's is free before it is erased; but for slots
//!   whose write fails, which are their port's: counted, where bytes are to be overwritten.
//! - I2: each block that a sweep has found is counted once: as purged when it is erased, or quarantined, and
//!   as busy until then.
//!
//! # Orderings
//! Who registers publishes, then looks for purges; who purges writes that down, then sweeps. One of them sees
//! the other: by the fences of [`Waiting`](kvstrata_core::waiting::Waiting), as `core/tests/loom_sweep.rs`
//! shows.

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

/// Why nothing is purged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PurgeError {
    /// No tenant's handle.
    #[error("these calls are no tenant's; purge by the handle that tenant() gives")]
    NoTenant,
    /// One purge at a time.
    #[error("the tenant is being purged already; wait for that")]
    UnderWay,
    /// The manager has been shut down, or its runtime.
    #[error("the manager is shut down")]
    Closed,
    /// This process was forked from the manager's.
    #[error("{INHERITED}")]
    Inherited,
}

/// Begins a purge; its answer comes by the channel, or the purge's task has ended before it.
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
        // Before anything that follows from this evicts some.
        traffic.first_sweep(inner, &mut work);
        // What they could be given is no slot of the tenant's any more.
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
        // What slots held that were given up, by this purge too.
        let mut forgotten = inner.groups.iter().all(|of| of.lower.is_empty());
        loop {
            // Before the look, so that no signal is missed.
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

    /// Waits for a part of it, and answers meanwhile if it is time.
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

/// Ends the purge, whatever ends its task. What the task had by then is never used again.
struct Begun(Arc<Inner>, TenantId);

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.change(|traffic| traffic.end_purge(&self.0, self.1));
    }
}
