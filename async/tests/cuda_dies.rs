//! A replay over the test double of libcuda, in this process, on a device that fails for good.

#![cfg(target_os = "linux")]

mod common;

use kvstrata::replay::{Device, Settings};
use kvstrata_cuda_double::Double;
use kvstrata_ffi::cuda::{CudaDevice, CudaDriver};
use kvstrata_ffi::device::CudaDeviceTier;

/// The device dies under way: what it had is lost, what it is asked for is a counted miss, and the replay goes on to its end with the
/// tiers that there are.
#[test]
fn a_device_that_dies_costs_its_own_tier() {
    const SERVED: u64 = 300;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let settings = Settings {
        requests: Some(SERVED),
        device_blocks: 300,
        host_blocks: 300,
        disk_blocks: 4000,
        disk: vec![folder.path().join("volume")],
        block_bytes: 4096,
        ..Settings::default()
    };
    let double = Double::new();
    let device = CudaDevice::open(&CudaDriver::load().expect("the double"), 0).expect("a device");
    let tier = CudaDeviceTier::new(&device, settings.device_blocks as usize, settings.block_bytes);
    double.break_at(0, 3000, 700);
    let report = common::replay_on(settings, Device::of_port("cuda", tier.expect("memory")), &|_| {});
    assert_eq!((report.requests, report.wrong_bytes), (SERVED, 0), "{report}");
    assert!(report.failures.device_read + report.failures.device_write > 0, "{report}");
    assert!(device.fault().is_some_and(|fault| fault.code.number() == 700));
    assert_eq!(double.misuse(), (0, String::new()));
    drop(device);
    double.reset();
}
