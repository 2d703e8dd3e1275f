//! Owned lists of blocks, which keep their manager alive and release their blocks when dropped.
//! Past 500 lines because each method links to its example.
//!
//! An engine holds blocks by the request, so the unit is a list: it has one counted reference to the
//! manager and one release, tail first. A list may be sent to any thread and dropped on any. If the
//! device computes asynchronously, drop a list after its computations have ended (see [`Blocks`]).

use crate::calls::ahead::Ahead;
use crate::engine::inherited::INHERITED;
use crate::engine::inner::Inner;
use crate::metrics::Call;
use crate::state::{GroupId, Traffic};
use kvstrata_core::{BlockId, BlockRef, Priority, SequenceHash, TenantId, TransitionError};
use std::sync::Arc;
use std::{fmt, mem};

/// Blocks of the device to be filled, with one owner. Dropping the list frees them: kernels that fill
/// them must have ended then, as for [`Blocks`].
pub struct BlocksMut {
    inner: Arc<Inner>,
    group: GroupId,
    /// The tenant that the blocks' credits are taken from.
    tenant: TenantId,
    ids: Vec<BlockId>,
}

/// Registered blocks of the device, in the order of their sequence. While they are held, they are
/// neither changed nor evicted. Dropping the list releases them, the last one first.
///
/// A block without a holder may be overwritten, by a block that is onboarded in its place or by a purge.
/// The manager does not know which kernels are queued. Kernels that read or write a block must have
/// ended before its last handle is dropped, unless the mover orders its copies after them.
/// `kvstrata::backend::movers::CudaMover` does that for the stream in `EngineOrder::onboard_after`, if the
/// kernels are queued there by then. The engine's own next writes into the block follow its own order.
pub struct Blocks {
    inner: Arc<Inner>,
    group: GroupId,
    refs: Vec<BlockRef>,
}

/// Why blocks were not registered, with the blocks.
#[derive(Debug, thiserror::Error)]
#[error("blocks not registered: {blocks}: {why}")]
#[non_exhaustive]
pub struct RegisterError {
    /// The blocks, unchanged.
    pub blocks: BlocksMut,
    /// Why they were not registered.
    pub why: RegisterFault,
}

/// A list was not cloned: one of its blocks has as many references as can be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "block {block} already has the maximum of 1048575 references; drop some lists, or share one by an Arc"
)]
#[non_exhaustive]
pub struct TooManyReferences {
    /// The block.
    pub block: BlockId,
}

/// Why blocks cannot be registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterFault {
    /// The number of hashes is not that of the blocks.
    #[error("hashes given: {hashes}, blocks: {blocks}; give one hash for each block")]
    Hashes {
        /// Hashes given.
        hashes: usize,
        /// Blocks of the list.
        blocks: usize,
    },
    /// The parent is of another manager, or another group.
    #[error("the parent belongs to another manager or group; give the sequence's own blocks")]
    Parent,
    /// The parent was withdrawn: no pass has written it, or its tenant was purged. Blocks computed from
    /// it are wrong.
    #[error("the parent was withdrawn; recompute the blocks behind a registered parent")]
    Withdrawn,
    /// The parent is written by a later pass.
    #[error(
        "the parent is written in iteration {parent}, after iteration {iteration}; register the blocks for {parent} or later"
    )]
    Unwritten {
        /// The iteration that writes the parent.
        parent: u64,
        /// The iteration given for the blocks.
        iteration: u64,
    },
    /// The tenant is being purged. Dropped, the blocks go with it.
    #[error("the tenant is being purged; drop the blocks")]
    Purging,
    /// This process was forked from the manager's.
    #[error("{INHERITED}")]
    Inherited,
    /// The pool refuses.
    #[error(transparent)]
    Transition(#[from] TransitionError),
}

impl BlocksMut {
    pub(crate) fn new(inner: Arc<Inner>, group: GroupId, ids: Vec<BlockId>, tenant: TenantId) -> BlocksMut {
        BlocksMut { inner, group, tenant, ids }
    }

    /// Returns whether the blocks are of this manager and group.
    pub(crate) fn of(&self, inner: &Arc<Inner>, group: GroupId) -> bool {
        Arc::ptr_eq(&self.inner, inner) && self.group == group
    }

