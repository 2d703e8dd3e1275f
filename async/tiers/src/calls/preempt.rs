//! Preemption: a request gives up all its blocks of the device, and later gets them back with the same bytes.
//!
//! ```text
//!             preempt                                         resume
//!   full      copied down, released                           onboarded as any prefix
//!   partial   registered under a private name, copied down    onboarded, taken out of the pool, filled on
//! ```
//!
//! A block that is not full has no hash. During the preemption it is registered under a name that no
//! sequence has: random bits of the manager, and a number. So no other call finds it. When it is back,
//! or its request is given up, it leaves all tiers (`forget.rs`).

use crate::calls::answer::Answer;
use crate::calls::blocks::{Blocks, BlocksMut};
use crate::calls::group::Group;
use crate::calls::offload::Offload;
use crate::calls::onboard::{Onboard, OnboardError};
use crate::engine::inner::Inner;
use crate::engine::request_span;
use crate::state::{GroupId, Offloaded, OnboardOptions};
use crate::transfer::Cause;
use kvstrata_core::{BlockId, BlockRef, SequenceHash};
use std::sync::Arc;
use std::time::Duration;
use tracing::Instrument;

impl Drop for Names {
    fn drop(&mut self) {
        if self.inner.is_inherited() {
            return self.inner.keep();
        }
        if !self.hashes.is_empty() {
            let (inner, group) = (&self.inner, self.group);
            inner.with(|traffic| self.hashes.iter().for_each(|hash| traffic.forget(inner, group, *hash)));
        }
    }
}

/// A request's blocks, given up for a while.
#[derive(Debug)]
#[must_use = "resume() brings the blocks back; dropping it loses those that are not full"]
pub struct Preempted {
    /// Hashes of the full blocks, up to the first that was withdrawn while it was held: its tenant is
    /// purged, or it is rotten.
    hashes: Vec<SequenceHash>,
    /// Number of full blocks.
    full: usize,
    /// Names of the partial blocks.
    names: Names,
    down: Vec<Offload>,
}

/// Private names of partial blocks. When these are dropped, the blocks under them leave all tiers.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) inner: Arc<Inner>,
    pub(crate) group: GroupId,
    pub(crate) hashes: Vec<SequenceHash>,
}

/// A request's blocks, back.
#[derive(Debug)]
#[must_use = "dropping it releases the blocks"]
pub struct Resumed {
    /// The full blocks that are there, in order.
    pub blocks: Blocks,
    /// The partial blocks with their bytes, if all full blocks are there too.
    pub partial: Option<BlocksMut>,
    /// Why blocks are missing. The request computes anew from the first missing one.
    pub missed: Option<Cause>,
}

impl Preempted {
    /// Waits until the copies have ended. This wait is optional: a block without a copy is copied when
    /// it is evicted.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    pub async fn settled(&mut self) -> Offloaded {
        let mut all = Offloaded::default();
        for offload in self.down.drain(..) {
            let one = offload.await;
            all.copied += one.copied;
            all.there += one.there;
            all.refused += one.refused;
            all.failed += one.failed;
            all.cause = all.cause.or(one.cause);
        }
        all
    }
}

impl Group {
    /// Gives up a request's blocks: all are copied to the tier below, whole, and the device's blocks are
    /// free when others need them. `partial` has the blocks at the end that are not full; without any,
    /// pass an empty list (`try_allocate(0)`, which is never refused). The copies begin at once, so the
    /// engine's last write to `partial` must be over, as for [`BlocksMut::register`]. If blocks were
    /// [registered ahead](BlocksMut::register_ahead) of a pass that the request will not be in,
    /// [withdraw](crate::Ahead::withdraw) them first.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    ///
    /// # Errors
    /// The blocks, if the lists are of different groups or managers, or if `partial` cannot be registered.
    pub fn preempt(
        &self,
        blocks: Blocks,
        partial: BlocksMut,
        request: u64,
    ) -> Result<Preempted, (Blocks, BlocksMut)> {
        let same = Arc::ptr_eq(blocks.inner(), self.inner()) && partial.of(self.inner(), blocks.group_id());
        if !same {
            return Err((blocks, partial));
        }
        let _span = request_span::preempt(request, blocks.refs(), partial.ids()).entered();
        let pool = self.inner().group(blocks.group_id()).device.pool();
        let hash_of = |block| pool.upgrade(block).map(|held| held.hash());
        // Up to the first withdrawn block: the blocks behind it are no prefix.
        let hashes: Vec<SequenceHash> = blocks.refs().iter().copied().map_while(hash_of).collect();
        let full = blocks.len();
        let mut down = vec![Offload::begin_whole(&blocks, request)];
        let names: Vec<SequenceHash> = (0..partial.len()).map(|_| self.inner().naming.one()).collect();
        let names = Names { inner: Arc::clone(self.inner()), group: blocks.group_id(), hashes: names };
        if !partial.is_empty() {
            match partial.register(&names.hashes, Some(&blocks).filter(|blocks| !blocks.is_empty())) {
                Ok(kept) => down.push(Offload::begin_whole(&kept, request)),
                Err(refused) => return Err((blocks, refused.blocks)),
            }
        }
        // Released tail first, as for any request.
        drop(blocks);
        Ok(Preempted { hashes, full, names, down })
    }

