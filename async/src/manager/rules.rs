//! The rules of the tiers, from the settings.

use crate::config::{ManagerConfig, Verify};
use crate::transfer::{Breaker, Limits, Path};
use kvstrata_tiers::shared::Sketch;
use kvstrata_tiers::{Quotas, Rules, Watermarks};

/// Returns the recent uses from which a block is hot. Its heat is its recent uses, divided by the most
/// that the sketch counts.
fn hot_from(config: &ManagerConfig) -> Option<u64> {
    let below = config.host.blocks > 0 || config.disk.blocks > 0;
    let uses = (config.prefetch.threshold * Sketch::MOST as f64).ceil() as u64;
    (config.prefetch.blocks > 0 && below).then_some(uses.max(1))
}

fn limits(config: &ManagerConfig, path: Path) -> Limits {
    let transfer = &config.transfer;
    let own = match path {
        Path::DeviceToHost => transfer.in_flight_device_to_host,
        Path::ToBelow(_) => transfer.in_flight_host_to_disk,
        Path::HostToDevice => transfer.in_flight_host_to_device,
        Path::FromBelow(_) => transfer.in_flight_disk_to_device,
    };
    Limits {
        in_flight: u32::MAX,
        in_flight_bytes: own.unwrap_or(transfer.in_flight),
        quantum_bytes: transfer.quantum,
    }
}

fn quotas(config: &ManagerConfig) -> Quotas {
    let quota = &config.quota;
    let named = config.tenants().iter();
    Quotas {
        tenants: quota.tenants as usize,
        parts: [quota.device, quota.host, quota.disk],
        named: named.map(|tenant| (tenant.name.clone(), [tenant.device, tenant.host, tenant.disk])).collect(),
    }
}

pub(super) fn of(config: &ManagerConfig) -> Rules {
    Rules {
        verify_host: config.onboard.verify == Verify::All,
        mode: config.offload.mode,
        host_headroom: config.host.headroom,
        device_ahead: Watermarks {
            high: config.watermark.device,
            low: config.watermark.device_low,
            idle_after: config.idle.host_after,
        },
        host_ahead: Watermarks {
            high: config.watermark.host,
            low: config.watermark.host_low,
            idle_after: config.idle.disk_after,
        },
        prefetch_blocks: config.prefetch.blocks,
        prefetch_hints: config.prefetch.hints,
        hot_from: hot_from(config),
        idle_engine_after: config.iteration.idle,
        iteration_bytes: config.iteration.bytes,
        tenants_shown: config.metrics.tenants,
        retries: config.transfer.retries,
        retry_after: config.transfer.retry_after,
        keeps_up: config.transfer.keeps_up,
        queue: config.transfer.queue,
        in_flight: Path::OF_SETTINGS.map(|path| limits(config, path)),
        patience: config.transfer.patience,
        breaker: Breaker::new(config.transfer.slow_above, config.transfer.slow_below),
        allocate_deadline: config.deadline.allocate,
        onboard_deadline: config.deadline.onboard,
        offload_deadline: config.deadline.offload,
        shutdown_deadline: config.deadline.shutdown,
        histograms: config.metrics.histograms,
        quotas: quotas(config),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_settings_are_the_default_rules() {
        let config = ManagerConfig::builder().build().expect("the defaults");
        assert_eq!(format!("{:?}", of(&config)), format!("{:?}", Rules::default()));
    }
}
