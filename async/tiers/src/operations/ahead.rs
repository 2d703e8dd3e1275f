//! Copies ahead of need: of what will have to go soon, of what has been idle for long, and of what a full
//! queue has refused.
//!
//! ```text
//!   eviction order of a tier     1 2 3 4 5 6 7 8 9 …          the next victims first
//!                                └── window ───┘              copied down before they must go: their eviction then waits for nothing
//!                                c c · c · · ·                c: the tier below has it, and there is nothing to do
//!
//!   stamps of a tier             · · 7 · 3 · · 9 · · ·        the longest idle first, whatever the policy's order: some of them each time
//! ```
//!
//! The window is what a tier lacks of free blocks below its low watermark, once it is above the high one.
//! What is copied stays where it is, in its place of the eviction order, and is found there until it is
//! evicted: so being ahead costs no hit. (Evicting at the watermark, as the textbook has it, would keep a
//! tenth of the device empty.)
//!
//! Invariants
//! - I1 (of what is to be ready: `ready.rs` I3): a look goes on where the one before it has stopped, so that
//!   it comes to each block of the window, and to each that is idle, in a bounded number of iterations; what
//!   is copied already, or in use, keeps it from none.
//! - I2: what is written through and finds its queue full, or no block of the host to be had, is deferred,
//!   while the block is registered: it is made when there is room, whoever iterates, some at a time, each of
//!   which brings on the next when it has ended. So nothing is deferred when nothing is under way; but for
//!   what finds a host that is held by who has found its blocks: that is made with the next change after they
//!   are let go of, which a shutdown is, too. A tenant's that finds no credit is copied when it must leave.
//! - I3: what finds no room for a while, a block of the host or its tenant's credit, is not marked as what
//!   need not be copied.

use crate::engine::group_tiers::{GroupTiers, TierPool, is_below, let_go, pool_of};
use crate::engine::inner::Inner;
use crate::engine::rules::{Watermarks, WriteMode};
use crate::state::{Cargo, DeferredCopies, GroupId, Have, LOOK, Traffic};
use crate::tier::Tier;
use crate::transfer::{Class, Path};
use kvstrata_core::{BlockRef, VictimsSeen};
use kvstrata_ffi::disk::Name;

/// Blocks that are idle, of which copies are begun between two iterations.
const IDLE: usize = 256;

/// How many of the next victims are to be copied, of a tier with so many free blocks.
fn window(ahead: Watermarks, capacity: usize, free: usize) -> usize {
    let part = |part: f64| ((1.0 - part) * capacity as f64).ceil() as usize;
    if free >= part(ahead.high) { 0 } else { part(ahead.low).saturating_sub(free) }
}

/// The first tier below host memory that lacks a block.
fn first_that_lacks(of: &GroupTiers, name: Name) -> u8 {
    let first = of.lower_from(0).find(|(_, lower)| !lower.contains(name.hash));
    first.map_or(0, |(number, _)| number)
}

impl Traffic {
    /// Copies down deferred copies, will have to go soon, or has been idle for long.
    pub(crate) fn copy_ahead(&mut self, inner: &Inner) {
        if self.refuses() {
            return;
        }
        self.copy_deferred(inner, LOOK);
        for group in self.groups.numbers() {
            let of = inner.group(group);
            if of.host.is_some() || !of.lower.is_empty() {
                self.ahead_of(inner, (group, Tier::Device), &of.device, inner.rules.device_ahead);
            }
            if let Some(host) = of.host.as_ref().filter(|_| !of.lower.is_empty()) {
                self.ahead_of(inner, (group, Tier::Host), host, inner.rules.host_ahead);
            }
        }
    }

    fn ahead_of(&mut self, inner: &Inner, of: (GroupId, Tier), tier_pool: &TierPool, ahead: Watermarks) {
        let window = window(ahead, tier_pool.pool().capacity(), tier_pool.pool().free());
        match tier_pool.ahead_first() {
            true => self.make_ready(inner, of, tier_pool, window),
            false => self.copy_window(inner, of, tier_pool, window),
        }
        if let Some(after) = ahead.idle_after {
            self.copy_idle(inner, of, tier_pool, after);
        }
    }

