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
        "libcuda does not load ({why}); install NVIDIA's driver, and in a container run it with the NVIDIA container toolkit"
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
        "the driver is of CUDA {}.{}, and {}.{} is the least (the first whose entries are all there); install a newer one",
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
    #[error("there is no CUDA device {ordinal}, but {count} from 0 on; check CUDA_VISIBLE_DEVICES")]
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
        "device {device} is out of memory: {asked_bytes} bytes asked for, {free_bytes} of {total_bytes} free; use fewer blocks, or \
         leave the tier more of the device"
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
    #[error("{bytes} bytes at {offset} are outside of the {limit} bytes of the {what}")]
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
    #[error("{what} is of device {found}, and device {wanted} is meant; use what was made for it")]
    WrongDevice {
        /// The offered object.
        what: &'static str,
        /// Its device's ordinal.
        found: u32,
        /// The ordinal of the intended device.
        wanted: u32,
    },
    /// Host memory was offered as a device's.
    #[error("{address:#x} is host memory; lend memory of the device, and register host memory as an arena")]
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
    #[error("the arena of the {what} is not the one that is registered; use blocks of that one")]
    NotRegistered {
        /// The offered block.
        what: &'static str,
    },
    /// Registered host memory whose device address differs from its host address.
    #[error("the device has its own addresses for registered memory; reach it by copies, not by kernels")]
    NotMapped,
    /// Host memory cannot be registered. The part registered before was unregistered.
    #[error(
        "{fault} when {done_bytes} of {asked_bytes} bytes of host memory were registered; free host memory, or use a smaller arena \
         (the limit on locked memory, {}, is not known to count for the driver)", limit(*lock_limit)
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
    #[error("{limit} {what} are in use already; wait for one, or allow more")]
    Full {
        /// The resource.
        what: &'static str,
        /// Its limit.
        limit: usize,
    },
    /// A launch that no device can carry out.
    #[error(
        "a launch of {grid} blocks of {block} threads: must be at least 1 of at least 1, at most {most} threads"
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
    #[error("the name {name:?} has a NUL in it; take it out")]
    Name {
        /// The name.
        name: String,
    },
    /// A strided copy that is empty, or whose rows overlap.
    #[error("rows of {width} bytes every {pitch}: must be at least 1, and no wider than their distance")]
    Pitch {
        /// Bytes per row.
        width: u64,
        /// Bytes from one row to the next.
        pitch: u64,
    },
    /// A handle of memory that this process itself has exported.
    #[error("process {process} has exported this memory itself; use it directly")]
    SameProcess {
        /// This process.
        process: u32,
    },
    /// A handle of memory on another device.
    #[error("the memory is on the device {found}, and it was offered to {wanted}; open it there")]
    OtherDevice {
        /// The exporter's device.
        found: String,
        /// The importer's device.
        wanted: String,
    },
    /// Bytes that are not a handle.
    #[error("{bytes} bytes are no handle of device memory: {why}")]
    Handle {
        /// Number of the bytes.
        bytes: usize,
        /// Why they are not a handle.
        why: &'static str,
    },
    /// The device has not answered in time. It continues, and keeps the memory that it uses.
    #[error("device {device} has not answered within {waited_ms} ms; it keeps what it uses until it does")]
    Deadline {
        /// The device's ordinal.
        device: u32,
        /// The time waited.
        waited_ms: u64,
    },
    /// There are no kernels, or none for this operation.
    #[error(
        "no kernel: {why}; the copy engine carries out what it can, and kernels need a build with nvcc (KVSTRATA_NVCC)"
    )]
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
        "copies {direction} by the route {route} brought a wrong byte at {at} of {bytes}; do not use it: check the device (`nvidia-smi -q`), \
         the driver and, if it is a kernel, the build"
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
    #[error("the batch has {pieces} pieces already; release it first, or submit them by themselves")]
    Pieces {
        /// The number of pieces.
        pieces: usize,
    },
    /// For some block of the layouts, a plan's bytes are not inside the named memory.
    #[error(
        "the {side}'s {bytes} bytes at {address:#x} and those of its other blocks are not inside the {place}; name all its memory"
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
        "the {side}'s layout is of {found:?} memory, and its place is of another kind; make the layout of the same storage"
    )]
    OtherKind {
        /// Source or destination.
        side: &'static str,
        /// The kind that the layout names.
        found: StorageKind,
    },
    /// A host block that the batch does not guard.
    #[error("block {block} of the {side} is not in the batch; borrow it, and add it")]
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
