//! The attendant of an engine's deadlines, for its runtime.

use crate::engine::inner::Inner;
use std::sync::Weak;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Answers an engine's deadlines, for its runtime. It does not keep the engine alive.
#[derive(Debug, Clone)]
pub struct Attendant(pub(crate) Weak<Inner>);

/// When the runtime has to call an attendant next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// At this moment, or earlier if the runtime is told of an earlier one.
    At(Duration),
    /// When the runtime is told of a moment.
    WhenTold,
    /// Never: the engine is gone.
    Never,
}

impl Attendant {
    /// Answers all calls that are late by now.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/src/manager/attendance.rs)
    #[must_use]
    pub fn on_time(&self) -> Next {
        let Some(inner) = self.0.upgrade() else { return Next::Never };
        let next = inner.with(|traffic| traffic.answer_late(&inner, inner.elapsed()));
        inner.leave();
        next.map_or(Next::WhenTold, Next::At)
    }

    /// Closes the engine, since its runtime ends: it gives nothing more, and transfers that have not
    /// begun to move are cancelled. Returns whether the engine gave blocks until now; none if it is gone.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/src/manager/attendance.rs)
    #[must_use]
    pub fn close_for_good(&self) -> Option<bool> {
        let inner = self.0.upgrade()?;
        // A caller that has shut the tiers down, or dropped them, need not be told.
        let gave = !inner.refusing.load(Relaxed) && !inner.look().refuses();
        inner.close_for_good();
        inner.leave();
        Some(gave)
    }

    /// Answers all waiting calls as late, since there is neither a runtime nor a thread any more.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/src/manager/attendance.rs)
    pub fn answer_all(&self) {
        if let Some(inner) = self.0.upgrade() {
            inner.with(|traffic| while traffic.answer_first(&inner, None) {});
            inner.leave();
        }
    }
}
