//! CUDA's driver API, found at run time: one table of entries, each with `cudarc`'s declaration.
//!
//! `cudarc` declares every result as its enumeration of the codes of CUDA 13.0. A newer driver may answer
//! with a code outside that enumeration: undefined behaviour for a Rust enum. Its wrappers also panic if
//! an entry is missing. So each entry is looked up here, with the same arguments and a plain number for
//! the result; the compiler checks each row's arguments against cudarc's.
//!
//! Invariants
//! - I1: each entry is a function of the declared signature, and stays loaded until the process ends:
//!   cudarc never unloads. (`own` rows have the signature of `cuda.h`, and no compiler checks them.)

use super::error::CudaError;
use crate::sys::library::Library;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr::NonNull;
use cudarc::driver::sys::{self, culib, is_culib_present};

pub(super) use cudarc::driver::sys::{
    CUDA_MEMCPY2D, CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction,
    CUfunction_attribute, CUhostFn, CUipcMemHandle, CUmemLocation, CUmemLocationType, CUmemcpyAttributes,
    CUmemcpyFlags, CUmemcpySrcAccessOrder, CUmemorytype, CUmodule, CUpointer_attribute, CUstream, CUuuid,
};

/// `CUresult` as a number: 0 is success.
pub(super) type Code = c_int;

/// The table, its search, and the check of its rows.
macro_rules! entries {
    (
        required { $($name:ident($($argument:ty),*);)* }
        optional { $($maybe:ident($($maybe_argument:ty),*);)* }
        own { $($own:ident($($own_argument:ty),*);)* }
    ) => {
        /// The driver's entries by their names in `cuda.h`.
        #[allow(non_snake_case, reason = "the names are the driver's")]
        #[derive(Clone, Copy)]
        pub(super) struct Api {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> Code,)*
            $(pub(super) $maybe: Option<unsafe extern "C" fn($($maybe_argument),*) -> Code>,)*
            $(pub(super) $own: Option<unsafe extern "C" fn($($own_argument),*) -> Code>,)*
        }

        $(const _: unsafe fn($($argument),*) -> sys::CUresult = sys::$name;)*
        $(const _: unsafe fn($($maybe_argument),*) -> sys::CUresult = sys::$maybe;)*

        impl Api {
            /// Finds every entry by its address in the library.
            fn find(address: impl Fn(&CStr) -> Option<NonNull<c_void>>) -> Result<Api, CudaError> {
                let find = |name| CStr::from_bytes_with_nul(name).ok().and_then(&address);
                Ok(Api {
                    $(
                        $name: match find(concat!(stringify!($name), "\0").as_bytes()) {
                            // SAFETY: the row has cudarc's declaration (checked above), except for the
                            // result, a 32-bit number in C.
                            Some(found) => unsafe { entry(found) },
                            None => return Err(CudaError::SymbolMissing { symbol: stringify!($name) }),
                        },
                    )*
                    $(
                        $maybe: find(concat!(stringify!($maybe), "\0").as_bytes())
                            // SAFETY: as above.
                            .map(|found| unsafe { entry(found) }),
                    )*
                    $(
                        $own: find(concat!(stringify!($own), "\0").as_bytes())
                            // SAFETY: the row has the declaration of `cuda.h`; it is not called on
                            // drivers that have another one.
                            .map(|found| unsafe { entry(found) }),
                    )*
                })
            }
        }
    };
}

