//! Store and Remove: the port through which a pool tells what it holds.

use crate::hash::SequenceHash;
use crate::id::BlockRef;

/// Hears of registrations and their end. Called on the engine's path, by any thread, and by a manager under its lock: it must not block, and calls
/// neither the pool nor the manager.
pub trait EventSink: Send + Sync {
    /// A block was registered under `hash`; `parent` is the block before it in its sequence.
    fn stored(&self, block: BlockRef, hash: SequenceHash, parent: Option<BlockRef>);
    /// The registration of `hash` ended: evicted, or withdrawn. `block` has the generation under which it was stored.
    fn removed(&self, block: BlockRef, hash: SequenceHash);
}
