//! How a volume is, as the ring thread last said. Each is a moment old: nothing but what is refused, counted, or said follows from it.

use super::super::format::Shape;
use super::super::stats::ServiceState;
use super::Volume;

impl Volume {
    /// What it does for its callers now; a moment old.
    #[must_use]
    pub fn state(&self) -> ServiceState {
        self.inbox.counters.state()
    }

    /// Whether the file of a kept volume was removed, or replaced by another, while it is used: it is served on, and what it holds is gone with
    /// the process. Looked at every few seconds while something is asked for.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.inbox.counters.removed.get() != 0
    }

    /// Whether a failure now says nothing of the slot that was asked for: the device fails as a whole, or it is being found out whether it
    /// does.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        self.inbox.counters.doubt.get() != 0
    }

    pub(in crate::disk) fn shape(&self) -> &Shape {
        &self.shape
    }
}
