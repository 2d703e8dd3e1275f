//! Finding and initialising the driver, and machines that lack something.

use kvstrata_cuda_double::{Double, Leftovers};
use kvstrata_ffi::cuda::{CudaDevice, CudaDriver, CudaError};
use std::process::Command;

#[test]
fn driver_describes_itself_and_its_devices() {
    let double = Double::new();
    let driver = CudaDriver::load().expect("the double");
    assert_eq!(driver.describe().to_string(), "CUDA 13.0, devices: 2, batch copies");
    assert_eq!(double.left(), Leftovers::default(), "loading makes no context");
    let device = CudaDevice::open(&driver, 1).expect("a device");
    let description = device.describe();
    assert_eq!((description.ordinal, description.name.as_str()), (1, "kvstrata test double 1"));
    assert_eq!(&description.uuid, b"kvstrata double1");
    assert_eq!(description.pci_bus_id, "db1e:01:00.0", "as /sys has it");
    assert_eq!((description.multiprocessors, description.capability), (4, (9, 0)));
    assert_eq!((description.block_threads, description.memory_bytes), (1024, 1 << 30));
    assert_eq!(description.to_string(), "device 1: kvstrata test double 1, 1 GiB, 4 SMs, compute 9.0");
    let memory = device.memory().expect("asked");
    assert_eq!((memory.free_bytes, memory.total_bytes), (1 << 30, 1 << 30));
    drop(device);
    double.finish();
}

#[test]
fn driver_below_12_is_refused_and_newer_ones_are_described() {
    let double = Double::new();
    double.version(11080);
    let refused = CudaDriver::load().expect_err("too old");
    assert_eq!(refused, CudaError::DriverTooOld { found: (11, 8) });
    assert_eq!(
        refused.to_string(),
        "the driver supports CUDA 11.8; install one of CUDA 12.0 or later, the first with all entries"
    );
    assert_eq!(double.calls("cuInit"), 0, "and left alone");
    for (version, words) in [
        (12000, "CUDA 12.0, devices: 2, single copies"),
        (12060, "CUDA 12.6, devices: 2, single copies"),
        (12080, "CUDA 12.8, devices: 2, batch copies"),
        (12090, "CUDA 12.9, devices: 2, batch copies"),
        (13020, "CUDA 13.2, devices: 2, batch copies"),
    ] {
        double.version(version);
        assert_eq!(CudaDriver::load().expect("new enough").describe().to_string(), words);
    }
    double.finish();
}

#[test]
fn driver_without_device_gives_the_reason() {
    let double = Double::new();
    double.fail("cuInit", 1, 100);
    let refused = CudaDriver::load().expect_err("no device").to_string();
    assert_eq!(
        refused,
        "cuInit answered 100 CUDA_ERROR_NO_DEVICE: no CUDA device; check `nvidia-smi` and CUDA_VISIBLE_DEVICES"
    );
    double.devices(0);
    let refused = CudaDriver::load().expect_err("no device either").to_string();
    assert!(
        refused.starts_with("cuDeviceGetCount answered 100 CUDA_ERROR_NO_DEVICE: no CUDA device"),
        "{refused}"
    );
    // The refusal is not kept: a driver that was not ready can be asked again.
    double.devices(1);
    let driver = CudaDriver::load().expect("one device");
    let refused = CudaDevice::open(&driver, 1).expect_err("the second of one");
    assert_eq!(refused, CudaError::NoSuchDevice { ordinal: 1, count: 1 });
    double.finish();
}

#[test]
fn every_refused_call_of_opening_is_named_and_undone() {
    let double = Double::new();
    for call in ["cuDriverGetVersion", "cuInit", "cuDeviceGetCount"] {
        double.fail(call, 1, 803);
        let refused = CudaDriver::load().expect_err(call);
        assert!(matches!(refused, CudaError::NoDevice { fault } if fault.operation == call), "{refused}");
        assert!(refused.to_string().ends_with("install a newer NVIDIA driver"), "{refused}");
    }
    let driver = CudaDriver::load().expect("the double");
    for call in [
        "cuDeviceGet",
        "cuDeviceGetName",
        "cuDeviceGetPCIBusId",
        "cuDeviceGetUuid_v2",
        "cuDeviceTotalMem_v2",
        "cuDeviceGetAttribute",
        "cuDevicePrimaryCtxRetain",
    ] {
        double.fail(call, 1, 999);
        let refused = CudaDevice::open(&driver, 0).expect_err(call);
        let CudaError::Refused { device: 0, fault } = refused else { panic!("{call}: {refused}") };
        assert!(call.starts_with(fault.operation), "{call}: {fault}");
        assert_eq!(fault.code.number(), 999);
    }
    drop(CudaDevice::open(&driver, 0).expect("nothing is wrong any more"));
    double.finish();
}

/// Set for a child process, which finds the double by `LD_LIBRARY_PATH`, as a program finds the real driver.
const CHILD: &str = "KVSTRATA_TEST_CUDA_CHILD";

#[test]
fn child_process_finds_the_double_in_libcudas_place() {
    if let Some(child) = std::env::var_os(CHILD) {
        let driver = CudaDriver::load().expect("by its name");
        let device = CudaDevice::open(&driver, 0).expect("a device");
        println!("found: {}", device.describe());
        return if child == "forgets" {
            core::mem::forget(device)
        };
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    child.args(["--exact", "driver::child_process_finds_the_double_in_libcudas_place", "--nocapture"]);
    Double::lend(folder.path(), &mut child).expect("a link");
    child.env(CHILD, "1");
    let output = child.output().expect("run");
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{words}{}", String::from_utf8_lossy(&output.stderr));
    assert!(words.contains("found: device 0: kvstrata test double 0"), "{words}");
    Double::verdict(folder.path());
    // A child that leaves something is detected.
    assert!(!child.env(CHILD, "forgets").output().expect("run").stdout.is_empty());
    assert!(std::panic::catch_unwind(|| Double::verdict(folder.path())).is_err(), "a context is left");
}
