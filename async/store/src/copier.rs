//! The port of copies in host memory.
//!
//! Invariants
//! - I1: each copy is answered, once: dropping it is the answer. A copy without an outcome has failed.
//! - I2: the guards of both sides are in the copy, so the memory has no other use before the answer.

use kvstrata_ffi::arena::{BlockRead, BlockWrite};
use kvstrata_tiers::transfer::Cause;
use std::fmt;
use std::sync::Arc;

/// Copies bytes in host memory. [`start`](Copier::start) neither copies nor waits.
pub trait Copier: Send + Sync + fmt::Debug {
    /// Starts copies. They may be carried out in any order, and at the same time.
    fn start(&self, copies: Vec<Copying>);
}

/// Receives the end of a copy. A copier's thread calls it: it must not block for long.
pub(crate) trait LandsCopies: Send + Sync {
    fn copied(&self, copied: Copied);
}

/// The end of a copy.
pub(crate) struct Copied {
    pub(crate) token: u64,
    /// the sum of the bytes (`sum_of_payload`).
    pub(crate) outcome: Result<u64, Cause>,
}

/// A copy to carry out.
pub struct Copying {
    token: u64,
    from: Option<BlockRead>,
    to: Option<BlockWrite>,
    expected: Option<u64>,
    outcome: Result<u64, Cause>,
    lands: Arc<dyn LandsCopies>,
}

impl Copying {
    pub(crate) fn new(
        token: u64,
        (from, to): (BlockRead, BlockWrite),
        expected: Option<u64>,
        lands: Arc<dyn LandsCopies>,
    ) -> Copying {
        let outcome = Err(Cause::Abandoned);
        Copying { token, from: Some(from), to: Some(to), expected, outcome, lands }
    }

    /// Carries the copy out: `copy` copies the first slice to the second, which is as long, and returns
    /// the sum of the bytes (`sum_of_payload`). Then drop the copy.
    pub fn carry_out(&mut self, copy: impl FnOnce(&[u8], &mut [u8]) -> u64) {
        let (Some(from), Some(to)) = (&self.from, &mut self.to) else { return };
        if from.len() != to.len() {
            self.outcome = Err(Cause::Busy);
            return;
        }
        let sum = copy(from, to);
        self.outcome = match self.expected {
            Some(expected) if expected != sum => Err(Cause::Mismatch),
            _ => Ok(sum),
        };
    }

    /// Returns the bytes to copy.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.from.as_ref().map_or(0, |from| from.len())
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        // The guards first: the answer may borrow the same blocks again.
        (self.from, self.to) = (None, None);
        self.lands.copied(Copied { token: self.token, outcome: self.outcome });
    }
}

impl fmt::Debug for Copying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Copying({} bytes)", self.bytes())
    }
}
