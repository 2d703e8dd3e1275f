//! CUDA IPC: memory of one process in another's address space, for example an engine's KV tensors.
//!
//! ```text
//!   exporter                                      importer
//!   DeviceStorage ─► IpcHandle ─ to_bytes ─► … ─► from_bytes ─► DeviceStorage, closed with its last range
//! ```
//!
//! A handle names an allocation, not a range: the offset and the size travel beside it. It also names its
//! process and device, since the driver's own answer to a wrong handle ("invalid context") does not.
//!
//! Invariants
//! - I1: an allocation is open once per process and device: a second import shares the first one's address.
//! - I2: the exporter's memory must outlive the import. CUDA does not hold it; the two processes must
//!   agree on that.

use super::context::CudaDevice;
use super::error::CudaError;
use super::imports::DRIVER_BYTES;
use super::memory::{DeviceStorage, allocation};
use super::sys::CUipcMemHandle;
use core::fmt;
use kvstrata_core::storage::Storage;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, PoisonError, Weak};

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the only flag that exists, and required.
const LAZY_PEER_ACCESS: u32 = 1;

/// Memory that another process can open.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct IpcHandle {
    driver: [u8; DRIVER_BYTES],
    device: [u8; 16],
    process: u32,
    /// The PID namespace of the process: two containers may use one number for two processes. 0 if unknown.
    namespace: u64,
    /// Offset of the memory in its allocation.
    offset: u64,
    size_bytes: u64,
    /// Bytes of the allocation.
    all_bytes: u64,
}

impl IpcHandle {
    /// The length of the result of [`to_bytes`](IpcHandle::to_bytes).
    pub const BYTES: usize = DRIVER_BYTES + 16 + 4 + 8 + 8 + 8 + 8;

    /// Creates a handle for memory of this process: allocated by `cuMemAlloc` or `cudaMalloc`, here or by
    /// its lender.
    ///
    /// # Errors
    /// [`CudaError`]: the driver refuses, as it does for memory that was itself imported, or mapped
    /// by pieces.
    pub fn export(memory: &DeviceStorage) -> Result<IpcHandle, CudaError> {
        let device = memory.device();
        let (base, all_bytes) = allocation(device, memory.base_address())?;
        let mut handle = CUipcMemHandle { reserved: [0; DRIVER_BYTES] };
        device.call("cuIpcGetMemHandle", |api| {
            // SAFETY: `handle` is ours; the address is of live device memory.
            unsafe { (api.cuIpcGetMemHandle)(&mut handle, base) }
        })?;
        Ok(IpcHandle {
            driver: handle.reserved.map(|byte| byte.cast_unsigned()),
            device: device.describe().uuid,
            process: std::process::id(),
            namespace: namespace(),
            offset: memory.base_address() - base,
            size_bytes: memory.size_bytes(),
            all_bytes,
        })
    }

    /// Opens another process's memory on the device that holds it. The result covers the whole
    /// allocation; its exported part is `range(offset(), size_bytes())`.
    ///
    /// # Errors
    /// [`CudaError::SameProcess`], [`CudaError::OtherDevice`], or the driver refuses: the exporter has
    /// ended or has freed the memory.
    ///
    /// # Safety
    /// The exporter keeps the memory allocated until the import is dropped, and agrees with the caller on
    /// all accesses and their order (I2).
    pub unsafe fn import(&self, device: &Arc<CudaDevice>) -> Result<Arc<DeviceStorage>, CudaError> {
        if (self.process, self.namespace) == (std::process::id(), namespace()) {
            return Err(CudaError::SameProcess { process: self.process });
        }
        if self.device != device.describe().uuid {
            let (found, wanted) = (hex(self.device), hex(device.describe().uuid));
            return Err(CudaError::OtherDevice { found, wanted });
        }
        let mut imports = device.imports.lock().unwrap_or_else(PoisonError::into_inner);
        let open = imports.get(&self.driver).and_then(Weak::upgrade);
        if let Some(open) = open.and_then(|open| open.downcast::<DeviceStorage>().ok()) {
            return Ok(open);
        }
        let handle = CUipcMemHandle { reserved: self.driver.map(|byte| byte.cast_signed()) };
        let mut address = 0;
        device.call("cuIpcOpenMemHandle", |api| {
            // SAFETY: `address` is ours; the handle is the driver's 64 bytes.
            unsafe { (api.cuIpcOpenMemHandle_v2)(&mut address, handle, LAZY_PEER_ACCESS) }
        })?;
        let memory = DeviceStorage::imported(device, address, self.all_bytes);
        imports.retain(|_, open| open.strong_count() > 0);
        let open: Weak<DeviceStorage> = Arc::downgrade(&memory);
        imports.insert(self.driver, open);
        Ok(memory)
    }

