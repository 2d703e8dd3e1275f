//! Transfers up that have landed, and are registered only once their parents' transfers have ended.
//!
//! ```text
//!   transfer of the parent ─► link ─► link ─► …     each link a transfer that waits for it
//!   ended, or its wait given up ─► over             to be registered with the change under way
//! ```

use crate::state::UpId;
use slab::Slab;

/// A transfer that waits for its parent's transfer.
#[derive(Debug)]
struct Waits {
    key: UpId,
    serial: u64,
    /// The next transfer that waits for the same parent.
    next: Option<u32>,
}

/// The first of the transfers that wait for a parent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Children(Option<u32>);

/// All waiting transfers.
#[derive(Debug, Default)]
pub(crate) struct WaitingForParent {
    waiting: Slab<Waits>,
    /// Transfers that wait no more: key and serial.
    over: Vec<(UpId, u64)>,
}

impl WaitingForParent {
    /// Makes a transfer wait for another, as one of its children.
    pub(crate) fn wait(&mut self, children: &mut Children, key: UpId, serial: u64) {
        let waits = Waits { key, serial, next: children.0 };
        children.0 = Some(self.waiting.insert(waits) as u32);
    }

    /// Ends the wait of the children of a transfer that has ended.
    pub(crate) fn parent_ended(&mut self, children: Children) {
        let mut next = children.0;
        while let Some(at) = next {
            let waits = self.waiting.remove(at as usize);
            self.over.push((waits.key, waits.serial));
            next = waits.next;
        }
    }

    /// Ends the wait of a transfer.
    pub(crate) fn wait_no_more(&mut self, key: UpId, serial: u64) {
        self.over.push((key, serial));
    }

    /// Takes out a transfer that waits no more; it may have ended before.
    pub(crate) fn pop_over(&mut self) -> Option<(UpId, u64)> {
        self.over.pop()
    }

    /// Whether some transfers wait no more.
    pub(crate) fn any_over(&self) -> bool {
        !self.over.is_empty()
    }
}
