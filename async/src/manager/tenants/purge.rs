//! A purge: all blocks of a tenant leave all tiers, and it is over when none is left.
//!
//! ```text
//!   begin     the tenant gets nothing more; who waits for it is answered; what has not begun to move is called back
//!   sweep     inactive blocks are taken out, held ones withdrawn, by a reference of the purge's own ◄─┐
//!   erase     what is in its hands is overwritten, forgotten, free                                    │ told: something was released,
//!   over?     no credit, no flight, nothing held ── no: wait ─────────────────────────────────────────┘ dropped, or has landed
//! ```
//!
//! A task of its own, so that it ends whoever drops the future; the deadline is the answer's, not the task's. What is held is withdrawn with
//! the purge's reference on it, so that its last holder's release frees nothing: the purge finds itself alone with the block, and has it. What lands
//! for the tenant is not registered; on the disk it is for a moment, under a hash of the tenant's, and is swept.
//!
//! What a failed device keeps (`parked.rs`) is withdrawn too, and not waited for.
//!
//! What the purge does not reach: bytes that are left in free blocks, of what was evicted or released before, or was found rotten before while
//! others held it, and is released meanwhile; on the disk, blocks that a restart has found and nobody has used since (they are nobody's).
//!
//! Invariants
//! - I1: between `begin` and the end no block of the tenant is registered but by who was about to, who tells the purge (`register`); and no
//!   block that was the tenant's is free before it is erased.
//! - I2: each block that a sweep has found is counted once: as purged when it is erased, or parked, and as busy until then.
//!
//! # Orderings
//! Who registers publishes, then looks for purges; who purges writes that down, then sweeps. One of them sees the other: by the fences of
//! [`Waiting`](kvstrata_core::waiting::Waiting), as `core/tests/loom_sweep.rs` shows.

use super::TenantId;
use super::erase::{Erased, Piece, erase};
use crate::manager::inner::Inner;
use crate::manager::stack::Stack;
use crate::manager::traffic::Traffic;
use crate::tier::Tier;
use crate::transfer::{Cause, Failure};
use kvstrata_core::{BlockId, BlockRef, ImmutableBlock, SequenceHash};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

mod begun;
#[cfg(test)]
mod tests;

use begun::Begun;

/// As good as no deadline: 30 years.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// How a tenant's blocks are purged.
#[derive(Debug, Clone, Copy)]
pub struct Purge {
    /// Whether their bytes are overwritten with zeros before anybody else has the blocks.
    pub zero: bool,
    /// How long to wait at most for what requests hold, or what is in flight.
    pub deadline: Duration,
}

impl Default for Purge {
    fn default() -> Purge {
        Purge { zero: false, deadline: Duration::from_secs(30) }
    }
}

/// Blocks of one tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PurgedTier {
    /// Registered blocks of the tenant that were found, in this tier.
    pub found: usize,
    /// Those that are gone; what could not be overwritten too ([`Purged::failed`]).
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
    /// Blocks with bytes of the tenant's that are never used again: they could not be overwritten, or a device that has failed keeps them.
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
pub enum PurgeError {
    /// One purge at a time.
    #[error("the tenant is being purged already; wait for that")]
    UnderWay,
    /// The manager has been shut down, or its runtime.
    #[error("the manager is shut down")]
    Closed,
}

/// A purge under way, under the lock.
#[derive(Debug)]
pub(in crate::manager) struct Purging {
    tenant: TenantId,
    /// What has come into its hands.
    pieces: Vec<Piece>,
    /// What its task has taken over, to be erased.
    erasing: Vec<Piece>,
    /// Tags are to be looked through (`begun.rs`).
    again: bool,
    #[cfg(test)]
    scans: usize,
}

/// What the task has.
struct Work {
    tenant: TenantId,
    /// Blocks of its own references, withdrawn.
    held: Vec<(u16, Tier, BlockRef)>,
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
    let done = Purged::default();
    let mut work = Work { tenant, held: Vec::new(), hashes: Vec::new(), erasing: [0; 3], done, begun: None };
    inner.with(|traffic| {
        work.done.in_flight = traffic.begin_purge(inner, tenant)?;
        // Before anything that follows from this evicts some.
        traffic.first_sweep(inner, &mut work);
        Ok(())
    })?;
    work.begun = Some(Begun(Arc::clone(inner), tenant));
    let (answer, answered) = oneshot::channel();
    inner.runtime.spawn(work.run(Arc::clone(inner), options, answer));
    answered.await.map_err(|_| PurgeError::Closed)
}

