//! Owned handles: blocks by the list, which keep their manager alive and give themselves back.
//!
//! A list is the unit since an engine has blocks by the request: one counted reference to the manager a list,
//! one release, tail first. A handle may be sent anywhere, and dropped anywhere; on a device that computes by
//! itself, when that is over (see [`Blocks`]).

use crate::calls::ahead::Ahead;
use crate::engine::inherited::INHERITED;
use crate::engine::inner::Inner;
use crate::metrics::Call;
use crate::state::{GroupId, Traffic};
use kvstrata_core::{BlockId, BlockRef, Priority, SequenceHash, TenantId, TransitionError};
use std::sync::Arc;
use std::{fmt, mem};

/// Blocks of the device to be filled, with one owner. Dropped, they are free: what fills them is to be over
/// then, as for [`Blocks`].
pub struct BlocksMut {
    inner: Arc<Inner>,
    group: GroupId,
    /// Whose credits they have.
    tenant: TenantId,
    ids: Vec<BlockId>,
}

/// Registered blocks of the device, in the order of their sequence, which nobody changes or evicts while they
/// are held. Dropped, they are released, the last one first.
///
/// Once nobody holds a block it may be overwritten, by what is brought up in its place, or by a purge. The
/// manager knows nothing of kernels that are queued: those that read or write a block must have ended before
/// its last handle is dropped, unless the mover orders its copies after them.
/// `kvstrata::movers::CudaMover` does for the stream in
/// `EngineOrder::onboard_after`, on which they are to be queued
/// by then. What the engine itself writes into the block next is in its own order.
pub struct Blocks {
    inner: Arc<Inner>,
    group: GroupId,
    refs: Vec<BlockRef>,
}

/// Why blocks were not registered; here they are.
#[derive(Debug, thiserror::Error)]
#[error("{blocks} blocks were not registered: {why}")]
#[non_exhaustive]
pub struct RegisterError {
    /// As they were.
    pub blocks: BlocksMut,
    /// The reason.
    pub why: RegisterFault,
}

/// A list was not cloned: one of its blocks has as many references as can be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "block {block} has 1048575 references, and cannot have more; drop some lists, or share one by an Arc"
)]
#[non_exhaustive]
pub struct TooManyReferences {
    /// Which block.
    pub block: BlockId,
}

/// What was wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterFault {
    /// Not a hash for each block.
    #[error("{hashes} hashes for {blocks} blocks; give one for each")]
    Hashes {
        /// Hashes given.
        hashes: usize,
        /// Blocks of the list.
        blocks: usize,
    },
    /// The parent is of another manager, or another group.
    #[error("the parent is of another manager or group; give the sequence's own blocks")]
    Parent,
    /// The parent was withdrawn: no pass has written it, or its tenant was purged; what was computed from it
    /// is wrong.
    #[error("the parent was withdrawn; compute the blocks anew behind one that is registered")]
    Withdrawn,
    /// The parent is written by a later pass.
    #[error(
        "the parent is written in iteration {parent}, behind iteration {iteration}; register them ahead of that one, or later"
    )]
    Unwritten {
        /// Of the parent.
        parent: u64,
        /// Of the blocks.
        iteration: u64,
    },
    /// The tenant is being purged; dropped, the blocks go with it.
    #[error("the tenant is being purged; drop the blocks")]
    Purging,
    /// This process was forked from the manager's.
    #[error("{INHERITED}")]
    Inherited,
    /// The pool's.
    #[error(transparent)]
    Transition(#[from] TransitionError),
}

impl BlocksMut {
    pub(crate) fn new(inner: Arc<Inner>, group: GroupId, ids: Vec<BlockId>, tenant: TenantId) -> BlocksMut {
        BlocksMut { inner, group, tenant, ids }
    }

    /// Whether they are of this manager and group.
    pub(crate) fn of(&self, inner: &Arc<Inner>, group: GroupId) -> bool {
        Arc::ptr_eq(&self.inner, inner) && self.group == group
    }

