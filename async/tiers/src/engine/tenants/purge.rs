//! A purge: all blocks of a tenant leave all tiers, and it is over when none is left.
//!
//! ```text
//!   begin     the tenant gets nothing more; who waits for it is answered; what has not begun to move is called back
//!   sweep     idle blocks are taken out, held ones withdrawn, by a reference of the purge's own ◄─────┐
//!   erase     what is in its hands is overwritten, forgotten, free                                    │ told: something was released,
//!   over?     no credit, no flight, nothing held ── no: wait ─────────────────────────────────────────┘ dropped, or has landed
//!             └── yes: what slots held that were given up before is forgotten for good
//! ```
//!
//! A task of its own, so that it ends whoever drops the future; the deadline is the answer's, not the task's. What is held is withdrawn with
//! the purge's reference on it, so that its last holder's release frees nothing: the purge finds itself alone with the block, and has it. What lands
//! for the tenant is not registered; on the disk it is for a moment, under a hash of the tenant's, and is swept (`purge/sweep.rs`).
//!
//! What a failed device keeps (`parked.rs`) is withdrawn too, and not waited for. What a volume has that is out of service, or cannot write down what
//! it forgets, is counted: the next opening may find it.
//!
//! A slot that another's copy has taken has the tenant's block until it is written, record and all. The purge has that slot, and the copy gets
//! another; or the purge waits, if it moves.
//!
//! What the purge does not reach: bytes that are left in free blocks, of what was evicted or released
//! before (but for slots of the disk that an earlier purge of this process has freed without zeros: one
//! with zeros overwrites those); on the disk, blocks that were written as nobody's, in a process before
//! this one, or whose owner no number was left for (`names.rs`); what was given up and not yet forgotten
//! when a volume was lost before the purge; and files that are not open.
//!
//! Invariants
//! - I1: between `begin` and the end no block of the tenant is registered but by who was about to, who tells the purge (`register`); and no
//!   block that was the tenant's is free before it is erased; but for slots whose write fails, which are their port's: counted, where bytes are
//!   to be overwritten.
//! - I2: each block that a sweep has found is counted once: as purged when it is erased, or parked, and as busy until then.
//!
//! # Orderings
//! Who registers publishes, then looks for purges; who purges writes that down, then sweeps. One of them sees the other: by the fences of
//! [`Waiting`](kvstrata_core::waiting::Waiting), as `core/tests/loom_sweep.rs` shows.

use super::TenantId;
use super::erase::{Piece, erase, erase_left, forget};
use crate::engine::deadlines::first_of;
use crate::engine::down::Down;
use crate::engine::inner::{INHERITED, Inner};
use crate::engine::stack::give_up_slot;
use crate::engine::traffic::Traffic;
use crate::tier::Tier;
use crate::transfer::{Cause, Failure};
use futures_channel::oneshot;
use kvstrata_core::{BlockId, BlockRef, SequenceHash};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

mod begun;
mod sweep;
#[cfg(test)]
mod tests;

use begun::Begun;

/// As good as no deadline: 30 years.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// How a tenant's blocks are purged.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Purge {
    /// Whether their bytes are overwritten with zeros before anybody else has the blocks; and what earlier
    /// purges of this process, without that, have left in free slots of the disk.
    pub zero: bool,
    /// How long to wait at most for what requests hold, or what is in flight.
    pub deadline: Duration,
}

impl Default for Purge {
    fn default() -> Purge {
        Purge::new()
    }
}

/// Blocks of one tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PurgedTier {
    /// Blocks of the tenant that were found in this tier: registered, or withdrawn before and still held.
    pub found: usize,
    /// Those that are gone; what could not be overwritten, or forgotten for good, too ([`Purged::failed`]).
    pub purged: usize,
    /// Those that requests still held at the deadline, or that were still being overwritten: found by nobody any more, and gone when that ends.
    pub busy: usize,
}

