//! Whether a manager takes more: open, then refusing, then closed. There is no way back.

/// Of a manager, under its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Phase {
    #[default]
    Open,
    /// What is under way goes on, and no call begins anything.
    Refusing,
    /// Nothing begins any more, transfers that the manager itself would begin included.
    Closed,
}

impl Phase {
    pub(crate) fn refuses(self) -> bool {
        self >= Phase::Refusing
    }

    pub(crate) fn is_closed(self) -> bool {
        self == Phase::Closed
    }

    /// Goes on to a later one. Whether that was news.
    pub(crate) fn reach(&mut self, phase: Phase) -> bool {
        let news = *self < phase;
        *self = phase.max(*self);
        news
    }
}
