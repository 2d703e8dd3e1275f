//! Effects of a change, carried out once the lock is released.

use crate::copier::Copying;
use crate::outcome::Completion;
use crate::state::Sink;
use kvstrata_tiers::transfer::{TierPort, TierRead, TierWrite};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) reads: Vec<(Arc<dyn TierPort>, TierRead)>,
    pub(crate) writes: Vec<(Arc<dyn TierPort>, TierWrite)>,
    pub(crate) copies: Vec<Copying>,
    pub(crate) ended: Vec<(Sink, Completion)>,
    /// Tiers that are to forget released slots.
    pub(crate) forget: Vec<Arc<dyn TierPort>>,
    /// A new first deadline.
    pub(crate) wake_at: Option<Duration>,
    /// Nothing is under way any more.
    pub(crate) is_idle: bool,
}

impl Effects {
    pub(crate) fn is_empty(&self) -> bool {
        self.reads.is_empty()
            && self.writes.is_empty()
            && self.copies.is_empty()
            && self.ended.is_empty()
            && self.forget.is_empty()
            && self.wake_at.is_none()
            && !self.is_idle
    }
}
