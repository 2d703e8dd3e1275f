//! The state of a volume: how many requests it takes at once, where it lies, and what the ring thread
//! last reported. The report may be a moment old, so it is used only to refuse, to count and to inform.

use super::super::format::Shape;
use super::super::stats::ServiceState;
use super::Volume;
use kvstrata_core::storage::{Storage, StorageKind};

impl Volume {
    /// Reads that may be under way without a call waiting for room in the queue.
    #[must_use]
    pub fn reads_at_once(&self) -> usize {
        self.queue
    }

    /// Writes that may be under way without a call waiting for room. Forgotten slots count too: they
    /// share the queue.
    #[must_use]
    pub fn writes_at_once(&self) -> usize {
        self.bounce.as_ref().map_or(self.queue, |bounce| bounce.arena().blocks().min(self.queue))
    }

    /// Which service the volume offers now. The answer may be a moment old.
    #[must_use]
    pub fn state(&self) -> ServiceState {
        self.inbox.counters.state()
    }

    /// Whether the file of a kept volume was removed, or replaced by another, while in use. Such a file
    /// is still served, but its blocks are gone with the process. Checked every few seconds while
    /// requests arrive.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.inbox.counters.removed.get() != 0
    }

    /// Whether a failure now says nothing about the requested slot: the device fails as a whole, or is
    /// being probed for that.
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
