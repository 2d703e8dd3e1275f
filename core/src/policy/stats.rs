//! A policy's figures, for operators.

/// How the policy `reuse` does against an LRU of the same room, which it simulates; its guard acts on
/// these figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReuseStats {
    /// Hits in blocks that LRU would not have had, less those that only LRU would have had, since
    /// construction; below 0 if LRU would have done better.
    pub ahead: i64,
    /// Blocks that LRU would have now and the pool does not.
    pub ghosts: u32,
    /// Number of further ghosts before the policy has to follow LRU's order. 0: it does.
    pub ghosts_allowed: u32,
    /// Times that the policy lost as many hits as it might, and followed LRU's order
    /// until its ghosts were gone.
    pub setbacks: u32,
    /// Blocks whose events were dropped because the policy's journal was full: they count in part as losses.
    pub unheard: u64,
}
