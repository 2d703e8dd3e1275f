//! Device memory: allocated, lent by its owner, or another process's.
//!
//! ```text
//!   address                 offset          offset + bytes              address + size
//!   ├───────────────────────┼── DeviceRange ──┼─────────────────────────────┤
//!   └─────────────────────── DeviceStorage ─────────────────────────────────┘
//! ```
//!
//! Invariants
//! - I1: a range lies inside its storage.
//! - I2: memory is given back when its last range is gone. A transfer holds ranges until the device has
//!   answered, so nothing is in flight then. On a quarantined device, memory is never given back. The
//!   thread that drops the last range frees the memory, and may have to wait for the device; such a
//!   thread should not capture graphs or launch kernels.

use super::back::Thing;
use super::code::CudaCode;
use super::context::CudaDevice;
use super::error::CudaError;
use super::sys::{CUmemorytype, CUpointer_attribute as Attribute};
use core::any::Any;
use core::ffi::c_int;
use core::fmt;
use kvstrata_core::storage::{Storage, StorageKind};
use std::sync::Arc;

/// A stretch of one device's memory.
pub struct DeviceStorage {
    device: Arc<CudaDevice>,
    address: u64,
    size_bytes: u64,
    owner: Owner,
}

/// The party that gives the memory back.
enum Owner {
    /// This crate, to the driver.
    Allocated,
    /// The lender, in its drop.
    Lent(Arc<dyn Any + Send + Sync>),
    /// Another process; we close the import.
    Imported,
}

impl DeviceStorage {
    /// Allocates memory. Its bytes are not initialised.
    ///
    /// # Errors
    /// [`CudaError::ZeroBytes`], [`CudaError::OutOfMemory`], or the driver refuses.
    pub fn allocate(device: &Arc<CudaDevice>, size_bytes: u64) -> Result<Arc<DeviceStorage>, CudaError> {
        if size_bytes == 0 {
            return Err(CudaError::ZeroBytes { what: "device memory" });
        }
        device.settle();
        let mut address = 0;
        let bytes = usize::try_from(size_bytes).unwrap_or(usize::MAX);
        let allocated = device.call("cuMemAlloc", |api| {
            // SAFETY: `address` is ours.
            unsafe { (api.cuMemAlloc_v2)(&mut address, bytes) }
        });
        match allocated {
            Ok(()) => Ok(DeviceStorage::of(device, address, size_bytes, Owner::Allocated)),
            Err(CudaError::Refused { fault, .. }) if fault.code == CudaCode::OUT_OF_MEMORY => {
                let info = device.memory()?;
                Err(CudaError::OutOfMemory {
                    device: device.ordinal(),
                    asked_bytes: size_bytes,
                    free_bytes: info.free_bytes,
                    total_bytes: info.total_bytes,
                })
            }
            Err(other) => Err(other),
        }
    }

