//! What a pool carries for its policy, from one call to the next, and never looks into.
//!
//! Each type lies on the stack of a pool's call and allocates nothing. A policy that keeps something over a
//! call has a field here; to all others these are empty.

use super::reuse::{Batch as ReuseBatch, Looked, Uses as ReuseUses};
use super::turns::Seen;

/// What one call has used and registered, from the root of a sequence down.
#[derive(Default)]
pub(crate) struct Uses {
    pub(super) reuse: ReuseUses,
}

/// What a batch of releases has placed.
#[derive(Default)]
pub(crate) struct Batch {
    pub(super) reuse: Option<ReuseBatch>,
}

/// How far a look at the order of victims has come: nowhere, to begin with.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cursor {
    pub(super) turns: Seen,
    pub(super) reuse: Looked,
}
