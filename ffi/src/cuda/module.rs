//! Images of kernels, their functions, and launches: a grid, a block, and one parameter struct by pointer.

use super::back::Thing;
use super::context::CudaDevice;
use super::error::CudaError;
use super::stream::CudaStream;
use super::sys::{CUfunction, CUfunction_attribute as Attribute, CUmodule};
use core::ffi::{c_int, c_void};
use core::fmt;
use core::ptr::null_mut;
use std::ffi::CString;
use std::sync::Arc;

/// A loaded image. It is unloaded when its last function is gone; a transfer holds its functions until
/// the device has answered.
pub struct CudaModule {
    device: Arc<CudaDevice>,
    module: CUmodule,
}

// SAFETY: a module may be used from any thread (the driver is thread-safe); the pointer is never
// followed here.
unsafe impl Send for CudaModule {}
// SAFETY: as above; nothing changes behind `&CudaModule`.
unsafe impl Sync for CudaModule {}

impl CudaModule {
    /// Loads an image: a fat binary, a cubin, or PTX. The driver takes its own copy. A driver does not
    /// load the output of a newer nvcc: nvcc 13 needs R580 or later, so for older drivers the kernels are
    /// made by nvcc 12.8.
    ///
    /// # Errors
    /// [`CudaError`]: the driver refuses; `CUDA_ERROR_NO_BINARY_FOR_GPU` if nothing in the image fits
    /// the device.
    ///
    /// # Safety
    /// The image is complete and as nvcc made it: the driver is not told its size, and trusts the image's
    /// own headers.
    pub unsafe fn load(device: &Arc<CudaDevice>, image: &[u8]) -> Result<Arc<CudaModule>, CudaError> {
        if image.is_empty() {
            return Err(CudaError::ZeroBytes { what: "image" });
        }
        // PTX is text, which ends with a NUL. A binary must be aligned as its words are.
        let mut words = vec![0_u64; image.len() / 8 + 1];
        // SAFETY: the words have room for the image and one byte more.
        unsafe { words.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(image.as_ptr(), image.len()) };
        let mut module = null_mut();
        device.call("cuModuleLoadData", |api| {
            // SAFETY: `module` is ours; the image is whole (the caller's promise), and followed by a NUL.
            unsafe { (api.cuModuleLoadData)(&mut module, words.as_ptr().cast()) }
        })?;
        Ok(Arc::new(CudaModule { device: Arc::clone(device), module }))
    }

    /// Returns a function of the image.
    ///
    /// # Errors
    /// [`CudaError`]: the image has no function of that name (`CUDA_ERROR_NOT_FOUND`), or the driver refuses.
    pub fn function(self: &Arc<Self>, name: &str) -> Result<CudaFunction, CudaError> {
        let text = CString::new(name).map_err(|_| CudaError::Name { name: name.to_owned() })?;
        let mut function = null_mut();
        self.device.call("cuModuleGetFunction", |api| {
            // SAFETY: `function` is ours, the module is loaded, the name is a C string.
            unsafe { (api.cuModuleGetFunction)(&mut function, self.module, text.as_ptr()) }
        })?;
        let attribute = |attribute| {
            let mut value = 0;
            self.device.call("cuFuncGetAttribute", |api| {
                // SAFETY: `value` is ours, the function is of a loaded module.
                unsafe { (api.cuFuncGetAttribute)(&mut value, attribute, function) }
            })?;
            Ok::<u32, CudaError>(u32::try_from(value).unwrap_or(0))
        };
        Ok(CudaFunction {
            registers: attribute(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            local_bytes: attribute(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            block_threads: attribute(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            module: Arc::clone(self),
            function,
        })
    }

    /// Returns the module's device.
    #[must_use]
    pub fn device(&self) -> &Arc<CudaDevice> {
        &self.device
    }
}

impl Drop for CudaModule {
    fn drop(&mut self) {
        // SAFETY: loaded by us and unloaded once; no launch of it is in flight: transfers hold its functions.
        unsafe { self.device.give_back(Thing::Module(self.module), 0, None) };
    }
}

impl fmt::Debug for CudaModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaModule(of device:{})", self.device.ordinal())
    }
}

/// A kernel.
#[derive(Clone)]
pub struct CudaFunction {
    module: Arc<CudaModule>,
    function: CUfunction,
    registers: u32,
    local_bytes: u32,
    block_threads: u32,
}

// SAFETY: a function may be launched from any thread (the driver is thread-safe); the pointer is never
// followed here.
unsafe impl Send for CudaFunction {}
// SAFETY: as above; nothing changes behind `&CudaFunction`.
unsafe impl Sync for CudaFunction {}

impl CudaFunction {
    /// Returns the registers per thread.
    #[must_use]
    pub fn registers(&self) -> u32 {
        self.registers
    }

