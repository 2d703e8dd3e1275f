//! Transfers up that have their device block and wait beside a full queue.

use crate::state::UpId;
use crate::transfer::{Class, Path};
use std::collections::VecDeque;

/// By class: keys and numbers of transfers.
type ByClass = [VecDeque<(UpId, u64)>; Class::ALL.len()];

/// The waiting transfers, by path and lane of its queue.
#[derive(Debug)]
pub(crate) struct WaitingForQueue(Box<[Vec<ByClass>]>);

impl WaitingForQueue {
    /// Makes lists for so many paths.
    pub(crate) fn new(paths: usize) -> WaitingForQueue {
        WaitingForQueue((0..paths).map(|_| Vec::new()).collect())
    }

    /// Returns the lanes of a path in which transfers wait, or once did.
    pub(crate) fn lanes(&self, path: Path) -> std::ops::Range<u16> {
        0..self.0[path.index()].len() as u16
    }

    /// Returns keys and numbers of the waiting transfers, the oldest first. Some may not wait any more.
    pub(crate) fn list(&mut self, path: Path, lane: u16, class: Class) -> &mut VecDeque<(UpId, u64)> {
        let (of_path, lane) = (&mut self.0[path.index()], usize::from(lane));
        if of_path.len() <= lane {
            of_path.resize_with(lane + 1, Default::default);
        }
        &mut of_path[lane][class as usize]
    }
}
