//! What a policy tells of itself, for operators.

/// How the policy `reuse` stands beside an LRU of the same room, which it follows in its books: what its
/// guard goes by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReuseStats {
    /// Hits in blocks that LRU would not have had, less those that it alone would have had, since
    /// construction; below 0 where LRU would have done better.
    pub ahead: i64,
    /// Blocks that LRU would have now, and the pool has not.
    pub ghosts: u32,
    /// How many more may become so before the policy has to follow LRU's order. 0: it does.
    pub ghosts_allowed: u32,
    /// Times that it has lost what it might, and followed LRU's order from there until its ghosts were gone.
    pub setbacks: u32,
    /// Blocks of which what became of them was not heard, since too much was told at once: counted as losses
    /// to a part.
    pub unheard: u64,
}