    /// Brings a preempted request's blocks back. It begins at once. If the answer is dropped, partial
    /// blocks are lost.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    ///
    /// # Errors
    /// [`OnboardError`], if the blocks cannot be onboarded.
    pub fn resume(
        &self,
        preempted: Preempted,
        options: OnboardOptions,
    ) -> Answer<Result<Resumed, OnboardError>> {
        let span = request_span::resume(options.request, preempted.full, preempted.names.hashes.len());
        let resuming = match span.in_scope(|| Resuming::begin(self, preempted, options)) {
            Ok(resuming) => resuming,
            Err(refused) => return Answer::now(Err(refused)),
        };
        let group = self.clone();
        Answer::later(async move {
            let resumed = resuming.end(&group).instrument(span.clone()).await;
            let partial = resumed.partial.as_ref().map_or(&[][..], BlocksMut::ids);
            request_span::resumed(&span, resumed.blocks.refs(), partial, resumed.missed);
            Ok(resumed)
        })
    }
}

/// A preempted request's blocks on their way up. The names end with it, in any case.
struct Resuming {
    up: Onboard,
    /// Whether all blocks were found.
    whole: bool,
    full: usize,
    names: Names,
    due: Option<Duration>,
}

impl Resuming {
    fn begin(
        caller: &Group,
        preempted: Preempted,
        options: OnboardOptions,
    ) -> Result<Resuming, OnboardError> {
        let inner = caller.inner();
        let Preempted { mut hashes, full, names, .. } = preempted;
        let (gone, partial) = (hashes.len() < full, names.hashes.len());
        if !Arc::ptr_eq(&names.inner, inner) {
            return Err(OnboardError::Foreign);
        }
        if !gone {
            hashes.extend(&names.hashes);
        }
        let found = inner.match_prefix(names.group, &hashes);
        let whole = found.len() == full + partial;
        let due = inner.due_in(options.deadline.unwrap_or(inner.rules.onboard_deadline));
        let up = caller.onboard(found, options)?;
        Ok(Resuming { up, whole, full, names, due })
    }

    async fn end(self, caller: &Group) -> Resumed {
        let Resuming { up, whole, full, names, due } = self;
        let (inner, group, partial) = (caller.inner(), names.group, names.hashes.len());
        let up = up.await;
        let mut blocks = up.blocks;
        let missed = up.missed.or((!whole).then_some(Cause::Cancelled));
        if blocks.len() < full + partial {
            blocks.truncate(full);
            return Resumed { blocks, partial: None, missed };
        }
        // Waits for copies that have begun to move. A late copy makes its block missed, below.
        Offload::call_back(inner, group, &names.hashes, due).await;
        let tier_pool = &inner.group(group).device;
        let behind = blocks.split_off(full);
        // Only the manager knows the names, but a late copy still uses one. Such a block is not taken,
        // and is computed anew. Blocks keep their tenant, with its credits. All of this is under the
        // lock, which also guards transfers and purges.
        let (ids, tenant) = inner.with(|traffic| {
            let of_caller = || caller.handle().tenant.id();
            let tenant = behind.first().map_or_else(of_caller, |block| tier_pool.owners().owner(block.id));
            let take = |(block, name): (&BlockRef, &SequenceHash)| {
                let copied = traffic.downs.has((group, *name));
                if copied { None } else { tier_pool.take_back(*block, tenant) }
            };
            let ids: Vec<BlockId> = behind.iter().zip(&names.hashes).map_while(take).collect();
            (ids, tenant)
        });
        drop(Blocks::new(Arc::clone(inner), group, behind[ids.len()..].to_vec()));
        let partial_back = BlocksMut::new(Arc::clone(inner), group, ids, tenant);
        let all = partial_back.len() == partial;
        let missed = missed.or((!all).then_some(Cause::Busy));
        Resumed { blocks, partial: all.then_some(partial_back), missed }
    }
}
