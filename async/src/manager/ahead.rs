//! Copies ahead of need: of what will have to go soon, of what has been idle for long, and of what a full queue has refused.
//!
//! ```text
//!   eviction order of a tier     1 2 3 4 5 6 7 8 9 …          the next victims first
//!                                └── window ───┘              copied down before they must go: their eviction then waits for nothing
//!                                c c · c · · ·                c: the tier below has it, and there is nothing to do
//!
//!   stamps of a tier             · · 7 · 3 · · 9 · · ·        the longest idle first, whatever the policy's order: some of them each time
//! ```
//!
//! The window is what a tier lacks of free blocks below its low watermark, once it is above the high one. What is copied stays where it is,
//! in its place of the eviction order, and is found there until it is evicted: so being ahead costs no hit. (Evicting at the watermark,
//! as the textbook has it, would keep a tenth of the device empty.)
//!
//! Invariants
//! - I1: a look goes on where the one before it has stopped, so that it comes to each block of the window, and to each that is idle, in a
//!   bounded number of iterations; what is copied already, or in use, keeps it from none.
//! - I2: what is written through and finds its queue full is owed, while the block is registered: it is made when there is room, whoever iterates,
//!   some at a time, each of which brings on the next when it has ended. So nothing is owed when nothing is under way.

use super::down::{Cargo, Have, let_go};
use super::inner::Inner;
use super::stack::Books;
use super::traffic::Traffic;
use crate::config::WriteMode;
use crate::scheduler::Search;
use crate::tier::Tier;
use crate::transfer::{Class, Path};
use kvstrata_core::{BlockRef, VictimsSeen};
use kvstrata_ffi::disk::Name;
use std::collections::VecDeque;

/// Victims looked at between two iterations, at most: the next ones, and as many behind them; some tens of microseconds.
const LOOK: usize = 4096;
/// Blocks that are idle, of which copies are begun between two iterations.
const IDLE: usize = 256;
/// Owed copies that are begun at a time, under the lock.
pub(super) const PART: usize = 64;
/// Owed copies from which on those of blocks that are gone are dropped.
const MANY_OWED: usize = 1024;

/// A tier's watermarks and idleness.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ahead {
    pub(super) high: f64,
    pub(super) low: f64,
    pub(super) idle_after: Option<u64>,
}

impl Ahead {
    /// How many of the next victims are to be copied, of a tier with so many free blocks.
    fn window(&self, capacity: usize, free: usize) -> usize {
        let part = |part: f64| ((1.0 - part) * capacity as f64).ceil() as usize;
        if free >= part(self.high) { 0 } else { part(self.low).saturating_sub(free) }
    }
}

/// How far the looks at a tier have come.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// For what is idle.
    search: Search,
    searching: bool,
    found: Vec<BlockRef>,
    /// Through the window, behind its first [`LOOK`]: where, and how many of it have been seen.
    seen: VictimsSeen,
    passed: usize,
}

/// Copies that are to be made when there is room in the queue, each once: the oldest first.
#[derive(Debug, Default)]
pub(super) struct Owed {
    copies: VecDeque<(u16, Tier, BlockRef)>,
    /// How many there were when it was last looked which of them are gone.
    looked: usize,
}

/// When a flight's source was last used.
pub(super) fn last_used(books: &Books, source: Have, now: u64) -> u64 {
    match source {
        Have::Owned(block) => books.ages.used(block, now),
        // By whoever holds it.
        Have::Held(_) => now,
        Have::Leased(block) => now.saturating_sub(books.ages.idle(block, now)),
    }
}

impl Traffic {
    /// Copies down what is owed, will have to go soon, or has been idle for long.
    pub(super) fn copy_ahead(&mut self, inner: &Inner) {
        if self.refusing {
            return;
        }
        self.copy_owed(inner, LOOK);
        for stack in 0..self.lines.len() as u16 {
            let of = inner.stack(stack);
            if of.host.is_some() || of.disk.is_some() {
                self.ahead_of(inner, (stack, Tier::Device), &of.device, inner.rules.device_ahead);
            }
            if let (Some(host), Some(_)) = (&of.host, &of.disk) {
                self.ahead_of(inner, (stack, Tier::Host), host, inner.rules.host_ahead);
            }
        }
    }

    fn ahead_of(&mut self, inner: &Inner, of: (u16, Tier), books: &Books, ahead: Ahead) {
        let window = ahead.window(books.pool.capacity(), books.pool.free());
        self.copy_window(inner, of, books, window);
        if let Some(after) = ahead.idle_after {
            self.copy_idle(inner, of, books, after);
        }
    }

    /// The next victims each time; of those behind them in the window, some more each time (I1).
    fn copy_window(&mut self, inner: &Inner, of: (u16, Tier), books: &Books, window: usize) {
        let mut next = std::mem::take(&mut self.next);
        let mut seen = VictimsSeen::default();
        books.pool.victims_behind(&mut seen, window.min(LOOK), &mut next);
        let looks = &mut self.looks[of.0 as usize][of.1 as usize];
        if window > LOOK {
            if looks.passed < LOOK || looks.passed >= window {
                (looks.seen, looks.passed) = (seen, LOOK);
            }
            let more = LOOK.min(window - looks.passed);
            books.pool.victims_behind(&mut looks.seen, more, &mut next);
            looks.passed += more;
        }
        for (block, hash) in next.drain(..) {
            if books.ages.is_clean(block) {
                continue;
            }
            if !self.one_ahead(inner, of, block, books.name(block.id, hash), Class::Offload) {
                self.looks[of.0 as usize][of.1 as usize].passed = 0;
                break;
            }
        }
        self.next = next;
    }