entries! {
    required {
        cuInit(c_uint);
        cuDriverGetVersion(*mut c_int);
        cuDeviceGetCount(*mut c_int);
        cuDeviceGet(*mut CUdevice, c_int);
        cuDeviceGetName(*mut c_char, c_int, CUdevice);
        cuDeviceGetUuid_v2(*mut CUuuid, CUdevice);
        cuDeviceGetPCIBusId(*mut c_char, c_int, CUdevice);
        cuDeviceGetAttribute(*mut c_int, CUdevice_attribute, CUdevice);
        cuDeviceTotalMem_v2(*mut usize, CUdevice);
        cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
        cuDevicePrimaryCtxRelease_v2(CUdevice);
        cuCtxPushCurrent_v2(CUcontext);
        cuCtxPopCurrent_v2(*mut CUcontext);
        cuCtxSetCurrent(CUcontext);
        cuCtxGetStreamPriorityRange(*mut c_int, *mut c_int);
        cuMemGetInfo_v2(*mut usize, *mut usize);
        cuMemAlloc_v2(*mut CUdeviceptr, usize);
        cuMemFree_v2(CUdeviceptr);
        cuPointerGetAttribute(*mut c_void, CUpointer_attribute, CUdeviceptr);
        cuMemGetAddressRange_v2(*mut CUdeviceptr, *mut usize, CUdeviceptr);
        cuMemHostRegister_v2(*mut c_void, usize, c_uint);
        cuMemHostUnregister(*mut c_void);
        cuMemHostGetDevicePointer_v2(*mut CUdeviceptr, *mut c_void, c_uint);
        cuStreamCreateWithPriority(*mut CUstream, c_uint, c_int);
        cuStreamDestroy_v2(CUstream);
        cuStreamWaitEvent(CUstream, CUevent, c_uint);
        cuStreamWriteValue32_v2(CUstream, CUdeviceptr, c_uint, c_uint);
        cuEventCreate(*mut CUevent, c_uint);
        cuEventRecord(CUevent, CUstream);
        cuEventQuery(CUevent);
        cuEventSynchronize(CUevent);
        cuEventDestroy_v2(CUevent);
        cuLaunchHostFunc(CUstream, CUhostFn, *mut c_void);
        cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream);
        cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream);
        cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, usize, CUstream);
        cuMemcpy2DAsync_v2(*const CUDA_MEMCPY2D, CUstream);
        cuMemsetD8Async(CUdeviceptr, u8, usize, CUstream);
        cuModuleLoadData(*mut CUmodule, *const c_void);
        cuModuleUnload(CUmodule);
        cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char);
        cuFuncGetAttribute(*mut c_int, CUfunction_attribute, CUfunction);
        cuOccupancyMaxActiveBlocksPerMultiprocessor(*mut c_int, CUfunction, c_int, usize);
        cuLaunchKernel(
            CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void,
            *mut *mut c_void
        );
        cuIpcGetMemHandle(*mut CUipcMemHandle, CUdeviceptr);
        cuIpcOpenMemHandle_v2(*mut CUdeviceptr, CUipcMemHandle, c_uint);
        cuIpcCloseMemHandle(CUdeviceptr);
    }
    optional {
        // From CUDA 13.0 on.
        cuMemcpyBatchAsync_v2(
            *mut CUdeviceptr, *mut CUdeviceptr, *mut usize, usize, *mut CUmemcpyAttributes, *mut usize, usize, CUstream
        );
    }
    own {
        // The mode is an enumeration in cudarc's declaration, and a plain number here, like a result. The
        // same holds for a stream's status.
        cuThreadExchangeStreamCaptureMode(*mut c_uint);
        cuStreamIsCapturing(CUstream, *mut c_uint);
        // Only of CUDA 12.8 and 12.9, which report where they failed. Later drivers may or may not have
        // it under this name.
        cuMemcpyBatchAsync(
            *mut CUdeviceptr, *mut CUdeviceptr, *mut usize, usize, *mut CUmemcpyAttributes, *mut usize, usize, *mut usize,
            CUstream
        );
    }
}

/// `cuMemcpyBatchAsync_v2`.
pub(super) type BatchPlain = unsafe extern "C" fn(
    *mut CUdeviceptr,
    *mut CUdeviceptr,
    *mut usize,
    usize,
    *mut CUmemcpyAttributes,
    *mut usize,
    usize,
    CUstream,
) -> Code;

/// `cuMemcpyBatchAsync` of 12.8: the argument before the stream receives the index of the first
/// refused piece.
pub(super) type BatchFailing = unsafe extern "C" fn(
    *mut CUdeviceptr,
    *mut CUdeviceptr,
    *mut usize,
    usize,
    *mut CUmemcpyAttributes,
    *mut usize,
    usize,
    *mut usize,
    CUstream,
) -> Code;

/// Returns the address of an entry as a function pointer.
///
/// # Safety
/// `F` is a function pointer type, the one of the entry's declaration.
unsafe fn entry<F: Copy>(address: NonNull<c_void>) -> F {
    const { assert!(size_of::<F>() == size_of::<NonNull<c_void>>()) };
    // SAFETY: a function pointer is as large as its address, and its type is that of the function there
    // (the caller's promise).
    unsafe { core::mem::transmute_copy(&address) }
}

impl Api {
    /// Loads the library, unless the process has it already, and finds its entries.
    pub(super) fn load() -> Result<Api, CudaError> {
        // SAFETY: loads a library of the system's, whose initialisers may run at any time.
        if !unsafe { is_culib_present() } {
            let why = Library::open(&[c"libcuda.so", c"libcuda.so.1"]).err();
            return Err(CudaError::LibraryMissing { why: why.unwrap_or_else(|| "gone again".to_owned()) });
        }
        // SAFETY: as above; the library is present, so this does not panic.
        let library = unsafe { culib() };
        Api::find(|name| {
            // SAFETY: the address is only looked up here; `entry` has the type.
            let found = unsafe { library.get::<*mut c_void>(name.to_bytes_with_nul()) };
            found.ok().and_then(|address| NonNull::new(*address))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_missing_entry_is_named_unless_optional() {
        let some = NonNull::<c_void>::dangling();
        let missing = Api::find(|name| (name != c"cuMemFree_v2").then_some(some)).err();
        assert_eq!(missing, Some(CudaError::SymbolMissing { symbol: "cuMemFree_v2" }));
        let api = Api::find(|name| (name != c"cuMemcpyBatchAsync_v2").then_some(some)).expect("optional");
        assert!(api.cuMemcpyBatchAsync_v2.is_none());
        assert!(Api::find(|_| Some(some)).expect("all there").cuMemcpyBatchAsync_v2.is_some());
    }

    #[test]
    fn missing_library_is_an_error() {
        match Api::load() {
            Ok(_) => println!("SKIP no-cuda: libcuda is installed here"),
            Err(CudaError::LibraryMissing { why }) => assert!(why.contains("libcuda"), "{why}"),
            Err(other) => panic!("{other}"),
        }
    }
}