    /// Takes foreign memory: `size_bytes` at `address`, which stay allocated at least until `owner`
    /// is dropped. The owner is dropped when kvstrata no longer uses the memory, and never on a
    /// quarantined device.
    ///
    /// # Errors
    /// [`CudaError::ZeroBytes`]; [`CudaError::HostMemory`]; [`CudaError::WrongDevice`]; or the driver
    /// does not know the first or the last byte as device memory.
    ///
    /// # Safety
    /// The bytes are the device's memory, live as long as `owner`, and no Rust reference reaches them.
    /// The caller and the other users of the memory must agree on all copies and their order.
    pub unsafe fn lend(
        device: &Arc<CudaDevice>,
        address: u64,
        size_bytes: u64,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Result<Arc<DeviceStorage>, CudaError> {
        if size_bytes == 0 {
            return Err(CudaError::ZeroBytes { what: "device memory" });
        }
        // The device is checked too, since pinned host memory also has an ordinal. The last byte is
        // checked too: memory mapped piece by piece (`cuMemMap`) is no single allocation whose size could
        // be queried.
        for byte in [address, address.saturating_add(size_bytes - 1)] {
            if attribute(device, Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, byte)? != DEVICE_MEMORY {
                return Err(CudaError::HostMemory { address: byte });
            }
            // −1 for memory that belongs to no device.
            let ordinal = attribute(device, Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, byte)?;
            let found = u32::try_from(ordinal).unwrap_or(u32::MAX);
            if found != device.ordinal() {
                return Err(CudaError::WrongDevice { what: "the memory", found, wanted: device.ordinal() });
            }
        }
        Ok(DeviceStorage::of(device, address, size_bytes, Owner::Lent(owner)))
    }

    /// Wraps memory that the driver has just opened for us.
    pub(super) fn imported(device: &Arc<CudaDevice>, address: u64, size_bytes: u64) -> Arc<DeviceStorage> {
        DeviceStorage::of(device, address, size_bytes, Owner::Imported)
    }

    fn of(device: &Arc<CudaDevice>, address: u64, size_bytes: u64, owner: Owner) -> Arc<DeviceStorage> {
        Arc::new(DeviceStorage { device: Arc::clone(device), address, size_bytes, owner })
    }

    /// Returns the memory's device.
    #[must_use]
    pub fn device(&self) -> &Arc<CudaDevice> {
        &self.device
    }

    /// Returns a part of the memory, which holds the memory.
    ///
    /// # Errors
    /// [`CudaError::OutOfRange`].
    pub fn range(self: &Arc<Self>, offset: u64, bytes: u64) -> Result<DeviceRange, CudaError> {
        if offset > self.size_bytes || bytes > self.size_bytes - offset {
            return Err(CudaError::OutOfRange {
                what: "device memory",
                offset,
                bytes,
                limit: self.size_bytes,
            });
        }
        Ok(DeviceRange { storage: Arc::clone(self), offset, bytes })
    }
}

/// `CU_MEMORYTYPE_DEVICE`.
const DEVICE_MEMORY: c_int = CUmemorytype::CU_MEMORYTYPE_DEVICE as c_int;

/// Queries the driver for a 32-bit attribute of an address.
fn attribute(device: &CudaDevice, attribute: Attribute, address: u64) -> Result<c_int, CudaError> {
    let mut value: c_int = 0;
    device.call("cuPointerGetAttribute", |api| {
        let place = core::ptr::from_mut(&mut value).cast();
        // SAFETY: the attribute is an `int` or an enumeration of C's, and `place` is one of ours; the
        // address is only looked up.
        unsafe { (api.cuPointerGetAttribute)(place, attribute, address) }
    })?;
    Ok(value)
}

/// Returns the start and the size of the driver's allocation that contains an address.
pub(super) fn allocation(device: &CudaDevice, address: u64) -> Result<(u64, u64), CudaError> {
    let (mut base, mut bytes) = (0, 0);
    device.call("cuMemGetAddressRange", |api| {
        // SAFETY: both are ours; the address is only looked up.
        unsafe { (api.cuMemGetAddressRange_v2)(&mut base, &mut bytes, address) }
    })?;
    Ok((base, bytes as u64))
}

impl Storage for DeviceStorage {
    fn kind(&self) -> StorageKind {
        StorageKind::Device { ordinal: self.device.ordinal() }
    }

    fn base_address(&self) -> u64 {
        self.address
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
}

impl Drop for DeviceStorage {
    fn drop(&mut self) {
        let DeviceStorage { device, address, size_bytes, owner } = self;
        match owner {
            // SAFETY: allocated by us and freed once; nothing is in flight (I2).
            Owner::Allocated => unsafe { device.give_back(Thing::Memory(*address), *size_bytes, None) },
            // SAFETY: opened by us and closed once; nothing is in flight (I2).
            Owner::Imported => unsafe { device.give_back(Thing::Import(*address), *size_bytes, None) },
            Owner::Lent(owner) if device.fault().is_some() => {
                // The device may still write there.
                device.keep(Box::new(Arc::clone(owner)), *size_bytes);
            }
            Owner::Lent(_) => {}
        }
    }
}

impl fmt::Debug for DeviceStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeviceStorage { device, address, size_bytes, .. } = self;
        write!(f, "DeviceStorage(device:{} {address:#x} + {size_bytes})", device.ordinal())
    }
}

/// A part of device memory. It holds the memory.
#[derive(Debug, Clone)]
pub struct DeviceRange {
    storage: Arc<DeviceStorage>,
    offset: u64,
    bytes: u64,
}

impl DeviceRange {
    /// Returns the memory that the range is a part of.
    #[must_use]
    pub fn storage(&self) -> &Arc<DeviceStorage> {
        &self.storage
    }

    /// Returns the offset from the memory's start, in bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the size in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the device address of the first byte.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.storage.address + self.offset
    }
}
