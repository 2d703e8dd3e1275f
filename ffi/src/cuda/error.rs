//! CUDA's errors. Each message names the operation, the driver's answer, and the remedy.

use super::code::CudaCode;
use kvstrata_core::layout::LayoutError;
use kvstrata_core::plan::PlanError;
use kvstrata_core::storage::StorageKind;

/// The first error after which a device gives no other answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{operation} answered {code}")]
pub struct Fault {
    /// The call that returned it; the cause may be any work that was queued before.
    pub operation: &'static str,
    /// The driver's answer.
    pub code: CudaCode,
}

/// Turns a call's answer into a result.
pub(super) fn check(operation: &'static str, answer: i32) -> Result<(), Fault> {
    match CudaCode::of(answer) {
        None => Ok(()),
        Some(code) => Err(Fault { operation, code }),
    }
}

/// The reason why a CUDA operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// libcuda is not installed, or does not load.
    #[error(
        "libcuda does not load ({why}); install NVIDIA's driver, and \
         run containers with its container toolkit"
    )]
    LibraryMissing {
        /// The dynamic linker's message.
        why: String,
    },
    /// libcuda lacks an entry.
    #[error("libcuda lacks the entry {symbol}; install a driver of CUDA {}.{} or later", LEAST.0, LEAST.1)]
    SymbolMissing {
        /// The entry.
        symbol: &'static str,
    },
    /// The driver is too old.
    #[error(
        "the driver supports CUDA {}.{}; install one of CUDA {}.{} or later, the first with all entries",
        found.0, found.1, LEAST.0, LEAST.1
    )]
    DriverTooOld {
        /// Its version, major and minor.
        found: (u32, u32),
    },
    /// There is a driver but no device.
    #[error("{fault}: no CUDA device; {}", fault.code.remedy())]
    NoDevice {
        /// The call and its answer.
        fault: Fault,
    },
    /// There is no device of this number.
    #[error("CUDA device {ordinal} is not among the {count} visible from 0 on; check CUDA_VISIBLE_DEVICES")]
    NoSuchDevice {
        /// The requested number.
        ordinal: u32,
        /// The number of devices.
        count: u32,
    },
    /// The driver refused a call; the next call may succeed.
    #[error("{fault} on device {device}; {}", fault.code.remedy())]
    Refused {
        /// The device's ordinal.
        device: u32,
        /// The call and its answer.
        fault: Fault,
    },
    /// The device has less free memory than requested.
    #[error(
        "device {device} is out of memory: {asked_bytes} bytes requested, {free_bytes} of {total_bytes} \
         free; free some, or use fewer blocks"
    )]
    OutOfMemory {
        /// The device's ordinal.
        device: u32,
        /// Requested bytes.
        asked_bytes: u64,
        /// Free bytes, queried after the refusal.
        free_bytes: u64,
        /// The device's bytes.
        total_bytes: u64,
    },
    /// This call met a sticky error: the device is now quarantined.
    #[error("device {device} has failed for good: {fault}; {}", fault.code.remedy())]
    Sticky {
        /// The device's ordinal.
        device: u32,
        /// The call and its answer.
        fault: Fault,
    },
    /// The device was quarantined before; the driver was not called.
    #[error("device {device} is quarantined since {fault}; {}", fault.code.remedy())]
    Quarantined {
        /// The device's ordinal.
        device: u32,
        /// The first error.
        fault: Fault,
    },
    /// Memory of no bytes.
    #[error("{what} of 0 bytes; must be at least 1")]
    ZeroBytes {
        /// The memory that was requested.
        what: &'static str,
    },
    /// A range is not inside its memory.
    #[error("{bytes} bytes at offset {offset} are outside of the {limit} bytes of the {what}")]
    OutOfRange {
        /// The memory that the range is in.
        what: &'static str,
        /// The first requested byte.
        offset: u64,
        /// Requested bytes.
        bytes: u64,
        /// Bytes of the memory.
        limit: u64,
    },
    /// Memory or a stream of one device was offered to another.
    #[error("{what} belongs to device {found}; it must belong to device {wanted}")]
    WrongDevice {
        /// The offered object.
        what: &'static str,
        /// Its device's ordinal.
        found: u32,
        /// The ordinal of the intended device.
        wanted: u32,
    },
    /// Host memory was offered as a device's.
    #[error("{address:#x} is host memory; lend device memory, or register the host memory as an arena")]
    HostMemory {
        /// The address.
        address: u64,
    },
    /// An engine's stream is being captured: no call can wait for it or make it wait.
    #[error(
        "the stream is being captured into a graph; order transfers before the capture begins or after it ends"
    )]
    Capturing,
    /// Host memory that is not registered with the device.
    #[error("the {what} is not of the registered arena; use a block of that arena")]
    NotRegistered {
        /// The offered block.
        what: &'static str,
    },
    /// Registered host memory whose device address differs from its host address.
    #[error("the device sees registered host memory at other addresses; use copies instead of kernels")]
    NotMapped,
    /// Host memory cannot be registered. The part registered before was unregistered.
    #[error(
        "{fault} after {done_bytes} of {asked_bytes} bytes were registered; free host memory, or shrink the \
         arena (memory-lock limit, not known to count: {})", limit(*lock_limit)
    )]
    Register {
        /// Requested bytes.
        asked_bytes: u64,
        /// Bytes registered before the refusal.
        done_bytes: u64,
        /// The process's limit on locked memory in bytes; `None` if unlimited.
        lock_limit: Option<u64>,
        /// The call and its answer.
        fault: Fault,
    },
    /// The arena to be registered cannot be made.
    #[error("{why}")]
    Arena {
        /// The [`ArenaError`](crate::arena::ArenaError), in words.
        why: String,
    },
    /// All of a limited resource is in use.
    #[error("no {what} left: all {limit} are in use; retry when one is free, or raise the limit")]
    Full {
        /// The resource.
        what: &'static str,
        /// Its limit.
        limit: usize,
    },
    /// A launch that no device can carry out.
    #[error(
        "the launch has {grid} blocks of {block} threads; it needs at least 1 block, of 1 to {most} threads"
    )]
    Shape {
        /// Requested blocks.
        grid: u32,
        /// Threads per block.
        block: u32,
        /// Maximum threads per block.
        most: u32,
    },
    /// A name that contains a NUL.
    #[error("the name {name:?} contains a NUL byte; remove it")]
    Name {
        /// The name.
        name: String,
    },
    /// A strided copy that is empty, or whose rows overlap.
    #[error(
        "rows have {width} bytes at a pitch of {pitch}; they need at least 1 byte, and at most the pitch"
    )]
    Pitch {
        /// Bytes per row.
        width: u64,
        /// Bytes from one row to the next.
        pitch: u64,
    },
    /// A handle of memory that this process itself has exported.
    #[error("this process ({process}) exported the memory itself; use the memory directly")]
    SameProcess {
        /// This process.
        process: u32,
    },
    /// A handle of memory on another device.
    #[error("the memory is on device {found}, not on {wanted}; open it on device {found}")]
    OtherDevice {
        /// The exporter's device.
        found: String,
        /// The importer's device.
        wanted: String,
    },
    /// Bytes that are not a handle.
    #[error("{bytes} bytes are not a handle of device memory: {why}")]
    Handle {
        /// Number of the bytes.
        bytes: usize,
        /// Why they are not a handle.
        why: &'static str,
    },
    /// The device has not answered in time. It continues, and keeps the memory that it uses.
    #[error(
        "device {device} has not answered within {waited_ms} ms; the memory in use stays held until it does"
    )]
    Deadline {
        /// The device's ordinal.
        device: u32,
        /// The time waited.
        waited_ms: u64,
    },
    /// There are no kernels, or none for this operation.
    #[error("no kernel: {why}; build kvstrata with nvcc (KVSTRATA_NVCC), or use a route of the copy engine")]
    NoKernels {
        /// The reason.
        why: String,
    },
    /// No route carries this out.
    #[error("no route: {why}")]
    NoRoute {
        /// The reason.
        why: &'static str,
    },
    /// A plan cannot be made.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A layout cannot be made.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A route copied wrong bytes.
    #[error(
        "route {route} copied byte {at} of {bytes} wrong ({direction}); do not use it: check `nvidia-smi \
         -q`, the driver and the kernels' build"
    )]
    WrongBytes {
        /// The route's name.
        route: &'static str,
        /// The direction's name.
        direction: &'static str,
        /// Position of the first wrong byte, from the start of the compared bytes.
        at: u64,
        /// Compared bytes.
        bytes: u64,
    },
    /// A batch that has pieces already, its own or those of an earlier transfer.
    #[error("the batch already has pieces ({pieces}); release it first, or submit it by itself")]
    Pieces {
        /// The number of pieces.
        pieces: usize,
    },
    /// For some block of the layouts, a plan's bytes are not inside the named memory.
    #[error(
        "{side} blocks of {bytes} bytes, from {address:#x} on, are not \
         inside the {place}; name all its memory"
    )]
    Outside {
        /// Source or destination.
        side: &'static str,
        /// The first byte of block 0.
        address: u64,
        /// Bytes of each block from there.
        bytes: u64,
        /// The named memory.
        place: &'static str,
    },
    /// A layout names another kind of memory than its place has.
    #[error(
        "the {side}'s layout is of {found:?} memory, its place of another \
         kind; make the layout of the same storage"
    )]
    OtherKind {
        /// Source or destination.
        side: &'static str,
        /// The kind that the layout names.
        found: StorageKind,
    },
    /// A host block that the batch does not guard.
    #[error("block {block} of the {side} is not in the batch; borrow it and add it")]
    NotHeld {
        /// Source or destination.
        side: &'static str,
        /// The block's number.
        block: u32,
    },
    /// A thread that waits for the device cannot be started.
    #[error("cannot start a thread (error {errno}); raise the limit on threads (`ulimit -u`)")]
    Thread {
        /// The system's error number.
        errno: i32,
    },
}

