//! Deadlines, by time.

use crate::state::Id;
use crate::transfer::Path;
use futures_channel::oneshot;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// Who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Waits {
    Place {
        stack: u16,
        number: u64,
    },
    Onboarding(u32),
    Offloading(u32),
    /// For an iteration's bytes.
    Iteration,
    /// For a moment.
    Moment(u64),
    /// In a group's line, for writes to the tier below.
    Below(u16),
    /// Until a path that was too slow has recovered.
    Recovery(Path),
    /// A flight, before another attempt: its number.
    Retry(Id, u64),
    /// Behind gates, for an engine that does not go on.
    Gates,
}

/// By time.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    pub(crate) by_time: BTreeSet<(Duration, Waits)>,
    /// Who is told that a moment has come.
    pub(crate) moments: HashMap<u64, oneshot::Sender<()>>,
    pub(crate) last_moment: u64,
}