/// What a purge has done; the proof of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Purged {
    /// Of the device.
    pub device: PurgedTier,
    /// Of the host.
    pub host: PurgedTier,
    /// Of the disk.
    pub disk: PurgedTier,
    /// Transfers of the tenant's that were called back, or that it has waited for.
    pub in_flight: usize,
    /// Bytes that were overwritten, in all tiers.
    pub zeroed_bytes: u64,
    /// Blocks that may have bytes of the tenant's still: they could not be overwritten, or a device that
    /// has failed keeps them, and are never used again; a write of them to the disk has failed, and they
    /// were to be overwritten; or their volume is out of service, or has failed to write down that they are
    /// forgotten, so that the next opening may find them. One more for a volume that has failed to do that
    /// for what was given up before, and one more where not all could be overwritten that earlier purges
    /// have left.
    pub failed: usize,
    /// Blocks that some lookup still finds under the hash of one that was purged: another tenant's, whose hashes are not salted.
    pub still_found: usize,
    /// Whether it was over at the answer; it goes on otherwise.
    pub complete: bool,
}

impl Purged {
    fn tier(&mut self, tier: Tier) -> &mut PurgedTier {
        match tier {
            Tier::Device => &mut self.device,
            Tier::Host => &mut self.host,
            Tier::Disk => &mut self.disk,
        }
    }
}

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

/// A purge under way, under the lock.
#[derive(Debug)]
struct Purging {
    tenant: TenantId,
    /// Bytes are to be overwritten.
    zero: bool,
    /// Slots whose write has failed, which the port has freed as they are; not counted yet.
    left: usize,
    /// What has come into its hands.
    pieces: Vec<Piece>,
    /// What its task has taken over, to be erased.
    erasing: Vec<Piece>,
    /// Tags are to be looked through (`begun.rs`).
    again: bool,
    #[cfg(test)]
    scans: usize,
    /// Looks at blocks that are held.
    #[cfg(test)]
    looks: usize,
}

/// Those under way.
#[derive(Debug, Default)]
pub(in crate::engine) struct Purges(Vec<Purging>);

impl Purges {
    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(in crate::engine) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whose they are.
    pub(super) fn tenants(&self) -> impl Iterator<Item = TenantId> {
        self.0.iter().map(|purging| purging.tenant)
    }

    /// A tenant's.
    fn of(&mut self, tenant: TenantId) -> Option<&mut Purging> {
        self.0.iter_mut().find(|purging| purging.tenant == tenant)
    }

    /// A write to the disk has failed, of a tenant's block to a slot that has had another's: what of it is in the slot is not overwritten;
    /// and what of it is found, if the volume is lost, is not forgotten.
    pub(in crate::engine) fn note_left(&mut self, tenants: [TenantId; 2], lost: bool) {
        let of = self.0.iter_mut().filter(|purging| tenants.contains(&purging.tenant));
        of.filter(|purging| purging.zero || lost).for_each(|purging| purging.left += 1);
    }
}

/// A block's group, tier and number.
type Place = (u16, Tier, BlockId);

/// What the task has.
struct Work {
    tenant: TenantId,
    /// Blocks of its own references, withdrawn: one reference each.
    held: BTreeMap<Place, BlockRef>,
    /// The one that was looked at last, of those that are looked at in turn.
    turn: Option<Place>,
    /// How often blocks of the tenant were let go of, by the last look at all that are held: in each tier of each group.
    heard: Vec<u32>,
    hashes: Vec<(u16, SequenceHash)>,
    /// By tier: blocks that were found, and are being erased.
    erasing: [usize; 3],
    done: Purged,
    begun: Option<Begun>,
}

