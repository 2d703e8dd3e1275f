//! Ready victims: those that need no copy any more. They leave first, in the order in which looks found them.
//!
//! ```text
//!   look ──► copied down, or below already ──► ready   1 2 3 4 …    at most as many as the window
//!                                              └─ an allocation takes from the front, and waits for no copy
//!       dropped:  used since, held, a parent again, not below any more
//!       passed:   its copy is under way
//! ```
//!
//! Where a look tells exactly which blocks a search will take later (LRU), copies ahead of need are
//! enough. `Reuse` changes its mind between the two: copied blocks would stay, and the blocks that leave
//! would have to be copied first. So there the look decides
//! ([`StackParts::ahead_first`](crate::StackParts::ahead_first)). A block's worth is then judged some
//! part of the tier's turnover before it leaves; a use in between keeps it, as ever.
//!
//! Invariants
//! - I1: no block is taken that was used since it was found, as far as iterations tell; no parent before
//!   its children; no block of a higher class than the policy's next victim.
//! - I2: a block is here once.
//! - I3: a look continues where the look before it stopped, and begins anew at most once in two windows.
//!   Between two iterations it covers twice the number of blocks that are lacking, and a part ([`PART`]).

use crate::engine::group_tiers::{TierPool, pool_of};
use crate::engine::inner::Inner;
use crate::state::{GroupId, LOOK, Looks, ReadyBlock, Traffic};
use crate::tier::Tier;
use crate::transfer::Class;
use kvstrata_core::{BlockId, BlockRef, Priority, SequenceHash, VictimsSeen};

/// Number of victims examined at a time; those that find no room are examined again.
const PART: usize = 64;

/// Maximum number of late entries (copies under way, and their parents) that a search for a ready one
/// passes by.
const LATE: usize = 256;

/// The condition of an entry.
enum How {
    /// It can be taken; this is its hash.
    Ready(SequenceHash),
    /// Its copy is under way, or a child's.
    Late,
    /// Its class is higher: others go first.
    Higher,
    /// It is no longer ready.
    Gone,
}

/// Returns the hash of a block that has no holder and was not used since it was found.
fn still(tier_pool: &TierPool, entry: ReadyBlock, now: u64) -> Option<SequenceHash> {
    let hash = tier_pool.pool().evictable(entry.block)?;
    (tier_pool.ages().used(entry.block.id, now) == entry.used).then_some(hash)
}

impl Traffic {
    /// Looks for as many of the next victims as the window lacks, and copies down those that the tier
    /// below lacks.
    pub(crate) fn make_ready(
        &mut self,
        inner: &Inner,
        (group, tier): (GroupId, Tier),
        tier_pool: &TierPool,
        window: usize,
    ) {
        let now = inner.now();
        let mut ready = std::mem::take(&mut self.looks_of((group, tier)).ready);
        ready.sweep(|entry| {
            // A copy may have been called off, or its block may have left the tier below.
            let is_ready = |hash| {
                tier_pool.pool().is_leased(entry.block)
                    || self.leaves_free(inner, (group, tier), entry.block.id, hash)
            };
            still(tier_pool, entry, now).is_some_and(is_ready)
        });
        self.looks_of((group, tier)).ready = ready;
        let looks = self.looks_of((group, tier));
        if looks.passed >= 2 * window {
            // From the beginning, to find blocks that have become worth least since.
            (looks.seen, looks.passed) = (VictimsSeen::default(), 0);
        }
        let mut left = LOOK.min(2 * window.saturating_sub(looks.ready.len()) + PART);
        let mut next = self.scratch.lend_next_victims();
        while left >= PART && self.looks_of((group, tier)).ready.len() < window {
            let looks = self.looks_of((group, tier));
            let before = looks.seen;
            tier_pool.pool().victims_behind(&mut looks.seen, PART, &mut next);
            let shown = next.len();
            let mut is_wanted = true;
            for (block, hash) in next.drain(..) {
                is_wanted = is_wanted
                    && self.looks_of((group, tier)).ready.len() < window
                    && self.make_one_ready(inner, (group, tier), block, hash, now);
            }
            let looks = self.looks_of((group, tier));
            if !is_wanted {
                // The next look must reach those that were left.
                looks.seen = before;
                break;
            }
            (left, looks.passed) = (left - PART, looks.passed + shown);
            if shown < PART {
                (looks.seen, looks.passed) = (VictimsSeen::default(), 0);
                break;
            }
        }
        self.scratch.return_next_victims(next);
    }

