//! Names of blocks that are not full.

use crate::places::random_seed;
use kvstrata_core::hash::BlockHasher;
use kvstrata_core::{Keyed, SequenceHash};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Names that no sequence has, nor another manager's blocks, and that no other of them tells: numbers under a
/// secret of their own.
#[derive(Debug)]
pub(crate) struct Naming {
    number: AtomicU64,
    secret: Keyed,
}

impl Naming {
    /// From the same, the same names.
    pub(crate) fn new(from: Option<u64>) -> Naming {
        let from = from.map_or_else(|| std::array::from_fn(|_| random_seed()), |from| [from; 4]);
        let secret = Keyed::new(&std::array::from_fn(|at| from[at / 8].to_le_bytes()[at % 8]));
        Naming { number: AtomicU64::new(0), secret }
    }

    pub(crate) fn one(&self) -> SequenceHash {
        // Relaxed: only that the numbers differ.
        let number = self.number.fetch_add(1, Relaxed);
        SequenceHash::from_u128(self.secret.bytes(&number.to_le_bytes()))
    }
}
