//! The kernels on the CPU: their own source, compiled by the host's C++ compiler (`cuda/cpu/`). For tests
//! of this crate, and of crates that launch kernels.

use crate::launch::{Launch, THREADS};
use core::ffi::{CStr, c_char, c_uint, c_void};
use core::ptr::null;

/// Runs a whole launch to its end, in the calling thread: CTAs, threads per CTA, parameters.
pub type Entry = unsafe extern "C" fn(c_uint, c_uint, *const c_void);

/// A kernel on the CPU.
#[derive(Clone, Copy, Debug)]
pub struct CpuKernel {
    /// The kernel's name.
    pub name: &'static CStr,
    /// Bytes of its parameter structure, which must be aligned to 8.
    pub parameters_bytes: usize,
    /// Runs the kernel.
    ///
    /// # Safety
    /// The parameters are those of a [`Launch`] of this kernel. All memory that its plan reads or writes
    /// is memory of this process. Until the call returns, nothing else writes the memory that it reads,
    /// and nothing else touches the memory that it writes. The same holds for the bases that the
    /// parameters name.
    pub run: Entry,
}

/// An entry of the table that the kernels' constructors made; the table is never written afterwards.
#[repr(C)]
struct Registered {
    opaque: [u8; 0],
}

unsafe extern "C" {
    fn kvstrata_cpu_kernel(behind: *const Registered) -> *const Registered;
    fn kvstrata_cpu_name(kernel: *const Registered) -> *const c_char;
    fn kvstrata_cpu_args_bytes(kernel: *const Registered) -> usize;
    fn kvstrata_cpu_entry(kernel: *const Registered) -> Entry;
}

/// Returns all kernels.
pub fn kernels() -> impl Iterator<Item = CpuKernel> {
    let mut at = null();
    core::iter::from_fn(move || {
        // SAFETY: null, or of the table.
        at = unsafe { kvstrata_cpu_kernel(at) };
        if at.is_null() {
            return None;
        }
        // SAFETY: of the table.
        let name = unsafe { kvstrata_cpu_name(at) };
        // SAFETY: a literal.
        let name = unsafe { CStr::from_ptr(name) };
        // SAFETY: of the table.
        let parameters_bytes = unsafe { kvstrata_cpu_args_bytes(at) };
        // SAFETY: of the table.
        Some(CpuKernel { name, parameters_bytes, run: unsafe { kvstrata_cpu_entry(at) } })
    })
}

/// Runs a launch to its end, in this thread. Returns false if there is no such kernel, or if the kernel
/// takes another number of bytes.
///
/// # Safety
///
/// As for [`CpuKernel::run`].
pub unsafe fn launch(launch: &Launch<'_>) -> bool {
    let Some(kernel) = kernels().find(|kernel| kernel.name == launch.kernel) else { return false };
    if kernel.parameters_bytes != launch.parameters.len() {
        return false;
    }
    // A copy with the alignment that the structure needs.
    let mut words = vec![0_u64; launch.parameters.len().div_ceil(8)];
    for (word, bytes) in words.iter_mut().zip(launch.parameters.chunks(8)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_ne_bytes(whole);
    }
    // SAFETY: parameters of the size that the kernel takes, and memory that the caller vouches for.
    unsafe { (kernel.run)(launch.grid, THREADS, words.as_ptr().cast()) };
    true
}