impl Work {
    async fn run(mut self, inner: Arc<Inner>, options: Purge, answer: oneshot::Sender<Purged>) {
        let now = Instant::now();
        let deadline = now.checked_add(options.deadline).unwrap_or(now + FAR);
        let mut answer = Some(answer);
        loop {
            let told = inner.purge_told.notified();
            tokio::pin!(told);
            // Before the look, so that no telling is missed.
            told.as_mut().enable();
            let (pieces, over) = inner.change(|traffic| traffic.sweep(&inner, &mut self));
            if !pieces.is_empty() {
                let erased = self.erase(&inner, pieces, options.zero, deadline, &mut answer).await;
                self.done.zeroed_bytes += erased.zeroed_bytes;
                for (tier, blocks) in Tier::ALL.into_iter().zip(std::mem::take(&mut self.erasing)) {
                    self.done.tier(tier).purged += blocks;
                }
                inner.change(|traffic| traffic.put_back(&inner, self.tenant, erased));
                continue;
            }
            if over {
                break;
            }
            if answer.is_none() {
                told.await;
            } else if tokio::time::timeout_at(deadline, told).await.is_err() {
                self.answer(&inner, answer.take(), false);
            }
        }
        drop(self.begun.take());
        self.answer(&inner, answer, true);
    }

    /// Erases, and answers meanwhile if it is time.
    async fn erase(
        &mut self,
        inner: &Arc<Inner>,
        pieces: Vec<Piece>,
        zero: bool,
        deadline: Instant,
        answer: &mut Option<oneshot::Sender<Purged>>,
    ) -> Erased {
        let mut erasing = std::pin::pin!(erase(inner, pieces, zero));
        if answer.is_some() {
            if let Ok(erased) = tokio::time::timeout_at(deadline, erasing.as_mut()).await {
                return erased;
            }
            self.answer(inner, answer.take(), false);
        }
        erasing.await
    }

