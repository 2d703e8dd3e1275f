//! How calls are made, by the name of what differs from the default.

use crate::scheduler::Gate;
use crate::state::{OffloadOptions, OnboardOptions, Purge};
use crate::transfer::Class;
use std::time::Duration;

impl OnboardOptions {
    /// How urgent the run is.
    #[must_use]
    pub fn class(self, class: Class) -> OnboardOptions {
        OnboardOptions { class, ..self }
    }

    /// The request that asks: requests of one class take turns.
    #[must_use]
    pub fn request(self, request: u64) -> OnboardOptions {
        OnboardOptions { request, ..self }
    }

    /// Layers a transfer, for an engine that begins with the first while others are under way; none: whole blocks.
    #[must_use]
    pub fn layers(self, layers: impl Into<Option<u32>>) -> OnboardOptions {
        OnboardOptions { layers: layers.into(), ..self }
    }

    /// How long to wait at most; none: the manager's `deadline.onboard`.
    #[must_use]
    pub fn deadline(self, deadline: impl Into<Option<Duration>>) -> OnboardOptions {
        OnboardOptions { deadline: deadline.into(), ..self }
    }
}

impl OffloadOptions {
    /// How urgent the copies are.
    #[must_use]
    pub fn class(self, class: Class) -> OffloadOptions {
        OffloadOptions { class, ..self }
    }

    /// The request that asks: requests of one class take turns.
    #[must_use]
    pub fn request(self, request: u64) -> OffloadOptions {
        OffloadOptions { request, ..self }
    }

    /// A layer or an iteration that still writes the blocks: copies begin when it is over.
    #[must_use]
    pub fn gate(self, gate: Gate) -> OffloadOptions {
        OffloadOptions { gate, ..self }
    }

    /// How long to wait at most; none: the manager's `deadline.offload`. Copies go on.
    #[must_use]
    pub fn deadline(self, deadline: impl Into<Option<Duration>>) -> OffloadOptions {
        OffloadOptions { deadline: deadline.into(), ..self }
    }
}

impl Purge {
    /// Without zeros, and 30 seconds at most.
    #[must_use]
    pub const fn new() -> Purge {
        Purge { zero: false, deadline: Duration::from_secs(30) }
    }

    /// Whether bytes are overwritten before the blocks are used again.
    #[must_use]
    pub const fn zero(self, zero: bool) -> Purge {
        Purge { zero, ..self }
    }

    /// How long to wait at most for blocks that requests hold, and for transfers.
    #[must_use]
    pub const fn deadline(self, deadline: Duration) -> Purge {
        Purge { deadline, ..self }
    }
}
