//! Blocks that are registered before they are written.

use crate::scheduler::Gate;
use crate::state::GroupId;
use kvstrata_core::{BlockId, BlockRef};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

/// By block: the iterations that are to write it.
#[derive(Default)]
pub(crate) struct Unwritten(HashMap<(GroupId, BlockId), Mark>);

/// The iterations for which lists have registered a block ahead, without the lists that have withdrawn.
struct Mark {
    one: u64,
    others: Vec<u64>,
}

impl Mark {
    /// Returns the earliest iteration, which writes the block.
    fn iteration(&self) -> u64 {
        self.others.iter().copied().fold(self.one, u64::min)
    }

    /// Removes a list. Returns whether it was the last.
    fn is_left_by(&mut self, iteration: u64) -> bool {
        match self.others.iter().position(|of| *of == iteration) {
            Some(at) => _ = self.others.swap_remove(at),
            None => match self.others.pop() {
                Some(other) => self.one = other,
                None => return true,
            },
        }
        false
    }
}

impl Unwritten {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the iteration that is to write a block, if any.
    pub(crate) fn iteration(&self, group: GroupId, block: BlockId) -> Option<u64> {
        if self.is_empty() { None } else { self.0.get(&(group, block)).map(Mark::iteration) }
    }

    /// Whether a block has a mark.
    pub(crate) fn has(&self, group: GroupId, block: BlockId) -> bool {
        self.0.contains_key(&(group, block))
    }

    /// Adds a list that is to write a block, in this iteration.
    pub(crate) fn add(&mut self, group: GroupId, block: BlockId, iteration: u64) {
        match self.0.entry((group, block)) {
            Entry::Occupied(mark) => mark.into_mut().others.push(iteration),
            Entry::Vacant(mark) => _ = mark.insert(Mark { one: iteration, others: Vec::new() }),
        }
    }

    /// Removes a block's mark. Returns whether it had one.
    pub(crate) fn remove(&mut self, group: GroupId, block: BlockId) -> bool {
        self.0.remove(&(group, block)).is_some()
    }

    /// Removes a list that was to write a block. Returns whether it was the last, and otherwise the
    /// iteration that writes the block; none if the block has no mark.
    pub(crate) fn leave(&mut self, group: GroupId, block: BlockId, iteration: u64) -> Option<(bool, u64)> {
        let mark = self.0.get_mut(&(group, block))?;
        Some((mark.is_left_by(iteration), mark.iteration()))
    }
}

/// The blocks of a list that one iteration writes, each held.
#[derive(Debug)]
pub(crate) struct Marked {
    pub(crate) group: GroupId,
    pub(crate) blocks: Vec<MarkedBlock>,
    pub(crate) iteration: u64,
    /// The list has withdrawn, and only holds its blocks.
    pub(crate) withdrawn: bool,
    pub(crate) since: Duration,
}

impl Marked {
    /// Returns the number of blocks, withdrawn ones included.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Returns since when the blocks wait. The engine is in `iteration`, and last made progress at `went_on`:
    /// blocks of the running or the next pass wait anew from then on.
    pub(crate) fn since(&self, (iteration, went_on): (u64, Duration)) -> Duration {
        if self.iteration <= iteration + 1 { self.since.max(went_on) } else { self.since }
    }
}

/// A marked block, and the block that it was registered behind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MarkedBlock {
    pub(crate) block: BlockRef,
    pub(crate) behind: Option<BlockRef>,
}

/// Returns the gate that opens when all layers of an iteration are done.
pub(crate) fn written_after(iteration: u64) -> Gate {
    Gate::Layer { iteration, layer: u32::MAX }
}
