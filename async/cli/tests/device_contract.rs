//! The device contract of `ffi/tests/device_contract` on the device that damages bytes. Without damage
//! the device keeps the contract; with damage the contract notices.

#[path = "../../../ffi/tests/device_contract/mod.rs"]
mod device_contract;

use kvstrata_cli::replay::FlippingPort;
use kvstrata_ffi::device::SimDevice;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn flipping(every: u64) -> FlippingPort<SimDevice> {
    FlippingPort::new(SimDevice::new(4, 1000).expect("4 kB"), every)
}

#[test]
fn flipping_device_without_damage_keeps_the_contract() {
    device_contract::check(&flipping(0));
}

#[test]
fn contract_notices_a_flipped_bit() {
    let device = flipping(3);
    assert!(catch_unwind(AssertUnwindSafe(|| device_contract::check(&device))).is_err());
}
