//! What can go wrong with CUDA. Each message says what was asked, what the driver answered, and what to do.

use super::code::CudaCode;
use kvstrata_core::layout::LayoutError;
use kvstrata_core::plan::PlanError;
use kvstrata_core::storage::StorageKind;

/// The error after which a device answers nothing else, as it came the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{operation} answered {code}")]
pub struct Fault {
    /// The call that it came with; the cause may be any work that was queued before.
    pub operation: &'static str,
    /// The driver's answer.
    pub code: CudaCode,
}

/// A call's answer.
pub(super) fn check(operation: &'static str, answer: i32) -> Result<(), Fault> {
    match CudaCode::of(answer) {
        None => Ok(()),
        Some(code) => Err(Fault { operation, code }),
    }
}

/// Why CUDA did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// libcuda is not installed, or does not load.
    #[error(
        "libcuda does not load ({why}); install NVIDIA's driver, and \
         run containers with its container toolkit"
    )]
    LibraryMissing {
        /// The dynamic linker's words.
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
    /// There is a driver, and no device.
    #[error("{fault}: no CUDA device; {}", fault.code.remedy())]
    NoDevice {
        /// The call and its answer.
        fault: Fault,
    },
    /// There is no device of this number.
    #[error("CUDA device {ordinal} is not among the {count} visible from 0 on; check CUDA_VISIBLE_DEVICES")]
    NoSuchDevice {
        /// The number asked for.
        ordinal: u32,
        /// Devices that there are.
        count: u32,
    },
    /// The driver refused a call, and goes on with the next.
    #[error("{fault} on device {device}; {}", fault.code.remedy())]
    Refused {
        /// The device's ordinal.
        device: u32,
        /// The call and its answer.
        fault: Fault,
    },
    /// The device has less memory left than was asked for.
    #[error(
        "device {device} is out of memory: {asked_bytes} bytes requested, {free_bytes} of {total_bytes} \
         free; free some, or use fewer blocks"
    )]
    OutOfMemory {
        /// The device's ordinal.
        device: u32,
        /// Bytes asked for.
        asked_bytes: u64,
        /// Bytes free when that was asked afterwards.
        free_bytes: u64,
        /// Bytes of the device.
        total_bytes: u64,
    },
    /// An error for good, just now: the device is quarantined.
    #[error("device {device} has failed for good: {fault}; {}", fault.code.remedy())]
    Sticky {
        /// The device's ordinal.
        device: u32,
        /// The call and its answer.
        fault: Fault,
    },
    /// The device has failed for good before; the driver was not asked.
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
        /// What was asked for.
        what: &'static str,
    },
    /// A range is not inside its memory.
    #[error("{bytes} bytes at offset {offset} are outside of the {limit} bytes of the {what}")]
    OutOfRange {
        /// Whose range it is.
        what: &'static str,
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        bytes: u64,
        /// Bytes that there are.
        limit: u64,
    },
    /// Memory or a stream of one device was offered to another.
    #[error("{what} belongs to device {found}; it must belong to device {wanted}")]
    WrongDevice {
        /// What was offered.
        what: &'static str,
        /// Its device's ordinal.
        found: u32,
        /// The ordinal of the device that was meant.
        wanted: u32,
    },
    /// Host memory was offered as a device's.
    #[error("{address:#x} is host memory; lend device memory, or register the host memory as an arena")]
    HostMemory {
        /// The address.
        address: u64,
    },
    /// A stream of the engine's is being captured: it cannot be waited for, nor made to wait.
    #[error(
        "the stream is being captured into a graph; order transfers before the capture begins or after it ends"
    )]
    Capturing,
    /// Host memory that is not registered with the device.
    #[error("the {what} is not of the registered arena; use a block of that arena")]
    NotRegistered {
        /// What was offered.
        what: &'static str,
    },
    /// Registered host memory that kernels do not see where the host does.
    #[error("the device sees registered host memory at other addresses; use copies instead of kernels")]
    NotMapped,
    /// Host memory cannot be registered. What had been registered of it no longer is.
    #[error(
        "{fault} after {done_bytes} of {asked_bytes} bytes were registered; free host memory, or shrink the \
         arena (memory-lock limit, not known to count: {})", limit(*lock_limit)
    )]
    Register {
        /// Bytes asked for.
        asked_bytes: u64,
        /// Bytes registered before.
        done_bytes: u64,
        /// The process's limit on locked memory in bytes; none if there is none.
        lock_limit: Option<u64>,
        /// The call and its answer.
        fault: Fault,
    },
    /// The arena that was to be registered cannot be had.
    #[error("{why}")]
    Arena {
        /// [`ArenaError`](crate::arena::ArenaError), in words.
        why: String,
    },
    /// More is in flight than there is room for.
    #[error("no {what} left: all {limit} are in use; retry when one is free, or raise the limit")]
    Full {
        /// What there is no more of.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
    /// A launch that no device carries out.
    #[error(
        "the launch has {grid} blocks of {block} threads; it needs at least 1 block, of 1 to {most} threads"
    )]
    Shape {
        /// Blocks asked for.
        grid: u32,
        /// Threads a block.
        block: u32,
        /// Threads a block at most.
        most: u32,
    },
    /// A name with a NUL in it.
    #[error("the name {name:?} contains a NUL byte; remove it")]
    Name {
        /// The name.
        name: String,
    },
    /// A strided copy whose rows overlap, or that is empty.
    #[error(
        "rows have {width} bytes at a pitch of {pitch}; they need at least 1 byte, and at most the pitch"
    )]
    Pitch {
        /// Bytes a row.
        width: u64,
        /// Bytes from one row to the next.
        pitch: u64,
    },
    /// A handle of memory that this process has exported itself.
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
        /// The importer's.
        wanted: String,
    },
    /// Bytes that are no handle.
    #[error("{bytes} bytes are not a handle of device memory: {why}")]
    Handle {
        /// Bytes offered.
        bytes: usize,
        /// What is wrong with them.
        why: &'static str,
    },
    /// The device has not answered in time. It goes on, and keeps what it uses.
    #[error(
        "device {device} has not answered within {waited_ms} ms; the memory in use stays held until it does"
    )]
    Deadline {
        /// The device's ordinal.
        device: u32,
        /// How long was waited.
        waited_ms: u64,
    },
    /// There are no kernels, or none for this.
    #[error("no kernel: {why}; build kvstrata with nvcc (KVSTRATA_NVCC), or use a route of the copy engine")]
    NoKernels {
        /// Why.
        why: String,
    },
    /// Nothing carries this out.
    #[error("no route: {why}")]
    NoRoute {
        /// Why.
        why: &'static str,
    },
    /// A plan cannot be made.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A layout cannot be.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A route did not do what it is there for.
    #[error(
        "route {route} copied byte {at} of {bytes} wrong ({direction}); do not use it: check `nvidia-smi \
         -q`, the driver and the kernels' build"
    )]
    WrongBytes {
        /// The route's name.
        route: &'static str,
        /// The direction's.
        direction: &'static str,
        /// Where the first is, from the start of what was looked at.
        at: u64,
        /// Bytes that were looked at.
        bytes: u64,
    },
    /// A batch that has pieces of its own, or of a transfer before.
    #[error("the batch already has pieces ({pieces}); release it first, or submit it by itself")]
    Pieces {
        /// How many.
        pieces: usize,
    },
    /// A plan's bytes, for some block of its layouts, are not in the memory that was named.
    #[error(
        "{side} blocks of {bytes} bytes, from {address:#x} on, are not \
         inside the {place}; name all its memory"
    )]
    Outside {
        /// Source or destination.
        side: &'static str,
        /// The first byte of block 0.
        address: u64,
        /// Bytes of a block from there.
        bytes: u64,
        /// What was named.
        place: &'static str,
    },
    /// A layout says that its memory is another kind of memory.
    #[error(
        "the {side}'s layout is of {found:?} memory, its place of another \
         kind; make the layout of the same storage"
    )]
    OtherKind {
        /// Source or destination.
        side: &'static str,
        /// What the layout says.
        found: StorageKind,
    },
    /// A block of the host's that the batch does not guard.
    #[error("block {block} of the {side} is not in the batch; borrow it and add it")]
    NotHeld {
        /// Source or destination.
        side: &'static str,
        /// Its number.
        block: u32,
    },
    /// A thread that waits for the device cannot be started.
    #[error("cannot start a thread (error {errno}); raise the limit on threads (`ulimit -u`)")]
    Thread {
        /// The system's error number.
        errno: i32,
    },
}

/// The least driver: 12.0.
pub(super) const LEAST: (u32, u32) = (12, 0);

impl CudaError {
    /// The first error of the device, if it is this that makes it unusable.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        match self {
            CudaError::Sticky { fault, .. } | CudaError::Quarantined { fault, .. } => Some(*fault),
            _ => None,
        }
    }

    /// Whether the same may succeed later: there was too much at a time, or the driver's code says so.
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

    /// The driver's number, where it was the driver that refused; −1 otherwise.
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
