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
        "libcuda does not load ({why}); install NVIDIA's driver, and in a container run it with the NVIDIA container toolkit"
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
        "the driver is of CUDA {}.{}, and {}.{} is the least (the first whose entries are all there); install a newer one",
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
    #[error("there is no CUDA device {ordinal}, but {count} from 0 on; check CUDA_VISIBLE_DEVICES")]
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
        "device {device} is out of memory: {asked_bytes} bytes asked for, {free_bytes} of {total_bytes} free; use fewer blocks, or \
         leave the tier more of the device"
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
    #[error("{bytes} bytes at {offset} are outside of the {limit} bytes of the {what}")]
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
    #[error("{what} is of device {found}, and device {wanted} is meant; use what was made for it")]
    WrongDevice {
        /// What was offered.
        what: &'static str,
        /// Its device's ordinal.
        found: u32,
        /// The ordinal of the device that was meant.
        wanted: u32,
    },
    /// Host memory was offered as a device's.
    #[error("{address:#x} is host memory; lend memory of the device, and register host memory as an arena")]
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
    #[error("the arena of the {what} is not the one that is registered; use blocks of that one")]
    NotRegistered {
        /// What was offered.
        what: &'static str,
    },
    /// Registered host memory that kernels do not see where the host does.
    #[error("the device has its own addresses for registered memory; reach it by copies, not by kernels")]
    NotMapped,
    /// Host memory cannot be registered. What had been registered of it no longer is.
    #[error(
        "{fault} when {done_bytes} of {asked_bytes} bytes of host memory were registered; free host memory, or use a smaller arena \
         (the limit on locked memory, {}, is not known to count for the driver)", limit(*lock_limit)
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
    #[error("{limit} {what} are in use already; wait for one, or allow more")]
    Full {
        /// What there is no more of.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
    /// A launch that no device carries out.
    #[error(
        "a launch of {grid} blocks of {block} threads: must be at least 1 of at least 1, at most {most} threads"
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
    #[error("the name {name:?} has a NUL in it; take it out")]
    Name {
        /// The name.
        name: String,
    },
    /// A strided copy whose rows overlap, or that is empty.
    #[error("rows of {width} bytes every {pitch}: must be at least 1, and no wider than their distance")]
    Pitch {
        /// Bytes a row.
        width: u64,
        /// Bytes from one row to the next.
        pitch: u64,
    },
    /// A handle of memory that this process has exported itself.
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
        /// The importer's.
        wanted: String,
    },
    /// Bytes that are no handle.
    #[error("{bytes} bytes are no handle of device memory: {why}")]
    Handle {
        /// Bytes offered.
        bytes: usize,
        /// What is wrong with them.
        why: &'static str,
    },
    /// The device has not answered in time. It goes on, and keeps what it uses.
    #[error("device {device} has not answered within {waited_ms} ms; it keeps what it uses until it does")]
    Deadline {
        /// The device's ordinal.
        device: u32,
        /// How long was waited.
        waited_ms: u64,
    },
    /// There are no kernels, or none for this.
    #[error(
        "no kernel: {why}; the copy engine carries out what it can, and kernels need a build with nvcc (KVSTRATA_NVCC)"
    )]
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
        "copies {direction} by the route {route} brought a wrong byte at {at} of {bytes}; do not use it: check the device (`nvidia-smi -q`), \
         the driver and, if it is a kernel, the build"
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
    #[error("the batch has {pieces} pieces already; release it first, or submit them by themselves")]
    Pieces {
        /// How many.
        pieces: usize,
    },
    /// A plan's bytes, for some block of its layouts, are not in the memory that was named.
    #[error(
        "the {side}'s {bytes} bytes at {address:#x} and those of its other blocks are not inside the {place}; name all its memory"
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
        "the {side}'s layout is of {found:?} memory, and its place is of another kind; make the layout of the same storage"
    )]
    OtherKind {
        /// Source or destination.
        side: &'static str,
        /// What the layout says.
        found: StorageKind,
    },
    /// A block of the host's that the batch does not guard.
    #[error("block {block} of the {side} is not in the batch; borrow it, and add it")]
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
