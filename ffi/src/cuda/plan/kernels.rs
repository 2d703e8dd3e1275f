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
    modules: Vec<(&'static str, Arc<CudaModule>)>,
}

impl CudaKernels {
    /// Loads what this program was built with.
    ///
    /// # Errors
    /// [`CudaError::NoKernels`] if it was built without nvcc; or the driver refuses: it is too old for the images, or has none for the
    /// device.
    pub fn load(device: &Arc<CudaDevice>) -> Result<CudaKernels, CudaError> {
        let images = images().map_err(|why| CudaError::NoKernels { why: why.to_owned() })?;
        // SAFETY: whole, and as nvcc made them.
        unsafe { CudaKernels::of(device, images) }
    }

    /// Loads these images.
    ///
    /// # Errors
    /// As for [`load`](CudaKernels::load).
    ///
    /// # Safety
    /// They are whole, and have this version's kernels.
    pub unsafe fn of(device: &Arc<CudaDevice>, images: &[Image]) -> Result<CudaKernels, CudaError> {
        let load = |image: &Image| {
            // SAFETY: the caller's promise.
            let module = unsafe { CudaModule::load(device, image.bytes) }?;
            Ok((image.name, module))
        };
        Ok(CudaKernels { modules: images.iter().map(load).collect::<Result<_, CudaError>>()? })
    }

    /// A kernel of this name: an image has those that its own name begins.
    pub(super) fn function(&self, name: &'static CStr) -> Result<(&'static CStr, CudaFunction), CudaError> {
        let text = name.to_string_lossy();
        let module = self.modules.iter().find(|(image, _)| text.starts_with(image));
        let (_, module) = module
            .ok_or_else(|| CudaError::NoKernels { why: format!("no image has {text} ({})", toolkit()) })?;
        Ok((name, module.function(&text)?))
    }
}

impl fmt::Debug for CudaKernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.modules.iter().map(|(name, _)| name)).finish()
    }
}