    /// Returns the offset of the exported memory in its allocation.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the size of the exported memory.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Returns the number of the exporting process.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.process
    }

    /// Encodes the handle: the driver's 64 bytes, the device's UUID, then the process, its PID namespace,
    /// the offset, the size and the allocation's size, little-endian.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; IpcHandle::BYTES] {
        let mut bytes = [0; IpcHandle::BYTES];
        bytes[..64].copy_from_slice(&self.driver);
        bytes[64..80].copy_from_slice(&self.device);
        bytes[80..84].copy_from_slice(&self.process.to_le_bytes());
        bytes[84..92].copy_from_slice(&self.namespace.to_le_bytes());
        bytes[92..100].copy_from_slice(&self.offset.to_le_bytes());
        bytes[100..108].copy_from_slice(&self.size_bytes.to_le_bytes());
        bytes[108..].copy_from_slice(&self.all_bytes.to_le_bytes());
        bytes
    }

    /// Decodes the result of [`to_bytes`](IpcHandle::to_bytes).
    ///
    /// # Errors
    /// [`CudaError::Handle`]: the length is wrong, or the range is not inside its allocation.
    pub fn from_bytes(bytes: &[u8]) -> Result<IpcHandle, CudaError> {
        let wrong = |why| CudaError::Handle { bytes: bytes.len(), why };
        let bytes: &[u8; IpcHandle::BYTES] = bytes.try_into().map_err(|_| wrong("a handle has 116 bytes"))?;
        let number = |from: usize| bytes[from..].first_chunk().copied().map_or(0, u64::from_le_bytes);
        let (mut driver, mut device) = ([0; DRIVER_BYTES], [0; 16]);
        driver.copy_from_slice(&bytes[..64]);
        device.copy_from_slice(&bytes[64..80]);
        let process = bytes[80..].first_chunk().copied().map_or(0, u32::from_le_bytes);
        let (namespace, offset) = (number(84), number(92));
        let (size_bytes, all_bytes) = (number(100), number(108));
        if size_bytes == 0 || offset.checked_add(size_bytes).is_none_or(|end| end > all_bytes) {
            return Err(CudaError::Handle {
                bytes: bytes.len(),
                why: "its range is outside of its allocation",
            });
        }
        Ok(IpcHandle { driver, device, process, namespace, offset, size_bytes, all_bytes })
    }
}

fn hex(bytes: [u8; 16]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Debug for IpcHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IpcHandle { process, offset, size_bytes, .. } = self;
        write!(f, "IpcHandle({size_bytes} bytes at {offset}, of process {process})")
    }
}

/// Returns the PID namespace of this process, as this machine's kernel numbers namespaces.
fn namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |file| file.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(offset: u64, size_bytes: u64) -> IpcHandle {
        let mut driver = [7; DRIVER_BYTES];
        driver[63] = 9;
        let device = *b"0123456789abcdef";
        IpcHandle { driver, device, process: 77, namespace: 55, offset, size_bytes, all_bytes: 1000 }
    }

    #[test]
    fn ipc_handles_survive_encoding() {
        let sent = handle(10, 990);
        let bytes = sent.to_bytes();
        assert_eq!(IpcHandle::from_bytes(&bytes), Ok(sent));
        assert_eq!(
            (bytes[63], bytes[64], bytes[80], bytes[84], bytes[92], bytes[100], bytes[108]),
            (9, b'0', 77, 55, 10, 222, 232)
        );
    }

    #[test]
    fn ipc_handle_of_wrong_bytes_is_refused() {
        assert!(matches!(IpcHandle::from_bytes(&[0; 115]), Err(CudaError::Handle { bytes: 115, .. })));
        for (offset, bytes) in [(10, 991), (0, 0), (u64::MAX, 2)] {
            let refused = IpcHandle::from_bytes(&handle(offset, bytes).to_bytes());
            assert!(matches!(refused, Err(CudaError::Handle { .. })), "{offset} {bytes}");
        }
    }
}
