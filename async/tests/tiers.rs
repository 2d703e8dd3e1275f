//! Tiers of every size, policies, and several workers: never a wrong byte.

mod common;

use kvstrata::replay::{Report, Settings};
use kvstrata_core::Policy;

fn settings(requests: u64, device_blocks: u32, host_blocks: u32, disk_blocks: u32) -> Settings {
    let disk = Some(env!("CARGO_TARGET_TMPDIR").into());
    let requests = Some(requests);
    Settings {
        requests,
        device_blocks,
        host_blocks,
        disk_blocks,
        disk,
        block_bytes: 4096,
        ..Settings::default()
    }
}

fn assert_sound(report: &Report, what: &str) {
    assert_eq!(
        (report.wrong_bytes, report.wrong_blocks, report.failures.total()),
        (0, 0, 0),
        "{what}: {report}"
    );
    assert_eq!(report.verified_blocks, report.hit_blocks, "{what}");
    assert_eq!(report.hits.device + report.hits.host + report.hits.disk, report.hit_blocks, "{what}");
}

#[test]
fn any_tier_may_be_left_out_or_tiny() {
    for (device, host, disk) in [
        (300, 0, 0),
        (300, 600, 0),
        (300, 0, 3000),
        (300, 1, 0),
        (300, 1, 1),
        (300, 3, 2000),
        (300, 0, 1),
        (1, 1, 1),
        (5, 40, 3000),
        (16_384, 10, 10),
    ] {
        let report = common::replay(settings(250, device, host, disk));
        assert_sound(&report, &format!("{device} {host} {disk}"));
        assert_eq!(report.requests, 250);
    }
}

#[test]
fn a_lower_tier_only_adds_hits() {
    let hits = |host, disk| common::replay(settings(1000, 300, host, disk)).hit_blocks;
    let (device, host, both, disk) = (hits(0, 0), hits(4000, 0), hits(4000, 20_000), hits(0, 20_000));
    assert!(device < host && host < both && device < disk, "{device} {host} {both} {disk}");
}

#[test]
fn blocks_of_odd_sizes_arrive_whole() {
    for block_bytes in [64, 100, 511, 4097, 70_001] {
        let report = common::replay(Settings { block_bytes, ..settings(400, 300, 3000, 9000) });
        assert_sound(&report, &format!("{block_bytes} bytes"));
        assert!(report.hits.host > 0 && report.hits.disk > 0, "{report}");
    }
}

#[test]
fn every_policy_serves_every_tier() {
    for policy in Policy::ALL {
        let report = common::replay(Settings { policy, ..settings(600, 300, 600, 9000) });
        assert_sound(&report, policy.name());
        assert!(report.hits.disk > 0 && report.uncached_blocks == 0, "{report}");
    }
}

#[test]
fn one_worker_counts_the_same_every_time() {
    let counts = || {
        let report = common::replay(settings(400, 300, 700, 4000));
        let Report { hits, evicted, bytes, verified_blocks, .. } = report;
        (hits, evicted, bytes.host_to_disk, bytes.filled, verified_blocks)
    };
    assert_eq!(counts(), counts());
}

#[test]
fn several_workers_share_the_tiers_without_a_wrong_byte() {
    for (concurrency, device) in [(4, 500), (8, 247), (3, 20)] {
        let report = common::replay(Settings { concurrency, ..settings(700, device, 900, 5000) });
        assert_sound(&report, &format!("{concurrency} workers"));
        assert_eq!(report.requests, 700);
        let alone = common::replay(settings(700, device, 900, 5000));
        assert_eq!(report.blocks, alone.blocks);
        assert_eq!(report.uncached_blocks, alone.uncached_blocks);
    }
}
