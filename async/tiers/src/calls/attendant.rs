//! Whoever attends to the deadlines of an engine, for its runtime.

use crate::engine::inner::Inner;
use std::sync::Weak;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Answers an engine's deadlines, for its runtime. It keeps no engine.
#[derive(Debug, Clone)]
pub struct Attendant(pub(crate) Weak<Inner>);

/// When an attendant is to be called next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// At this moment, or when the runtime is told of an earlier one.
    At(Duration),
    /// When the runtime is told of a moment.
    WhenTold,
    /// Never: the engine is gone.
    Never,
}

impl Attendant {
    /// Answers all who are late by now.
    #[must_use]
    pub fn on_time(&self) -> Next {
        let Some(inner) = self.0.upgrade() else { return Next::Never };
        let next = inner.with(|traffic| traffic.answer_late(&inner, inner.elapsed()));
        inner.leave();
        next.map_or(Next::WhenTold, Next::At)
    }

    /// The runtime ends: the engine gives nothing more, and what has not begun to move is cancelled. Whether
    /// the engine gave something until now; none: it is gone.
    #[must_use]
    pub fn close_for_good(&self) -> Option<bool> {
        let inner = self.0.upgrade()?;
        // Whoever has shut the tiers down, or let go of them, need not be told.
        let gave = !inner.refusing.load(Relaxed) && !inner.look().refuses();
        inner.close_for_good();
        inner.leave();
        Some(gave)
    }

    /// There is neither a runtime nor a thread any more: all who wait are late at once.
    pub fn answer_all(&self) {
        if let Some(inner) = self.0.upgrade() {
            inner.with(|traffic| while traffic.answer_first(&inner, None) {});
            inner.leave();
        }
    }
}
