//! Blocks that are registered before they are written.

use crate::scheduler::Gate;
use crate::state::GroupId;
use kvstrata_core::{BlockId, BlockRef};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

/// By block: what is to write it.
#[derive(Default)]
pub(crate) struct Unwritten(HashMap<(GroupId, BlockId), Mark>);

/// Of a block that one or several lists have registered ahead: the iterations that these name, but for those
/// that have withdrawn.
struct Mark {
    one: u64,
    others: Vec<u64>,
}

impl Mark {
    /// The first, which writes it.
    fn iteration(&self) -> u64 {
        self.others.iter().copied().fold(self.one, u64::min)
    }

    /// One list less. Whether it was the last.
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

    /// The iteration that writes a block, if that is to come.
    pub(crate) fn iteration(&self, group: GroupId, block: BlockId) -> Option<u64> {
        if self.is_empty() { None } else { self.0.get(&(group, block)).map(Mark::iteration) }
    }

    /// Whether a block has a mark.
    pub(crate) fn has(&self, group: GroupId, block: BlockId) -> bool {
        self.0.contains_key(&(group, block))
    }

    /// One more list is to write a block, in this iteration.
    pub(crate) fn add(&mut self, group: GroupId, block: BlockId, iteration: u64) {
        match self.0.entry((group, block)) {
            Entry::Occupied(mark) => mark.into_mut().others.push(iteration),
            Entry::Vacant(mark) => _ = mark.insert(Mark { one: iteration, others: Vec::new() }),
        }
    }

    /// A block has no mark any more. Whether it had one.
    pub(crate) fn remove(&mut self, group: GroupId, block: BlockId) -> bool {
        self.0.remove(&(group, block)).is_some()
    }

    /// One list less is to write a block. Whether it was the last, and the iteration that writes the block
    /// otherwise; none: it has no mark.
    pub(crate) fn leave(&mut self, group: GroupId, block: BlockId, iteration: u64) -> Option<(bool, u64)> {
        let mark = self.0.get_mut(&(group, block))?;
        Some((mark.is_left_by(iteration), mark.iteration()))
    }
}

/// Blocks that one iteration writes, each held: a list's.
#[derive(Debug)]
pub(crate) struct Marked {
    pub(crate) group: GroupId,
    pub(crate) blocks: Vec<MarkedBlock>,
    pub(crate) iteration: u64,
    /// Or not: then they are held alone.
    pub(crate) withdrawn: bool,
    pub(crate) since: Duration,
}

impl Marked {
    /// How many, with those that were withdrawn.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Since when they wait, of an engine that last went on then, and is in this iteration: for the pass that
    /// runs or comes next it waits as long as that goes on.
    pub(crate) fn since(&self, (iteration, went_on): (u64, Duration)) -> Duration {
        if self.iteration <= iteration + 1 { self.since.max(went_on) } else { self.since }
    }
}

/// A marked block, and what it was registered behind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MarkedBlock {
    pub(crate) block: BlockRef,
    pub(crate) behind: Option<BlockRef>,
}

/// The gate of what takes all layers of an iteration.
pub(crate) fn written_after(iteration: u64) -> Gate {
    Gate::Layer { iteration, layer: u32::MAX }
}
