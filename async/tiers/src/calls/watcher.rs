//! Whoever watches the figures of an engine, and keeps none.

use crate::calls::metrics::metrics;
use crate::calls::tiers::Tiers;
use crate::engine::inner::Inner;
use crate::metrics::Metrics;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

/// Watches tiers, and keeps none.
#[derive(Debug, Clone)]
pub struct Watcher(Weak<Inner>);

impl Watcher {
    /// All figures, while the tiers are there.
    #[must_use]
    pub fn metrics(&self) -> Option<Metrics> {
        let inner = self.0.upgrade()?;
        let figures = metrics(&inner);
        inner.leave();
        Some(figures)
    }

    /// Whether the tiers are there, and give blocks.
    #[must_use]
    pub fn gives(&self) -> bool {
        let Some(inner) = self.0.upgrade() else { return false };
        let refuses = inner.refusing.load(Relaxed);
        inner.leave();
        !refuses
    }
}

impl Tiers {
    /// For whoever shows figures beside the tiers.
    #[must_use]
    pub fn watcher(&self) -> Watcher {
        Watcher(Arc::downgrade(self.inner()))
    }
}
