//! The disk tier: volumes, each one preallocated file of equal slots, served by one ring thread.
//!
//! ```text
//!   callers ─ read/write(slot, name, guard) ─► inbox ─► engine ─► ring ─► kernel ─► file
//!      ▲                                     (bounded)  (one thread, with the slot table)  │
//!      └────────────── Pending: the guard back, verified ◄─────────────────────────────────┘
//! ```
//!
//! It is a cache: losing a block is a miss, serving a wrong byte is a disaster. So correctness comes from
//! checksums and never from the order in which bytes reach the device, and nothing waits for a flush
//! (`docs/disk-format.md`).
//!
//! A request owns its buffer until the kernel has answered: the guard moves into it, to the ring thread,
//! and comes back through [`Pending`]. Dropping the [`Pending`] drops the interest, not the buffer.
//!
//! | file | what |
//! |---|---|
//! | `volume.rs` | [`Volume`]: what callers use |
//! | `volume/device.rs` | the same for buffers in device memory, where cuFile serves the volume |
//! | `volume/unopened.rs` | one of several that could not be opened |
//! | `choice.rs` | the choice of the ring |
//! | `description.rs` | [`Description`] |
//! | `set.rs` | [`VolumeSet`]: several volumes, striped |
//! | `options.rs`, `backend.rs` | [`VolumeOptions`]; [`Backend`] |
//! | `file/` | the file: made or found, locked, looked at with all of its set, recovered, allocated, O_DIRECT tried, removed |
//! | `format/` | the bytes of superblocks, records and seals, as `docs/disk-format.md` has them |
//! | `table.rs` | the slot table in memory: what each slot holds, and which pages are to be written back |
//! | `recovery.rs` | what blocks are called, what opening found, and why a payload is not served |
//! | `inbox.rs`, `doorbell.rs` | the bounded way to the ring thread: back-pressure, sleeping and waking |
//! | `payload.rs` | [`Payload`]: what is written, with its sum where the caller has it |
//! | `request.rs`, `pending.rs`, `cells.rs` | a request, which owns its buffer, and the caller's end of it; what the two share, used again |
//! | `cipher/` | what is sealed under which key, for volumes encrypted at rest (feature `encryption`) |
//! | `bounce.rs` | where the payloads of such volumes are encrypted on their way out |
//! | `engine.rs`, `engine/` | the ring thread: order, pieces, resuming, retrying, checksums, the table's write-back; how the device is, and asking it again |
//! | `sim/` | a whole volume in one thread, over a device that fails as a seed says (tests, fuzzing) |
//! | `ring/` | what moves the pieces: io_uring, or pread/pwrite threads; cuFile for device memory |

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
pub use format::seal_of;
pub use options::{Progress, VolumeOptions};
pub use payload::Payload;
pub use pending::Pending;
pub use recovery::{HashKey, Label, Name, OwnerId, Recovered, Recovery, RejectedRecords, Rejection};
pub use request::Urgency;
pub use set::VolumeSet;
pub use stats::{FailedRequests, ServiceState, VolumeStats};
pub use volume::Volume;
