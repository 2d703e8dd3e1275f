//! The kernels on the CPU: their own source, compiled by the host's C++ compiler (`cuda/cpu/`). For tests, here and of whoever launches.

use crate::launch::{Launch, THREADS};
use core::ffi::{CStr, c_char, c_uint, c_void};

unsafe extern "C" {
    fn kvstrata_cpu_kernel_args(name: *const c_char) -> usize;
    fn kvstrata_cpu_launch(name: *const c_char, grid: c_uint, threads: c_uint, args: *const c_void) -> bool;
}

/// Bytes of the structure that a kernel takes; `None` if there is no kernel of that name.
#[must_use]
pub fn parameters_bytes(kernel: &CStr) -> Option<usize> {
    // SAFETY: a string that ends; the table that is searched is never written after its construction.
    let bytes = unsafe { kvstrata_cpu_kernel_args(kernel.as_ptr()) };
    (bytes > 0).then_some(bytes)
}

/// Runs a launch to its end, in this thread; false if there is no such kernel, or if it takes another number of bytes.
///
/// # Safety
///
/// All that its plan reads and writes is memory of this process that nobody writes, or touches, meanwhile; so is what its parameters
/// say of the bases.
pub unsafe fn launch(launch: &Launch<'_>) -> bool {
    // A copy, which is aligned as the structure has to be.
    let mut words = vec![0_u64; launch.parameters.len().div_ceil(8)];
    for (word, bytes) in words.iter_mut().zip(launch.parameters.chunks(8)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_ne_bytes(whole);
    }
    parameters_bytes(launch.kernel) == Some(launch.parameters.len())
        // SAFETY: a string that ends, a structure of the size that the kernel takes, and memory that the caller vouches for.
        && unsafe { kvstrata_cpu_launch(launch.kernel.as_ptr(), launch.grid, THREADS, words.as_ptr().cast()) }
}
