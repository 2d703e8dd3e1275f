//! Eviction policies: in which list of the timeline a block waits, and from which list the next victim comes.
//!
//! A policy never sees a lock, a queue or a block's bytes. The pool tells it of hits and releases; it answers with a list number;
//! asked for victims, it names lists in its order, and the timeline hands over their oldest. Priority classes come first in every
//! policy: nothing of a higher class goes while a lower class has a block to give. Parents wait for their children
//! (`Verdict::Deferred`).

mod lfu;
mod lru;
mod s3fifo;
mod sieve;

use crate::hash::SequenceHash;
use crate::pool::Hunt;
use crate::slot::{Priority, Slot};
use core::fmt;
use core::str::FromStr;

/// Which block goes first when room is needed. Chosen at construction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Policy {
    /// Least recently released, exact.
    #[default]
    Lru,
    /// Least frequently used, with dynamic ageing (LFU-DA: Arlitt et al., 1999); ties by recency.
    Lfu,
    /// SIEVE (Zhang et al., NSDI 2024): insertion order, a hand, and one bit for "visited".
    Sieve,
    /// S3-FIFO (Yang et al., SOSP 2023): a small and a main FIFO, and a ghost of what was evicted from the small one.
    S3Fifo,
}

impl Policy {
    /// All of them, for help texts and tests.
    pub const ALL: [Policy; 4] = [Policy::Lru, Policy::Lfu, Policy::Sieve, Policy::S3Fifo];

    /// The name as options spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Lru => "lru",
            Policy::Lfu => "lfu",
            Policy::Sieve => "sieve",
            Policy::S3Fifo => "s3fifo",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No such policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownPolicy;

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown policy: lru, lfu, sieve and s3fifo are known")
    }
}

impl core::error::Error for UnknownPolicy {}

impl FromStr for Policy {
    type Err = UnknownPolicy;
    fn from_str(name: &str) -> Result<Policy, UnknownPolicy> {
        Policy::ALL.into_iter().find(|policy| policy.name() == name).ok_or(UnknownPolicy)
    }
}

/// What a policy is to the pool.
pub(crate) trait Eviction {
    /// Lists that it needs on the timeline.
    fn lists(&self) -> usize;
    /// Whether a block keeps its place while it is in use (the FIFO family), or takes a new one at each release.
    fn keeps_place(&self) -> bool {
        false
    }
    /// A block was acquired by a lookup.
    fn on_hit(&self, _slot: &Slot) {}
    /// A block that has a place leaves the registry.
    fn on_remove(&self, _slot: &Slot) {}
    /// The list that a parent which has waited for its children comes back to; none, or its own: to its old place there.
    fn list_of_returning(&self, _priority: Priority) -> Option<u8> {
        None
    }
    /// The list of a block that takes its place on the timeline now. The caller holds its only reference.
    fn place(&self, slot: &Slot, priority: Priority) -> u8;
    /// Finds up to `wanted` victims.
    fn evict(&self, wanted: usize, hunt: &Hunt<'_>) -> usize;
    /// Bytes of its own, beside its lists on the timeline.
    fn memory_bytes(&self) -> usize {
        0
    }
}

/// The policies, dispatched by a predictable branch.
pub(crate) enum AnyPolicy {
    Lru(lru::Lru),
    Lfu(lfu::Lfu),
    Sieve(sieve::Sieve),
    S3Fifo(s3fifo::S3Fifo),
}

macro_rules! each {
    ($self:ident, $policy:ident => $call:expr) => {
        match $self {
            AnyPolicy::Lru($policy) => $call,
            AnyPolicy::Lfu($policy) => $call,
            AnyPolicy::Sieve($policy) => $call,
            AnyPolicy::S3Fifo($policy) => $call,
        }
    };
}

impl AnyPolicy {
    pub(crate) fn new(policy: Policy, capacity: usize) -> AnyPolicy {
        match policy {
            Policy::Lru => AnyPolicy::Lru(lru::Lru),
            Policy::Lfu => AnyPolicy::Lfu(lfu::Lfu::new()),
            Policy::Sieve => AnyPolicy::Sieve(sieve::Sieve),
            Policy::S3Fifo => AnyPolicy::S3Fifo(s3fifo::S3Fifo::new(capacity)),
        }
    }
}

impl Eviction for AnyPolicy {
    fn lists(&self) -> usize {
        each!(self, policy => policy.lists())
    }
    #[inline]
    fn keeps_place(&self) -> bool {
        each!(self, policy => policy.keeps_place())
    }
    #[inline]
    fn on_hit(&self, slot: &Slot) {
        each!(self, policy => policy.on_hit(slot));
    }
    #[inline]
    fn on_remove(&self, slot: &Slot) {
        each!(self, policy => policy.on_remove(slot));
    }
    #[inline]
    fn list_of_returning(&self, priority: Priority) -> Option<u8> {
        each!(self, policy => policy.list_of_returning(priority))
    }
    #[inline]
    fn place(&self, slot: &Slot, priority: Priority) -> u8 {
        each!(self, policy => policy.place(slot, priority))
    }
    fn memory_bytes(&self) -> usize {
        each!(self, policy => policy.memory_bytes())
    }
    fn evict(&self, wanted: usize, hunt: &Hunt<'_>) -> usize {
        each!(self, policy => policy.evict(wanted, hunt))
    }
}

/// Short of 2^-32 false hits, a key's fingerprint stands for it in a ghost list.
#[inline]
pub(crate) fn fingerprint(key: SequenceHash) -> u32 {
    (key.to_u128() >> 32) as u32
}
