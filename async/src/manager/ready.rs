//! Victims that need no copy any more: they leave first, in the order in which looks have found them.
//!
//! ```text
//!   look ──► copied down, or below already ──► ready   1 2 3 4 …   as many as the window, at most
//!                                              └─ an allocation takes from the front, and waits for no copy
//!                                                 used since, held, a parent again, or not below any more: passed
//! ```
//!
//! Where a look says exactly what a search will take later (LRU), copies ahead of need are all that it takes. Other policies change their mind
//! between the two, and what was copied would stay while what leaves is to be copied first: so there the look decides. What a block is worth
//! is then judged some part of the tier's turnover before it leaves; a use in between keeps it, as ever.
//!
//! Invariants
//! - I1: nothing is taken that was used since it was found, as far as iterations tell; nor a parent before its children.
//! - I2: a block is here once; as many are as the window has, at most.

use super::ahead::{LOOK, Looks};
use super::inner::Inner;
use super::stack::{Books, Stack};
use super::traffic::Traffic;
use crate::tier::Tier;
use crate::transfer::Class;
use kvstrata_core::{BlockId, BlockRef, SequenceHash, VictimsSeen};
use std::collections::VecDeque;

/// Victims looked at at a time: what finds no room is looked at again.
const PART: usize = 64;
/// Of those whose copies have not landed yet, so many are passed by in search of one that has.
const LATE: usize = 8;
/// Of those that are ready, so many are looked at between two iterations, whether they are still.
const SWEPT: usize = 128;

#[derive(Debug, Clone, Copy)]
struct Entry {
    block: BlockRef,
    /// When it was used last.
    used: u64,
}

/// Those of a tier.
#[derive(Debug, Default)]
pub(super) struct Ready {
    queue: VecDeque<Entry>,
    /// By block: the generation that is in the queue, and one; 0: none is.
    queued: Vec<u32>,
    /// Where the next sweep goes on.
    swept: usize,
}

impl Ready {
    fn has(&self, block: BlockRef) -> bool {
        self.queued.get(block.id.index()) == Some(&block.generation.wrapping_add(1))
    }

    fn push(&mut self, block: BlockRef, used: u64) {
        if self.queued.len() <= block.id.index() {
            self.queued.resize(block.id.index() + 1, 0);
        }
        self.queued[block.id.index()] = block.generation.wrapping_add(1);
        self.queue.push_back(Entry { block, used });
    }

    fn pop(&mut self) -> Option<Entry> {
        let entry = self.queue.pop_front()?;
        self.queued[entry.block.id.index()] = 0;
        Some(entry)
    }

    /// What is put back was taken from the front.
    fn put_back(&mut self, late: &[Entry]) {
        for entry in late.iter().rev() {
            self.queued[entry.block.id.index()] = entry.block.generation.wrapping_add(1);
            self.queue.push_front(*entry);
        }
    }

    /// Keeps of the next few those that are ready still.
    fn sweep(&mut self, is_ready: impl Fn(Entry) -> bool) {
        let from = self.swept.min(self.queue.len());
        let (to, mut kept) = (from.saturating_add(SWEPT).min(self.queue.len()), from);
        for at in from..to {
            let entry = self.queue[at];
            if is_ready(entry) {
                self.queue[kept] = entry;
                kept += 1;
            } else {
                self.queued[entry.block.id.index()] = 0;
            }
        }
        self.queue.drain(kept..to);
        self.swept = if kept == self.queue.len() { 0 } else { kept };
    }
}

/// The hash of a block that nobody has used since it was found, nor holds.
fn still(books: &Books, entry: Entry, now: u64) -> Option<SequenceHash> {
    let hash = books.pool.evictable(entry.block)?;
    (books.ages.used(entry.block.id, now) == entry.used).then_some(hash)
}

/// A tier's books.
pub(super) fn books_of(stack: &Stack, tier: Tier) -> &Books {
    match (tier, &stack.host) {
        (Tier::Host, Some(host)) => host,
        _ => &stack.device,
    }
}

/// Whether the tier below has a block.
pub(super) fn is_below(stack: &Stack, tier: Tier, hash: SequenceHash) -> bool {
    match (tier, &stack.disk) {
        (Tier::Device, _) => stack.is_below(hash),
        (_, Some(disk)) => disk.pool().contains(hash),
        (_, None) => true,
    }
}

