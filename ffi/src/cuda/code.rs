//! CUDA's codes: their names, whether they are sticky, and their remedies.

use core::fmt;
use cudarc::driver::sys::CUresult;

/// A `CUresult` other than success. It may be a newer driver's code that this build does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CudaCode(i32);

/// Numbers and names, both as in cudarc, which has them from `cuda.h` of 13.0.
macro_rules! names {
    ($($name:ident,)*) => {
        const NAMES: &[(i32, &str)] = &[$((CUresult::$name as i32, stringify!($name)),)*];
    };
}

names! {
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_DEINITIALIZED,
    CUDA_ERROR_PROFILER_DISABLED, CUDA_ERROR_PROFILER_NOT_INITIALIZED, CUDA_ERROR_PROFILER_ALREADY_STARTED,
    CUDA_ERROR_PROFILER_ALREADY_STOPPED, CUDA_ERROR_STUB_LIBRARY, CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER,
    CUDA_ERROR_DEVICE_UNAVAILABLE, CUDA_ERROR_NO_DEVICE, CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_DEVICE_NOT_LICENSED,
    CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_CONTEXT_ALREADY_CURRENT, CUDA_ERROR_MAP_FAILED,
    CUDA_ERROR_UNMAP_FAILED, CUDA_ERROR_ARRAY_IS_MAPPED, CUDA_ERROR_ALREADY_MAPPED, CUDA_ERROR_NO_BINARY_FOR_GPU,
    CUDA_ERROR_ALREADY_ACQUIRED, CUDA_ERROR_NOT_MAPPED, CUDA_ERROR_NOT_MAPPED_AS_ARRAY,
    CUDA_ERROR_NOT_MAPPED_AS_POINTER, CUDA_ERROR_ECC_UNCORRECTABLE, CUDA_ERROR_UNSUPPORTED_LIMIT,
    CUDA_ERROR_CONTEXT_ALREADY_IN_USE, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, CUDA_ERROR_INVALID_PTX,
    CUDA_ERROR_INVALID_GRAPHICS_CONTEXT, CUDA_ERROR_NVLINK_UNCORRECTABLE, CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION, CUDA_ERROR_JIT_COMPILATION_DISABLED, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY,
    CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC, CUDA_ERROR_CONTAINED, CUDA_ERROR_INVALID_SOURCE, CUDA_ERROR_FILE_NOT_FOUND,
    CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, CUDA_ERROR_OPERATING_SYSTEM,
    CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_ILLEGAL_STATE, CUDA_ERROR_LOSSY_QUERY, CUDA_ERROR_NOT_FOUND,
    CUDA_ERROR_NOT_READY, CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, CUDA_ERROR_LAUNCH_TIMEOUT,
    CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
    CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, CUDA_ERROR_CONTEXT_IS_DESTROYED,
    CUDA_ERROR_ASSERT, CUDA_ERROR_TOO_MANY_PEERS, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, CUDA_ERROR_HARDWARE_STACK_ERROR, CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUDA_ERROR_MISALIGNED_ADDRESS, CUDA_ERROR_INVALID_ADDRESS_SPACE, CUDA_ERROR_INVALID_PC,
    CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, CUDA_ERROR_TENSOR_MEMORY_LEAK,
    CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_SYSTEM_NOT_READY,
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, CUDA_ERROR_MPS_CONNECTION_FAILED,
    CUDA_ERROR_MPS_RPC_FAILURE, CUDA_ERROR_MPS_SERVER_NOT_READY, CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
    CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED, CUDA_ERROR_MPS_CLIENT_TERMINATED, CUDA_ERROR_CDP_NOT_SUPPORTED,
    CUDA_ERROR_CDP_VERSION_MISMATCH, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
    CUDA_ERROR_STREAM_CAPTURE_MERGE, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, CUDA_ERROR_CAPTURED_EVENT,
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, CUDA_ERROR_TIMEOUT, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
    CUDA_ERROR_EXTERNAL_DEVICE, CUDA_ERROR_INVALID_CLUSTER_SIZE, CUDA_ERROR_FUNCTION_NOT_LOADED,
    CUDA_ERROR_INVALID_RESOURCE_TYPE, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, CUDA_ERROR_KEY_ROTATION,
    CUDA_ERROR_UNKNOWN,
}

/// The codes after which a context answers every call with the same code. The manual ("CUDA Driver API", data
/// types, `CUresult`) says for each that it leaves the process in an inconsistent state, or that the context
/// must be destroyed; or that the memory or the link is corrupt (214, 220), or the context is gone (4, 709).
/// After 999 it is unknown whether the device still writes memory, so it counts as one of them.
const STICKY: [CUresult; 20] = [
    CUresult::CUDA_ERROR_DEINITIALIZED,
    CUresult::CUDA_ERROR_ECC_UNCORRECTABLE,
    CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE,
    CUresult::CUDA_ERROR_CONTAINED,
    CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
    CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
    CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED,
    CUresult::CUDA_ERROR_ASSERT,
    CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR,
    CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
    CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE,
    CUresult::CUDA_ERROR_INVALID_PC,
    CUresult::CUDA_ERROR_LAUNCH_FAILED,
    CUresult::CUDA_ERROR_TENSOR_MEMORY_LEAK,
    CUresult::CUDA_ERROR_MPS_RPC_FAILURE,
    CUresult::CUDA_ERROR_MPS_CLIENT_TERMINATED,
    CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE,
    CUresult::CUDA_ERROR_EXTERNAL_DEVICE,
    CUresult::CUDA_ERROR_UNKNOWN,
];

