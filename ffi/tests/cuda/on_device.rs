//! The tests of `cuda_device.rs`, over the double with the kernels on the CPU, so that the tests
//! themselves are verified.

use crate::plans::kernels;
use crate::{device_plans, machine};
use device_plans::memory::Ground;

fn over_the_double(test: impl FnOnce(&Ground)) {
    let (double, device) = machine();
    double.plain_addresses();
    let ground = Ground::new(&device, kernels(&double, &device));
    test(&ground);
    drop((ground, device));
    crate::until("the release", || double.left().contexts == 0);
    double.finish();
}

#[test]
fn random_plans_over_the_double_copy_right() {
    over_the_double(|ground| device_plans::random_plans(ground, 48));
}

#[test]
fn sums_over_the_double_are_right() {
    over_the_double(device_plans::sums);
}

#[test]
fn conversions_over_the_double_are_right() {
    over_the_double(device_plans::conversions);
}

#[test]
fn large_copies_in_small_over_the_double_are_right() {
    over_the_double(|ground| device_plans::large(ground, 7, 3));
}
