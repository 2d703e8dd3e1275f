//! The policy's figures against LRU, for metrics. The learner writes them, on a cache line of their own.
//!
//! Relaxed throughout: nothing depends on these figures, and two may be of different moments. So
//! models leave their orders out.

use super::guard::Guard;
use super::shadow::Shadow;
use crate::policy::stats::ReuseStats;
use crate::sync::figures::{AtomicU32, AtomicU64, Relaxed};

pub(super) struct Standing {
    ahead: AtomicU64,
    ghosts: AtomicU32,
    setbacks: AtomicU32,
    unheard: AtomicU64,
}

impl Standing {
    pub(super) fn new() -> Standing {
        let (word, long) = (|| AtomicU32::new(0), || AtomicU64::new(0));
        Standing { ahead: long(), ghosts: word(), setbacks: word(), unheard: long() }
    }

    pub(super) fn set(&self, shadow: &Shadow, guard: &Guard) {
        self.ahead.store((-shadow.deficit()) as u64, Relaxed);
        self.ghosts.store(shadow.ghosts(), Relaxed);
        self.setbacks.store(guard.tries(), Relaxed);
    }

    /// Counts lost records. The learner alone calls it.
    #[cold]
    pub(super) fn lost(&self, blocks: u32) {
        self.unheard.store(self.unheard.load(Relaxed) + u64::from(blocks), Relaxed);
    }

    pub(super) fn read(&self, ghosts_allowed: u32) -> ReuseStats {
        ReuseStats {
            ahead: self.ahead.load(Relaxed) as i64,
            ghosts: self.ghosts.load(Relaxed),
            ghosts_allowed,
            setbacks: self.setbacks.load(Relaxed),
            unheard: self.unheard.load(Relaxed),
        }
    }
}
