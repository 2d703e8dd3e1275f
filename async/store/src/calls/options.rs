//! Options of a batch.

use kvstrata_ffi::disk::Urgency;
use std::time::Duration;

/// When a store is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Until {
    /// When the tier below has the bytes: write-through as one call.
    #[default]
    Below,
    /// When host memory has them; the write goes on. Without a host tier as [`Below`](Until::Below).
    Host,
}

/// Options of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct BatchOptions {
    /// Which loads go first.
    pub urgency: Urgency,
    /// When a store is answered.
    pub until: Until,
    /// The deadline from now; `None`: that of the store's rules.
    pub within: Option<Duration>,
}

impl BatchOptions {
    /// Sets which loads go first. Default: ordinary.
    #[must_use]
    pub fn urgency(self, urgency: Urgency) -> BatchOptions {
        BatchOptions { urgency, ..self }
    }

    /// Sets when a store is answered. Default: when the tier below has the bytes.
    #[must_use]
    pub fn until(self, until: Until) -> BatchOptions {
        BatchOptions { until, ..self }
    }

    /// Sets the deadline, from now. Default: that of the store's rules.
    #[must_use]
    pub fn within(self, within: Duration) -> BatchOptions {
        BatchOptions { within: Some(within), ..self }
    }
}
