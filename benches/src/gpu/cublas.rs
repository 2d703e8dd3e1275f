//! NVIDIA's matmul, on machines with its library: `libcublasLt`, found at run time. Only the parts that
//! one matmul needs.

use super::Failure;
use core::ffi::{CStr, c_int, c_void};
use core::ptr::null_mut;
use kvstrata_core::storage::Storage;
use kvstrata_ffi::cuda::{CudaDevice, DeviceStorage};
use std::sync::Arc;

/// The names under which it may be installed.
const LIBRARIES: [&CStr; 3] = [c"libcublasLt.so.13", c"libcublasLt.so.12", c"libcublasLt.so"];
/// `CUBLAS_COMPUTE_32F`, `CUDA_R_32F`, `CUDA_R_16BF`, `CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES`.
const COMPUTE_32F: c_int = 68;
const R_32F: c_int = 0;
const R_16BF: c_int = 14;
const PREF_MAX_WORKSPACE: c_int = 1;
/// NVIDIA's suggestion for Hopper.
const WORKSPACE_BYTES: u64 = 32 << 20;

type Opaque = *mut c_void;
type Create = unsafe extern "C" fn(*mut Opaque) -> c_int;
type CreateDesc = unsafe extern "C" fn(*mut Opaque, c_int, c_int) -> c_int;
type CreateLayout = unsafe extern "C" fn(*mut Opaque, c_int, u64, u64, i64) -> c_int;
type SetPreference = unsafe extern "C" fn(Opaque, c_int, *const c_void, usize) -> c_int;
type Heuristic = unsafe extern "C" fn(
    Opaque,
    Opaque,
    Opaque,
    Opaque,
    Opaque,
    Opaque,
    Opaque,
    c_int,
    *mut Found,
    *mut c_int,
) -> c_int;
/// Handle, operation, alpha, A, B, beta, C, D, algorithm, workspace, its size, stream; pointers to
/// device memory as numbers.
type Multiply = unsafe extern "C" fn(
    Opaque,
    Opaque,
    *const f32,
    u64,
    Opaque,
    u64,
    Opaque,
    *const f32,
    u64,
    Opaque,
    u64,
    Opaque,
    *const [u64; 8],
    u64,
    usize,
    Opaque,
) -> c_int;

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Found {
    algorithm: [u64; 8],
    workspace_bytes: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

const _: () = assert!(size_of::<Found>() == 96);

/// The matmul of two n × n matrices. Its objects live as long as the process.
pub struct CublasLt {
    multiply: Multiply,
    handle: Opaque,
    operation: Opaque,
    /// The layouts of A and B, and of C.
    layouts: [Opaque; 2],
    algorithm: [u64; 8],
    workspace: Arc<DeviceStorage>,
}

struct Library(Opaque);

impl Library {
    /// # Safety
    /// `F` is the type of the function of that name.
    unsafe fn find<F: Copy>(&self, name: &CStr) -> Result<F, Failure> {
        const { assert!(size_of::<F>() == size_of::<Opaque>()) };
        // SAFETY: a library that is never unloaded.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if found.is_null() {
            return Err(format!("libcublasLt has no {}", name.to_string_lossy()).into());
        }
        // SAFETY: a function pointer is as large as its address, and has this type (the caller's promise).
        Ok(unsafe { core::mem::transmute_copy(&found) })
    }
}

fn checked(what: &str, code: c_int) -> Result<(), Failure> {
    if code == 0 { Ok(()) } else { Err(format!("libcublasLt: {what} answered {code}").into()) }
}

