//! The bytes that an iteration of the model allows (`iteration.bytes`): one budget for the
//! queues of all paths.
//!
//! Invariants
//! - I1: an iteration spends at most its budget, or one transfer that is larger than the whole budget.
//!   While no engine iterates, the budget is lifted, until one does.
//! - I2: no transfer is too large for ever: a full budget allows any. So the owner of the queues asks
//!   them in turn, another one first after each refill. If one path were always asked first, it could
//!   keep another's transfers from ever finding the budget full enough.

/// The rest of the budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowance {
    /// None: no limit.
    budget: Option<u64>,
    left: u64,
}

impl Allowance {
    /// Returns a full allowance of `budget` bytes an iteration; none: unlimited.
    #[must_use]
    pub const fn new(budget: Option<u64>) -> Allowance {
        let left = match budget {
            Some(bytes) => bytes,
            None => 0,
        };
        Allowance { budget, left }
    }

    /// Refills the budget: an iteration begins.
    pub const fn refill(&mut self) {
        *self = Allowance::new(self.budget);
    }

    /// Lifts the limit until the next iteration: before it, transfers disturb none.
    pub const fn lift(&mut self) {
        self.left = u64::MAX;
    }

    /// Returns whether a transfer may have to wait for an iteration.
    #[must_use]
    pub const fn is_limited(&self) -> bool {
        self.budget.is_some() && self.left < u64::MAX
    }

    /// Returns the bytes left; none: unlimited.
    #[must_use]
    pub const fn left(&self) -> Option<u64> {
        match self.budget {
            Some(_) => Some(self.left),
            None => None,
        }
    }

    /// Returns whether a transfer of so many bytes may go.
    #[must_use]
    pub fn allows(&self, bytes: u64) -> bool {
        self.budget.is_none_or(|budget| bytes <= self.left || self.left == budget)
    }

    /// Spends the bytes of a transfer that goes.
    pub(super) fn spend(&mut self, bytes: u64) {
        if self.is_limited() {
            self.left = self.left.saturating_sub(bytes);
        }
    }
}
