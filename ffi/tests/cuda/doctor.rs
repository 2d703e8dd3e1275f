//! The facts that `kvstrata doctor` reports about CUDA, by the same driver code.

use kvstrata_cuda_double::Double;
use kvstrata_ffi::probe::{Fact, Status, probe};

/// The facts about driver and devices.
fn facts() -> [Fact; 2] {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let facts = probe(folder.path());
    ["CUDA driver", "CUDA devices"]
        .map(|name| facts.iter().find(|fact| fact.name == name).expect("a fact").clone())
}

#[test]
fn doctor_reports_the_cuda_devices() {
    let double = Double::new();
    let [driver, devices] = facts();
    assert_eq!((driver.status, driver.detail.as_str()), (Status::Found, "CUDA 13.0, batch copies"));
    assert_eq!(devices.status, Status::Found);
    assert!(devices.detail.contains("device 1: kvstrata test double 1, 1 GiB, 4 SMs"), "{}", devices.detail);
    assert_eq!(double.calls("cuDevicePrimaryCtxRetain"), 0, "takes no memory of a device");
    double.finish();
}

#[test]
fn doctor_reports_missing_parts_with_remedies() {
    let double = Double::new();
    double.version(12060);
    let [driver, _] = facts();
    assert_eq!(driver.status, Status::Limited);
    assert!(driver.remedy.expect("one").contains("12.8"));
    double.version(11040);
    let [driver, devices] = facts();
    assert_eq!((driver.status, devices.status), (Status::Limited, Status::NotFound));
    assert!(driver.detail.contains("11.4"), "{}", driver.detail);
    double.devices(0);
    let [driver, devices] = facts();
    assert_eq!((driver.status, devices.status), (Status::Limited, Status::NotFound));
    assert!(driver.detail.contains("100 CUDA_ERROR_NO_DEVICE"), "{}", driver.detail);
    double.devices(2);
    double.fail("cuDeviceGetName", 2, 101);
    let [_, devices] = facts();
    assert_eq!(devices.status, Status::Limited);
    assert!(
        devices.detail.contains("device 0: kvstrata") && devices.detail.contains("101"),
        "{}",
        devices.detail
    );
    double.finish();
}
