//! Transfers between tiers: the movers of bytes, the order of transfers, and how their end is told.
//!
//! ```text
//!   engine ─── queue a path ── Copies ──► DeviceMover (device ↔ host memory) ──┐
//!      ▲                    └─ TierRead, TierWrite ──► TierPort (host ↔ tier) ─┤
//!      └─────────────── Landing: each is answered, once, in every case ◄───────┘
//! ```
//!
//! A transfer owns both of its ends: the engine has the pool's handles until it lands, and the guards of
//! host memory travel with the bytes. No transfer under way waits for another, so a queue always drains.

// | file | contents |
// |---|---|
// | `path.rs` | paths between tiers, and classes of urgency |
// | `failure.rs` | why bytes did not arrive |
// | `memory.rs` | host memory in blocks, with a sum for each layer |
// | `copies.rs`, `landing.rs` | the work of a mover, and its answer |
// | `queue.rs` | the queue of a path: classes, turns, bytes in flight; the bytes of an iteration |
// | `patience.rs` | how long requests wait for writes below |
// | `breaker.rs` | when a path is too slow for more transfers |
// | `port.rs`, `tier_port.rs` | the ports: a device, a tier below host memory |
// | `tier_stats.rs` | counts of a tier, by cause |

mod breaker;
mod copies;
mod failure;
mod landing;
mod memory;
mod path;
mod patience;
mod port;
mod queue;
mod tier_port;
mod tier_stats;

pub use breaker::Breaker;
pub use copies::{Copies, Copy, HostSide};
pub use failure::{Cause, Failure};
pub use landing::{Landed, Landing, Lands, Token};
pub use memory::{HostMemory, MemoryError};
pub use path::{Class, Path};
pub use patience::Patience;
pub use port::DeviceMover;
pub use queue::{Allowance, Limits, Popped, Queue, Ticket};
pub use tier_port::{
    Admits, Closing, Counts, Erases, Erasing, Extras, Forgetting, Lasts, Loses, Reserve, Sizes, TierFacts,
    TierPort, TierRead, TierWrite,
};
pub use tier_stats::{FailedTransfers, Rejected, RejectedAtOpening, RejectedReads, TierStats, VolumeStates};