    fn answer(&mut self, inner: &Inner, answer: Option<oneshot::Sender<Purged>>, complete: bool) {
        let Some(answer) = answer else { return };
        let failed = inner.look().parked_of(self.tenant);
        let mut done = Purged { complete, failed, ..self.done };
        for (tier, blocks) in Tier::ALL.into_iter().zip(self.erasing) {
            done.tier(tier).busy += blocks;
        }
        for (_, tier, _) in &self.held {
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
    pub(in crate::manager) fn is_purging(&self, tenant: TenantId) -> bool {
        self.purging.iter().any(|purging| purging.tenant == tenant)
    }

    /// Blocks of a kind that purges have.
    pub(in crate::manager) fn in_purges(&self, kind: impl Fn(&Piece) -> bool) -> usize {
        let all = self.purging.iter().flat_map(|purging| purging.pieces.iter().chain(&purging.erasing));
        all.filter(|piece| kind(piece)).count()
    }

    /// A block that was a tenant's, and is nobody's now: the purge's, if there is one (I1). False: free it.
    pub(in crate::manager) fn hand_to_purge(&mut self, tenant: TenantId, piece: Piece) -> bool {
        let purging = self.purging.iter_mut().find(|purging| purging.tenant == tenant);
        purging.map(|purging| purging.pieces.push(piece)).is_some()
    }

    /// A block of the device that was a tenant's is free, unless a purge has it.
    pub(in crate::manager) fn freed_by(
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
    pub(in crate::manager) fn freed_host_by(
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
    fn begin_purge(&mut self, inner: &Inner, tenant: TenantId) -> Result<usize, PurgeError> {
        if self.refusing {
            return Err(PurgeError::Closed);
        }
        if self.is_purging(tenant) {
            return Err(PurgeError::UnderWay);
        }
        self.purging.push(Purging::of(tenant));
        inner.tenants.purges.enter();
        // Who releases from now on tells.
        inner.waiting.enter();
        let cancelled = Failure::of(Cause::Cancelled);
        let ups: Vec<u32> =
            self.ups.iter().filter(|(_, up)| up.tenant == tenant).map(|(key, _)| key as u32).collect();
        let downs = self.downs.iter().filter(|(_, down)| down.tenant == tenant);
        let downs: Vec<u32> = downs.map(|(key, _)| key as u32).collect();
        let in_flight = ups.len() + downs.len();
        for stack in 0..self.lines.len() as u16 {
            self.dismiss(inner, stack, tenant);
        }
        for key in ups {
            let Some(at) = self.ups.get(key as usize).map(|up| up.at) else { continue };
            if self.recall(at) {
                self.up_failed(inner, key, cancelled);
            }
        }
        for key in downs {
            let Some(down) = self.downs.get(key as usize) else { continue };
            let (at, stack) = (down.at, down.stack);
            self.lines[stack as usize].grounded.retain(|waits| *waits != key);
            if self.recall(at) {
                self.down_failed(inner, key, cancelled);
            }
        }
        Ok(in_flight)
    }

    /// What the task had has an owner again, or never will.
    pub(super) fn erased(&mut self, tenant: TenantId) {
        let of = self.purging.iter_mut().filter(|purging| purging.tenant == tenant);
        of.for_each(|purging| purging.erasing.clear());
    }

    fn end_purge(&mut self, inner: &Inner, tenant: TenantId) {
        self.purging.retain(|purging| purging.tenant != tenant);
        inner.tenants.purges.leave();
        inner.waiting.leave();
    }

    /// Takes what is to be had, and whether that was all there will be.
    fn sweep(&mut self, inner: &Inner, work: &mut Work) -> (Vec<Piece>, bool) {
        let tenant = work.tenant;
        let mut pieces = Vec::new();
        let scan = self.looks_again(tenant);
        for (of, stack) in inner.stacks.iter().zip(0..).filter(|_| scan) {
            for tier in Tier::ALL {
                let (Some(owners), Some(pool)) = (of.owners(tier), of.pool(tier)) else { continue };
                for block in owners.tagged(tenant) {
                    let Some((block, hash)) = pool.registered(block) else { continue };
                    // Of the registration that was just seen, or a later one (`owners`, I2).
                    if owners.owner(block.id) != tenant {
                        continue;
                    }
                    if let Ok(taken) = pool.take_out(block) {
                        pieces.push(piece(stack, tier, taken.into_mutable().into_id()));
                        work.erasing[tier as usize] += 1;
                    } else if let Some(held) = pool.upgrade(block).map(ImmutableBlock::into_ref) {
                        pool.withdraw_held(held);
                        work.held.push((stack, tier, held));
                    } else {
                        // Between two states.
                        self.look_again(tenant);
                        continue;
                    }
                    work.done.tier(tier).found += 1;
                    work.hashes.push((stack, hash));
                }
            }
        }
        let (held, erasing, done) = (&mut work.held, &mut work.erasing, &mut work.done);
        held.retain(|(stack, tier, block)| {
            let of = inner.stack(*stack);
            if self.is_parked(piece(*stack, *tier, block.id)) {
                // Its registration will not end, nor its references.
                if let Some(owners) = of.owners(*tier) {
                    owners.note(block.id, TenantId::NOBODY);
                    owners.give(tenant, 1);
                }
                done.tier(*tier).purged += 1;
                return false;
            }
            let Some(taken) = of.pool(*tier).and_then(|pool| pool.take_withdrawn(*block)) else {
                return true;
            };
            pieces.push(piece(*stack, *tier, taken.into_mutable().into_id()));
            erasing[*tier as usize] += 1;
            false
        });
        for parked in self.parked.iter().filter(|parked| parked.registered && parked.tenant == tenant) {
            let (stack, tier, block) = match parked.piece {
                Piece::Device(stack, block) => (stack, Tier::Device, block),
                Piece::Host(stack, block) => (stack, Tier::Host, BlockId(block)),
                Piece::Staged(..) | Piece::Disk(..) => continue,
            };
            let of = inner.stack(stack);
            let (Some(owners), Some(pool)) = (of.owners(tier), of.pool(tier)) else { continue };
            // Withdrawn by somebody else: found by no look, and its registration will not end.
            if owners.owner(block) == tenant && pool.registered(block).is_none() {
                owners.note(block, TenantId::NOBODY);
                owners.give(tenant, 1);
                work.done.tier(tier).found += 1;
                work.done.tier(tier).purged += 1;
            }
        }
        if let Some(purging) = self.purging.iter_mut().find(|purging| purging.tenant == tenant) {
            pieces.append(&mut purging.pieces);
            purging.erasing.clone_from(&pieces);
        }
        if !pieces.is_empty() || !work.held.is_empty() {
            return (pieces, false);
        }
        let flies = self.ups.iter().any(|(_, up)| up.tenant == tenant)
            || self.downs.iter().any(|(_, down)| down.tenant == tenant);
        let credits = |of: &Stack| {
            [Tier::Device, Tier::Host]
                .iter()
                .any(|tier| of.owners(*tier).is_some_and(|of| of.used(tenant) > 0))
        };
        if flies || inner.stacks.iter().any(credits) {
            return (pieces, false);
        }
        if !scan {
            self.look_again(tenant);
            return self.sweep(inner, work);
        }
        for of in &inner.stacks {
            // Slots whose blocks went without a word: of a volume that is lost, or whose read has failed.
            of.disk_owners.tagged(tenant).for_each(|slot| of.disk_owners.hand_over(slot, TenantId::NOBODY));
        }
        (pieces, true)
    }
}

fn piece(stack: u16, tier: Tier, block: BlockId) -> Piece {
    match tier {
        Tier::Device => Piece::Device(stack, block),
        Tier::Host => Piece::Host(stack, block.0),
        Tier::Disk => Piece::Disk(stack, block),
    }
}
