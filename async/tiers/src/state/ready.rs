//! Victims that need no copy any more.

use kvstrata_core::BlockRef;
use std::collections::VecDeque;

/// Entries that are checked between two iterations.
const SWEPT: usize = 128;

#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadyBlock {
    pub(crate) block: BlockRef,
    /// When the block was last used.
    pub(crate) used: u64,
}

/// The ready victims of a tier.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    queue: VecDeque<ReadyBlock>,
    /// By block: the generation that is in the queue, plus one; 0: none.
    queued: Vec<u32>,
    /// Where the next sweep begins.
    swept: usize,
}

impl Ready {
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the entry at a place, from the front.
    pub(crate) fn get(&self, at: usize) -> Option<ReadyBlock> {
        self.queue.get(at).copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = ReadyBlock> {
        self.queue.iter().copied()
    }

    pub(crate) fn has(&self, block: BlockRef) -> bool {
        self.queued.get(block.id.index()) == Some(&block.generation.wrapping_add(1))
    }

    pub(crate) fn push(&mut self, block: BlockRef, used: u64) {
        if self.queued.len() <= block.id.index() {
            self.queued.resize(block.id.index() + 1, 0);
        }
        self.queued[block.id.index()] = block.generation.wrapping_add(1);
        self.queue.push_back(ReadyBlock { block, used });
    }

    pub(crate) fn remove(&mut self, at: usize) {
        if let Some(entry) = self.queue.remove(at)
            && self.has(entry.block)
        {
            self.queued[entry.block.id.index()] = 0;
        }
        if at < self.swept {
            self.swept -= 1;
        }
    }

    /// Checks the next few entries, and drops those that are not ready any more.
    pub(crate) fn sweep(&mut self, is_ready: impl Fn(ReadyBlock) -> bool) {
        let from = self.swept.min(self.queue.len());
        let (to, mut kept) = (from.saturating_add(SWEPT).min(self.queue.len()), from);
        for at in from..to {
            let entry = self.queue[at];
            if is_ready(entry) {
                self.queue[kept] = entry;
                kept += 1;
            } else if self.has(entry.block) {
                self.queued[entry.block.id.index()] = 0;
            }
        }
        self.queue.drain(kept..to);
        self.swept = if kept == self.queue.len() { 0 } else { kept };
    }
}
