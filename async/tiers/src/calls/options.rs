//! Options of calls: setters by name, over the defaults.

use crate::scheduler::Gate;
use crate::state::{OffloadOptions, OnboardOptions, Purge};
use crate::transfer::Class;
use std::time::Duration;

impl OnboardOptions {
    /// Sets the urgency of the run.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn class(self, class: Class) -> OnboardOptions {
        OnboardOptions { class, ..self }
    }

    /// Names the request: requests of one class take turns.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn request(self, request: u64) -> OnboardOptions {
        OnboardOptions { request, ..self }
    }

    /// Sets the layers of a transfer, for an engine that begins with the first layers while others are
    /// under way. None: whole blocks.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/layerwise.rs)
    #[must_use]
    pub fn layers(self, layers: impl Into<Option<u32>>) -> OnboardOptions {
        OnboardOptions { layers: layers.into(), ..self }
    }

    /// Sets the longest wait. None: the manager's `deadline.onboard`.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn deadline(self, deadline: impl Into<Option<Duration>>) -> OnboardOptions {
        OnboardOptions { deadline: deadline.into(), ..self }
    }
}

impl OffloadOptions {
    /// Sets the urgency of the copies.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn class(self, class: Class) -> OffloadOptions {
        OffloadOptions { class, ..self }
    }

    /// Names the request: requests of one class take turns.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn request(self, request: u64) -> OffloadOptions {
        OffloadOptions { request, ..self }
    }

    /// Sets the layer or iteration that still writes the blocks: copies begin when it is over.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/layerwise.rs)
    #[must_use]
    pub fn gate(self, gate: Gate) -> OffloadOptions {
        OffloadOptions { gate, ..self }
    }

    /// Sets the longest wait; copies go on after it. None: the manager's `deadline.offload`.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn deadline(self, deadline: impl Into<Option<Duration>>) -> OffloadOptions {
        OffloadOptions { deadline: deadline.into(), ..self }
    }
}

impl Purge {
    /// Returns the defaults: no zeros, and a wait of at most 30 seconds.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub const fn new() -> Purge {
        Purge { zero: false, deadline: Duration::from_secs(30) }
    }

    /// Sets whether bytes are overwritten before the blocks are used again.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub const fn zero(self, zero: bool) -> Purge {
        Purge { zero, ..self }
    }

    /// Sets the longest wait for blocks that requests hold, and for transfers.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub const fn deadline(self, deadline: Duration) -> Purge {
        Purge { deadline, ..self }
    }
}