    /// Returns the bytes of local memory per thread: spills, and arrays that are not in registers.
    #[must_use]
    pub fn local_bytes(&self) -> u32 {
        self.local_bytes
    }

    /// Returns the maximum threads per block.
    #[must_use]
    pub fn block_threads(&self) -> u32 {
        self.block_threads
    }

    /// Returns how many blocks of `threads` threads fit one multiprocessor at a time; at least 1.
    ///
    /// # Errors
    /// [`CudaError`]: the driver refuses.
    pub fn resident_blocks(&self, threads: u32) -> Result<u32, CudaError> {
        let (mut blocks, threads) = (0, c_int::try_from(threads).unwrap_or(c_int::MAX));
        self.module.device.call("cuOccupancyMaxActiveBlocksPerMultiprocessor", |api| {
            // SAFETY: `blocks` is ours; the function is of a loaded module. It uses only its own
            // shared memory.
            unsafe {
                (api.cuOccupancyMaxActiveBlocksPerMultiprocessor)(&mut blocks, self.function, threads, 0)
            }
        })?;
        Ok(u32::try_from(blocks).unwrap_or(0).max(1))
    }

    /// Returns the image that contains the kernel.
    #[must_use]
    pub fn module(&self) -> &Arc<CudaModule> {
        &self.module
    }
}

impl fmt::Debug for CudaFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CudaFunction { registers, local_bytes, block_threads, .. } = self;
        f.debug_struct("CudaFunction")
            .field("registers", registers)
            .field("local_bytes", local_bytes)
            .field("block_threads", block_threads)
            .finish_non_exhaustive()
    }
}

impl CudaStream {
    /// Queues one launch: `grid` blocks of `block` threads; the only parameter is a copy of `args`. No
    /// allocation, no upload. [`Work::launch`](super::Work::launch) also holds the memory until the
    /// device has answered.
    ///
    /// # Errors
    /// [`CudaError::Shape`], [`CudaError::WrongDevice`], or the driver refuses.
    ///
    /// # Safety
    /// The kernel takes one parameter, of `T`'s size and layout. With these arguments it stays inside memory
    /// that lives until the kernel has been executed, and that has no conflicting access until then.
    pub unsafe fn launch<T: ?Sized>(
        &self,
        function: &CudaFunction,
        grid: u32,
        block: u32,
        args: &T,
    ) -> Result<(), CudaError> {
        let (found, wanted) = (function.module.device(), self.device());
        if !Arc::ptr_eq(found, wanted) {
            let (found, wanted) = (found.ordinal(), wanted.ordinal());
            return Err(CudaError::WrongDevice { what: "the kernel", found, wanted });
        }
        let most = function.block_threads;
        if grid == 0 || block == 0 || block > most {
            return Err(CudaError::Shape { grid, block, most });
        }
        let mut parameters = [core::ptr::from_ref(args).cast_mut().cast::<c_void>()];
        self.device().call("cuLaunchKernel", |api| {
            // SAFETY: the function and the stream are live; there is one parameter, which the driver only
            // reads and copies before it returns; the rest is the caller's promise.
            unsafe {
                (api.cuLaunchKernel)(
                    function.function,
                    grid,
                    1,
                    1,
                    block,
                    1,
                    1,
                    0,
                    self.raw(),
                    parameters.as_mut_ptr(),
                    null_mut(),
                )
            }
        })
    }
}