    /// The blocks' numbers, which are their places in the device's memory.
    #[must_use]
    pub fn ids(&self) -> &[BlockId] {
        &self.ids
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The group of layers.
    #[must_use]
    pub fn group(&self) -> usize {
        self.group.index()
    }

    /// Takes the first blocks out of the list; all of them if it has fewer.
    #[must_use]
    pub fn split_to(&mut self, count: usize) -> BlocksMut {
        let ids = self.ids.drain(..count.min(self.ids.len())).collect();
        BlocksMut { inner: Arc::clone(&self.inner), group: self.group, tenant: self.tenant, ids }
    }

    /// Appends another list of the same manager, group and tenant.
    ///
    /// # Errors
    /// The other list, if it is not.
    pub fn append(&mut self, mut other: BlocksMut) -> Result<(), BlocksMut> {
        let alike = self.group == other.group && self.tenant == other.tenant;
        if !Arc::ptr_eq(&self.inner, &other.inner) || !alike {
            return Err(other);
        }
        self.ids.append(&mut other.ids);
        Ok(())
    }

    /// Makes full blocks known, in the order of their sequence, behind `parent`'s last one. One of a hash
    /// that is there already gives way to that, so ids may differ from before.
    ///
    /// The bytes must be in the device's memory by now, or the mover must order its copies behind what writes
    /// them: copies may begin at once. Blocks that a pass is still to write are [registered
    /// ahead](BlocksMut::register_ahead); what others have registered so gives way to these. Behind blocks
    /// that a pass is still to write, these count as written when those do.
    ///
    /// # Errors
    /// [`RegisterError`], with the blocks.
    pub fn register(self, hashes: &[SequenceHash], parent: Option<&Blocks>) -> Result<Blocks, RegisterError> {
        self.register_by(hashes, parent, None)
    }

    /// As [`register`](BlocksMut::register), ahead of being written: all of their bytes are there when the
    /// last layer of `iteration`, which runs or comes next, is done, or it is over. Others find them in the
    /// device at once; what reads them there is to be queued behind what writes them, which one stream sees
    /// to ([`Blocks::written_in`] tells). Nobody copies them before: what is to be written through,
    /// offloaded, persisted or preempted waits for the iteration, and [behind a
    /// layer](crate::OffloadOptions::gate) they go down while it runs.
    ///
    /// Until it is over they are held, also where their handles have been dropped, so that an engine which
    /// awaits blocks meanwhile may wait for those that only its own pass lets go. If it does not end, for the
    /// manager's `deadline.offload` after the engine last told how far it is (of an iteration behind the
    /// next: after this call), they are withdrawn: nobody finds them any more, and
    /// [`ManagerStats::unwritten`](crate::metrics::ManagerStats::unwritten) counts them; whose pass may still
    /// come keeps its handles.
    ///
    /// Ids may differ from before here, too: of a hash that another list has registered ahead it is that
    /// list's block, written by the first of their passes that is over, and copied from then on; but for
    /// copies that were asked for when this one was not there, which wait for the pass that they knew. A
    /// later pass reads it, and does not write it once more. So blocks are registered before their pass
    /// writes anything of them.
    ///
    /// The manager believes that the iteration writes them. Where it does not, since it has failed, or the
    /// request was not in it (cancelled, or preempted before), the engine says so by [`Ahead::withdraw`],
    /// before it tells of the last layer: to drop the handles is not enough.
    ///
    /// # Errors
    /// [`RegisterError`], with the blocks.
    pub fn register_ahead(
        self,
        hashes: &[SequenceHash],
        parent: Option<&Blocks>,
        iteration: u64,
    ) -> Result<(Blocks, Ahead), RegisterError> {
        let mut ahead = Ahead::new(&self.inner);
        let blocks = self.register_by(hashes, parent, Some((iteration, &mut ahead)))?;
        Ok((blocks, ahead))
    }

    fn register_by(
        mut self,
        hashes: &[SequenceHash],
        parent: Option<&Blocks>,
        ahead: Option<(u64, &mut Ahead)>,
    ) -> Result<Blocks, RegisterError> {
        let (inner, group) = (Arc::clone(&self.inner), self.group);
        let refused = |blocks, why| Err(RegisterError { blocks, why });
        if inner.is_inherited() {
            return refused(self, RegisterFault::Inherited);
        }
        if hashes.len() != self.ids.len() {
            let (hashes, blocks) = (hashes.len(), self.ids.len());
            return refused(self, RegisterFault::Hashes { hashes, blocks });
        }
        if parent.is_some_and(|parent| !Arc::ptr_eq(&parent.inner, &inner) || parent.group != group) {
            return refused(self, RegisterFault::Parent);
        }
        let tenant = self.tenant;
        let of_tenant = tenant != TenantId::NOBODY;
        if of_tenant && inner.tenants.purging() && inner.look().is_purging(tenant) {
            return refused(self, RegisterFault::Purging);
        }
        let tier_pool = &inner.group(group).device;
        let before = parent.and_then(|parent| parent.refs.last().copied());
        let mut above = before.and_then(|block| tier_pool.pool().upgrade(block)).map(|held| held.hash());
        for (block, hash) in self.ids.iter().zip(hashes) {
            tier_pool.note(*block, above, tenant);
            above = Some(*hash);
        }
        let mut refs = Vec::with_capacity(hashes.len());
        let register = |refs: &mut Vec<BlockRef>| match tier_pool.links() {
            true => tier_pool.pool().register_ids(&self.ids, hashes, before, refs),
            false => tier_pool.pool().register_ids_apart(&self.ids, hashes, refs),
        };
        // What is withdrawn meanwhile by a purge is not wrong.
        let withdrawn = || {
            before.is_some_and(|of| tier_pool.pool().registered(of.id).is_none_or(|(there, _)| there != of))
        };
        let anew = |refs: &mut Vec<BlockRef>| match withdrawn() {
            true => Err(RegisterFault::Withdrawn),
            false => register(refs).map_err(RegisterFault::from),
        };
        let written_with =
            |traffic: &Traffic| before.and_then(|of| traffic.unwritten.iteration(group, of.id));
        let list = |refs: &Vec<BlockRef>| self.ids.iter().copied().zip(refs.clone());
        let registered = match ahead {
            None => inner.without_ahead(|| anew(&mut refs)).unwrap_or_else(|| {
                inner.with(|traffic| {
                    traffic.give_way(&inner, group, hashes);
                    let registered = anew(&mut refs)?;
                    if let Some(parents) = written_with(traffic) {
                        traffic.mark_unwritten(&inner, group, parents, before, list(&refs));
                    }
                    Ok(registered)
                })
            }),
            // Nobody who copies finds them before they are marked: that is asked under the lock.
            Some((iteration, ahead)) => inner.with_ahead(|traffic| {
                if let Some(parent) = written_with(traffic).filter(|parent| *parent > iteration) {
                    return Err(RegisterFault::Unwritten { parent, iteration });
                }
                if traffic.is_written(iteration) {
                    traffic.give_way(&inner, group, hashes);
                }
                let registered = anew(&mut refs)?;
                ahead.mark(traffic.mark_unwritten(&inner, group, iteration, before, list(&refs)));
                Ok(registered)
            }),
        };
        match registered {
            Ok(there) => {
                if of_tenant {
                    let gone = self.ids.iter().zip(&refs).filter(|(block, of)| **block != of.id);
                    tier_pool.owners().give(tenant, if there > 0 { gone.count() } else { 0 });
                    // A purge that begins finds these blocks, or is told of them here.
                    if inner.tenants.purging() {
                        inner.with(|traffic| traffic.look_again(tenant));
                    }
                }
                self.ids.clear();
                inner.registered(group, &refs);
                // Blocks of hashes that were there are free now.
                if there > 0 {
                    inner.released();
                }
                Ok(Blocks { inner, group, refs })
            }
            Err(why) => refused(self, why),
        }
    }
}

impl Blocks {
    pub(crate) fn new(inner: Arc<Inner>, group: GroupId, refs: Vec<BlockRef>) -> Blocks {
        Blocks { inner, group, refs }
    }

