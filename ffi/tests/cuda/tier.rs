//! The CUDA device behind the device port.

use crate::{device_contract, machine, open};
use core::time::Duration;
use kvstrata_core::storage::{DeviceError, DevicePort, Storage};
use kvstrata_cuda_double::Double;
use kvstrata_ffi::device::CudaDeviceTier;

#[test]
fn cuda_device_keeps_the_contract() {
    for seed in 0..4 {
        let double = Double::new();
        double.seed(seed);
        let tier = CudaDeviceTier::new(&open(0), 4, 1000).expect("4 kB");
        let mut fresh = [1; 1000];
        tier.copy_out(3, 0, &mut fresh).expect("in range");
        assert_eq!(fresh, [0; 1000], "zeroed");
        device_contract::check(&tier);
        drop(tier);
        double.finish();
    }
}

#[test]
fn block_larger_than_the_bounce_goes_in_parts() {
    let (double, device) = machine();
    let bytes = (2 << 20) + 12345;
    let tier = CudaDeviceTier::new(&device, 2, bytes).expect("4 MiB");
    let pattern = crate::pattern(1, bytes - 7);
    tier.copy_in(1, 3, &pattern).expect("in range");
    let mut back = vec![0; bytes - 7];
    tier.copy_out(1, 3, &mut back).expect("in range");
    assert!(back == pattern);
    assert_eq!(tier.size_bytes(), 2 * bytes as u64);
    drop((tier, device));
    double.finish();
}

#[test]
fn abandoned_copy_keeps_its_block_until_the_device_answers() {
    let (double, device) = machine();
    let tier = CudaDeviceTier::with_deadline(&device, 2, 100, Duration::from_millis(5)).expect("200 B");
    double.hold();
    let refused = tier.copy_in(0, 0, &[7; 100]).expect_err("held");
    assert_eq!(refused, DeviceError::Failed { code: -1, retryable: true });
    assert_eq!(tier.copy_in(0, 0, &[8; 100]), Err(DeviceError::Busy { block: 0 }));
    assert_eq!(tier.copy_out(0, 0, &mut [0; 100]), Err(DeviceError::Busy { block: 0 }));
    double.release();
    crate::until("the given up copy's end", || tier.copy_in(0, 0, &[9; 100]).is_ok());
    let mut back = [0; 100];
    crate::until("an answer in time", || tier.copy_out(0, 0, &mut back).is_ok());
    assert_eq!(back, [9; 100]);
    drop((tier, device));
    crate::until("the release", || double.left().contexts == 0);
    double.finish();
}

#[test]
fn refusal_is_retryable_where_its_code_says_so() {
    let (double, device) = machine();
    let tier = CudaDeviceTier::new(&device, 1, 100).expect("100 B");
    for (code, retryable) in [(1, false), (2, true), (600, true), (801, false)] {
        double.fail("cuMemcpyHtoDAsync_v2", 1, code);
        assert_eq!(tier.copy_in(0, 0, &[7; 100]), Err(DeviceError::Failed { code, retryable }));
    }
    tier.copy_in(0, 0, &[7; 100]).expect("well");
    drop((tier, device));
    double.finish();
}

#[test]
fn dead_device_fails_for_good_and_another_goes_on() {
    let (double, device) = machine();
    let other = open(1);
    let tier = CudaDeviceTier::new(&device, 2, 100).expect("200 B");
    let well = CudaDeviceTier::new(&other, 2, 100).expect("200 B");
    double.break_at(0, 1, 719);
    for _ in 0..2 {
        let refused = tier.copy_in(1, 0, &[7; 100]).expect_err("dead");
        assert_eq!(refused, DeviceError::Failed { code: 719, retryable: false });
    }
    assert!(device.fault().is_some());
    well.copy_in(1, 0, &[7; 100]).expect("the other device is well");
    drop((tier, device, well, other));
    let (misuse, words) = double.misuse();
    assert_eq!(misuse, 0, "{words}");
    double.reset();
}
