//! Recovered records, put into the pool: each block at its slot, registered, in the old order of age.
//!
//! ```text
//!   records, oldest first      a₂   a₁   b₁   a₀   …        tail first, as blocks come down
//!   registered, parents first  a₀   a₁   a₂   b₁   …        so that a Store event can name the parent
//!   released, oldest first     a₂   a₁   b₁   a₀   …        so that the block written first is evicted first
//! ```
//!
//! A record names its parent by a key of 8 bytes. The parent's hash is that of the record with this key.
//! If records with several hashes have the key, the parent is the record that was written next, if that
//! is one of them, or none. A wrong parent, once in 2⁶⁴ pairs unless the hashes are made for that, costs
//! an event with a wrong name.
//!
//! Invariants
//! - I1: block `b` of the pool is slot `b` of the volumes, recovered or not; every block is registered
//!   or free afterwards.
//! - I2: records are input, and may say anything: parents in a circle, a slot or a hash twice. They
//!   decide only which block is found under which hash; each read compares the payload with its record.

use kvstrata_core::{BlockId, BlockPool, ImmutableBlock, MutableBlock, Registered};
use kvstrata_ffi::disk::{HashKey, OwnerId, Recovered};
use kvstrata_tiers::shared::Places;
use kvstrata_tiers::transfer::Rejected;
use std::cell::LazyCell;
use std::collections::HashMap;

/// The result of an opening.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Blocks that were found and registered.
    pub recovered_blocks: u64,
    /// Records that were rejected.
    pub rejected: Rejected,
    /// Whether every volume was shut down in order.
    pub clean: bool,
    /// Whether every volume is new.
    pub created: bool,
}

/// Registers `blocks`, sorted oldest first, in an empty pool. Returns their number, and the owners of
/// those that are owned. Calls `forget` for slots with useless records.
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
    /// By slot; `None` if its block is registered.
    slots: Vec<Option<MutableBlock<'p>>>,
    /// The registered blocks, by position in `blocks`.
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
            // Most often the parent was written right after its child.
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
            // Up to a record that is registered, or in this chain: then the records form a circle (I2).
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

    /// `parent` is the position of a block that may not be registered.
    fn register(&mut self, index: usize, parent: Option<usize>) {
        let Recovered { slot, label, .. } = self.blocks[index];
        let Some(block) = self.slots.get_mut(slot as usize).and_then(Option::take) else { return };
        // A block from the pool is `Reset`, so this is never refused.
        let Ok(complete) = block.complete(label.hash) else { return };
        let parent = parent.and_then(|parent| self.held[parent].as_ref());
        match self.pool.register(complete, parent) {
            Registered::New(block) => {
                if label.owner != OwnerId::NONE {
                    self.owners.push((block.id(), label.owner));
                }
                self.held[index] = Some(block);
                self.recovered += 1;
            }
            // The slot is free again, and its record must not come back. No other caller has the tier
            // yet.
            Registered::Deduplicated(_) => (self.forget)(slot),
        }
    }
}

#[cfg(test)]
mod tests;