    pub(crate) fn refs(&self) -> &[BlockRef] {
        &self.refs
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    pub(crate) fn group_id(&self) -> GroupId {
        self.group
    }

    /// The blocks' numbers, which are their places in the device's memory.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = BlockId> + DoubleEndedIterator + '_ {
        self.refs.iter().map(|block| block.id)
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.refs.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.refs.is_empty()
    }

    /// The group of layers.
    #[must_use]
    pub fn group(&self) -> usize {
        self.group.index()
    }

    /// The blocks' class for eviction, from the next time that nobody holds them. It goes down and comes up
    /// with them; a copy that is below already has it when the device's block is evicted, or is copied once
    /// more. Those that are [`Pinned`](Priority::Pinned) stay in the device until they are given another
    /// class; below, where nobody could give them one, their copies are [`High`](Priority::High). On the disk
    /// a class lasts as long as the process: a volume's records have no room for it.
    pub fn set_priority(&self, priority: Priority) {
        let tier_pool = &self.inner.group(self.group).device;
        for block in self.refs.iter().filter_map(|block| tier_pool.pool().upgrade(*block)) {
            tier_pool.classify(&block, priority);
        }
    }

    /// Releases all but the first `len`.
    pub fn truncate(&mut self, len: usize) {
        let behind = self.split_off(len);
        give_back(&self.inner, self.group, behind);
    }

    /// Takes out the references behind the first `len`: the caller's to release.
    pub(crate) fn split_off(&mut self, len: usize) -> Vec<BlockRef> {
        self.refs.split_off(len.min(self.refs.len()))
    }

