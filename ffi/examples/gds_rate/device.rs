//! Device memory for trying cuFile on a real device: the few calls of CUDA's driver API that allocate,
//! fill and read it.

use core::ffi::{CStr, c_int, c_uint, c_void};
use kvstrata_ffi::gds::DeviceMemory;
use std::sync::Arc;

/// CUDA's driver, with the primary context of one device.
pub struct Cuda {
    context: *mut c_void,
    push: unsafe extern "C" fn(*mut c_void) -> c_int,
    pop: unsafe extern "C" fn(*mut *mut c_void) -> c_int,
    allocate: unsafe extern "C" fn(*mut u64, usize) -> c_int,
    free: unsafe extern "C" fn(u64) -> c_int,
    copy_in: unsafe extern "C" fn(u64, *const c_void, usize) -> c_int,
    copy_out: unsafe extern "C" fn(*mut c_void, u64, usize) -> c_int,
}

// SAFETY: CUDA's driver is thread-safe, and the context is never followed here.
unsafe impl Send for Cuda {}
// SAFETY: as above.
unsafe impl Sync for Cuda {}

/// Returns the entry of that name.
///
/// # Safety
/// `F` is the function pointer type of the entry's declaration in cuda.h.
unsafe fn entry<F: Copy>(library: *mut c_void, name: &CStr) -> Result<F, String> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the library is open, and never closed.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    if address.is_null() {
        return Err(format!("libcuda.so.1 lacks {}", name.to_string_lossy()));
    }
    // SAFETY: `F` has the size of an address, and is the type of this function (the caller's promise).
    Ok(unsafe { core::mem::transmute_copy(&address) })
}

fn check(operation: &str, code: c_int) -> Result<(), String> {
    if code == 0 { Ok(()) } else { Err(format!("{operation} failed with CUDA's code {code}")) }
}

impl Cuda {
    /// Opens the device of that ordinal; its primary context is kept until the process ends.
    pub fn open(ordinal: u32) -> Result<Arc<Cuda>, String> {
        type Init = unsafe extern "C" fn(c_uint) -> c_int;
        type Device = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
        type Retain = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int;
        // SAFETY: a system library, whose initialisers may run at any time.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err("libcuda.so.1 does not load".to_owned());
        }
        // SAFETY: the declarations of cuda.h, here and below.
        let init = unsafe { entry::<Init>(library, c"cuInit") }?;
        // SAFETY: as above.
        let device = unsafe { entry::<Device>(library, c"cuDeviceGet") }?;
        // SAFETY: as above.
        let retain = unsafe { entry::<Retain>(library, c"cuDevicePrimaryCtxRetain") }?;
        // SAFETY: the flags must be 0, and are.
        check("cuInit", unsafe { init(0) })?;
        let mut handle = 0;
        // SAFETY: `handle` is ours.
        check("cuDeviceGet", unsafe { device(&mut handle, ordinal as c_int) })?;
        let mut context = core::ptr::null_mut();
        // SAFETY: `context` is ours.
        check("cuDevicePrimaryCtxRetain", unsafe { retain(&mut context, handle) })?;
        Ok(Arc::new(Cuda {
            context,
            // SAFETY: as above.
            push: unsafe { entry(library, c"cuCtxPushCurrent_v2") }?,
            // SAFETY: as above.
            pop: unsafe { entry(library, c"cuCtxPopCurrent_v2") }?,
            // SAFETY: as above.
            allocate: unsafe { entry(library, c"cuMemAlloc_v2") }?,
            // SAFETY: as above.
            free: unsafe { entry(library, c"cuMemFree_v2") }?,
            // SAFETY: as above.
            copy_in: unsafe { entry(library, c"cuMemcpyHtoD_v2") }?,
            // SAFETY: as above.
            copy_out: unsafe { entry(library, c"cuMemcpyDtoH_v2") }?,
        }))
    }

    /// Runs a call with the context current.
    fn within(&self, operation: &str, call: impl FnOnce() -> c_int) -> Result<(), String> {
        // SAFETY: the context is retained.
        check("cuCtxPushCurrent", unsafe { (self.push)(self.context) })?;
        let code = call();
        let mut popped = core::ptr::null_mut();
        // SAFETY: `popped` is ours; the context on top is the one that was pushed.
        check("cuCtxPopCurrent", unsafe { (self.pop)(&mut popped) })?;
        check(operation, code)
    }

    /// Allocates so many bytes of the device's memory.
    pub fn allocate(self: &Arc<Self>, bytes: usize) -> Result<Arc<Allocation>, String> {
        let mut address = 0;
        // SAFETY: `address` is ours.
        self.within("cuMemAlloc", || unsafe { (self.allocate)(&mut address, bytes) })?;
        Ok(Arc::new(Allocation { cuda: Arc::clone(self), address, bytes }))
    }
}

/// Device memory, freed when its last owner is dropped.
pub struct Allocation {
    cuda: Arc<Cuda>,
    address: u64,
    bytes: usize,
}

impl Allocation {
    /// Returns the memory in the form that cuFile takes.
    pub fn memory(self: &Arc<Self>) -> DeviceMemory {
        // SAFETY: one allocation of CUDA's, freed when `self` is dropped, which the memory holds.
        unsafe { DeviceMemory::new(self.address, self.bytes, Arc::<Allocation>::clone(self)) }
    }

    /// Copies from host to device, at an offset.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result<(), String> {
        assert!(offset + bytes.len() <= self.bytes);
        let target = self.address + offset as u64;
        // SAFETY: within the allocation and the slice.
        self.cuda.within("cuMemcpyHtoD", || unsafe {
            (self.cuda.copy_in)(target, bytes.as_ptr().cast(), bytes.len())
        })
    }

    /// Copies from device to host, from an offset.
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result<(), String> {
        assert!(offset + bytes.len() <= self.bytes);
        let source = self.address + offset as u64;
        // SAFETY: within the allocation and the slice.
        self.cuda.within("cuMemcpyDtoH", || unsafe {
            (self.cuda.copy_out)(bytes.as_mut_ptr().cast(), source, bytes.len())
        })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated once, freed once; its users held it. If CUDA refuses, it stays until the
        // process ends.
        let _ = self.cuda.within("cuMemFree", || unsafe { (self.cuda.free)(self.address) });
    }
}
