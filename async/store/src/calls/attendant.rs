//! The attendant of a store's deadlines, for its runtime.

use crate::engine::inner::Inner;
use kvstrata_tiers::Next;
use std::sync::Weak;

/// Answers a store's deadlines, for its runtime. It does not keep the store alive.
#[derive(Debug, Clone)]
pub struct StoreAttendant(pub(crate) Weak<Inner>);

impl StoreAttendant {
    /// Answers all that is late by now. Returns when to call again.
    #[must_use]
    pub fn on_time(&self) -> Next {
        let Some(inner) = self.0.upgrade() else { return Next::Never };
        let next = inner.with(|state| state.answer_late(&inner, inner.fixed.now()));
        next.map_or(Next::WhenTold, Next::At)
    }
}
