//! The settings of an engine, as plain values.

use crate::transfer::{Breaker, Limits, Path};
use std::fmt;
use std::time::Duration;

/// When a block is written to the tier below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WriteMode {
    /// As soon as the block is registered.
    Through,
    /// When its tier needs room or is above its watermark, or when the block is idle.
    Back,
    /// At the second request that uses the block, otherwise as `Back`.
    SecondUse,
}

impl WriteMode {
    /// All modes.
    pub const ALL: [WriteMode; 3] = [WriteMode::Through, WriteMode::Back, WriteMode::SecondUse];

    /// Returns the name that the setting `offload.mode` uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            WriteMode::Through => "write-through",
            WriteMode::Back => "write-back",
            WriteMode::SecondUse => "second-use",
        }
    }
}

impl fmt::Display for WriteMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A tier's watermarks, as fractions of its capacity, and the time until a block is idle.
#[derive(Debug, Clone, Copy)]
pub struct Watermarks {
    /// Above this fill level, victims are copied down ahead of need.
    pub high: f64,
    /// Victims are copied until their eviction would bring the fill level down to this.
    pub low: f64,
    /// Iterations without a use after which a block is copied; none: never.
    pub idle_after: Option<u64>,
}

/// Quotas of tenants.
#[derive(Debug, Clone)]
pub struct Quotas {
    /// Maximum number of tenants known at once; at most 4095.
    pub tenants: usize,
    /// Default part of the device, of the host, and of each tier below, for a tenant without a part of
    /// its own.
    pub parts: [f64; 3],
    /// Tenants named by the settings, and their own parts.
    pub named: Vec<(String, [Option<f64>; 3])>,
}

/// Settings of an engine. The settings of a manager explain each of them: [docs/settings.md].
///
/// [docs/settings.md]: https://github.com/kvstrata/kvstrata/blob/main/docs/settings.md
#[derive(Debug, Clone)]
pub struct Rules {
    /// Whether bytes of the host are compared with their sums when they are copied to the device.
    pub verify_host: bool,
    /// When blocks are written to the tier below.
    pub mode: WriteMode,
    /// Free blocks of the host that only victims of the device may take.
    pub host_headroom: u32,
    /// Watermarks of the device.
    pub device_ahead: Watermarks,
    /// Watermarks of the host.
    pub host_ahead: Watermarks,
    /// Maximum number of prefetches under way; 0: none are made.
    pub prefetch_blocks: u32,
    /// Maximum number of hints that are kept.
    pub prefetch_hints: u32,
    /// Number of uses from which on a victim is hot; none: never.
    pub hot_from: Option<u64>,
    /// After so long without a new iteration an engine is idle; none: never.
    pub idle_engine_after: Option<Duration>,
    /// Bytes that transfers without a waiter may move in an iteration; none: no limit.
    pub iteration_bytes: Option<u64>,
    /// Number of tenants that have figures.
    pub tenants_shown: u32,
    /// Retries after the first attempt.
    pub retries: u32,
    /// Pause before each retry.
    pub retry_after: Duration,
    /// A tier below keeps up if a byte takes it at most so many times as long as a copy to host memory.
    pub keeps_up: u32,
    /// Maximum number of transfers of a class, and of more urgent ones, that wait in a path's queue.
    pub queue: u32,
    /// Limits of the transfers in flight on a path, by kind of path ([`Path::kind`]).
    pub in_flight: [Limits; Path::OF_SETTINGS.len()],
    /// How long a request may wait for writes to the tier below; none: derived from the time that
    /// copies take.
    pub patience: Option<Duration>,
    /// Decides when a path takes one transfer at a time.
    pub breaker: Breaker,
    /// How long an allocation waits, unless its call says otherwise.
    pub allocate_deadline: Duration,
    /// How long an onboarding waits, unless its call says otherwise.
    pub onboard_deadline: Duration,
    /// How long an offload waits, unless its call says otherwise; also how long blocks are held for an
    /// engine that makes no progress.
    pub offload_deadline: Duration,
    /// Maximum duration of a shutdown.
    pub shutdown_deadline: Duration,
    /// Whether latencies are counted.
    pub histograms: bool,
    /// Quotas of tenants.
    pub quotas: Quotas,
}

impl Default for Rules {
    /// The defaults of the settings.
    fn default() -> Rules {
        let limits = Limits { in_flight: u32::MAX, in_flight_bytes: 64 << 20, quantum_bytes: 4 << 20 };
        let watermarks = |idle_after| Watermarks { high: 0.90, low: 0.85, idle_after: Some(idle_after) };
        Rules {
            verify_host: true,
            mode: WriteMode::Back,
            host_headroom: 16,
            device_ahead: watermarks(100),
            host_ahead: watermarks(1000),
            prefetch_blocks: 64,
            prefetch_hints: 256,
            hot_from: Some(11),
            idle_engine_after: Some(Duration::from_millis(100)),
            iteration_bytes: None,
            tenants_shown: 0,
            retries: 2,
            retry_after: Duration::from_millis(10),
            keeps_up: 2,
            queue: 1024,
            in_flight: [limits; Path::OF_SETTINGS.len()],
            patience: None,
            breaker: Breaker::new(Duration::from_secs(1), Duration::from_millis(500)),
            allocate_deadline: Duration::from_secs(10),
            onboard_deadline: Duration::from_secs(30),
            offload_deadline: Duration::from_secs(30),
            shutdown_deadline: Duration::from_secs(10),
            histograms: true,
            quotas: Quotas { tenants: 4095, parts: [1.0; 3], named: Vec::new() },
        }
    }
}

impl Rules {
    /// Whether a victim of the device is worth a copy; `again`: it was used a second time.
    pub(crate) fn keeps(&self, again: bool) -> bool {
        self.mode != WriteMode::SecondUse || again
    }
}
