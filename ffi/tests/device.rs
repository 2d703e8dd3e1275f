//! The device contract, on this crate's backends.

mod device_contract;

use kvstrata_ffi::device::SimDevice;

#[test]
fn simulated_device_keeps_the_contract() {
    device_contract::check(&SimDevice::new(4, 1000).expect("4 kB"));
}

#[test]
fn simulated_device_of_layers_keeps_the_contract() {
    let device = SimDevice::with_layers(0, 4, &[1, 600, 0x100, 143]).expect("4 kB");
    device_contract::check(&device);
}
