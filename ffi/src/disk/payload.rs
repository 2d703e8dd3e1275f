//! What is written to a slot: a block's bytes, and their sum where the caller has it.

use crate::arena::BlockRead;

/// A block to be written. A [`BlockRead`] alone is one whose sum the volume makes.
#[derive(Debug)]
pub struct Payload {
    pub(super) bytes: BlockRead,
    pub(super) sum: Option<u64>,
}

impl Payload {
    /// A block that was summed when it was copied (by [`SummedCopy`](crate::cuda::SummedCopy), for example), so that the volume does
    /// not read it for that once more: XXH3-64 of each chunk of 64 KiB, seeded with the chunk's number, [added up](super::seal_of)
    /// (`docs/disk-format.md`, "Seals", kind 1).
    ///
    /// The volume believes it. With a wrong one the block is never served: each read finds that payload and seal do not match, and is
    /// a miss that is counted. An encrypted volume has no use for a sum, and ignores it: its seal is the cipher's tag.
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
