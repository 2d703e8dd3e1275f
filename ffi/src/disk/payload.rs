//! The data of a write: a block's bytes, and their sum if the caller has it.

use crate::arena::BlockRead;

/// A block to be written. Made from a [`BlockRead`] alone, it has no sum, and the volume computes it.
#[derive(Debug)]
pub struct Payload {
    pub(super) bytes: BlockRead,
    pub(super) sum: Option<u64>,
}

impl Payload {
    /// A block that was summed when it was copied (by [`SummedCopy`](crate::cuda::SummedCopy), for
    /// example), so that the volume need not read it again for its sum. The sum is XXH3-64 of each chunk
    /// of 64 KiB, seeded with the chunk's number, [added up](super::seal_of) (`docs/disk-format.md`,
    /// "Seals", kind 1).
    ///
    /// The volume does not check the sum. With a wrong sum the block is never served, unless the volume
    /// skips verification: a read finds that payload and seal do not match, and is a counted miss. An
    /// encrypted volume checks the sum while it encrypts, since its seal is the cipher's tag: with a wrong
    /// one the write fails.
    #[must_use]
    pub fn summed(bytes: BlockRead, sum: u64) -> Payload {
        Payload { bytes, sum: Some(sum) }
    }
}

impl From<BlockRead> for Payload {
    fn from(bytes: BlockRead) -> Payload {
        Payload { bytes, sum: None }
    }
}
