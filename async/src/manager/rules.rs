//! The settings that flights go by.

use super::ahead::Ahead;
use crate::config::{ManagerConfig, Verify, WriteMode};
use crate::disk::Sketch;
use std::time::Duration;

/// Of a manager, as plain values.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    pub(super) verify_host: bool,
    pub(super) mode: WriteMode,
    pub(super) host_headroom: u32,
    pub(super) device_ahead: Ahead,
    pub(super) host_ahead: Ahead,
    /// Flights of prefetches at a time; 0: none are made.
    pub(super) prefetch_blocks: u32,
    pub(super) prefetch_hints: u32,
    /// Uses from which on a victim is hot; none: never.
    pub(super) hot_from: Option<u64>,
    /// An engine that has begun no iteration for so long is idle; none: it never is.
    pub(super) idle_engine_after: Option<Duration>,
    /// Tenants that have figures.
    pub(super) tenants_shown: u32,
    pub(super) retries: u32,
    /// So many times as long for a byte as copies to host memory, and a tier below keeps up.
    pub(super) keeps_up: u32,
    pub(super) retry_after: Duration,
    pub(super) allocate_deadline: Duration,
    pub(super) onboard_deadline: Duration,
    pub(super) offload_deadline: Duration,
    pub(super) shutdown_deadline: Duration,
}

/// Heat is uses of late by the most that are counted.
fn hot_from(config: &ManagerConfig) -> Option<u64> {
    let below = config.host.blocks > 0 || config.disk.blocks > 0;
    let uses = (config.prefetch.threshold * Sketch::MOST as f64).ceil() as u64;
    (config.prefetch.blocks > 0 && below).then_some(uses.max(1))
}

impl Rules {
    pub(super) fn of(config: &ManagerConfig) -> Rules {
        Rules {
            verify_host: config.onboard.verify == Verify::All,
            mode: config.offload.mode,
            host_headroom: config.host.headroom,
            device_ahead: Ahead {
                high: config.watermark.device,
                low: config.watermark.device_low,
                idle_after: config.idle.host_after,
            },
            host_ahead: Ahead {
                high: config.watermark.host,
                low: config.watermark.host_low,
                idle_after: config.idle.disk_after,
            },
            prefetch_blocks: config.prefetch.blocks,
            prefetch_hints: config.prefetch.hints,
            hot_from: hot_from(config),
            idle_engine_after: config.iteration.idle,
            tenants_shown: config.metrics.tenants,
            retries: config.transfer.retries,
            keeps_up: config.transfer.keeps_up,
            retry_after: config.transfer.retry_after,
            allocate_deadline: config.deadline.allocate,
            onboard_deadline: config.deadline.onboard,
            offload_deadline: config.deadline.offload,
            shutdown_deadline: config.deadline.shutdown,
        }
    }

    /// Whether a victim of the device is worth a copy; `again`: it was used a second time.
    pub(super) fn keeps(&self, again: bool) -> bool {
        self.mode != WriteMode::SecondUse || again
    }
}
