//! The moment at which something began.

use std::time::Duration;

/// When something began; nothing where nobody asks how long it takes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Since(pub(crate) Option<Duration>);

impl Since {
    pub(crate) fn after(self, earlier: Since) -> Option<Duration> {
        Some(self.0?.saturating_sub(earlier.0?))
    }

    /// It begins now, unless it has begun.
    pub(crate) fn begin(&mut self, now: Since) {
        self.0 = self.0.or(now.0);
    }
}
