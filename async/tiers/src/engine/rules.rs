//! The settings that an engine goes by, as plain values.

use crate::transfer::{Breaker, Limits, Path};
use std::fmt;
use std::time::Duration;

/// When a block is written to the tier below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WriteMode {
    /// As soon as it is registered.
    Through,
    /// When its tier needs room, is above its watermark, or the block is idle.
    Back,
    /// At the second request that has it, otherwise as `Back`.
    SecondUse,
}

impl WriteMode {
    /// Each of them.
    pub const ALL: [WriteMode; 3] = [WriteMode::Through, WriteMode::Back, WriteMode::SecondUse];

    /// Its name, as the setting `offload.mode` has it.
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

/// A tier's watermarks, as parts of its capacity, and idleness.
#[derive(Debug, Clone, Copy)]
pub struct Watermarks {
    /// Above it, blocks are copied down ahead of need.
    pub high: f64,
    /// Down to it.
    pub low: f64,
    /// Iterations without a use, after which a block is copied; none: never.
    pub idle_after: Option<u64>,
}

/// What tenants may have.
#[derive(Debug, Clone)]
pub struct Quotas {
    /// Tenants that are known at once, at most: up to 4095.
    pub tenants: usize,
    /// Of the device, of the host, and of each tier below: the part that a tenant may have which has none of its own.
    pub parts: [f64; 3],
    /// Tenants with names, and parts of their own.
    pub named: Vec<(String, [Option<f64>; 3])>,
}

/// Of an engine. The settings of a manager say what each is for: [docs/settings.md].
///
/// [docs/settings.md]: https://github.com/kvstrata/kvstrata/blob/main/docs/settings.md
#[derive(Debug, Clone)]
pub struct Rules {
    /// Whether bytes of the host are compared with their sums on their way to the device.
    pub verify_host: bool,
    /// When blocks are written to the tier below.
    pub mode: WriteMode,
    /// Blocks of the host that are kept free for victims of the device.
    pub host_headroom: u32,
    /// Of the device.
    pub device_ahead: Watermarks,
    /// Of the host.
    pub host_ahead: Watermarks,
    /// Prefetches under way at a time; 0: none are made.
    pub prefetch_blocks: u32,
    /// Hints that are kept.
    pub prefetch_hints: u32,
    /// Uses from which on a victim is hot; none: never.
    pub hot_from: Option<u64>,
    /// An engine that has begun no iteration for so long is idle; none: it never is.
    pub idle_engine_after: Option<Duration>,
    /// Bytes that transfers which nobody waits for may move in an iteration; none: all.
    pub iteration_bytes: Option<u64>,
    /// Tenants that have figures.
    pub tenants_shown: u32,
    /// Attempts after the first.
    pub retries: u32,
    /// The pause before each.
    pub retry_after: Duration,
    /// So many times as long for a byte as copies to host memory, and a tier below keeps up.
    pub keeps_up: u32,
    /// Transfers of a path that may wait in its queue.
    pub queue: u32,
    /// By kind of path ([`Path::kind`]): what may be in flight on each.
    pub in_flight: [Limits; Path::OF_SETTINGS.len()],
    /// How long a request may wait for writes to the tier below; none: by what copies take.
    pub patience: Option<Duration>,
    /// When a path takes one transfer at a time.
    pub breaker: Breaker,
    /// How long an allocation waits, unless its call says.
    pub allocate_deadline: Duration,
    /// The same of an onboarding.
    pub onboard_deadline: Duration,
    /// The same of an offload; and how long blocks are held for an engine that does not go on.
    pub offload_deadline: Duration,
    /// How long a shutdown takes at most.
    pub shutdown_deadline: Duration,
    /// Whether latencies are counted.
    pub histograms: bool,
    /// What tenants may have.
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
