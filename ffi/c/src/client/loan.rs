//! The loan of a batch's memory, from the call until nothing holds it any more.
//!
//! A batch may have all its answers a moment before the last thread that moved its bytes lets go of the
//! memory. The caller is told only after that.
//!
//! ```text
//!   Lent ── the owner is dropped ─────────────────────► Over
//!    └─ the answers are there first ──► Awaited ── the owner is dropped: it rings ──► Over
//! ```

use crate::bell::Bell;
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Lent,
    Awaited,
    Over,
}

/// A batch's view of its loan.
#[derive(Debug)]
pub(super) struct Loan(Mutex<State>);

/// The memory's owner: its drop ends the loan.
#[derive(Debug)]
pub(super) struct Owner {
    loan: Arc<Loan>,
    bell: Arc<Bell>,
}

impl Loan {
    /// Begins a loan. The bell rings at its end, if someone waits for it then.
    pub(super) fn begin(bell: &Arc<Bell>) -> (Arc<Loan>, Owner) {
        let loan = Arc::new(Loan(Mutex::new(State::Lent)));
        (Arc::clone(&loan), Owner { loan, bell: Arc::clone(bell) })
    }

    /// Returns whether the loan is over. If not, its end will ring the bell.
    pub(super) fn is_over(&self) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *state == State::Lent {
            *state = State::Awaited;
        }
        *state == State::Over
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let mut state = self.loan.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_awaited = *state == State::Awaited;
        *state = State::Over;
        drop(state);
        if is_awaited {
            self.bell.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bell::{Limit, poll};
    use kvstrata_ffi::EventFd;

    #[test]
    fn end_of_a_loan_rings_only_if_awaited() {
        let eventfd = EventFd::new().expect("eventfd");
        // SAFETY: the eventfd is open.
        let bell = Arc::new(unsafe { Bell::of(eventfd.raw()) }.expect("a descriptor"));
        let rings = || poll([eventfd.raw()], Limit::of(0)).expect("poll") == [true];

        let (loan, owner) = Loan::begin(&bell);
        drop(owner);
        assert!(loan.is_over() && !rings(), "over before anyone asked");

        let (loan, owner) = Loan::begin(&bell);
        assert!(!loan.is_over() && !loan.is_over() && !rings());
        drop(owner);
        assert!(rings() && loan.is_over());
    }
}
