//! A replay over the test double of libcuda, in this process: the copies that it uses, and a
//! device that fails for good.

#![cfg(target_os = "linux")]

mod common;

use kvstrata_cli::replay::{Device, Replay, Report, Settings};
use kvstrata_cuda_double::Double;
use kvstrata_ffi::cuda::{CudaDevice, CudaDriver};
use kvstrata_ffi::device::CudaDeviceTier;
use std::path::Path;
use std::sync::Arc;

const SERVED: u64 = 300;

fn settings(folder: &Path) -> Settings {
    Settings {
        requests: Some(SERVED),
        device_blocks: 300,
        host_blocks: 300,
        disk_blocks: 4000,
        disk: vec![folder.join("volume")],
        // Blocks of host memory are further apart than those of the device.
        block_bytes: 5000,
        ..Settings::default()
    }
}

fn open(settings: &Settings) -> (Arc<CudaDevice>, CudaDeviceTier) {
    let device = CudaDevice::open(&CudaDriver::load().expect("the double"), 0).expect("a device");
    let tier = CudaDeviceTier::new(&device, settings.device_blocks as usize, settings.block_bytes);
    (device, tier.expect("memory"))
}

/// Serves the trace on the given device.
fn replay(device: impl FnOnce(&Settings) -> Device) -> Report {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let settings = settings(folder.path());
    let device = device(&settings);
    common::replay_on(settings, device, &|_| {})
}

/// With one request at a time, no count depends on when a copy ends.
#[test]
fn cuda_replay_counts_like_the_simulated_device() {
    let double = Double::new();
    let registered = || double.calls("cuMemHostRegister_v2");
    // Except this one: whether the disk has a victim of the host already may depend on when a copy
    // ends, for some blocks in ten thousand.
    let written = |report: &Report| report.bytes.host_to_disk / 5000;
    let counts = |report: Report| {
        let Report { hits, mut evicted, mut bytes, verified_blocks, .. } = report;
        (evicted.disk, bytes.host_to_disk) = (0, 0);
        (hits, evicted, bytes, verified_blocks)
    };
    let simulated = replay(common::device);
    assert_eq!((simulated.requests, registered()), (SERVED, 0));
    let (writes, simulated) = (written(&simulated), counts(simulated));
    let by_port = replay(|settings| Device::of_port("cuda", open(settings).1));
    let to_bounce_by = registered();
    let by_mover = replay(|settings| Device::cuda(open(settings).1));
    assert_eq!((by_mover.wrong_bytes, by_mover.failures), (0, Default::default()), "{by_mover}");
    assert!(registered() > 2 * to_bounce_by, "the host tier is not registered");
    let all_written = [&by_port, &by_mover].map(written);
    assert!(all_written.iter().all(|of| of.abs_diff(writes) <= 20), "{all_written:?} blocks, and {writes}");
    assert_eq!([by_port, by_mover].map(counts), [simulated, simulated]);
    double.finish();
}

/// The host tier needs more pinned memory than there is. The error names it, and nothing is left behind.
#[test]
fn unregistrable_host_memory_is_refused() {
    let double = Double::new();
    double.memory(1 << 30, 1 << 20);
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let settings = settings(folder.path());
    let device = Device::cuda(open(&settings).1);
    let refused = Replay::new(settings, device).expect_err("1 MiB can be registered").to_string();
    assert!(
        refused.starts_with("--device cuda: ") && refused.ends_with("; or use --device sim"),
        "{refused}"
    );
    assert!(refused.contains(" bytes were registered"), "{refused}");
    double.finish();
}

/// The device dies during the replay. Its blocks are lost, later requests to it are counted misses, and
/// the replay continues to its end with the other tiers.
#[test]
fn dying_device_loses_its_own_tier_only() {
    let double = Double::new();
    let mut dies = None;
    let report = replay(|settings| {
        let (device, tier) = open(settings);
        double.break_at(0, 3000, 700);
        dies = Some(device);
        Device::cuda(tier)
    });
    assert_eq!((report.requests, report.wrong_bytes), (SERVED, 0), "{report}");
    assert!(report.failures.device_read + report.failures.device_write > 0, "{report}");
    assert!(dies.is_some_and(|device| device.fault().is_some_and(|fault| fault.code.number() == 700)));
    assert_eq!(double.misuse(), (0, String::new()));
    double.reset();
}
