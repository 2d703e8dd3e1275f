//! cuFile's and CUDA's entries, found at run time: types and signatures as in `cufile.h` and `cuda.h`.
//!
//! The types are those of cuFile 1.14 and 1.19, whose headers agree on each field used here. The tests
//! below pin their sizes and offsets to the figures that a C compiler gives for those headers.
//!
//! Invariants
//! - I1: only `load`, or a test with functions of its own, makes a table: each entry is a function of the
//!   declared signature, which stays loaded until the process ends ([`Library`] is never unloaded).

use super::error::GdsError;
use crate::sys::library::Library;
use core::ffi::{CStr, c_int, c_uint, c_void};

/// The file names of cuFile that the dynamic linker tries, and the name for messages.
pub(super) const CUFILE_NAMES: [&CStr; 2] = [c"libcufile.so.0", c"libcufile.so"];
pub(super) const CUFILE: &str = "libcufile.so.0";
const CUDA_NAMES: [&CStr; 2] = [c"libcuda.so.1", c"libcuda.so"];
const CUDA: &str = "libcuda.so.1";

/// `CUfileError_t`: cuFile's code, and CUDA's code if the first says that CUDA failed.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) code: c_int,
    pub(super) cuda: c_int,
}

/// `CUfileHandle_t`.
pub(super) type Handle = *mut c_void;

/// `CU_FILE_HANDLE_TYPE_OPAQUE_FD`.
pub(super) const HANDLE_TYPE_FD: c_uint = 1;

/// The union in `CUfileDescr_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) union DescriptorHandle {
    pub(super) fd: c_int,
    /// Gives the union its size.
    _windows: *mut c_void,
}

/// `CUfileDescr_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Descriptor {
    pub(super) kind: c_uint,
    pub(super) handle: DescriptorHandle,
    /// Null: cuFile asks the kernel for the file system.
    pub(super) fs_ops: *const c_void,
}

/// `CUfileDrvProps_t`; its inner struct `nvfs` is flattened, which changes no offset.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Properties {
    /// Version of the nvidia-fs module; 0.0 without it.
    pub(super) nvfs_major: c_uint,
    pub(super) nvfs_minor: c_uint,
    pub(super) poll_threshold_kib: usize,
    pub(super) max_direct_io_kib: usize,
    /// One bit for each file system or bus that can go direct ([`STATUS_NVME_P2P`]).
    pub(super) status_flags: c_uint,
    /// [`CONTROL_ALLOW_COMPAT`].
    pub(super) control_flags: c_uint,
    /// [`FEATURE_P2P`].
    pub(super) feature_flags: c_uint,
    pub(super) max_device_cache_kib: c_uint,
    pub(super) per_buffer_cache_kib: c_uint,
    pub(super) max_pinned_kib: c_uint,
    pub(super) max_batch: c_uint,
    pub(super) max_batch_timeout_ms: c_uint,
}

/// `CU_FILE_NVME_P2P_SUPPORTED` in `status_flags` (up to 1.14; deprecated in 1.19).
pub(super) const STATUS_NVME_P2P: c_uint = 1 << 11;
/// `CU_FILE_ALLOW_COMPAT_MODE` in `control_flags`.
pub(super) const CONTROL_ALLOW_COMPAT: c_uint = 1 << 1;
/// `CU_FILE_P2P_SUPPORTED` in `feature_flags` (1.19).
pub(super) const FEATURE_P2P: c_uint = 1 << 4;
/// `CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE`, the same in 1.14 and 1.19.
pub(super) const PARAMETER_ALLOW_COMPAT: c_int = 1;

/// Returns the address of an entry as a function pointer.
///
/// # Safety
/// `F` is a function pointer type, the one of the entry's declaration.
unsafe fn entry<F: Copy>(library: &Library, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    let address = library.symbol(name)?.as_ptr();
    // SAFETY: a function pointer is as large as its address, and its type is that of the function there
    // (the caller's promise).
    Some(unsafe { core::mem::transmute_copy(&address) })
}

/// A table of entries, and its `load`.
macro_rules! table {
    (
        $(#[$about:meta])* $table:ident of $library:expr, $names:expr;
        required { $($field:ident = $symbol:literal: $signature:ty;)* }
        optional { $($maybe:ident = $maybe_symbol:literal: $maybe_signature:ty;)* }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy)]
        pub(super) struct $table {
            $(pub(super) $field: $signature,)*
            $(pub(super) $maybe: Option<$maybe_signature>,)*
        }

        impl $table {
            /// Finds the library and its entries.
            pub(super) fn load() -> Result<$table, GdsError> {
                let library = Library::open(&$names)
                    .map_err(|why| GdsError::LibraryMissing { library: $library.to_owned(), why })?;
                $table::from_library(&library)
            }

            pub(super) fn from_library(library: &Library) -> Result<$table, GdsError> {
                let missing = |symbol: &CStr| GdsError::SymbolMissing {
                    library: $library.to_owned(),
                    symbol: symbol.to_string_lossy().into_owned(),
                };
                Ok($table {
                    $(
                        // SAFETY: the row has the entry's declaration in the vendor's header.
                        $field: unsafe { entry::<$signature>(library, $symbol) }.ok_or_else(|| missing($symbol))?,
                    )*
                    $(
                        // SAFETY: as above.
                        $maybe: unsafe { entry::<$maybe_signature>(library, $maybe_symbol) },
                    )*
                })
            }
        }
    };
}