    /// Makes one block ready. Returns false if there is no room for its copy now.
    fn make_one_ready(
        &mut self,
        inner: &Inner,
        of: (GroupId, Tier),
        block: BlockRef,
        hash: SequenceHash,
        now: u64,
    ) -> bool {
        if self.looks_of(of).ready.has(block) {
            return true;
        }
        let tier_pool = pool_of(inner.group(of.0), of.1);
        let used = tier_pool.ages().used(block.id, now);
        // Copied once, a block is not copied again and again where the tier below soon drops it.
        let again = tier_pool.ages().is_clean(block);
        if !again && !self.one_ahead(inner, of, block, tier_pool.name(block.id, hash), Class::Offload) {
            return false;
        }
        if tier_pool.pool().is_leased(block) || self.leaves_free(inner, of, block.id, hash) {
            self.looks_of(of).ready.push(block, used);
        }
        true
    }

    /// Takes up to `wanted` ready blocks. Returns how many.
    pub(crate) fn take_ready(
        &mut self,
        inner: &Inner,
        of: (GroupId, Tier),
        wanted: usize,
        victims: &mut Vec<(BlockId, SequenceHash)>,
    ) -> usize {
        let (tier_pool, now) = (pool_of(inner.group(of.0), of.1), inner.now());
        let (mut taken, mut late) = (0, 0);
        let highest = self.highest(tier_pool, of);
        while taken < wanted
            && late < LATE
            && let Some(entry) = self.looks_of(of).ready.get(late)
        {
            match self.how(inner, of, entry, (now, late > 0, highest)) {
                How::Late => {
                    late += 1;
                    continue;
                }
                How::Higher => break,
                How::Ready(hash) => {
                    if let Ok(victim) = tier_pool.pool().evict_this(entry.block) {
                        victims.push((victim.into_mutable().into_id(), hash));
                        taken += 1;
                    }
                }
                How::Gone => {}
            }
            self.looks_of(of).ready.remove(late);
        }
        taken
    }

    /// Counts the ready blocks that could be taken, up to `most`.
    pub(crate) fn count_ready(&mut self, inner: &Inner, of: (GroupId, Tier), most: usize) -> usize {
        let (tier_pool, now) = (pool_of(inner.group(of.0), of.1), inner.now());
        let (mut ready, mut late) = (0, 0);
        let highest = self.highest(tier_pool, of);
        for entry in self.looks[of.0.index()][of.1.index()].ready.iter() {
            match self.how(inner, of, entry, (now, late > 0, highest)) {
                How::Ready(_) => ready += 1,
                How::Late => late += 1,
                How::Gone => {}
                How::Higher => break,
            }
            if ready == most || late == LATE {
                break;
            }
        }
        ready
    }

    /// Returns the condition of an entry now, behind late ones or not, with classes up to `highest` allowed.
    fn how(
        &self,
        inner: &Inner,
        of: (GroupId, Tier),
        entry: ReadyBlock,
        (now, behind_late, highest): (u64, bool, Option<Priority>),
    ) -> How {
        let tier_pool = pool_of(inner.group(of.0), of.1);
        let Some(hash) = still(tier_pool, entry, now) else { return How::Gone };
        let is_parent = || tier_pool.pool().has_children(entry.block);
        if highest.is_some_and(|highest| tier_pool.class(entry.block.id) > highest) {
            How::Higher
        } else if tier_pool.pool().is_leased(entry.block) || behind_late && is_parent() {
            How::Late
        } else if !is_parent() && self.leaves_free(inner, of, entry.block.id, hash) {
            How::Ready(hash)
        } else {
            How::Gone
        }
    }

    /// Returns the class of the policy's next victim, where there are several classes.
    fn highest(&mut self, tier_pool: &TierPool, of: (GroupId, Tier)) -> Option<Priority> {
        if tier_pool.are_of_one_class() || self.looks_of(of).ready.is_empty() {
            return None;
        }
        let next = self.scratch.next_victim(tier_pool.pool());
        next.map(|(block, _)| tier_pool.class(block.id))
    }

    fn looks_of(&mut self, (group, tier): (GroupId, Tier)) -> &mut Looks {
        &mut self.looks[group.index()][tier.index()]
    }

    /// Whether a block leaves without a copy: it has one, or is not worth it.
    fn leaves_free(
        &self,
        inner: &Inner,
        (group, tier): (GroupId, Tier),
        block: BlockId,
        hash: SequenceHash,
    ) -> bool {
        let of = inner.group(group);
        of.is_kept_below(tier, hash)
            || tier == Tier::Device && !inner.rules.keeps(of.device.ages().used_again(block))
    }
}
