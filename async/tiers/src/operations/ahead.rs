//! Copies ahead of need: of the next victims, of blocks that have been idle for long, and of blocks that
//! a full queue has deferred.
//!
//! ```text
//!   eviction order of a tier   1 2 3 4 5 6 7 8 9 …    the next victims first
//!                              └── window ───┘        copied down early: eviction then waits for none
//!                              c c · c · · ·          c: the tier below has the block; nothing to do
//!
//!   stamps of a tier           · · 7 · 3 · · 9 · · ·  the longest idle first, whatever the policy's order;
//!                                                     some of them each time
//! ```
//!
//! Once a tier is filled beyond its high watermark, the window is the number of free blocks that it lacks
//! to get below its low one. A copied block keeps its place in the eviction order, and a look-up finds it
//! until it is evicted: so copying ahead costs no hit. (Evicting at the watermark, as textbooks do, would
//! keep a tenth of the device empty.)
//!
//! Invariants
//! - I1 (for blocks that are made ready: `ready.rs` I3): a look continues where the look before it
//!   stopped. So it reaches each block of the window, and each idle block, in a bounded number of
//!   iterations. Blocks that are copied already, or in use, do not keep it from the others.
//! - I2: a write-through that finds its queue full, or no host block available, is deferred while its
//!   block is registered. It starts when there is room, whether or not an engine iterates. Some deferred
//!   copies start at a time, and the end of each starts the next one. So no copy stays deferred while no
//!   transfer is in flight. Exception: callers fill the host tier by holding blocks that they have found.
//!   Such a copy starts with the next change after their release; a shutdown is such a change. If the
//!   block's tenant has no credit left, the copy is not deferred, but made at the block's eviction.
//! - I3: a block that finds no room for a while (no host block, or no credit of its tenant) is not marked
//!   as one that needs no copy.
//! - I4: below the first tier, write-through is best effort. A further tier never causes a copy to be
//!   deferred: one that refuses the block, is full, away or slow is passed over, and write-through makes
//!   no second attempt there. (Only a write that fails as lost or away may be repeated within its
//!   transfer, in another slot of that tier.) A later attempt has another cause, such as the block's
//!   eviction from host memory or an offload on request.

use crate::engine::group_tiers::{GroupTiers, TierPool, is_below, let_go, pool_of};
use crate::engine::inner::Inner;
use crate::engine::rules::{Watermarks, WriteMode};
use crate::state::{Cargo, DeferredCopies, GroupId, Have, LOOK, Traffic};
use crate::tier::Tier;
use crate::transfer::{Class, Path};
use kvstrata_core::{BlockRef, VictimsSeen};
use kvstrata_ffi::disk::Name;

/// Maximum number of copies of idle blocks that start between two iterations.
const IDLE: usize = 256;

/// Returns how many of the next victims to copy, of a tier with `free` free blocks.
fn window(ahead: Watermarks, capacity: usize, free: usize) -> usize {
    let part = |part: f64| ((1.0 - part) * capacity as f64).ceil() as usize;
    if free >= part(ahead.high) { 0 } else { part(ahead.low).saturating_sub(free) }
}

/// Returns the first tier below host memory that lacks a block.
fn first_that_lacks(of: &GroupTiers, name: Name) -> u8 {
    let first = of.lower_from(0).find(|(_, lower)| !lower.contains(name.hash));
    first.map_or(0, |(number, _)| number)
}

impl Traffic {
    /// Starts deferred copies, and copies of blocks that are next victims or have been idle for long.
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

    /// Copies the next victims each time, and a further part of the window behind them each time (I1).
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

    /// Copies some of the idle blocks each time, the longest idle first (I1).
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
                // The search takes several calls; the block was used meanwhile.
                Some(_) if tier_pool.ages().idle(block, now) < after => {}
                Some(hash) if worth => {
                    if !self.one_ahead(inner, of, block, tier_pool.name(block.id, hash), Class::Background) {
                        break;
                    }
                }
                // The stamp is of an earlier generation.
                None if tier_pool.pool().registered(block.id).is_none_or(|(there, _)| there != block) => {
                    tier_pool.ages().forget(block);
                }
                // In use, pinned, or not worth a copy: left alone until it has been idle again.
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

    /// Copies one block down, if the tier below lacks it. Returns false if there is no room for now.
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
                // A slow tier further down keeps no other block from the first one (I4).
                number if !self.may_go_on(inner, inner.group(group), number, Have::Leased(block), class) => {
                    return true;
                }
                _ => true,
            },
        };
        if !room {
            return false;
        }
        // Recycled meanwhile, or held and released: the next look finds out.
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
                // No host block is available: copies that wait for the engine may hold all of them for
                // a pass.
                return false;
            }
            if tier == Tier::Host || !self.waits_for_host_credit(inner, group, owner) {
                // No room below, or not worth a copy: marked, so that looks do not ask again and again.
                tier_pool.ages().set_clean(block);
            }
        }
        true
    }

    /// Copies a block down that its engine holds: it was just registered, used a second time, or, if it
    /// was registered ahead, is written by now.
    pub(crate) fn write_through(&mut self, inner: &Inner, group: GroupId, block: BlockRef) {
        if self.unwritten.iteration(group, block.id).is_some() {
            return;
        }
        self.copy_or_defer(inner, (group, Tier::Device), block);
    }

    /// Writes a block that has come to host memory, and is held, on to the disk, in write-through mode.
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

    /// Defers a copy until there is room (I2).
    pub(crate) fn defer(&mut self, inner: &Inner, of: (GroupId, Tier), block: BlockRef) {
        if self.deferred.are_many() {
            self.sweep_deferred(inner);
        }
        self.deferred.add(of, block);
    }

    /// Drops deferred copies of blocks that are gone, and of blocks that the tier below has.
    fn sweep_deferred(&mut self, inner: &Inner) {
        self.deferred.retain(|(group, tier), block| {
            let of = inner.group(group);
            let there = of.pool(tier).and_then(|pool| pool.registered(block.id));
            there.is_some_and(|(there, hash)| there == block && !is_below(of, tier, hash))
        });
    }

    /// Returns false if there is no room for now.
    fn copy_through(&mut self, inner: &Inner, of: (GroupId, Tier), block: BlockRef) -> bool {
        let tier_pool = pool_of(inner.group(of.0), of.1);
        match tier_pool.pool().registered(block.id).filter(|(there, _)| *there == block) {
            Some((_, hash)) => {
                self.one_ahead(inner, of, block, tier_pool.name(block.id, hash), Class::Background)
            }
            None => true,
        }
    }

    /// Starts deferred copies (I2), at most `most`. The tiers of the groups take turns at being first.
    /// Returns how many have started.
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
                self.deferred.next_behind(place, places);
            }
        }
        self.downs.len() - before
    }

    /// Whether as many copies wait for host blocks as are on their way through the host tier: more would
    /// be called off.
    fn wait_enough(&self, inner: &Inner, (group, tier): (GroupId, Tier)) -> bool {
        let state = &self.groups[group];
        let coming = state.on_their_way.through_host();
        let full = || inner.group(group).host.as_ref().is_some_and(|host| host.pool().free() == 0);
        tier == Tier::Device && coming > 0 && state.waiting_for_host.chosen() >= coming && full()
    }

    /// Drops all deferred copies; none starts any more.
    pub(crate) fn forget_deferred(&mut self) {
        self.deferred = DeferredCopies::default();
    }
}
