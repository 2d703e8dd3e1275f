//! Another process's memory. The double accepts the same process; kvstrata does not, which is tested first.

use crate::{copy_in, machine, memory, open, pinned, queue, read_back};
use kvstrata_core::storage::Storage;
use kvstrata_ffi::cuda::{CudaError, DeviceStorage, IpcHandle, Purpose};
use std::sync::Arc;

/// Returns the handle as another process would have sent it.
fn from_elsewhere(memory: &DeviceStorage) -> IpcHandle {
    let mut bytes = IpcHandle::export(memory).expect("exported").to_bytes();
    bytes[80..84].copy_from_slice(&u32::MAX.to_le_bytes());
    IpcHandle::from_bytes(&bytes).expect("whole")
}

#[test]
fn import_is_the_same_memory_and_is_closed_at_the_end() {
    let (double, device) = machine();
    let (host, exported) = (pinned(&device, 2, 4096), memory(&device, 4096));
    let handle = from_elsewhere(&exported);
    assert_eq!((handle.offset(), handle.size_bytes(), handle.process()), (0, 4096, u32::MAX));
    // SAFETY: `exported` lives longer, and only this test writes it meanwhile.
    let import = || unsafe { handle.import(&device) };
    let imported = import().expect("opened");
    assert_ne!(imported.base_address(), exported.base_address());
    let again = import().expect("open already");
    assert!(Arc::ptr_eq(&imported, &again));
    assert_eq!(double.calls("cuIpcOpenMemHandle_v2"), 1);
    let stream = queue(&device, Purpose::Onboard);
    copy_in(&stream, &host, 0, &imported).wait().expect("copied");
    assert!(read_back(&host, 1, &exported) == crate::pattern(0, 4096));
    drop((imported, again));
    assert_eq!(double.left().imports, 0);
    drop(import().expect("opened anew"));
    assert_eq!(double.calls("cuIpcOpenMemHandle_v2"), 2);
    drop((stream, host, exported, device));
    double.finish();
}

#[test]
fn part_of_an_allocation_says_where_it_is() {
    let (double, device) = machine();
    let all = memory(&device, 4096);
    // SAFETY: `all` keeps it, and it has no other user.
    let part =
        unsafe { DeviceStorage::lend(&device, all.base_address() + 256, 512, all.clone()) }.expect("inside");
    let handle = from_elsewhere(&part);
    assert_eq!((handle.offset(), handle.size_bytes()), (256, 512));
    // SAFETY: as above.
    let imported = unsafe { handle.import(&device) }.expect("opened");
    assert_eq!(imported.size_bytes(), 4096, "all of the allocation");
    drop((imported, part, all, device));
    double.finish();
}

#[test]
fn handle_of_the_wrong_process_or_device_is_refused() {
    let (double, device) = machine();
    let memory = memory(&device, 64);
    let own = IpcHandle::export(&memory).expect("exported");
    // SAFETY: refused.
    let refused = unsafe { own.import(&device) }.expect_err("our own");
    assert_eq!(refused, CudaError::SameProcess { process: std::process::id() });
    // The same number in another namespace is another process.
    let mut bytes = own.to_bytes();
    bytes[84] ^= 1;
    let handle = IpcHandle::from_bytes(&bytes).expect("whole");
    // SAFETY: `memory` lives longer, and has no other user.
    drop(unsafe { handle.import(&device) }.expect("opened"));
    assert_eq!(double.calls("cuIpcOpenMemHandle_v2"), 1);
    let other = open(1);
    let handle = from_elsewhere(&memory);
    // SAFETY: refused.
    let refused = unsafe { handle.import(&other) }.expect_err("another device's");
    assert!(matches!(refused, CudaError::OtherDevice { .. }), "{refused}");
    assert_eq!(double.calls("cuIpcOpenMemHandle_v2"), 1, "not asked");
    drop(memory);
    // SAFETY: refused: the exporter has freed it.
    let refused = unsafe { handle.import(&device) }.expect_err("gone");
    assert!(matches!(refused, CudaError::Refused { fault, .. } if fault.operation == "cuIpcOpenMemHandle"));
    drop((device, other));
    double.finish();
}
