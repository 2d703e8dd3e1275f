//! What a restart finds, put into the pool: each block at its slot, registered, as old as it was.
//!
//! ```text
//!   records, oldest first      a₂   a₁   b₁   a₀   …        tail first, as blocks come down
//!   registered, parents first  a₀   a₁   a₂   b₁   …        so that a Store event can name the parent
//!   released, oldest first     a₂   a₁   b₁   a₀   …        so that what was written first is evicted first
//! ```
//!
//! A record names its parent by a key of 8 bytes; the hash is that of the record whose key it is. Where
//! records of several hashes have it, it is the one that was written next, or none. A wrong one, once in 2⁶⁴
//! pairs unless somebody has made the hashes so, costs an event that names it.
//!
//! Invariants
//! - I1: block `b` of the pool is slot `b` of the volumes, recovered or not; every block is registered or
//!   free afterwards.
//! - I2: records are input, and may say anything: parents in a circle, a slot or a hash twice. Nothing here
//!   depends on them for more than which block is found under which hash; the payload is compared with its
//!   record whenever it is read.

use kvstrata_core::{BlockId, BlockPool, ImmutableBlock, MutableBlock, Registered};
use kvstrata_ffi::disk::{HashKey, OwnerId, Recovered};
use kvstrata_tiers::shared::Places;
use kvstrata_tiers::transfer::Rejected;
use std::cell::LazyCell;
use std::collections::HashMap;

/// What was found when a tier was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Blocks found and registered.
    pub recovered_blocks: u64,
    /// Records that were not taken.
    pub rejected: Rejected,
    /// Every volume was shut down in order.
    pub clean: bool,
    /// Every volume is new.
    pub created: bool,
}

/// Registers `blocks`, which are sorted by age, oldest first, in an empty pool; how many, and whose they are, but for nobody's. `forget` is
/// called for slots whose record is of no use.
pub(super) fn register(
    pool: &BlockPool,
    blocks: &[Recovered],
    linked: bool,
    forget: &dyn Fn(u32),
) -> (u64, Vec<(BlockId, OwnerId)>) {
    if blocks.is_empty() {
        return (0, Vec::new());
    }
    let mut slots = Vec::with_capacity(pool.capacity());
    // A new pool is all free, so this is never refused.
    if pool.allocate_free(pool.capacity(), &mut slots).is_err() {
        return (0, Vec::new());
    }
    slots.sort_unstable_by_key(|slot| slot.id());
    let mut recovery = Recovering {
        pool,
        forget,
        blocks,
        slots: slots.into_iter().map(Some).collect(),
        held: blocks.iter().map(|_| None).collect(),
        recovered: 0,
        owners: Vec::new(),
    };
    match linked {
        true => recovery.register_parents_first(),
        false => (0..blocks.len()).for_each(|index| recovery.register(index, None)),
    }
    let Recovering { slots, held, recovered, owners, .. } = recovery;
    pool.release(held.into_iter().flatten());
    pool.give_back(slots.into_iter().flatten());
    (recovered, owners)
}

struct Recovering<'p> {
    pool: &'p BlockPool,
    forget: &'p dyn Fn(u32),
    blocks: &'p [Recovered],
    /// By number; `None` for those that have been registered.
    slots: Vec<Option<MutableBlock<'p>>>,
    /// What `blocks` became, by position.
    held: Vec<Option<ImmutableBlock<'p>>>,
    recovered: u64,
    owners: Vec<(BlockId, OwnerId)>,
}

/// The position of a key that several hashes have.
const SEVERAL: u32 = u32::MAX;

impl Recovering<'_> {
    fn register_parents_first(&mut self) {
        let blocks = self.blocks;
        let positions = LazyCell::new(|| -> HashMap<u64, u32, Places> {
            let mut positions = HashMap::with_capacity_and_hasher(blocks.len(), Places::random());
            for (block, position) in blocks.iter().zip(0..) {
                let same = |first: u32| {
                    blocks.get(first as usize).is_some_and(|first| first.label.hash == block.label.hash)
                };
                let first =
                    positions.entry(HashKey::number(HashKey::of(block.label.hash))).or_insert(position);
                if !same(*first) {
                    *first = SEVERAL;
                }
            }
            positions
        });
        let parent_of = |index: usize| {
            let parent = blocks[index].label.parent?;
            // Most often it was written right after its child.
            let next = blocks.get(index + 1);
            if next.is_some_and(|next| HashKey::of(next.label.hash) == Some(parent)) {
                return Some(index + 1);
            }
            let position = *positions.get(&HashKey::number(Some(parent)))?;
            (position != SEVERAL).then_some(position as usize)
        };
        let mut entered = vec![false; blocks.len()];
        let mut chain = Vec::new();
        for start in 0..blocks.len() {
            let mut next = Some(start);
            // Up to the first that is registered, or under way: then the records form a circle (I2).
            while let Some(index) = next.filter(|index| !entered[*index]) {
                entered[index] = true;
                chain.push(index);
                next = parent_of(index);
            }
            let mut parent = next;
            while let Some(index) = chain.pop() {
                self.register(index, parent);
                parent = Some(index);
            }
        }
    }

    /// `parent` is a position, of a block that may have been registered or not.
    fn register(&mut self, index: usize, parent: Option<usize>) {
        let Recovered { slot, label, .. } = self.blocks[index];
        let Some(block) = self.slots.get_mut(slot as usize).and_then(Option::take) else { return };
        // A block from the pool is `Reset`, so this is never refused.
        let Ok(complete) = block.complete(label.hash) else { return };
        let parent = parent.and_then(|parent| self.held[parent].as_ref());
        match self.pool.register(complete, parent) {
            Registered::New(block) => {
                if label.owner != OwnerId::NOBODY {
                    self.owners.push((block.id(), label.owner));
                }
                self.held[index] = Some(block);
                self.recovered += 1;
            }
            // The slot is free again, and its record must not come back. Nobody else has the tier yet.
            Registered::Deduplicated(_) => (self.forget)(slot),
        }
    }
}

#[cfg(test)]
mod tests;
