//! Device memory: allocated, lent, refused, given back.

use crate::{machine, memory, open};
use kvstrata_core::storage::{Storage, StorageKind};
use kvstrata_cuda_double::Double;
use kvstrata_ffi::cuda::{CudaError, DeviceStorage};
use std::sync::Arc;

#[test]
fn memory_is_freed_when_its_last_range_goes() {
    let (double, device) = machine();
    let memory = memory(&device, 1000);
    assert_eq!((memory.kind(), memory.size_bytes()), (StorageKind::Device { ordinal: 0 }, 1000));
    let high = memory.base_address() >> 47;
    assert!(high != 0 && high != u64::MAX >> 47, "no CPU's address");
    let range = memory.range(990, 10).expect("inside");
    assert_eq!((range.offset(), range.size_bytes(), range.address()), (990, 10, memory.base_address() + 990));
    for (offset, bytes) in [(990, 11), (1001, 0), (u64::MAX, 2)] {
        let refused = memory.range(offset, bytes).expect_err("outside");
        assert_eq!(refused, CudaError::OutOfRange { what: "device memory", offset, bytes, limit: 1000 });
    }
    drop((memory, device));
    assert_eq!(double.left().allocations, 1, "the range holds it");
    drop(range);
    double.finish();
}

#[test]
fn zero_and_too_many_bytes_are_refused_by_name() {
    let double = Double::new();
    double.memory(1 << 20, u64::MAX);
    let device = open(0);
    let refused = DeviceStorage::allocate(&device, 0).expect_err("nothing");
    assert_eq!(refused.to_string(), "device memory of 0 bytes; must be at least 1");
    let held = memory(&device, 1 << 19);
    let refused = DeviceStorage::allocate(&device, (1 << 19) + 1).expect_err("too much");
    let expected = CudaError::OutOfMemory {
        device: 0,
        asked_bytes: (1 << 19) + 1,
        free_bytes: 1 << 19,
        total_bytes: 1 << 20,
    };
    assert_eq!(refused, expected);
    assert_eq!(refused.number(), 2);
    // Not for good: a smaller request succeeds.
    drop(held);
    drop(memory(&device, (1 << 19) + 1));
    double.fail("cuMemAlloc_v2", 1, 1);
    let refused = DeviceStorage::allocate(&device, 8).expect_err("refused");
    assert_eq!(
        refused.to_string(),
        "cuMemAlloc answered 1 CUDA_ERROR_INVALID_VALUE on device 0; check `nvidia-smi` and the system log"
    );
    drop(device);
    double.finish();
}

#[test]
fn lent_memory_is_held_and_left_to_its_owner() {
    let (double, device) = machine();
    let engine = memory(&device, 4096);
    let address = engine.base_address();
    let owner: Arc<dyn core::any::Any + Send + Sync> = engine;
    // SAFETY: `owner` keeps the allocation, and it has no other user.
    let lend = |address, bytes| unsafe { DeviceStorage::lend(&device, address, bytes, Arc::clone(&owner)) };
    let lent = lend(address + 96, 4000).expect("inside");
    assert_eq!((lent.base_address(), lent.size_bytes()), (address + 96, 4000));
    for (address, bytes) in [(address + 96, 4001), (0x1000, 8), (u64::MAX, 8)] {
        let refused = lend(address, bytes).expect_err("not the driver's");
        assert!(
            matches!(refused, CudaError::Refused { fault, .. } if fault.operation == "cuPointerGetAttribute")
        );
    }
    assert_eq!(lend(address, 0).expect_err("nothing"), CudaError::ZeroBytes { what: "device memory" });
    // The driver reports an ordinal for pinned memory too.
    let host = crate::pinned(&device, 1, 4096);
    let refused = lend(host.base_address(), 4096).expect_err("the host's");
    assert_eq!(refused, CudaError::HostMemory { address: host.base_address() });
    drop(host);
    let other = open(1);
    let elsewhere = memory(&other, 64);
    let refused = lend(elsewhere.base_address(), 64).expect_err("another device's");
    assert_eq!(refused, CudaError::WrongDevice { what: "the memory", found: 1, wanted: 0 });
    drop((elsewhere, other));
    drop((owner, device));
    assert_eq!(double.left().allocations, 1, "still lent");
    drop(lent);
    double.finish();
}