    /// The next victims each time; of those behind them in the window, some more each time (I1).
    fn copy_window(&mut self, inner: &Inner, of: (GroupId, Tier), tier_pool: &TierPool, window: usize) {
        let mut next = self.scratch.lend_next_victims();
        let mut seen = VictimsSeen::default();
        tier_pool.pool().victims_behind(&mut seen, window.min(LOOK), &mut next);
        let looks = &mut self.looks[of.0.index()][of.1.index()];
        if window > LOOK {
            if looks.passed < LOOK || looks.passed >= window {
                (looks.seen, looks.passed) = (seen, LOOK);
            }
            let more = LOOK.min(window - looks.passed);
            tier_pool.pool().victims_behind(&mut looks.seen, more, &mut next);
            looks.passed += more;
        }
        for (block, hash) in next.drain(..) {
            if tier_pool.ages().is_clean(block) {
                continue;
            }
            if !self.one_ahead(inner, of, block, tier_pool.name(block.id, hash), Class::Offload) {
                self.looks[of.0.index()][of.1.index()].passed = 0;
                break;
            }
        }
        self.scratch.return_next_victims(next);
    }

    /// Of what is idle, some each time, the longest first (I1).
    fn copy_idle(&mut self, inner: &Inner, of: (GroupId, Tier), tier_pool: &TierPool, after: u64) {
        let (now, looks) = (inner.now(), &mut self.looks[of.0.index()][of.1.index()]);
        if !looks.searching {
            looks.search.start(now, u32::try_from(after).unwrap_or(u32::MAX), IDLE);
        }
        let mut found = std::mem::take(&mut looks.found);
        looks.searching = !looks.search.go_on(tier_pool.ages(), &mut found);
        for block in found.drain(..) {
            let worth = self.is_worth(inner, of.1, tier_pool, block);
            match tier_pool.pool().evictable(block) {
                // A search of several parts: used since.
                Some(_) if tier_pool.ages().idle(block, now) < after => {}
                Some(hash) if worth => {
                    if !self.one_ahead(inner, of, block, tier_pool.name(block.id, hash), Class::Background) {
                        break;
                    }
                }
                // Of an earlier generation.
                None if tier_pool.pool().registered(block.id).is_none_or(|(there, _)| there != block) => {
                    tier_pool.ages().forget(block);
                }
                // In use, pinned, or not worth it: until it has been idle anew.
                _ => tier_pool.ages().released(block, now),
            }
        }
        self.looks[of.0.index()][of.1.index()].found = found;
    }

    fn is_worth(&self, inner: &Inner, tier: Tier, tier_pool: &TierPool, block: BlockRef) -> bool {
        tier != Tier::Device
            || inner.rules.mode != WriteMode::SecondUse
            || tier_pool.ages().used_again(block.id)
    }

    /// Copies one block down, if the tier below lacks it. False: there is no room for now.
    pub(crate) fn one_ahead(
        &mut self,
        inner: &Inner,
        (group, tier): (GroupId, Tier),
        block: BlockRef,
        name: Name,
        class: Class,
    ) -> bool {
        let tier_pool = pool_of(inner.group(group), tier);
        let below = is_below(inner.group(group), tier, name.hash);
        let worth = self.is_worth(inner, tier, tier_pool, block);
        if below || !worth || self.downs.has((group, name.hash)) {
            if below {
                tier_pool.ages().set_clean(block);
            }
            return true;
        }
        let room = match tier {
            Tier::Device => self.may_copy(inner, group, class),
            _ => match first_that_lacks(inner.group(group), name) {
                0 => self.has_room(Path::ToBelow(0), class),
                // A slow tier further down keeps no other block from the first one.
                number if !self.may_go_on(inner, inner.group(group), number, Have::Leased(block), class) => {
                    return true;
                }
                _ => true,
            },
        };
        if !room {
            return false;
        }
        // Recycled meanwhile, or held and released: the next look will tell.
        if !tier_pool.pool().lease(block) {
            return true;
        }
        let source = Have::Leased(block);
        let cargo = Cargo::new(source, name, class);
        let transfer = match tier {
            Tier::Device => self.copy_down(inner, group, cargo),
            _ => self.sink(inner, group, cargo),
        };
        if transfer.is_none() {
            let owner = tier_pool.owners().owner(block.id);
            let_go(tier_pool, source, inner.now());
            if tier == Tier::Device && self.groups[group].waiting_for_host.was_full() {
                // No host block is to be had: what waits for the engine may have them all, for a pass.
                return false;
            }
            if tier == Tier::Host || !self.waits_for_host_credit(inner, group, owner) {
                // No room below, or not worth it: not to be asked about again and again.
                tier_pool.ages().set_clean(block);
            }
        }
        true
    }

