//! A replay over the test double of libcuda, in this process: by which copies, and on a device that fails for good.

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
        // Blocks of host memory are further apart than the device's.
        block_bytes: 5000,
        ..Settings::default()
    }
}

fn open(settings: &Settings) -> (Arc<CudaDevice>, CudaDeviceTier) {
    let device = CudaDevice::open(&CudaDriver::load().expect("the double"), 0).expect("a device");
    let tier = CudaDeviceTier::new(&device, settings.device_blocks as usize, settings.block_bytes);
    (device, tier.expect("memory"))
}

/// Serves the trace on a device of its own.
fn replay(device: impl FnOnce(&Settings) -> Device) -> Report {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let settings = settings(folder.path());
    let device = device(&settings);
    common::replay_on(settings, device, &|_| {})
}

/// With one request at a time, whose counts no copy changes by when it ends.
#[test]
fn blocks_go_from_and_to_registered_memory_and_the_counts_are_the_simulated_ones() {
    let double = Double::new();
    let registered = || double.calls("cuMemHostRegister_v2");
    // Whether a victim of the host's is on the disk already may depend on when a copy ends: of some blocks in ten thousand.
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

/// Pinned memory is what a machine is short of first: of the host tier's there is not as much, and nothing is left behind.
#[test]
fn host_memory_that_cannot_be_registered_is_said() {
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

/// The device dies under way: what it had is lost, what it is asked for is a counted miss, and the replay goes on to its end with the
/// tiers that there are.
#[test]
fn a_device_that_dies_costs_its_own_tier() {
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