    /// Returns the blocks' numbers, which are their places in the device's memory.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/layerwise.rs)
    #[must_use]
    pub fn ids(&self) -> &[BlockId] {
        &self.ids
    }

    /// Returns the number of blocks.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/embed.rs)
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns whether there are no blocks.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/warm_restart.rs)
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Returns the number of the group of layers.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn group(&self) -> usize {
        self.group.index()
    }

    /// Takes the first `count` blocks out of the list, or all if it has fewer.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn split_to(&mut self, count: usize) -> BlocksMut {
        let ids = self.ids.drain(..count.min(self.ids.len())).collect();
        BlocksMut { inner: Arc::clone(&self.inner), group: self.group, tenant: self.tenant, ids }
    }

    /// Appends another list of the same manager, group and tenant.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/engine.rs)
    ///
    /// # Errors
    /// The other list, if its manager, group or tenant differs.
    pub fn append(&mut self, mut other: BlocksMut) -> Result<(), BlocksMut> {
        let alike = self.group == other.group && self.tenant == other.tenant;
        if !Arc::ptr_eq(&self.inner, &other.inner) || !alike {
            return Err(other);
        }
        self.ids.append(&mut other.ids);
        Ok(())
    }

    /// Registers full blocks, in the order of their sequence, behind the last block of `parent`. If a
    /// hash is registered already, the list gets the block that has it, so ids may change.
    ///
    /// Copies may begin at once. So the bytes must be in the device's memory by now, or the mover must
    /// order its copies behind the kernels that write them. Blocks that a pass is still to write must be
    /// [registered ahead](BlocksMut::register_ahead) instead. A block that another list has registered
    /// ahead gives way to a block of this list with its hash. Behind a parent that a pass is still to
    /// write, these blocks count as written when the parent does.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/embed.rs)
    ///
    /// # Errors
    /// [`RegisterError`], with the blocks, if they cannot be registered.
    pub fn register(self, hashes: &[SequenceHash], parent: Option<&Blocks>) -> Result<Blocks, RegisterError> {
        self.register_by(hashes, parent, None)
    }

    /// Registers blocks as [`register`](BlocksMut::register) does, before they are written: their bytes
    /// are complete when the last layer of `iteration` is done, or when it is over. Other requests find
    /// the blocks in the device at once. Their reads must be queued behind the kernels that write the
    /// blocks, as on one stream ([`Blocks::written_in`] names the iteration). No copy is made before: a
    /// write-through, an offload, a persist or a preemption of the blocks waits for the iteration, or
    /// goes down while it runs [behind a layer](crate::OffloadOptions::gate).
    ///
    /// Until the iteration is over the blocks are held, even if their handles have been dropped. So an
    /// engine that awaits blocks meanwhile may wait for blocks that only its own pass releases. An
    /// iteration is late when the engine has not told how far it is for the manager's
    /// `deadline.offload`; for an iteration behind the next one, this time begins with this call. The
    /// blocks of a late iteration are withdrawn: no call finds them any more, and
    /// [`ManagerStats::unwritten`](crate::metrics::ManagerStats::unwritten) counts them. An engine whose
    /// pass may still come must keep its handles.
    ///
    /// Ids may change here too. If another list has registered the same hash ahead, this list gets that
    /// list's block. The block is written by the first of their passes that is over, and may be copied
    /// from then on. Exception: a copy that was asked for before this call waits for the pass that it
    /// knew. A later pass reads the block and must not write it again. So register blocks before their
    /// pass writes any part of them.
    ///
    /// The manager trusts that the iteration writes the blocks. If it does not, since it failed or the
    /// request was not in it (cancelled, or preempted before), the engine must call [`Ahead::withdraw`]
    /// before it tells of the last layer. Dropping the handles is not enough.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/layerwise.rs)
    ///
    /// # Errors
    /// [`RegisterError`], with the blocks, if they cannot be registered.
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
        let of_tenant = tenant != TenantId::NONE;
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
        // A purge may withdraw the parent after this check. The blocks computed from it are right all
        // the same.
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
            // Copies look for marks under the lock, so none finds these blocks before they are marked.
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
                    // A purge that begins from here on finds these blocks, or is told of them here.
                    if inner.tenants.purging() {
                        inner.with(|traffic| traffic.look_again(tenant));
                    }
                }
                self.ids.clear();
                inner.registered(group, &refs);
                // Blocks with hashes that were registered already are free now.
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

    /// Returns the blocks' numbers, which are their places in the device's memory.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/layerwise.rs)
    pub fn ids(&self) -> impl ExactSizeIterator<Item = BlockId> + DoubleEndedIterator + '_ {
        self.refs.iter().map(|block| block.id)
    }

    /// Returns the number of blocks.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/embed.rs)
    #[must_use]
    pub fn len(&self) -> usize {
        self.refs.len()
    }

    /// Returns whether there are no blocks.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/warm_restart.rs)
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.refs.is_empty()
    }

    /// Returns the number of the group of layers.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn group(&self) -> usize {
        self.group.index()
    }

    /// Sets the blocks' class for eviction, from the next time that they are not held. The class goes
    /// down and up with a block. A copy that is below already gets it when the device's block is
    /// evicted, or is copied again. [`Pinned`](Priority::Pinned) blocks stay in the device until they
    /// get another class. Their copies below are [`High`](Priority::High), since no call could give
    /// those another class. On the disk a class lasts as long as the process: a volume's records have no
    /// room for it.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    pub fn set_priority(&self, priority: Priority) {
        let tier_pool = &self.inner.group(self.group).device;
        for block in self.refs.iter().filter_map(|block| tier_pool.pool().upgrade(*block)) {
            tier_pool.classify(&block, priority);
        }
    }

    /// Releases all blocks behind the first `len`.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    pub fn truncate(&mut self, len: usize) {
        let behind = self.split_off(len);
        give_back(&self.inner, self.group, behind);
    }

    /// Takes out the references behind the first `len`. The caller must release them.
    pub(crate) fn split_off(&mut self, len: usize) -> Vec<BlockRef> {
        self.refs.split_off(len.min(self.refs.len()))
    }

    /// Releases the first `count` blocks.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    pub fn drop_first(&mut self, count: usize) {
        let rest = self.refs.split_off(count.min(self.refs.len()));
        give_back(&self.inner, self.group, mem::replace(&mut self.refs, rest));
    }

    /// Returns the iteration that writes the last of the blocks, if it is not over: some list has
    /// [registered them ahead](BlocksMut::register_ahead) of it.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn written_in(&self) -> Option<u64> {
        if self.inner.is_inherited() {
            return None;
        }
        let traffic = self.inner.look();
        self.refs.iter().filter_map(|block| traffic.unwritten.iteration(self.group, block.id)).max()
    }

    /// Returns how many of the blocks, from the first on, are still found under their hashes. A block
    /// behind these was withdrawn while it was held: it is not written ([`Ahead::withdraw`]), was
    /// rotten, or its tenant is purged. Compute nothing from it, nor from those behind it.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn registered(&self) -> usize {
        let pool = &self.inner.group(self.group).device.pool();
        let is_there =
            |block: &&BlockRef| pool.registered(block.id).is_some_and(|(there, _)| there == **block);
        self.refs.iter().take_while(is_there).count()
    }

    /// Clones the list, with one more reference to each block, or to none.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    ///
    /// # Errors
    /// [`TooManyReferences`], if a block has 1,048,575 already.
    pub fn try_clone(&self) -> Result<Blocks, TooManyReferences> {
        let pool = &self.inner.group(self.group).device.pool();
        // If it is dropped on an error, it releases the references that it has.
        let mut again = Blocks::new(Arc::clone(&self.inner), self.group, Vec::with_capacity(self.len()));
        for block in &self.refs {
            // The caller holds the block, so only its count can refuse another reference.
            again.refs.push(pool.hold_again(*block).ok_or(TooManyReferences { block: block.id })?);
        }
        Ok(again)
    }

    /// Appends the blocks that follow in the sequence.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/engine.rs)
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
    /// Clones the list: the same blocks, with one more reference to each.
    ///
    /// # Panics
    /// If a block has 1,048,575 references already, as the clone of an [`Arc`] ends a program that has
    /// too many. If so many may come together, use [`try_clone`](Blocks::try_clone).
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
            if self.tenant != TenantId::NONE && inner.tenants.purging() {
                return inner.with(|traffic| {
                    ids.into_iter().for_each(|block| traffic.freed_by(inner, self.group, self.tenant, block));
                    device.owners().give(self.tenant, count);
                });
            }
            device.pool().give_back_ids(ids);
            // Credits go back last: a purge that has begun meanwhile waits for them.
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
