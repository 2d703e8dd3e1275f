//! How a volume is: what it takes at once, where it lies, and what the ring thread last said of it.
//! That is a moment old: nothing but what is refused, counted, or said follows from it.

use super::super::format::Shape;
use super::super::stats::ServiceState;
use super::Volume;
use kvstrata_core::storage::{Storage, StorageKind};

impl Volume {
    /// Reads that may be under way so that nobody waits for room.
    #[must_use]
    pub fn reads_at_once(&self) -> usize {
        self.queue
    }

    /// The same of writes; what is forgotten is in their queue too.
    #[must_use]
    pub fn writes_at_once(&self) -> usize {
        self.bounce.as_ref().map_or(self.queue, |bounce| bounce.arena().blocks().min(self.queue))
    }

    /// What it does for its callers now; a moment old.
    #[must_use]
    pub fn state(&self) -> ServiceState {
        self.inbox.counters.state()
    }

    /// Whether the file of a kept volume was removed, or replaced by another, while it is used: it is
    /// served on, and what it holds is gone with the process. Looked at every few seconds while something
    /// is asked for.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.inbox.counters.removed.get() != 0
    }

    /// Whether a failure now says nothing of the slot that was asked for: the device fails as a whole, or
    /// it is being found out whether it does.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        self.inbox.counters.doubt.get() != 0
    }

    pub(in crate::disk) fn shape(&self) -> &Shape {
        &self.shape
    }
}

impl Storage for Volume {
    fn kind(&self) -> StorageKind {
        StorageKind::Disk { volume: self.index }
    }

    /// Offset of slot 0 in the file.
    fn base_address(&self) -> u64 {
        self.shape.origin
    }

    fn size_bytes(&self) -> u64 {
        u64::from(self.shape.slots) * self.shape.stride
    }
}
