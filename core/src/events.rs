//! Store and Remove: the port through which a pool reports its registrations.

use crate::hash::SequenceHash;
use crate::id::BlockRef;

/// Receives registrations and their ends. Any thread calls it, on the engine's path, and a manager calls
/// it under its lock. So it must not block, nor call the pool or the manager.
pub trait EventSink: Send + Sync {
    /// A block was registered under `hash`; `parent` is the block before it in its sequence.
    fn stored(&self, block: BlockRef, hash: SequenceHash, parent: Option<BlockRef>);
    /// The registration of `hash` ended: by eviction, or by withdrawal. `block` has the
    /// generation under which it was stored.
    fn removed(&self, block: BlockRef, hash: SequenceHash);
}
