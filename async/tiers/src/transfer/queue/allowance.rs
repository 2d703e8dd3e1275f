//! The bytes that an iteration of the model allows (`iteration.bytes`): one budget for the queues of all paths.
//!
//! Invariants
//! - I1: what an iteration spends is at most its budget, or one transfer that is larger than the whole of it; where nobody iterates, it is
//!   lifted until somebody does.
//! - I2: no transfer is too large for ever: a full budget allows any. So whoever owns the queues asks them in turn, another one first
//!   after each refill: always asked first, one path could keep another's transfers from ever finding the budget full enough.

/// What is left of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowance {
    /// None: no limit.
    budget: Option<u64>,
    left: u64,
}

impl Allowance {
    /// A full one of `budget` bytes an iteration; none: unlimited.
    #[must_use]
    pub const fn new(budget: Option<u64>) -> Allowance {
        let left = match budget {
            Some(bytes) => bytes,
            None => 0,
        };
        Allowance { budget, left }
    }

    /// An iteration begins.
    pub const fn refill(&mut self) {
        *self = Allowance::new(self.budget);
    }

    /// Nobody is disturbed until the next iteration: it allows any number until then.
    pub const fn lift(&mut self) {
        self.left = u64::MAX;
    }

    /// Whether something may have to wait for an iteration.
    #[must_use]
    pub const fn is_limited(&self) -> bool {
        self.budget.is_some() && self.left < u64::MAX
    }

    /// Bytes left; none: unlimited.
    #[must_use]
    pub const fn left(&self) -> Option<u64> {
        match self.budget {
            Some(_) => Some(self.left),
            None => None,
        }
    }

    /// Whether a transfer of so many bytes may go.
    #[must_use]
    pub fn allows(&self, bytes: u64) -> bool {
        self.budget.is_none_or(|budget| bytes <= self.left || self.left == budget)
    }

    /// One has gone.
    pub(super) fn spend(&mut self, bytes: u64) {
        if self.is_limited() {
            self.left = self.left.saturating_sub(bytes);
        }
    }
}
