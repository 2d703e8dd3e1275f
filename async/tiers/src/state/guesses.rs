//! Hints, hot blocks, and the prefetches under way.

use kvstrata_core::{SequenceHash, TenantId};
use kvstrata_ffi::disk::Name;
use std::collections::{BTreeSet, VecDeque};

/// What is to be brought up, and how far it is.
#[derive(Debug)]
pub(crate) struct Hint {
    pub(crate) number: u64,
    pub(crate) stack: u16,
    pub(crate) tenant: TenantId,
    pub(crate) hashes: Vec<SequenceHash>,
    pub(crate) next: usize,
}

/// What is guessed.
#[derive(Debug, Default)]
pub(crate) struct Guesses {
    pub(crate) hints: VecDeque<Hint>,
    pub(crate) hot: VecDeque<(u16, Name)>,
    /// How often something was said to be hot.
    pub(crate) noted: u64,
    /// Flights of this class.
    pub(crate) flights: BTreeSet<u32>,
}

impl Guesses {
    /// Whose hints there are.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = TenantId> {
        self.hints.iter().map(|hint| hint.tenant)
    }

    /// Whether no flight has a block that others may need.
    pub(crate) fn none_fly(&self) -> bool {
        self.flights.is_empty()
    }
}
