//! Preemption: a request gives up all its blocks of the device, and has them again later, with the bytes that they had.
//!
//! ```text
//!   preempt   full blocks: copied down, released                   resume   brought up, as any prefix
//!             the last one, not full: under a name of its own ──►           brought up, and taken out of the books: to be filled on
//! ```
//!
//! A block that is not full has no hash. For the time of the preemption it is registered under one that no sequence has: random bits of
//! the manager, and a number. So nobody else finds it, and it leaves by the policy if nobody comes back for it.

use super::KvBlockManager;
use super::blocks::{Blocks, BlocksMut};
use super::inner::Inner;
use super::offload::{Offload, OffloadOptions, Offloaded};
use super::onboard::{OnboardError, OnboardOptions};
use crate::transfer::Cause;
use kvstrata_core::hash::BlockHasher;
use kvstrata_core::{BlockRef, SequenceHash, Xxh3};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A request's blocks, given up for a while.
#[derive(Debug)]
#[must_use = "resume() brings the blocks back"]
pub struct Preempted {
    hashes: Vec<SequenceHash>,
    /// How many of the last ones are not full.
    partial: usize,
    inner: Arc<Inner>,
    stack: u16,
    down: Vec<Offload>,
}

/// A request's blocks, back.
#[derive(Debug)]
#[must_use = "dropped, the blocks are released"]
pub struct Resumed {
    /// The full ones that are there, in order.
    pub blocks: Blocks,
    /// Those that were not full, if all of the others are there: their bytes as they were.
    pub partial: Option<BlocksMut>,
    /// Why some are missing: to be computed anew, from the first that is.
    pub missed: Option<Cause>,
}

impl Preempted {
    /// Waits until the copies have ended. Nobody need: a block that has no copy yet is copied when it is evicted.
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

/// A name that no sequence has: of 128 bits, half of them random.
fn private_name() -> SequenceHash {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    static RANDOM: std::sync::LazyLock<RandomState> = std::sync::LazyLock::new(RandomState::new);
    // Relaxed: only that the numbers differ.
    let number = NUMBER.fetch_add(1, Relaxed);
    let of = [number, RANDOM.hash_one(number), RANDOM.hash_one(!number)].map(u64::to_le_bytes);
    SequenceHash::from_u128(Xxh3.bytes(of.as_flattened()))
}

impl KvBlockManager {
    /// Gives up a request's blocks: all are copied to the tier below, whole, and the device's are free when others need them. `partial`
    /// are those at the end that are not full; an empty list, if there are none.
    ///
    /// # Errors
    /// The blocks, if the lists are of different groups or managers.
    pub fn preempt(
        &self,
        blocks: Blocks,
        partial: BlocksMut,
        request: u64,
    ) -> Result<Preempted, (Blocks, BlocksMut)> {
        let same = Arc::ptr_eq(blocks.inner(), &self.inner) && partial.of(&self.inner, blocks.stack());
        if !same {
            return Err((blocks, partial));
        }
        let pool = &self.inner.stack(blocks.stack()).device.pool;
        let hash_of = |block| pool.upgrade(block).map(|held| held.hash());
        let mut hashes: Vec<SequenceHash> = blocks.refs().iter().copied().filter_map(hash_of).collect();
        let options = OffloadOptions { request, ..OffloadOptions::default() };
        let mut down = vec![self.offload(&blocks, options)];
        let (stack, count) = (blocks.stack(), partial.len());
        if count > 0 {
            let names: Vec<SequenceHash> = (0..count).map(|_| private_name()).collect();
            match partial.register(&names, Some(&blocks).filter(|blocks| !blocks.is_empty())) {
                Ok(kept) => {
                    down.push(self.offload(&kept, options));
                    hashes.extend(names);
                }
                Err(refused) => return Err((blocks, refused.blocks)),
            }
        }
        // The last one first, as any request.
        drop(blocks);
        let inner = Arc::clone(&self.inner);
        Ok(Preempted { hashes, partial: count, inner, stack, down })
    }

    /// Brings a preempted request's blocks back.
    ///
    /// # Errors
    /// [`OnboardError`].
    pub async fn resume(
        &self,
        preempted: Preempted,
        options: OnboardOptions,
    ) -> Result<Resumed, OnboardError> {
        let Preempted { hashes, partial, inner, stack, .. } = preempted;
        if !Arc::ptr_eq(&inner, &self.inner) {
            return Err(OnboardError::Foreign);
        }
        let found = self.inner.match_prefix(stack, &hashes);
        let whole = found.len() == hashes.len();
        let up = self.onboard(found, options)?.await;
        let (mut blocks, full) = (up.blocks, hashes.len() - partial);
        let missed = up.missed.or((!whole).then_some(Cause::Cancelled));
        if blocks.len() < hashes.len() {
            blocks.truncate(full);
            return Ok(Resumed { blocks, partial: None, missed });
        }
        let books = &self.inner.stack(stack).device;
        let taken = blocks.refs()[full..].to_vec();
        blocks.truncate(full);
        // Nobody else knows their names, but a copy that is under way: then they are not to be had, and are computed anew.
        // Whose they were they are, with their credits; under the lock, where evictors and purges are.
        let (ids, tenant) = self.inner.with(|_| {
            let tenant = taken.first().map_or(self.tenant, |block| books.owners.owner(block.id));
            let take = |block: BlockRef| books.take_back(block, tenant);
            (taken.into_iter().map_while(take).collect(), tenant)
        });
        let partial_back = BlocksMut::new(Arc::clone(&self.inner), stack, ids, tenant);
        let all = partial_back.len() == partial;
        let missed = missed.or((!all).then_some(Cause::Busy));
        Ok(Resumed { blocks, partial: all.then_some(partial_back), missed })
    }
}
