//! How a transfer is answered: once, by whatever thread, whatever happens.

use super::copies::Copy;
use super::failure::Failure;
use kvstrata_ffi::arena::{BlockRead, BlockWrite};
use std::sync::Arc;

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

/// Where a transfer is answered.
#[derive(Clone)]
pub struct Landing(Arc<dyn Lands>);

impl Landing {
    /// Tells `lands`.
    #[must_use]
    pub fn new(lands: Arc<dyn Lands>) -> Landing {
        Landing(lands)
    }

    /// Answers.
    pub fn land(&self, landed: Landed) {
        self.0.landed(landed);
    }
}

impl std::fmt::Debug for Landing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Landing")
    }
}
