//! The changing parts of a size class: its queues, the transfers under way, its staging blocks, its breaker.

use crate::state::{ReadKey, TransferId, WriteKey};
use kvstrata_core::BlockId;
use kvstrata_tiers::transfer::Breaker;
use std::collections::VecDeque;
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Lane {
    /// Reads that wait for their turn.
    pub(crate) reads: VecDeque<ReadKey>,
    /// Writes from lent memory that wait for room in the host or in staging.
    pub(crate) arrived: VecDeque<WriteKey>,
    /// Writes that wait for their turn at the tier below.
    pub(crate) ready: VecDeque<WriteKey>,
    /// Transfers to and from the tier below in the order of their starts. Those that have ended are removed
    /// when they come first.
    pub(crate) started: VecDeque<(Duration, TransferId)>,
    pub(crate) reads_moving: u32,
    pub(crate) writes_moving: u32,
    /// Reads and writes under way at most.
    pub(crate) most: [u32; 2],
    pub(crate) staging_blocks: usize,
    /// Staging blocks that are free.
    pub(crate) staging: Vec<BlockId>,
    pub(crate) breaker: Breaker,
}

impl Lane {
    pub(crate) fn new(most: [u32; 2], staging: Vec<BlockId>, breaker: Breaker) -> Lane {
        Lane {
            reads: VecDeque::new(),
            arrived: VecDeque::new(),
            ready: VecDeque::new(),
            started: VecDeque::new(),
            reads_moving: 0,
            writes_moving: 0,
            most,
            staging_blocks: staging.len(),
            staging,
            breaker,
        }
    }

    /// Returns how many transfers wait.
    pub(crate) fn waiting(&self) -> usize {
        self.reads.len() + self.arrived.len() + self.ready.len()
    }

    /// Returns whether nothing moves to or from the tier below.
    pub(crate) fn is_still(&self) -> bool {
        self.reads_moving + self.writes_moving == 0
    }
}
