//! The moment at which something began.

use std::time::Duration;

/// When something began; none unless its duration is counted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Since(pub(crate) Option<Duration>);

impl Since {
    pub(crate) fn after(self, earlier: Since) -> Option<Duration> {
        Some(self.0?.saturating_sub(earlier.0?))
    }

    /// Begins now, unless it has begun already.
    pub(crate) fn begin(&mut self, now: Since) {
        self.0 = self.0.or(now.0);
    }
}