    /// Releases the first `count`.
    pub fn drop_first(&mut self, count: usize) {
        let rest = self.refs.split_off(count.min(self.refs.len()));
        give_back(&self.inner, self.group, mem::replace(&mut self.refs, rest));
    }

    /// Which iteration writes the last of them, if that is not over: they were [registered
    /// ahead](BlocksMut::register_ahead) of it, by whomever.
    #[must_use]
    pub fn written_in(&self) -> Option<u64> {
        if self.inner.is_inherited() {
            return None;
        }
        let traffic = self.inner.look();
        self.refs.iter().filter_map(|block| traffic.unwritten.iteration(self.group, block.id)).max()
    }

    /// How many of them, from the first on, are still found under their hashes. What is behind was withdrawn
    /// while it was held: it is not written ([`Ahead::withdraw`]), was rotten, or its tenant is purged;
    /// nothing is to be computed from it.
    #[must_use]
    pub fn registered(&self) -> usize {
        let pool = &self.inner.group(self.group).device.pool();
        let is_there =
            |block: &&BlockRef| pool.registered(block.id).is_some_and(|(there, _)| there == **block);
        self.refs.iter().take_while(is_there).count()
    }

    /// One more reference to each, or none.
    ///
    /// # Errors
    /// [`TooManyReferences`]: a block has 1,048,575 already.
    pub fn try_clone(&self) -> Result<Blocks, TooManyReferences> {
        let pool = &self.inner.group(self.group).device.pool();
        // Dropped, it gives back those that it has.
        let mut again = Blocks::new(Arc::clone(&self.inner), self.group, Vec::with_capacity(self.len()));
        for block in &self.refs {
            // The caller holds it: it is refused for its count only.
            again.refs.push(pool.hold_again(*block).ok_or(TooManyReferences { block: block.id })?);
        }
        Ok(again)
    }

    /// Appends what follows in the sequence.
    ///
    /// # Errors
    /// The other list, if it is of another manager or group.
    pub fn append(&mut self, mut other: Blocks) -> Result<(), Blocks> {
        if !Arc::ptr_eq(&self.inner, &other.inner) || self.group != other.group {
            return Err(other);
        }
        self.refs.append(&mut other.refs);
        Ok(())
    }
}

fn give_back(inner: &Arc<Inner>, group: GroupId, refs: Vec<BlockRef>) {
    if refs.is_empty() || inner.is_inherited() {
        return;
    }
    let tier_pool = &inner.group(group).device;
    let now = inner.now();
    refs.iter().for_each(|block| tier_pool.ages().released(*block, now));
    tier_pool.pool().release_refs(refs.iter().rev().copied());
    inner.released_of(Some((tier_pool, &refs)));
}

impl Clone for Blocks {
    /// One more reference to each: the same blocks, all of them.
    ///
    /// # Panics
    /// Where a block has 1,048,575 references already, as the clone of an [`Arc`] ends a program that has too
    /// many. Where so many may come together, use [`try_clone`](Blocks::try_clone).
    fn clone(&self) -> Blocks {
        self.try_clone().unwrap_or_else(|error| panic!("{error}"))
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        let refs = mem::take(&mut self.refs);
        if self.inner.is_inherited() {
            return self.inner.keep();
        }
        if refs.is_empty() {
            return;
        }
        let since = self.inner.watch.now();
        give_back(&self.inner, self.group, refs);
        self.inner.watch.answered(Call::Release, since);
    }
}

impl Drop for BlocksMut {
    fn drop(&mut self) {
        if self.inner.is_inherited() {
            return self.inner.keep();
        }
        if !self.ids.is_empty() {
            let (ids, inner, device) =
                (mem::take(&mut self.ids), &self.inner, &self.inner.group(self.group).device);
            let count = ids.len();
            if self.tenant != TenantId::NOBODY && inner.tenants.purging() {
                return inner.with(|traffic| {
                    ids.into_iter().for_each(|block| traffic.freed_by(inner, self.group, self.tenant, block));
                    device.owners().give(self.tenant, count);
                });
            }
            device.pool().give_back_ids(ids);
            // After that: a purge that has begun meanwhile waits for it.
            device.owners().give(self.tenant, count);
            inner.released();
        }
    }
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blocks(group {}, {} blocks)", self.group, self.refs.len())
    }
}

impl fmt::Debug for BlocksMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlocksMut(group {}, {} blocks)", self.group, self.ids.len())
    }
}

impl fmt::Display for BlocksMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.ids.len())
    }
}
