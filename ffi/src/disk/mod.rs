//! The disk tier: volumes, each one preallocated file of equal slots, served by one ring thread.
//!
//! ```text
//!   callers ─ read/write(slot, name, guard) ─► inbox ─► engine ─► ring ─► kernel ─► file
//!      ▲                                     (bounded)  (one thread, with the slot table)  │
//!      └────────────── Pending: the guard back, verified ◄─────────────────────────────────┘
//! ```
//!
//! The tier is a cache: a lost block is a miss, but a wrong byte served is a disaster. So correctness
//! rests on checksums, never on the order in which bytes reach the device, and no request waits for a
//! flush (`docs/disk-format.md`).
//!
//! A request owns its buffer until the kernel has answered. The guard moves with the request to the
//! ring thread and returns through [`Pending`]. Dropping the [`Pending`] drops the caller's interest,
//! not the buffer.

// | file | contents |
// |---|---|
// | `volume.rs` | `Volume`: the interface for callers |
// | `volume/device.rs` | reads and writes of device memory, on volumes that cuFile serves |
// | `volume/unopened.rs` | placeholder for a volume of a set that failed to open |
// | `choice.rs` | choice of the ring |
// | `description.rs` | `Description` |
// | `set.rs` | `VolumeSet`: several volumes, striped |
// | `options.rs`, `backend.rs` | `VolumeOptions`; `Backend` |
// | `file/` | the file: create or find, lock, inspect with its set, recover, allocate, remove |
// | `format/` | the bytes of superblocks, records and seals, as in `docs/disk-format.md` |
// | `table.rs` | the slot table in memory: the block of each slot, and the pages to write back |
// | `recovery.rs` | names of blocks, the result of opening, and why a payload is not served |
// | `inbox.rs`, `doorbell.rs` | bounded queues to the ring thread: back-pressure, sleeping and waking |
// | `payload.rs` | `Payload`: a block to write, with its sum if the caller has it |
// | `request.rs` | a request, which owns its buffer |
// | `pending.rs`, `cells.rs` | the caller's end of a request; the cells that the two ends share, reused |
// | `cipher/` | keys and sealing, for volumes encrypted at rest (feature `encryption`) |
// | `bounce.rs` | buffers into which payloads are encrypted before they are written |
// | `engine.rs` | the ring thread |
// | `engine/` | its parts: order, pieces, resuming, retrying, checksums, table write-back, device health |
// | `sim/` | a whole volume in one thread, over a device that fails as a seed says (tests, fuzzing) |
// | `ring/` | the rings that move pieces: io_uring, or pread/pwrite threads; cuFile for device memory |

mod backend;
mod bounce;
mod cells;
mod choice;
#[cfg(feature = "encryption")]
mod cipher;
#[cfg(not(feature = "encryption"))]
#[path = "cipher/absent.rs"]
mod cipher;
mod description;
mod doorbell;
mod engine;
mod error;
mod file;
mod format;
mod inbox;
mod options;
mod payload;
mod pending;
mod recovery;
mod request;
pub(crate) mod ring;
mod set;
#[cfg(any(test, feature = "simulation"))]
#[doc(hidden)]
pub mod sim;
mod stats;
mod table;
#[cfg(test)]
mod tests;
mod volume;

pub(crate) use error::uring_remedy;
pub(crate) use file::available_at;
pub(crate) use format::{CHUNK_BYTES, Sum};

pub use backend::Backend;
#[cfg(feature = "encryption")]
pub use cipher::{Key, KeyError};
pub use description::{Concern, Description};
pub use error::{DeviceRefusal, Direction, FailureCause, IoFailure, VolumeError};
pub use format::{seal_of, sum_of_payload};
pub use options::{Progress, VolumeOptions};
pub use payload::Payload;
pub use pending::Pending;
pub use recovery::{HashKey, Label, Name, OwnerId, Recovered, Recovery, RejectedRecords, Rejection};
pub use request::Urgency;
pub use set::VolumeSet;
pub use stats::{FailedRequests, ServiceState, VolumeStats};
pub use volume::Volume;