table! {
    /// cuFile. Each call may come from any thread; a CUDA context is current where device addresses
    /// are passed.
    CuFileApi of CUFILE, CUFILE_NAMES;
    required {
        driver_open = c"cuFileDriverOpen": unsafe extern "C" fn() -> Status;
        driver_properties = c"cuFileDriverGetProperties": unsafe extern "C" fn(*mut Properties) -> Status;
        handle_register = c"cuFileHandleRegister": unsafe extern "C" fn(*mut Handle, *mut Descriptor) -> Status;
        handle_deregister = c"cuFileHandleDeregister": unsafe extern "C" fn(Handle);
        buffer_register = c"cuFileBufRegister": unsafe extern "C" fn(*const c_void, usize, c_int) -> Status;
        buffer_deregister = c"cuFileBufDeregister": unsafe extern "C" fn(*const c_void) -> Status;
        read = c"cuFileRead":
            unsafe extern "C" fn(Handle, *mut c_void, usize, libc::off_t, libc::off_t) -> libc::ssize_t;
        write = c"cuFileWrite":
            unsafe extern "C" fn(Handle, *const c_void, usize, libc::off_t, libc::off_t) -> libc::ssize_t;
        driver_close = c"cuFileDriverClose": unsafe extern "C" fn() -> Status;
    }
    optional {
        // The header maps `cuFileDriverClose` to this name.
        driver_close_v2 = c"cuFileDriverClose_v2": unsafe extern "C" fn() -> Status;
        version = c"cuFileGetVersion": unsafe extern "C" fn(*mut c_int) -> Status;
        set_bool = c"cuFileSetParameterBool": unsafe extern "C" fn(c_int, bool) -> Status;
        get_bool = c"cuFileGetParameterBool": unsafe extern "C" fn(c_int, *mut bool) -> Status;
    }
}

/// `CUcontext`.
pub(super) type CudaContext = *mut c_void;

table! {
    /// The few entries of CUDA's driver API that cuFile requires of its caller. Codes are `CUresult`, 0
    /// for success.
    ///
    /// This does not use `crate::cuda`'s table and context, because these refuse every call on a failed
    /// device. cuFile's buffers must be deregistered even there, before their owners free them. Also, the
    /// tests' stand-in would have to be a whole driver instead of six entries.
    CudaApi of CUDA, CUDA_NAMES;
    required {
        init = c"cuInit": unsafe extern "C" fn(c_uint) -> c_int;
        device = c"cuDeviceGet": unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
        context_retain = c"cuDevicePrimaryCtxRetain": unsafe extern "C" fn(*mut CudaContext, c_int) -> c_int;
        context_release = c"cuDevicePrimaryCtxRelease_v2": unsafe extern "C" fn(c_int) -> c_int;
        context_push = c"cuCtxPushCurrent_v2": unsafe extern "C" fn(CudaContext) -> c_int;
        context_pop = c"cuCtxPopCurrent_v2": unsafe extern "C" fn(*mut CudaContext) -> c_int;
    }
    optional {}
}

impl CuFileApi {
    /// Returns the library's version number, 1190 for 1.19; 0 if it is too old to report it.
    pub(super) fn version(&self) -> u32 {
        let mut version = 0;
        let Some(ask) = self.version else { return 0 };
        // SAFETY: `version` is ours; the call needs no open driver (I1).
        match unsafe { ask(&mut version) }.code {
            0 => u32::try_from(version).unwrap_or(0),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    /// gcc's figures for `cufile.h` of 1.14.1 and 1.19.1, 64 bits; both give the same.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn cufile_types_match_the_header() {
        assert_eq!((size_of::<Status>(), align_of::<Status>(), offset_of!(Status, cuda)), (8, 4, 4));
        assert_eq!((size_of::<Descriptor>(), align_of::<Descriptor>()), (24, 8));
        assert_eq!((offset_of!(Descriptor, handle), offset_of!(Descriptor, fs_ops)), (8, 16));
        assert_eq!((size_of::<Properties>(), align_of::<Properties>()), (56, 8));
        let offsets = [
            offset_of!(Properties, nvfs_minor),
            offset_of!(Properties, poll_threshold_kib),
            offset_of!(Properties, max_direct_io_kib),
            offset_of!(Properties, status_flags),
            offset_of!(Properties, control_flags),
            offset_of!(Properties, feature_flags),
            offset_of!(Properties, max_device_cache_kib),
            offset_of!(Properties, per_buffer_cache_kib),
            offset_of!(Properties, max_pinned_kib),
            offset_of!(Properties, max_batch),
            offset_of!(Properties, max_batch_timeout_ms),
        ];
        assert_eq!(offsets, [4, 8, 16, 24, 28, 32, 36, 40, 44, 48, 52]);
    }

    #[test]
    fn missing_library_is_named() {
        let missing = Library::open(&[c"libkvstrata-no-such-library.so.0"]).expect_err("no such library");
        assert!(missing.contains("libkvstrata-no-such-library.so.0"), "{missing}");
        // Either may be installed here; a missing library is named by its own name.
        for (loaded, name) in [(CuFileApi::load().err(), CUFILE), (CudaApi::load().err(), CUDA)] {
            match loaded {
                None => {}
                Some(GdsError::LibraryMissing { library, why }) => {
                    assert_eq!(library, name);
                    assert!(why.contains("cannot open shared object file"), "{why}");
                }
                Some(other) => panic!("{other}"),
            }
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn library_without_entries_names_the_first_missing_one() {
        let libc = Library::open(&[c"libc.so.6"]).expect("the library that this test runs on");
        let refused = CuFileApi::from_library(&libc).err().expect("libc is no cuFile");
        assert_eq!(
            refused.to_string(),
            "libcufile.so.0 lacks the entry cuFileDriverOpen; install GPUDirect Storage 1.0 or later"
        );
        let refused = CudaApi::from_library(&libc).err().expect("libc is no CUDA");
        assert!(matches!(refused, GdsError::SymbolMissing { symbol, .. } if symbol == "cuInit"));
    }
}