    /// Of what is idle, some each time, the longest first (I1).
    fn copy_idle(&mut self, inner: &Inner, of: (u16, Tier), books: &Books, after: u64) {
        let (now, looks) = (inner.now(), &mut self.looks[of.0 as usize][of.1 as usize]);
        if !looks.searching {
            looks.search.start(now, u32::try_from(after).unwrap_or(u32::MAX), IDLE);
        }
        let mut found = std::mem::take(&mut looks.found);
        looks.searching = !looks.search.go_on(&books.ages, &mut found);
        for block in found.drain(..) {
            let worth = self.is_worth(inner, of.1, books, block);
            match books.pool.evictable(block) {
                // A search of several parts: used since.
                Some(_) if books.ages.idle(block, now) < after => {}
                Some(hash) if worth => {
                    if !self.one_ahead(inner, of, block, books.name(block.id, hash), Class::Background) {
                        break;
                    }
                }
                // Of an earlier generation.
                None if books.pool.registered(block.id).is_none_or(|(there, _)| there != block) => {
                    books.ages.forget(block);
                }
                // In use, pinned, or not worth it: until it has been idle anew.
                _ => books.ages.released(block, now),
            }
        }
        self.looks[of.0 as usize][of.1 as usize].found = found;
    }

    fn is_worth(&self, inner: &Inner, tier: Tier, books: &Books, block: BlockRef) -> bool {
        tier != Tier::Device || inner.rules.mode != WriteMode::SecondUse || books.ages.used_again(block.id)
    }

    /// Copies one block down, if the tier below lacks it. False: there is no room in the queue.
    fn one_ahead(
        &mut self,
        inner: &Inner,
        (stack, tier): (u16, Tier),
        block: BlockRef,
        name: Name,
        class: Class,
    ) -> bool {
        let of = inner.stack(stack);
        let books = match (tier, &of.host) {
            (Tier::Host, Some(host)) => host,
            _ => &of.device,
        };
        let below = match (tier, &of.host, &of.disk) {
            (Tier::Device, Some(host), _) => host.pool.contains(name.hash),
            (_, _, Some(disk)) => disk.pool().contains(name.hash),
            _ => true,
        };
        let worth = self.is_worth(inner, tier, books, block);
        if below || !worth || self.down_of.contains_key(&(stack, name.hash)) {
            if below {
                books.ages.set_clean(block);
            }
            return true;
        }
        let room = match tier {
            Tier::Device => self.may_copy(inner, stack, class),
            _ => self.has_room(Path::HostToDisk, class),
        };
        if !room {
            return false;
        }
        // Recycled meanwhile, or held and released: the next look will tell.
        if !books.pool.lease(block) {
            return true;
        }
        let source = Have::Leased(block);
        let cargo = Cargo::new(source, name, class);
        let flight = match tier {
            Tier::Device => self.copy_down(inner, stack, cargo),
            _ => self.sink(inner, stack, cargo),
        };
        if flight.is_none() {
            // No room below, or not worth it: not to be asked about again and again.
            books.ages.set_clean(block);
            let_go(books, source, inner.now());
        }
        true
    }

    /// A copy of a block that its engine has just registered, or has used a second time, and holds.
    pub(super) fn write_through(&mut self, inner: &Inner, stack: u16, block: BlockRef) {
        self.copy_or_owe(inner, (stack, Tier::Device), block);
    }

    /// A block has come to the host, and is held: what is written through goes on to the disk.
    pub(super) fn write_on(&mut self, inner: &Inner, stack: u16, block: BlockRef) {
        if inner.rules.mode == WriteMode::Through && inner.stack(stack).disk.is_some() {
            self.copy_or_owe(inner, (stack, Tier::Host), block);
        }
    }

    fn copy_or_owe(&mut self, inner: &Inner, of: (u16, Tier), block: BlockRef) {
        if !self.copy_through(inner, of, block) {
            self.owe(inner, of, block);
        }
    }

    /// To be made when there is room (I2).
    pub(super) fn owe(&mut self, inner: &Inner, of: (u16, Tier), block: BlockRef) {
        if self.owed.copies.len() >= MANY_OWED.max(2 * self.owed.looked) {
            self.owed.copies.retain(|(stack, tier, block)| {
                let there = inner.stack(*stack).pool(*tier).and_then(|pool| pool.registered(block.id));
                there.is_some_and(|(there, _)| there == *block)
            });
            self.owed.looked = self.owed.copies.len();
        }
        self.owed.copies.push_back((of.0, of.1, block));
    }

    /// False: there is no room in the queue.
    fn copy_through(&mut self, inner: &Inner, of: (u16, Tier), block: BlockRef) -> bool {
        let books = match (of.1, &inner.stack(of.0).host) {
            (Tier::Host, Some(host)) => host,
            _ => &inner.stack(of.0).device,
        };
        match books.pool.registered(block.id).filter(|(there, _)| *there == block) {
            Some((_, hash)) => {
                self.one_ahead(inner, of, block, books.name(block.id, hash), Class::Background)
            }
            None => true,
        }
    }

    /// What queues have refused (I2), at most so many. Of several tiers, the first that finds no room ends it: what is behind it waits for the
    /// next time. How many have begun.
    pub(super) fn copy_owed(&mut self, inner: &Inner, most: usize) -> usize {
        let before = self.downs.len();
        while self.downs.len() < before + most {
            let Some((stack, tier, block)) = self.owed.copies.front().copied() else { break };
            if !self.copy_through(inner, (stack, tier), block) {
                break;
            }
            self.owed.copies.pop_front();
        }
        self.downs.len() - before
    }

    /// Nothing begins any more.
    pub(super) fn forget_owed(&mut self) {
        self.owed.copies.clear();
    }
}