impl Traffic {
    /// Looks for as many of the next victims as the window lacks, and copies down those that the tier below has not.
    pub(super) fn make_ready(
        &mut self,
        inner: &Inner,
        (stack, tier): (u16, Tier),
        books: &Books,
        window: usize,
    ) {
        let now = inner.now();
        let mut ready = std::mem::take(&mut self.looks_of((stack, tier)).ready);
        ready.sweep(|entry| {
            // A copy may have been called off, or what it has made may be gone again.
            let is_ready = |hash| {
                self.is_leaving(stack, hash) || self.leaves_free(inner, (stack, tier), entry.block.id, hash)
            };
            still(books, entry, now).is_some_and(is_ready)
        });
        self.looks_of((stack, tier)).ready = ready;
        let mut left = LOOK;
        let mut next = std::mem::take(&mut self.next);
        loop {
            let looks = self.looks_of((stack, tier));
            let wanted = window.saturating_sub(looks.ready.queue.len()).min(PART).min(left);
            if wanted == 0 {
                break;
            }
            if looks.passed >= window {
                // What has become worth least since is found from the beginning.
                (looks.seen, looks.passed) = (VictimsSeen::default(), 0);
            }
            let before = looks.seen;
            books.pool.victims_behind(&mut looks.seen, wanted, &mut next);
            (left, looks.passed) = (left - wanted, looks.passed + next.len());
            let is_last = next.len() < wanted;
            let mut has_room = true;
            for (block, hash) in next.drain(..) {
                has_room = has_room && self.make_one_ready(inner, (stack, tier), block, hash, now);
            }
            let looks = self.looks_of((stack, tier));
            if !has_room {
                looks.seen = before;
                break;
            }
            if is_last {
                (looks.seen, looks.passed) = (VictimsSeen::default(), 0);
                break;
            }
        }
        self.next = next;
    }

    /// False: there is no room for its copy now.
    fn make_one_ready(
        &mut self,
        inner: &Inner,
        of: (u16, Tier),
        block: BlockRef,
        hash: SequenceHash,
        now: u64,
    ) -> bool {
        if self.looks_of(of).ready.has(block) {
            return true;
        }
        let books = books_of(inner.stack(of.0), of.1);
        let used = books.ages.used(block.id, now);
        // What was copied once is not copied again and again, where the tier below soon lets go of it.
        let again = books.ages.is_clean(block);
        if !again && !self.one_ahead(inner, of, block, books.name(block.id, hash), Class::Offload) {
            return false;
        }
        if self.is_leaving(of.0, hash) || self.leaves_free(inner, of, block.id, hash) {
            self.looks_of(of).ready.push(block, used);
        }
        true
    }

    /// Takes up to so many of those that are ready. How many.
    pub(super) fn take_ready(
        &mut self,
        inner: &Inner,
        of: (u16, Tier),
        wanted: usize,
        victims: &mut Vec<(BlockId, SequenceHash)>,
    ) -> usize {
        let (books, now) = (books_of(inner.stack(of.0), of.1), inner.now());
        let (mut taken, mut late) = (0, Vec::new());
        while taken < wanted
            && late.len() < LATE
            && let Some(entry) = self.looks_of(of).ready.pop()
        {
            let Some(hash) = still(books, entry, now) else { continue };
            if self.is_leaving(of.0, hash) {
                late.push(entry);
            } else if self.leaves_free(inner, of, entry.block.id, hash)
                && !books.pool.has_children(entry.block)
                && let Ok(victim) = books.pool.evict_this(entry.block)
            {
                victims.push((victim.into_mutable().into_id(), hash));
                taken += 1;
            }
        }
        self.looks_of(of).ready.put_back(&late);
        taken
    }

    /// How many of those that are ready could be taken, of so many at the front.
    pub(super) fn count_ready(&self, inner: &Inner, of: (u16, Tier), most: usize) -> usize {
        let (books, now) = (books_of(inner.stack(of.0), of.1), inner.now());
        let could = |entry: &&Entry| {
            still(books, **entry, now).is_some_and(|hash| {
                !self.is_leaving(of.0, hash) && self.leaves_free(inner, of, entry.block.id, hash)
            })
        };
        self.looks[of.0 as usize][of.1 as usize].ready.queue.iter().take(most).filter(could).count()
    }

    fn looks_of(&mut self, (stack, tier): (u16, Tier)) -> &mut Looks {
        &mut self.looks[stack as usize][tier as usize]
    }

    /// Whether a copy of it is on its way.
    fn is_leaving(&self, stack: u16, hash: SequenceHash) -> bool {
        self.down_of.contains_key(&(stack, hash))
    }

    /// Whether it leaves without a copy: it has one, or is not worth it.
    fn leaves_free(
        &self,
        inner: &Inner,
        (stack, tier): (u16, Tier),
        block: BlockId,
        hash: SequenceHash,
    ) -> bool {
        let of = inner.stack(stack);
        is_below(of, tier, hash)
            || tier == Tier::Device && !inner.rules.keeps(of.device.ages.used_again(block))
    }
}
