//! Victims that need no copy any more: they leave first, in the order in which looks have found them.
//!
//! ```text
//!   look ──► copied down, or below already ──► ready   1 2 3 4 …   as many as the window, at most
//!                                              └─ an allocation takes from the front, and waits for no copy
//!                                                 used since, held, a parent again, not below any more: dropped; its copy under way: passed
//! ```
//!
//! Where a look says exactly what a search will take later (LRU), copies ahead of need are all that it takes.
//! `Reuse` changes its mind between the two, and what was copied would stay while what leaves is to be copied
//! first: so there the look decides ([`StackParts::ahead_first`](crate::StackParts::ahead_first)). What a
//! block is worth is then judged some part of the tier's turnover before it leaves; a use in between keeps
//! it, as ever.
//!
//! Invariants
//! - I1: nothing is taken that was used since it was found, as far as iterations tell; nor a parent before
//!   its children, nor what is of a higher class than the policy's next victim.
//! - I2: a block is here once.
//! - I3: a look goes on where the one before it has stopped, and begins anew at most once in two windows;
//!   between two iterations it is of twice what is lacking, and a part.

use crate::engine::group_tiers::{TierPool, pool_of};
use crate::engine::inner::Inner;
use crate::state::{GroupId, LOOK, Looks, ReadyBlock, Traffic};
use crate::tier::Tier;
use crate::transfer::Class;
use kvstrata_core::{BlockId, BlockRef, Priority, SequenceHash, VictimsSeen};

/// Victims looked at at a time: what finds no room is looked at again.
const PART: usize = 64;

/// Of those that are on their way still, and of their parents, so many are passed by in search of one that is
/// not.
const LATE: usize = 256;

/// How an entry is.
enum How {
    /// It can be taken, and this is its hash.
    Ready(SequenceHash),
    /// Its copy is under way, or a child's.
    Late,
    /// Others go first, by its class.
    Higher,
    /// It is ready no more.
    Gone,
}

/// The hash of a block that nobody has used since it was found, nor holds.
fn still(tier_pool: &TierPool, entry: ReadyBlock, now: u64) -> Option<SequenceHash> {
    let hash = tier_pool.pool().evictable(entry.block)?;
    (tier_pool.ages().used(entry.block.id, now) == entry.used).then_some(hash)
}

impl Traffic {
    /// Looks for as many of the next victims as the window lacks, and copies down those that the tier below
    /// has not.
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
            // A copy may have been called off, or what it has made may be gone again.
            let is_ready = |hash| {
                tier_pool.pool().is_leased(entry.block)
                    || self.leaves_free(inner, (group, tier), entry.block.id, hash)
            };
            still(tier_pool, entry, now).is_some_and(is_ready)
        });
        self.looks_of((group, tier)).ready = ready;
        let looks = self.looks_of((group, tier));
        if looks.passed >= 2 * window {
            // What has become worth least since is found from the beginning.
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
                // The next look is to come to those that were left.
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

    /// False: there is no room for its copy now.
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
        // What was copied once is not copied again and again, where the tier below soon lets go of it.
        let again = tier_pool.ages().is_clean(block);
        if !again && !self.one_ahead(inner, of, block, tier_pool.name(block.id, hash), Class::Offload) {
            return false;
        }
        if tier_pool.pool().is_leased(block) || self.leaves_free(inner, of, block.id, hash) {
            self.looks_of(of).ready.push(block, used);
        }
        true
    }

    /// Takes up to so many of those that are ready. How many.
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

    /// How many of those that are ready could be taken, of so many.
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

    /// How an entry is at this moment, behind some that are late, where none of a higher class may go.
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

    /// The class of the policy's next victim, where there are several.
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

    /// Whether it leaves without a copy: it has one, or is not worth it.
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