/// The first and the last code of graph capture.
const CAPTURES: (i32, i32) = (
    CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED as i32,
    CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD as i32,
);

impl CudaCode {
    pub(super) const OUT_OF_MEMORY: CudaCode = CudaCode(CUresult::CUDA_ERROR_OUT_OF_MEMORY as i32);
    pub(super) const NO_DEVICE: CudaCode = CudaCode(CUresult::CUDA_ERROR_NO_DEVICE as i32);
    pub(super) const TIMEOUT: CudaCode = CudaCode(CUresult::CUDA_ERROR_TIMEOUT as i32);
    pub(super) const NOT_READY: CudaCode = CudaCode(CUresult::CUDA_ERROR_NOT_READY as i32);
    pub(super) const NOT_SUPPORTED: CudaCode = CudaCode(CUresult::CUDA_ERROR_NOT_SUPPORTED as i32);

    /// Returns the code of a call's answer; `None` for success.
    pub(super) fn of(answer: i32) -> Option<CudaCode> {
        (answer != 0).then_some(CudaCode(answer))
    }

    /// Returns the number.
    #[must_use]
    pub fn number(self) -> i32 {
        self.0
    }

    /// Returns the name in `cuda.h`; `None` for a code that CUDA 13.0 does not have.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(number, _)| *number == self.0).map(|(_, name)| *name)
    }

    /// Whether the context answers every later call with this code: only a new process gets the device back.
    #[must_use]
    pub fn is_sticky(self) -> bool {
        STICKY.iter().any(|sticky| *sticky as i32 == self.0)
    }

    /// Whether the code says that a graph is being captured.
    pub(super) fn is_capture(self) -> bool {
        (CAPTURES.0..=CAPTURES.1).contains(&self.0)
    }

    /// Whether the same call may succeed a little later: after a graph capture ends, or after memory
    /// is freed.
    pub(super) fn is_passing(self) -> bool {
        self.is_capture() || [CudaCode::OUT_OF_MEMORY, CudaCode::NOT_READY].contains(&self)
    }

    /// Returns the remedy, in a few words.
    pub(super) fn remedy(self) -> &'static str {
        match self.0 {
            214 | 220 => {
                "check `nvidia-smi -q -d ECC` and the system log for Xid \
                 messages; the device may need a reset"
            }
            46 => "another process uses the device exclusively; check `nvidia-smi -q -d COMPUTE`",
            100 | 101 => "check `nvidia-smi` and CUDA_VISIBLE_DEVICES",
            34 => {
                "the toolkit's stub was loaded instead of the driver; remove its folder from LD_LIBRARY_PATH"
            }
            2 => "free device memory, or request less",
            36 | 803 | 804 => "install a newer NVIDIA driver",
            // The image was made by a newer nvcc. Which of these codes a driver answers depends on its
            // first finding in the image.
            200 | 209 | 222 => {
                "install a newer NVIDIA driver (kernels built by nvcc 13 \
                 need R580), or use kernels built by nvcc 12.8"
            }
            _ if self.is_capture() => "a graph is being captured; retry when the capture has ended",
            801 => "this device or system does not support the call; kvstrata's alternative is slower",
            802 => "start nvidia-fabricmanager, or wait for it",
            805..=809 => "check the MPS control daemon",
            _ if self.is_sticky() => "restart the process; Xid messages in the system log name the cause",
            _ => "check `nvidia-smi` and the system log",
        }
    }
}

impl fmt::Display for CudaCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} {name}", self.0),
            None => write!(f, "{}, not a code of CUDA 13.0", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_headers_names() {
        for (code, words) in [
            (1, "1 CUDA_ERROR_INVALID_VALUE"),
            (214, "214 CUDA_ERROR_ECC_UNCORRECTABLE"),
            (700, "700 CUDA_ERROR_ILLEGAL_ADDRESS"),
            (999, "999 CUDA_ERROR_UNKNOWN"),
            (1234, "1234, not a code of CUDA 13.0"),
        ] {
            assert_eq!(CudaCode(code).to_string(), words);
        }
        assert!(NAMES.is_sorted_by(|a, b| a.0 < b.0), "each once");
        assert_eq!(NAMES.len(), 100);
    }

    #[test]
    fn codes_that_the_manual_calls_sticky_are_sticky() {
        let sticky: Vec<i32> = (0..2000).filter(|code| CudaCode(*code).is_sticky()).collect();
        let expected =
            [4, 46, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 806, 810, 911, 999];
        assert_eq!(sticky, expected);
        assert_eq!(CudaCode::of(0), None);
        let passing: Vec<i32> = (0..2000).filter(|code| CudaCode(*code).is_passing()).collect();
        assert_eq!(passing, [2, 600, 900, 901, 902, 903, 904, 905, 906, 907, 908]);
        assert!(sticky.iter().all(|code| !CudaCode(*code).remedy().is_empty()));
    }

    #[test]
    fn image_for_a_newer_driver_names_the_remedy() {
        for code in [200, 209, 222] {
            let remedy = CudaCode(code).remedy();
            assert!(
                remedy.contains("newer NVIDIA driver") && remedy.contains("nvcc 12.8"),
                "{code}: {remedy}"
            );
        }
    }
}
