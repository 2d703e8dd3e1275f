//! CUDA: device memory, streams and transfers, by the driver found at run time.
//!
//! One binary serves machines with and without a GPU: the build needs nothing of CUDA, and an absent
//! driver is an error that says what to do. A sticky error quarantines its device, and the rest of the
//! process continues.
//!
//! ```text
//!   CudaDriver ◄── CudaDevice ◄─┬─ DeviceStorage ◄─ DeviceRange ─┐
//!                               ├─ PinnedStorage ◄─ arena blocks ┼─ Batch ──► TransferQueue ──► Transfer
//!                               ├─ CudaModule ◄─ CudaFunction ───┘            stream, events, thread
//!                               └─ …                    (each holds the target of its arrow)
//! ```
//!
//! The tests (`ffi/tests/cuda/`) run all of it over a test double of libcuda (`ffi/double/`), which
//! counts misuse. Tests that need a device are in `ffi/tests/cuda_device.rs`.

// | file | contents |
// |---|---|
// | `sys.rs` | the driver's entries, found at run time |
// | `code.rs`, `error.rs` | the driver's codes; errors and their remedies |
// | `driver.rs`, `description.rs` | the driver; a device's properties |
// | `context.rs` | an open device, its context, its quarantine |
// | `memory.rs`, `ipc.rs`, `imports.rs` | device memory: allocated, lent, or another process's |
// | `pinned.rs`, `populate.rs`, `numa.rs` | host memory that devices reach |
// | `stream.rs`, `event.rs`, `copy.rs`, `module.rs` | operations that the driver executes in order |
// | `engine.rs`, `capture.rs` | order with the engine's streams; the engine's graph captures |
// | `back.rs` | driver objects on their way back, at once or later |
// | `batch.rs` | the memory and the pieces of a transfer |
// | `queue.rs`, `slots.rs`, `work.rs`, `rejected.rs` | submission, ownership |
// | `completion.rs`, `transfer.rs` | completion |
// | `plan/` | copy plans: by the copy engine or a kernel, whichever is cheaper |

mod back;
mod batch;
mod capture;
mod code;
mod completion;
mod context;
mod copy;
mod description;
mod driver;
mod engine;
mod error;
mod event;
mod imports;
mod ipc;
mod memory;
mod module;
mod numa;
mod pinned;
mod plan;
mod populate;
mod queue;
mod rejected;
mod slots;
mod stream;
mod sys;
mod transfer;
mod work;

pub use batch::{Batch, Held, RegionId};
pub use code::CudaCode;
pub use completion::Way;
pub use context::{CudaDevice, DeviceMemoryInfo, Leaked};
pub use copy::Direction;
pub use description::DeviceDescription;
pub use driver::{CudaDriver, DriverDescription};
pub use engine::{EngineEvent, EngineStream, LentStream};
pub use error::{CudaError, Fault};
pub use event::{CudaEvent, EventPool};
pub use ipc::IpcHandle;
pub use memory::{DeviceRange, DeviceStorage};
pub use module::{CudaFunction, CudaModule};
pub use numa::Placement;
pub use pinned::{PinOptions, PinnedStorage};
pub use plan::{
    BadCosts, CopyCosts, CopyOptions, CostSource, CudaCopy, CudaKernels, CudaSums, DirectionCosts, Fragments,
    Place, PreparedCopy, Route, SumOptions, SummedCopy, TuneOptions, tune,
};
pub use queue::{QueueOptions, TransferQueue};
pub use rejected::Rejected;
pub use stream::{CudaStream, Purpose};
pub use transfer::Transfer;
pub use work::Work;
