//! Whether a manager accepts calls: open, then refusing, then closed. There is no way back.

/// The phase of a manager, under its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Phase {
    #[default]
    Open,
    /// Transfers go on, but no call begins anything.
    Refusing,
    /// Nothing begins any more, not even the manager's own transfers.
    Closed,
}

impl Phase {
    pub(crate) fn refuses(self) -> bool {
        self >= Phase::Refusing
    }

    pub(crate) fn is_closed(self) -> bool {
        self == Phase::Closed
    }

    /// Moves to a later phase. Returns whether the phase was earlier.
    pub(crate) fn reach(&mut self, phase: Phase) -> bool {
        let news = *self < phase;
        *self = phase.max(*self);
        news
    }
}
