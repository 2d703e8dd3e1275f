//! An observer of an engine's figures that does not keep the engine alive.

use crate::calls::metrics::metrics;
use crate::calls::tiers::Tiers;
use crate::engine::inner::Inner;
use crate::metrics::Metrics;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

/// Observes tiers without keeping them alive.
#[derive(Debug, Clone)]
pub struct Watcher(Weak<Inner>);

impl Watcher {
    /// Returns all figures, while the tiers exist.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn metrics(&self) -> Option<Metrics> {
        let inner = self.0.upgrade()?;
        let figures = metrics(&inner);
        inner.leave();
        Some(figures)
    }

    /// Returns whether the tiers exist and give blocks.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn gives(&self) -> bool {
        let Some(inner) = self.0.upgrade() else { return false };
        let refuses = inner.refusing.load(Relaxed);
        inner.leave();
        !refuses
    }
}

impl Tiers {
    /// Returns an observer, for a program that shows figures beside the tiers.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn watcher(&self) -> Watcher {
        Watcher(Arc::downgrade(self.inner()))
    }
}
