//! Names of blocks that are not full.

use crate::places::random_seed;
use kvstrata_core::hash::BlockHasher;
use kvstrata_core::{Keyed, SequenceHash};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Gives names that neither sequences nor other managers' blocks have. Each is a number, hashed with a
/// secret of this manager, so that no name reveals another.
#[derive(Debug)]
pub(crate) struct Naming {
    number: AtomicU64,
    secret: Keyed,
}

impl Naming {
    /// Makes the secret from a number, so that equal numbers give equal names; from random numbers if
    /// there is none.
    pub(crate) fn new(from: Option<u64>) -> Naming {
        let from = from.map_or_else(|| std::array::from_fn(|_| random_seed()), |from| [from; 4]);
        let secret = Keyed::new(&std::array::from_fn(|at| from[at / 8].to_le_bytes()[at % 8]));
        Naming { number: AtomicU64::new(0), secret }
    }

    pub(crate) fn one(&self) -> SequenceHash {
        // Relaxed: the numbers need only differ.
        let number = self.number.fetch_add(1, Relaxed);
        SequenceHash::from_u128(self.secret.bytes(&number.to_le_bytes()))
    }
}
