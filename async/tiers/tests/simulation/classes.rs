//! Classes for eviction, as engines give them, and pins.
//!
//! Checked, as [`Blocks::set_priority`] says it
//! - Pinned blocks stay in the device, and are found there, until they get another class
//!   (`recorder.rs`: `declassify`).
//! - Of the blocks that may leave, a lower class goes first. This is checked when those blocks are
//!   certain: nothing is in flight, blocks are not linked to their parents, no tenant has a quota.

use crate::engine::Engine;
use crate::recorder::lock;
use crate::world::World;
use kvstrata_core::{BlockId, BlockRef, Priority, SequenceHash};
use kvstrata_tiers::Blocks;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::Duration;

/// Blocks of the device that may be evicted, by number, and their classes.
pub type Evictable = BTreeMap<u32, (BlockRef, Priority)>;

impl Engine {
    /// Gives a class to blocks that it holds, or leaves them as they are. At most a fourth of the device
    /// is pinned.
    pub fn classify(&mut self, blocks: &Blocks, hashes: &[SequenceHash]) {
        let settings = &self.world.settings;
        let (most, gives) = (settings.device as usize / 4, settings.classes);
        if !self.chance(gives) {
            return;
        }
        let class = match self.random.below(5) {
            0 | 1 => Priority::Low,
            2 => Priority::Normal,
            3 => Priority::High,
            _ if self.world.pins().len() + blocks.len() > most => Priority::High,
            _ => Priority::Pinned,
        };
        blocks.set_priority(class);
        self.note(&format!("gives blocks a class: {:?} {class:?}", blocks.ids().collect::<Vec<_>>()));
        let classes = &mut lock(&self.world.notes).classes;
        classes.extend(blocks.ids().zip(hashes).map(|(BlockId(block), hash)| (block, (*hash, class))));
    }
}

impl World {
    /// Notes the usual class for blocks that an engine has filled and registered. Blocks that gave way
    /// to others of their hash are left out.
    pub fn registered(&self, filled: &[BlockId], registered: &Blocks, hashes: &[SequenceHash]) {
        let new = registered.ids().zip(hashes).filter(|(block, _)| filled.contains(block));
        let classes = new.map(|(BlockId(block), hash)| (block, (*hash, Priority::Normal)));
        lock(&self.notes).classes.extend(classes);
    }

    /// Pinned blocks, with their hashes.
    pub fn pins(&self) -> BTreeMap<u32, SequenceHash> {
        let notes = lock(&self.notes);
        let pinned = notes.classes.iter().filter(|(_, (_, class))| *class == Priority::Pinned);
        pinned.map(|(block, (hash, _))| (*block, *hash)).collect()
    }

    /// Gives all pinned blocks the usual class, except a block with a hash that finds another one.
    pub fn unpin(&self) {
        for (block, hash) in self.pins() {
            let found = self.manager().default_group().match_device(&[hash]);
            match found.ids().next() {
                None => self.violation(format!("block {block} is pinned, and {hash:?} is not in the device")),
                Some(there) if there == BlockId(block) => {
                    found.set_priority(Priority::Normal);
                    lock(&self.notes).classes.insert(block, (hash, Priority::Normal));
                }
                Some(_) => {}
            }
        }
    }

    /// The same for all, at rest: a block that hides another one leaves first.
    pub async fn unpin_all(&self) {
        self.unpin();
        while !self.pins().is_empty() && self.books.borrow().violations.is_empty() {
            let (pinned, [parked, _]) = (self.pins().len(), self.manager().census().parked[0]);
            let rest = self.settings.device as usize - pinned - parked;
            if let Err(error) =
                self.manager().default_group().allocate(rest).deadline(Duration::from_secs(60)).await
            {
                self.violation(format!("{pinned} are pinned, and of the others: {error}"));
            }
            self.unpin();
        }
    }

    /// The blocks that may be evicted, if they are certain.
    pub fn before_eviction(&self) -> Option<Evictable> {
        let (settings, census, books) = (&self.settings, self.manager().census(), self.books.borrow());
        // A failed device leases the blocks that it keeps for ever.
        let alone = census.down + census.waiting + census.purges + self.mover.kept().len() == 0;
        if settings.classes == 0 || settings.linked || settings.quotas != [1.0; 3] || !alone {
            return None;
        }
        let mut not_held = self.registered_in_device();
        not_held.retain(|block| !books.held.contains_key(&block.id.0));
        let notes = lock(&self.notes);
        let class = |block: &BlockRef| notes.classes.get(&block.id.0).map(|(_, class)| *class);
        let known = not_held.iter().filter_map(|block| Some((block.id.0, (*block, class(block)?))));
        // Each inactive block is registered, and no engine holds it. Where there are as many of
        // both, they are the same. A block that an engine has been given and not yet noted is
        // active, and may not be evicted.
        (census.tiers[0][0].inactive == not_held.len()).then(|| known.collect())
    }

    /// All blocks registered in the device, also those with a hash that finds another block.
    fn registered_in_device(&self) -> Vec<BlockRef> {
        let (stored, notes) = (lock(&self.stored[0]), lock(&self.notes));
        let twins = notes.twins.iter().filter(|((tier, _), _)| *tier == "device");
        stored.values().copied().chain(twins.map(|(_, (twin, _))| *twin)).collect()
    }

    /// Checks that of the blocks that might be evicted, the lower classes were.
    pub fn after_eviction(&self, before: Option<Evictable>) {
        let Some(before) = before else { return };
        let there = self.registered_in_device();
        let (stay, left): (Vec<_>, Vec<_>) = before.values().partition(|(block, _)| there.contains(block));
        let lowest = stay.into_iter().min_by_key(|(_, class)| *class);
        let highest = left.into_iter().max_by_key(|(_, class)| *class);
        if let (Some((stays, low)), Some((leaves, high))) = (lowest, highest)
            && low < high
        {
            self.violation(format!(
                "{leaves:?} of class {high:?} leaves, and {stays:?} of class {low:?} stays"
            ));
        }
    }

    /// Runs a future that evicts blocks, if any, at its first poll.
    pub async fn evicts_by_class<F: Future>(&self, future: F) -> F::Output {
        let (mut future, mut before) = (pin!(future), self.before_eviction());
        poll_fn(|context| {
            let polled = future.as_mut().poll(context);
            self.after_eviction(before.take());
            polled
        })
        .await
    }
}