    /// A copy of a block that its engine has just registered, or has used a second time, and holds; or has
    /// written by now, if it was registered before.
    pub(crate) fn write_through(&mut self, inner: &Inner, group: GroupId, block: BlockRef) {
        if self.unwritten.iteration(group, block.id).is_some() {
            return;
        }
        self.copy_or_defer(inner, (group, Tier::Device), block);
    }

    /// A block has come to the host, and is held: what is written through goes on to the disk.
    pub(crate) fn write_on(&mut self, inner: &Inner, group: GroupId, block: BlockRef) {
        if inner.rules.mode == WriteMode::Through && !inner.group(group).lower.is_empty() {
            self.copy_or_defer(inner, (group, Tier::Host), block);
        }
    }

    fn copy_or_defer(&mut self, inner: &Inner, of: (GroupId, Tier), block: BlockRef) {
        if !self.copy_through(inner, of, block) {
            self.defer(inner, of, block);
        }
    }

    /// To be made when there is room (I2).
    pub(crate) fn defer(&mut self, inner: &Inner, of: (GroupId, Tier), block: BlockRef) {
        if self.deferred.are_many() {
            self.sweep_deferred(inner);
        }
        self.deferred.add(of, block);
    }

    /// Copies of blocks that are gone are deferred no more, nor of those that the tier below has.
    fn sweep_deferred(&mut self, inner: &Inner) {
        self.deferred.retain(|(group, tier), block| {
            let of = inner.group(group);
            let there = of.pool(tier).and_then(|pool| pool.registered(block.id));
            there.is_some_and(|(there, hash)| there == block && !is_below(of, tier, hash))
        });
    }

    /// False: there is no room for now.
    fn copy_through(&mut self, inner: &Inner, of: (GroupId, Tier), block: BlockRef) -> bool {
        let tier_pool = pool_of(inner.group(of.0), of.1);
        match tier_pool.pool().registered(block.id).filter(|(there, _)| *there == block) {
            Some((_, hash)) => {
                self.one_ahead(inner, of, block, tier_pool.name(block.id, hash), Class::Background)
            }
            None => true,
        }
    }

    /// What has found no room (I2), at most so many; each tier of each group is asked first in turn. How many
    /// have begun.
    pub(crate) fn copy_deferred(&mut self, inner: &Inner, most: usize) -> usize {
        let before = self.downs.len();
        let in_turn = self.deferred.in_turn();
        let places = in_turn.len();
        for place in in_turn {
            let of = DeferredCopies::whose(place);
            let at_first = self.downs.len();
            while self.downs.len() < before + most {
                let Some(block) = self.deferred.oldest(place) else { break };
                if self.wait_enough(inner, of) || !self.copy_through(inner, of, block) {
                    break;
                }
                self.deferred.pop_oldest(place);
            }
            if self.downs.len() > at_first {
                // The next one has its turn.
                self.deferred.next_behind(place, places);
            }
        }
        self.downs.len() - before
    }

    /// Whether as many copies wait for blocks of the host as there are on their way: more would be called
    /// off.
    fn wait_enough(&self, inner: &Inner, (group, tier): (GroupId, Tier)) -> bool {
        let state = &self.groups[group];
        let coming = state.on_their_way.through_host();
        let full = || inner.group(group).host.as_ref().is_some_and(|host| host.pool().free() == 0);
        tier == Tier::Device && coming > 0 && state.waiting_for_host.chosen() >= coming && full()
    }

    /// Nothing begins any more.
    pub(crate) fn forget_deferred(&mut self) {
        self.deferred = DeferredCopies::default();
    }
}