pub(super) async fn purge(
    inner: &Arc<Inner>,
    tenant: TenantId,
    options: Purge,
) -> Result<Purged, PurgeError> {
    if inner.is_inherited() {
        return Err(PurgeError::Inherited);
    }
    let done = Purged::default();
    let (held, turn, heard, hashes) = (BTreeMap::new(), None, Vec::new(), Vec::new());
    let mut work = Work { tenant, held, turn, heard, hashes, erasing: [0; 3], done, begun: None };
    inner.with(|traffic| {
        work.done.in_flight = traffic.begin_purge(inner, tenant, options.zero)?;
        // Before anything that follows from this evicts some.
        traffic.first_sweep(inner, &mut work);
        // What they could be given is no slot of the tenant's any more.
        traffic.take_slots(inner, tenant);
        Ok(())
    })?;
    work.begun = Some(Begun(Arc::clone(inner), tenant));
    let (answer, answered) = oneshot::channel();
    inner.runtime.spawn(Box::pin(work.run(Arc::clone(inner), options, answer)));
    answered.await.map_err(|_| PurgeError::Closed)
}

impl Work {
    async fn run(mut self, inner: Arc<Inner>, options: Purge, answer: oneshot::Sender<Purged>) {
        let now = inner.elapsed();
        let deadline = now.checked_add(options.deadline).unwrap_or(now + FAR);
        let mut late = pin!(inner.moment(deadline));
        let mut answer = Some(answer);
        // What slots held that were given up, by this purge too.
        let mut forgotten = inner.stacks.iter().all(|of| of.disk.is_none());
        loop {
            // Before the look, so that no signal is missed.
            let told = inner.purge_told.listen();
            let (pieces, over) = inner.change(|traffic| traffic.sweep(&inner, &mut self));
            if !pieces.is_empty() {
                let erasing = erase(&inner, pieces, options.zero);
                let erased = self.ends(&inner, erasing, late.as_mut(), &mut answer).await;
                self.done.zeroed_bytes += erased.zeroed_bytes;
                for (tier, blocks) in Tier::ALL.into_iter().zip(std::mem::take(&mut self.erasing)) {
                    self.done.tier(tier).purged += blocks;
                }
                inner.change(|traffic| traffic.put_back(&inner, self.tenant, erased));
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
                self.done.failed += usize::from(!known) + usize::from(!left);
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
        let failed = self.done.failed + inner.look().quarantine.of(self.tenant);
        let mut done = Purged { complete, failed, ..self.done };
        for (tier, blocks) in Tier::ALL.into_iter().zip(self.erasing) {
            done.tier(tier).busy += blocks;
        }
        for (_, tier, _) in self.held.keys() {
            done.tier(*tier).busy += 1;
        }
        let found = |(stack, hash): &&(u16, SequenceHash)| {
            Tier::ALL
                .iter()
                .any(|tier| inner.stack(*stack).pool(*tier).is_some_and(|pool| pool.contains(*hash)))
        };
        done.still_found = self.hashes.iter().filter(found).count();
        let _ = answer.send(done);
    }
}

impl Traffic {
    /// Whether a tenant is being purged.
    pub(in crate::engine) fn is_purging(&self, tenant: TenantId) -> bool {
        self.purges.tenants().any(|of| of == tenant)
    }

    /// Blocks of a kind that purges have.
    pub(in crate::engine) fn in_purges(&self, kind: impl Fn(&Piece) -> bool) -> usize {
        let all = self.purges.0.iter().flat_map(|purging| purging.pieces.iter().chain(&purging.erasing));
        all.filter(|piece| kind(piece)).count()
    }

    /// A block that was a tenant's, and is nobody's now: the purge's, if there is one (I1). False: free it.
    pub(in crate::engine) fn hand_to_purge(&mut self, tenant: TenantId, piece: Piece) -> bool {
        self.purges.of(tenant).map(|purging| purging.pieces.push(piece)).is_some()
    }

    /// A block of the device that was a tenant's is free, unless a purge has it.
    pub(in crate::engine) fn freed_by(
        &mut self,
        inner: &Inner,
        stack: u16,
        tenant: TenantId,
        block: BlockId,
    ) {
        if !self.hand_to_purge(tenant, Piece::Device(stack, block)) {
            self.freed(inner, stack, block);
        }
    }

    /// The same of host memory.
    pub(in crate::engine) fn freed_host_by(
        &mut self,
        inner: &Inner,
        stack: u16,
        tenant: TenantId,
        block: u32,
    ) {
        let piece = match inner.stack(stack).host {
            Some(_) => Piece::Host(stack, block),
            None => Piece::Staged(stack, block),
        };
        if !self.hand_to_purge(tenant, piece) {
            self.freed_host(inner, stack, block);
        }
    }

    /// Calls back what has not begun to move. How many flights the tenant has.
    fn begin_purge(&mut self, inner: &Inner, tenant: TenantId, zero: bool) -> Result<usize, PurgeError> {
        if self.phase.refuses() {
            return Err(PurgeError::Closed);
        }
        if self.is_purging(tenant) {
            return Err(PurgeError::UnderWay);
        }
        self.purges.0.push(Purging::of(tenant, zero));
        inner.tenants.purges.enter();
        // Who releases from now on tells.
        inner.waiting.enter();
        let cancelled = Failure::of(Cause::Cancelled);
        let ups = self.ups.keys_of(|up| up.tenant == tenant);
        let downs = self.downs.keys_of(|down| down.tenant == tenant);
        let in_flight = ups.len() + downs.len();
        for stack in 0..self.lines.len() as u16 {
            self.dismiss(inner, stack, tenant);
        }
        for key in ups {
            let Some(at) = self.ups.get(key).map(|up| up.at) else { continue };
            if self.recall(at) {
                self.up_failed(inner, key, cancelled);
            }
        }
        for key in downs {
            let Some(down) = self.downs.get(key) else { continue };
            let (at, stack) = (down.at, down.stack);
            self.lines[stack as usize].grounded.retain(|waits| *waits != key);
            if self.recall(at) {
                self.down_failed(inner, key, cancelled);
            }
        }
        Ok(in_flight)
    }

    /// Takes the slots of others' flights that have a block of the tenant's until they are written; the flights get others, or end.
    fn take_slots(&mut self, inner: &Inner, tenant: TenantId) {
        let has = |down: &Down| down.was == tenant && down.tenant != tenant && down.disk.is_some();
        for key in self.downs.keys_of(has) {
            let Some(down) = self.downs.get_mut(key) else { continue };
            let (at, stack, other) = (down.at, down.stack, down.tenant);
            (down.slot, down.was) = (None, TenantId::NOBODY);
            let slot = down.disk.take();
            self.slot_left(inner, stack, slot, tenant);
            // One that moves to the staging ends there.
            if !self.give_slot(inner, key, other) && self.recall(at) {
                self.lines[stack as usize].grounded.retain(|waits| *waits != key);
                self.without_slot(inner, key);
            }
        }
    }

    /// A purge has taken a flight's slot, and there is no other: called off, which is no failure; but a victim, being another's, is lost.
    pub(in crate::engine) fn without_slot(&mut self, inner: &Inner, key: u32) {
        if let Some(down) = self.downs.get(key) {
            down.source.dropped(inner, down.from);
        }
        self.down_failed(inner, key, Failure::of(Cause::Cancelled));
    }

    /// A slot that a flight has not written, with a block that was a tenant's: the purge's, if there is one, or free when that is forgotten.
    pub(in crate::engine) fn slot_left(
        &mut self,
        inner: &Inner,
        stack: u16,
        slot: Option<BlockId>,
        was: TenantId,
    ) {
        let of = inner.stack(stack);
        match slot.filter(|_| self.is_purging(was)) {
            Some(slot) => {
                of.disk_owners.hand_over(slot, TenantId::NOBODY);
                self.hand_to_purge(was, Piece::Disk(stack, slot));
            }
            None => give_up_slot(&mut self.out, of, slot),
        }
    }

    /// What the task had has an owner again, or never will.
    pub(super) fn erased(&mut self, tenant: TenantId) {
        if let Some(purging) = self.purges.of(tenant) {
            purging.erasing.clear();
        }
    }

    fn end_purge(&mut self, inner: &Inner, tenant: TenantId) {
        self.purges.0.retain(|purging| purging.tenant != tenant);
        inner.tenants.purges.leave();
        inner.waiting.leave();
    }
}