impl CublasLt {
    /// Prepares a matmul with bfloat16 in and binary32 out.
    ///
    /// # Errors
    /// The library is not there, or has no such matmul.
    pub fn open(device: &Arc<CudaDevice>, n: u32) -> Result<CublasLt, Failure> {
        // SAFETY: libraries of NVIDIA's, with initialisers of its own.
        let loaded = LIBRARIES.map(|name| unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) });
        let library = loaded.into_iter().find(|handle| !handle.is_null()).ok_or("no libcublasLt")?;
        let workspace = DeviceStorage::allocate(device, WORKSPACE_BYTES)?;
        device.bound(|| CublasLt::prepared(&Library(library), workspace, n))?
    }

    fn prepared(library: &Library, workspace: Arc<DeviceStorage>, n: u32) -> Result<CublasLt, Failure> {
        // SAFETY: the types of cublasLt.h, here and below; it has had them since CUDA 11.
        let create: Create = unsafe { library.find(c"cublasLtCreate") }?;
        // SAFETY: as above.
        let describe: CreateDesc = unsafe { library.find(c"cublasLtMatmulDescCreate") }?;
        // SAFETY: as above.
        let lay: CreateLayout = unsafe { library.find(c"cublasLtMatrixLayoutCreate") }?;
        // SAFETY: as above.
        let prefer: Create = unsafe { library.find(c"cublasLtMatmulPreferenceCreate") }?;
        // SAFETY: as above.
        let set: SetPreference = unsafe { library.find(c"cublasLtMatmulPreferenceSetAttribute") }?;
        // SAFETY: as above.
        let search: Heuristic = unsafe { library.find(c"cublasLtMatmulAlgoGetHeuristic") }?;
        // SAFETY: as above.
        let multiply: Multiply = unsafe { library.find(c"cublasLtMatmul") }?;

        let (mut handle, mut operation, mut preference) = (null_mut(), null_mut(), null_mut());
        // SAFETY: `handle` is ours.
        checked("cublasLtCreate", unsafe { create(&mut handle) })?;
        // SAFETY: `operation` is ours.
        checked("cublasLtMatmulDescCreate", unsafe { describe(&mut operation, COMPUTE_32F, R_32F) })?;
        let layout = |of: c_int| {
            let mut layout = null_mut();
            // SAFETY: `layout` is ours.
            let code = unsafe { lay(&mut layout, of, n.into(), n.into(), n.into()) };
            checked("cublasLtMatrixLayoutCreate", code).map(|()| layout)
        };
        let layouts @ [half, whole] = [layout(R_16BF)?, layout(R_32F)?];
        // SAFETY: `preference` is ours.
        checked("cublasLtMatmulPreferenceCreate", unsafe { prefer(&mut preference) })?;
        let most = workspace.size_bytes();
        // SAFETY: 8 bytes, which are read before the call returns.
        let code = unsafe { set(preference, PREF_MAX_WORKSPACE, (&raw const most).cast(), size_of::<u64>()) };
        checked("cublasLtMatmulPreferenceSetAttribute", code)?;
        let (mut found, mut count) = (Found::default(), 0);
        // SAFETY: all made above; room for one result.
        let code = unsafe {
            search(handle, operation, half, half, whole, whole, preference, 1, &mut found, &mut count)
        };
        checked("cublasLtMatmulAlgoGetHeuristic", code)?;
        if count < 1 {
            return Err("libcublasLt has no algorithm for it".into());
        }
        Ok(CublasLt { multiply, handle, operation, layouts, algorithm: found.algorithm, workspace })
    }

    /// Queues C = A × B.
    ///
    /// # Errors
    /// An error of the library.
    ///
    /// # Safety
    /// The matrices are device memory of their sizes, which lives until `stream`, of the device
    /// that is bound, has executed it.
    pub unsafe fn multiply(&self, [a, b, c]: [u64; 3], stream: *mut c_void) -> Result<(), Failure> {
        let (alpha, beta, [half, whole]) = (1.0_f32, 0.0_f32, self.layouts);
        // SAFETY: all made by `prepared`, for such matrices; the workspace lives as long as `self`, and
        // the caller waits; the rest is the caller's promise.
        let code = unsafe {
            (self.multiply)(
                self.handle,
                self.operation,
                &alpha,
                a,
                half,
                b,
                half,
                &beta,
                c,
                whole,
                c,
                whole,
                &self.algorithm,
                self.workspace.base_address(),
                self.workspace.size_bytes() as usize,
                stream,
            )
        };
        checked("cublasLtMatmul", code)
    }
}
