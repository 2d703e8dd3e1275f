//! The kernels on a device: nvcc's images, loaded once, and their functions by name.

use super::super::context::CudaDevice;
use super::super::error::CudaError;
use super::super::module::{CudaFunction, CudaModule};
use core::ffi::CStr;
use core::fmt;
use kvstrata_kernels::{Image, images, toolkit};
use std::sync::Arc;

/// The kernels of a device.
pub struct CudaKernels {
    /// All kernels, looked up at load time. The driver may load a kernel's code at the lookup, and then
    /// may wait for the whole context (CUDA C++ Programming Guide, "Lazy Loading").
    functions: Vec<(&'static CStr, CudaFunction)>,
}

impl CudaKernels {
    /// Returns the compiler of this program's kernels, and their architectures.
    ///
    /// # Errors
    /// The reason why the program has no kernels.
    pub fn built() -> Result<&'static str, &'static str> {
        images().map(|_| toolkit())
    }

    /// Loads the kernels that this program was built with.
    ///
    /// # Errors
    /// [`CudaError::NoKernels`] if the program was built without nvcc; or the driver refuses: it is too
    /// old for the images, or no image fits the device. Images that nvcc 13 made need a driver of CUDA 13
    /// (R580); other images need one of their own major version.
    pub fn load(device: &Arc<CudaDevice>) -> Result<CudaKernels, CudaError> {
        let images = images().map_err(|why| CudaError::NoKernels { why: why.to_owned() })?;
        // SAFETY: complete, and as nvcc made them.
        unsafe { CudaKernels::of(device, images) }
    }

    /// Loads these images.
    ///
    /// # Errors
    /// As for [`load`](CudaKernels::load).
    ///
    /// # Safety
    /// The images are complete, and contain this version's kernels.
    pub unsafe fn of(device: &Arc<CudaDevice>, images: &[Image]) -> Result<CudaKernels, CudaError> {
        let mut functions = Vec::new();
        for image in images {
            // SAFETY: the caller's promise.
            let module = unsafe { CudaModule::load(device, image.bytes) }?;
            for name in image.kernels() {
                functions.push((name, module.function(&name.to_string_lossy())?));
            }
        }
        Ok(CudaKernels { functions })
    }

    /// Returns the kernel of this name.
    pub(super) fn function(&self, name: &'static CStr) -> Result<(&'static CStr, CudaFunction), CudaError> {
        let found = self.functions.iter().find(|(of, _)| *of == name);
        found.cloned().ok_or_else(|| CudaError::NoKernels {
            why: format!("no image contains the kernel {name:?} ({})", toolkit()),
        })
    }
}

impl fmt::Debug for CudaKernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaKernels({} of them)", self.functions.len())
    }
}
