//! Store and Remove: the port through which a pool tells what it holds.

use crate::hash::SequenceHash;
use crate::id::BlockRef;

/// Hears of registrations and their end. Called on the engine's path, by any thread: must not block.
pub trait EventSink: Send + Sync {
    /// A block was registered under `hash`; `parent` is the block before it in its sequence.
    fn stored(&self, block: BlockRef, hash: SequenceHash, parent: Option<BlockRef>);
    /// The registration of `hash` ended: evicted, or withdrawn. `block` has the generation under which it was stored.
    fn removed(&self, block: BlockRef, hash: SequenceHash);
}
