//! Transfers up that have landed, and wait to be registered until their parents' have ended.
//!
//! ```text
//!   transfer of the parent ─► link ─► link ─► …     each one a transfer that waits for it
//!   ended, or not waited for any more ─► over       to be registered with the change under way
//! ```

use crate::state::UpId;
use slab::Slab;

/// A transfer that waits for its parent's.
#[derive(Debug)]
struct Waits {
    key: UpId,
    serial: u64,
    /// Of those of the same parent.
    next: Option<u32>,
}

/// The first of the transfers that wait for one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Children(Option<u32>);

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct WaitingForParent {
    waiting: Slab<Waits>,
    /// Those that wait no more: key and serial.
    over: Vec<(UpId, u64)>,
}

impl WaitingForParent {
    /// A transfer waits for another, whose children it joins.
    pub(crate) fn wait(&mut self, children: &mut Children, key: UpId, serial: u64) {
        let waits = Waits { key, serial, next: children.0 };
        children.0 = Some(self.waiting.insert(waits) as u32);
    }

    /// A transfer has ended: its children wait no more.
    pub(crate) fn parent_ended(&mut self, children: Children) {
        let mut next = children.0;
        while let Some(at) = next {
            let waits = self.waiting.remove(at as usize);
            self.over.push((waits.key, waits.serial));
            next = waits.next;
        }
    }

    /// A transfer waits no more.
    pub(crate) fn wait_no_more(&mut self, key: UpId, serial: u64) {
        self.over.push((key, serial));
    }

    /// Takes one that waits no more, if it did still.
    pub(crate) fn pop_over(&mut self) -> Option<(UpId, u64)> {
        self.over.pop()
    }

    /// Whether some wait no more.
    pub(crate) fn any_over(&self) -> bool {
        !self.over.is_empty()
    }
}
