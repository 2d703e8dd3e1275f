//! The bench over the test double of libcuda, so that its own code is tested without a GPU. Its output
//! is no measurement.

use super::matmul::{Arguments, KERNEL};
use core::ffi::c_void;
use kvstrata_cuda_double::Double;
use kvstrata_ffi::cuda::{CudaDevice, CudaError, CudaKernels};
use kvstrata_kernels::{Image, cpu};
use std::sync::Arc;

/// Installs the double in libcuda's place, with the kernels compiled by the host's compiler.
#[must_use]
pub fn install() -> Double {
    let double = Double::new();
    double.plain_addresses();
    for kernel in cpu::kernels() {
        let name = kernel.name.to_string_lossy();
        // SAFETY: takes a copy of the structure that it is launched with.
        unsafe { double.kernel(&name, kernel.parameters_bytes, kernel.run) };
    }
    // SAFETY: as above.
    unsafe { double.kernel(KERNEL, size_of::<Arguments>(), matmul) };
    double
}

/// Loads the kernels of the double: their images are only names.
///
/// # Errors
/// An error of the double.
pub fn kernels(device: &Arc<CudaDevice>) -> Result<CudaKernels, CudaError> {
    let images = ["convert", "copy", "permute", "sum"].map(|name| Image { name, bytes: b"of the double" });
    // SAFETY: the double reads no image.
    unsafe { CudaKernels::of(device, &images) }
}

fn widened(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The work of `matmul.cu`, one element after the other.
unsafe extern "C" fn matmul(_grid: u32, _block: u32, arguments: *const c_void) {
    // SAFETY: the double passes a copy of the launch's structure.
    let Arguments { a, b, c, n, .. } = unsafe { arguments.cast::<Arguments>().read() };
    let n = n as usize;
    let at = |base: u64, bytes: usize| core::ptr::with_exposed_provenance_mut::<u8>(base as usize + bytes);
    // SAFETY: inside a matrix that the bench holds; addresses are the host's.
    let element = |base: u64, place: usize| unsafe { at(base, 2 * place).cast::<u16>().read() };
    for place in 0..n * n {
        let (row, column) = (place / n, place % n);
        let products = (0..n).map(|k| widened(element(a, row * n + k)) * widened(element(b, k * n + column)));
        let sum: f32 = products.sum();
        // SAFETY: as above, and no other code reads it meanwhile.
        unsafe { at(c, 4 * place).cast::<f32>().write(sum) };
    }
}
