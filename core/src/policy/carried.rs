//! The policy's own state that a pool carries from one call to the next, without reading it.
//!
//! Each type lies on the stack of a pool's call and allocates nothing. A policy with state over a call
//! has a field here, which is empty for all others.

use super::reuse::{Batch as ReuseBatch, Looked, Uses as ReuseUses};
use super::turns::Seen;

/// The uses and registrations of one call, from the root of a sequence down.
#[derive(Default)]
pub(crate) struct Uses {
    pub(super) reuse: ReuseUses,
}

/// The placements of a batch of releases.
#[derive(Default)]
pub(crate) struct Batch {
    pub(super) reuse: Option<ReuseBatch>,
}

/// The position of a look at the order of victims; the default is the beginning.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cursor {
    pub(super) turns: Seen,
    pub(super) reuse: Looked,
}
