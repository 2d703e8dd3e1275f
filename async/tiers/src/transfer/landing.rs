//! The answer of a transfer: exactly one, from any thread, in every case.
//!
//! # Orderings
//! Relaxed: only the drop of a landing asks whether an answer is owed, and a drop is ordered after all
//! uses of the landing.

use super::copies::Copy;
use super::failure::{Cause, Failure};
use kvstrata_ffi::arena::{BlockRead, BlockWrite};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The engine's own number of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

/// A transfer that has ended, with the guards of host memory that it had.
#[derive(Debug)]
pub enum Landed {
    /// Copies between device and host memory, each with its outcome. The list goes back to the engine,
    /// which uses it again.
    Copies(Vec<Copy>),
    /// A read from the disk.
    Read(Token, Result<BlockWrite, Failure>),
    /// A write to the disk. If it succeeded, the block is in the tier; if not, its slot no longer
    /// belongs to the engine.
    Write(Token, Result<BlockRead, Failure>),
}

/// The receiver of answers. A mover's thread or the submitting thread calls it: it must not block for long.
pub trait Lands: Send + Sync {
    /// Receives the end of a transfer.
    fn landed(&self, landed: Landed);
}

/// The place where a transfer is answered. If the landing of a disk read or write is dropped without an
/// answer, it answers by itself, with [`Cause::Abandoned`](super::Cause::Abandoned). So there is only
/// one: code that hands a transfer on hands its landing on too. Code that wants to hear of the end
/// passes a landing of its own, and keeps this one for the answer.
///
/// ```compile_fail,E0599
/// fn two_duties(read: &kvstrata::backend::transfer::TierRead) -> kvstrata::backend::transfer::Landing {
///     read.landing.clone()
/// }
/// ```
pub struct Landing {
    lands: Arc<dyn Lands>,
    /// No answer has been given yet.
    owes: AtomicBool,
    of: Of,
}

/// The transfer to answer.
enum Of {
    Any,
    Read(Token),
    Write(Token),
}

impl Landing {
    /// Returns a landing that tells `lands`.
    #[must_use]
    pub fn new(lands: Arc<dyn Lands>) -> Landing {
        Landing { lands, owes: AtomicBool::new(false), of: Of::Any }
    }

    /// Makes it the landing of a read, which is answered in every case.
    pub fn of_read(mut self, token: Token) -> Landing {
        (self.of, self.owes) = (Of::Read(token), AtomicBool::new(true));
        self
    }

    /// Makes it the landing of a write, which is answered in every case.
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
