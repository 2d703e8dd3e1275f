//! How a transfer is answered: once, by whatever thread, whatever happens.
//!
//! # Orderings
//! Relaxed: whether an answer is owed is told to nobody else than who drops the landing, which is ordered behind all that was done with it.

use super::copies::Copy;
use super::failure::{Cause, Failure};
use kvstrata_ffi::arena::{BlockRead, BlockWrite};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Which transfer it was: the manager's own number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

/// What has ended, with the guards of host memory that it had.
#[derive(Debug)]
pub enum Landed {
    /// Copies between device and host memory; each has its outcome. The list is the manager's, and used again.
    Copies(Vec<Copy>),
    /// A read from the disk.
    Read(Token, Result<BlockWrite, Failure>),
    /// A write to it. If it succeeded, the block is in the tier; if not, its slot is no longer the manager's.
    Write(Token, Result<BlockRead, Failure>),
}

/// Who is told. Called by a mover's thread, or by whoever submitted: must not block for long.
pub trait Lands: Send + Sync {
    /// Takes note of an end.
    fn landed(&self, landed: Landed);
}

/// Where a transfer is answered. That of a read or a write of the disk answers by itself, when it is dropped before somebody has: with
/// [`Cause::Abandoned`](super::Cause::Abandoned). So it is no more than one: who hands a transfer on, hands this on, and who wants to hear of its
/// end gives a landing of its own, and keeps this one for the answer.
///
/// ```compile_fail,E0599
/// fn two_duties(read: &kvstrata::transfer::TierRead) -> kvstrata::transfer::Landing {
///     read.landing.clone()
/// }
/// ```
pub struct Landing {
    lands: Arc<dyn Lands>,
    /// Nobody has answered yet.
    owes: AtomicBool,
    of: Of,
}

/// What is answered.
enum Of {
    Any,
    Read(Token),
    Write(Token),
}

impl Landing {
    /// Tells `lands`.
    #[must_use]
    pub fn new(lands: Arc<dyn Lands>) -> Landing {
        Landing { lands, owes: AtomicBool::new(false), of: Of::Any }
    }

    /// Of a read, which is answered whatever happens.
    pub fn of_read(mut self, token: Token) -> Landing {
        (self.of, self.owes) = (Of::Read(token), AtomicBool::new(true));
        self
    }

    /// Of a write.
    pub fn of_write(mut self, token: Token) -> Landing {
        (self.of, self.owes) = (Of::Write(token), AtomicBool::new(true));
        self
    }

    /// Answers.
    pub fn land(&self, landed: Landed) {
        self.owes.store(false, Relaxed);
        self.lands.landed(landed);
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        let abandoned = Failure::of(Cause::Abandoned);
        match self.of {
            _ if !*self.owes.get_mut() => {}
            Of::Any => {}
            Of::Read(token) => self.lands.landed(Landed::Read(token, Err(abandoned))),
            Of::Write(token) => self.lands.landed(Landed::Write(token, Err(abandoned))),
        }
    }
}

impl std::fmt::Debug for Landing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Landing")
    }
}