/// The oldest supported driver: 12.0.
pub(super) const LEAST: (u32, u32) = (12, 0);

impl CudaError {
    /// Returns the device's first error, if this error makes the device unusable.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        match self {
            CudaError::Sticky { fault, .. } | CudaError::Quarantined { fault, .. } => Some(*fault),
            _ => None,
        }
    }

    /// Whether the same call may succeed later: a resource was full, or the driver's code says so.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            CudaError::Refused { fault, .. } => fault.code.is_passing(),
            CudaError::Full { .. }
            | CudaError::Deadline { .. }
            | CudaError::OutOfMemory { .. }
            | CudaError::Capturing => true,
            _ => false,
        }
    }

    /// Returns the driver's error number if the driver refused, −1 otherwise.
    #[must_use]
    pub fn number(&self) -> i32 {
        match self {
            CudaError::NoDevice { fault }
            | CudaError::Refused { fault, .. }
            | CudaError::Sticky { fault, .. }
            | CudaError::Quarantined { fault, .. }
            | CudaError::Register { fault, .. } => fault.code.number(),
            CudaError::OutOfMemory { .. } => CudaCode::OUT_OF_MEMORY.number(),
            _ => -1,
        }
    }
}

fn limit(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "unlimited".to_owned(), |bytes| format!("{bytes} bytes"))
}
