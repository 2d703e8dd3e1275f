//! A size class: blocks of one size, in host memory and in the tier below.
//!
//! ```text
//!   an entry of n bytes goes to the smallest class whose blocks hold n bytes
//!
//!   host      pool over blocks 0 … h-1 of the memory      ┐ one arena
//!   staging   a list of blocks h … h+s-1                  ┘ (its list is in `state/lane.rs`)
//!   below     a port with a pool of its own
//! ```

use crate::host_blocks::HostBlocks;
use kvstrata_core::{BlockId, BlockPool, BlockRef, SequenceHash};
use kvstrata_tiers::Tier;
use kvstrata_tiers::transfer::TierPort;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The number of a size class, by size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ClassId(pub(crate) u16);

impl ClassId {
    pub(crate) fn index(self) -> usize {
        self.0.into()
    }
}

/// The parts of a size class that do not change.
#[derive(Debug)]
pub(crate) struct SizeClass {
    pub(crate) block_bytes: usize,
    pub(crate) host: Option<BlockPool>,
    pub(crate) blocks: Option<HostBlocks>,
    pub(crate) below: Option<Arc<dyn TierPort>>,
    pub(crate) spared: Spared,
}

impl SizeClass {
    /// Returns the tier that has a key now, and its bytes. Without a use, and without a lock.
    pub(crate) fn find(&self, hash: SequenceHash, now: Duration) -> Option<(Tier, usize)> {
        if let (Some(host), Some(blocks)) = (&self.host, &self.blocks)
            && let Some(held) = host.find(hash)
        {
            return Some((Tier::Host, blocks.bytes_of(held.id())));
        }
        let below = self.below.as_ref()?;
        let held = below.find(hash, false)?;
        let found = (Tier::DISK, self.bytes_below(below, held.id()));
        // Only for a key that is there, so that a look-up of a missing key uses up no trial.
        (!self.spared.is_spared(now)).then_some(found)
    }

    /// Whether a tier has a key now. No use of it.
    pub(crate) fn has(&self, hash: SequenceHash) -> bool {
        let in_host = self.host.as_ref().is_some_and(|host| host.contains(hash));
        in_host || self.below.as_ref().is_some_and(|below| below.pool().contains(hash))
    }

    /// Holds a key's block in host memory. A use.
    pub(crate) fn hold_in_host(&self, hash: SequenceHash) -> Option<BlockRef> {
        self.host.as_ref()?.lookup_ref(hash)
    }

    /// Holds a key's block in the tier below, with its bytes. A use.
    pub(crate) fn hold_below(&self, hash: SequenceHash) -> Option<(BlockRef, usize)> {
        let below = self.below.as_ref()?;
        let held = below.find(hash, true)?;
        let bytes = self.bytes_below(below, held.id());
        Some((held.into_ref(), bytes))
    }

    fn bytes_below(&self, below: &Arc<dyn TierPort>, block: BlockId) -> usize {
        below.bytes_of(block).unwrap_or(self.block_bytes)
    }

    /// Ends a reference to a block of the host.
    pub(crate) fn release_host(&self, block: BlockRef) {
        if let Some(host) = &self.host {
            host.release_refs([block]);
        }
    }

    /// Ends a reference to a block of the tier below.
    pub(crate) fn release_below(&self, block: BlockRef) {
        if let Some(below) = &self.below {
            below.pool().release_refs([block]);
        }
    }

    /// Takes a free block of the host, or evicts one. None: all are in use. The flag: an evicted block had
    /// no copy below.
    pub(crate) fn take_host(&self, scratch: &mut Scratch) -> Option<(BlockId, bool)> {
        let host = self.host.as_ref()?;
        let _ = host.allocate_free_ids(1, &mut scratch.free);
        if let Some(block) = scratch.free.pop() {
            return Some((block, false));
        }
        host.evict_ids(1, &mut scratch.victims);
        let (block, hash) = scratch.victims.pop()?;
        let is_below = self.below.as_ref().is_some_and(|below| below.pool().contains(hash));
        Some((block, !is_below))
    }

    /// Frees a block of the host that was taken and not registered.
    pub(crate) fn give_back_host(&self, block: BlockId) {
        if let Some(host) = &self.host {
            host.give_back_ids([block]);
        }
    }

    /// Registers a block of the host that has its bytes. Returns a reference to the block of this hash,
    /// which may be an earlier one; then this one is free again.
    pub(crate) fn register(&self, block: BlockId, hash: SequenceHash) -> Option<BlockRef> {
        let host = self.host.as_ref()?;
        let complete = host.adopt_mutable(block).ok()?.complete(hash).ok()?;
        Some(host.register(complete, None).into_block().into_ref())
    }
}

/// Reused memory of calls to pools.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) free: Vec<BlockId>,
    pub(crate) victims: Vec<(BlockId, SequenceHash)>,
}

/// Whether the tier below is spared because it takes too long. Look-ups then say that its keys are absent,
/// except for one look-up each [`TRIAL`], and its load finds out whether the tier has recovered.
///
/// # Orderings
/// Relaxed: a hint. A look-up that reads an old value gets a load that is refused, or one trial more.
#[derive(Debug, Default)]
pub(crate) struct Spared(AtomicU64);

/// The time between trials.
const TRIAL: Duration = Duration::from_millis(500);

impl Spared {
    /// Begins to spare the tier.
    pub(crate) fn begin(&self, now: Duration) {
        if self.0.load(Relaxed) == 0 {
            self.0.store(nanos(now + TRIAL), Relaxed);
        }
    }

    /// Ends it.
    pub(crate) fn end(&self) {
        self.0.store(0, Relaxed);
    }

    /// Returns whether to leave the tier alone now. False also lets one trial pass.
    fn is_spared(&self, now: Duration) -> bool {
        let until = self.0.load(Relaxed);
        let is_trial = until != 0
            && nanos(now) >= until
            && self.0.compare_exchange(until, nanos(now + TRIAL), Relaxed, Relaxed).is_ok();
        until != 0 && !is_trial
    }
}

/// A time, never 0, which means that the tier is not spared.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spared_tier_gets_one_trial_each_half_second() {
        let (spared, start) = (Spared::default(), Duration::from_secs(1));
        assert!(!spared.is_spared(start));
        spared.begin(start);
        assert_eq!(
            [0, 499, 500, 501, 999, 1000].map(|ms| spared.is_spared(start + Duration::from_millis(ms))),
            [true, true, false, true, true, false]
        );
        spared.end();
        assert!(!spared.is_spared(start));
    }
}
