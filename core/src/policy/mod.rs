//! Eviction policies: in which list of the timeline a block waits, and from which list the next victim comes.
//!
//! A policy never sees a lock, a queue or a block's bytes. The pool reports hits and releases to it, and
//! it answers with a list number. Asked for victims, it names lists in its order, and the timeline hands
//! over their oldest blocks. Priority classes come first in every policy: no block of a higher class
//! goes while a lower class has a block to give. Parents wait for their children (`Verdict::Deferred`).
//!
//! | file | contents |
//! |---|---|
//! | `eviction.rs` | the interface of a policy to its pool |
//! | `order.rs` | the order of victims, for looks that take nothing |
//! | `turns.rs` | the same for lists that give victims by turns |
//! | `carried.rs` | a policy's state that its pool carries over a call, without reading it |
//! | `scan.rs` | the pool's part of a search for victims |
//! | `any.rs` | the policies as one type |
//! | `stats.rs` | a policy's figures |
//! | `lru.rs`, `lfu.rs`, `sieve.rs`, `s3fifo.rs`, `arc.rs`, `two_q.rs`, `reuse/` | a policy each |
//! | `pair.rs`, `ghosts.rs` | shared by several policies |

mod any;
mod arc;
mod carried;
mod eviction;
mod ghosts;
mod lfu;
mod lru;
mod order;
mod pair;
mod reuse;
mod s3fifo;
mod scan;
mod sieve;
mod stats;
mod turns;
mod two_q;

pub(crate) use any::AnyPolicy;
pub(crate) use carried::{Cursor, Uses};
pub(crate) use eviction::{Event, Eviction, Shape};
pub(crate) use order::Ordered;
pub(crate) use scan::Scan;
pub use stats::ReuseStats;

use core::fmt;
use core::str::FromStr;

/// Which block goes first when room is needed. Chosen at construction. For blocks without parents, the
/// classic policies evict the same blocks as their papers. Under every policy a parent waits for its
/// children, so with paths their hits differ from the papers'.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Policy {
    /// Least recently released, exact.
    #[default]
    Lru,
    /// Least frequently used, with dynamic ageing (LFU-DA: Arlitt et al., 1999); ties by
    /// recency. Uses are counted to 15.
    Lfu,
    /// SIEVE (Zhang et al., NSDI 2024): insertion order, a hand, and one bit for "visited".
    Sieve,
    /// S3-FIFO (Yang et al., SOSP 2023): a small and a main FIFO, and ghosts of blocks evicted from the
    /// small one, as many as main has room for.
    S3Fifo,
    /// ARC (Megiddo and Modha, FAST 2003): blocks used once, and blocks used again, in a balance
    /// that the ghosts of both adjust.
    Arc,
    /// 2Q (Johnson and Shasha, VLDB 1994), the full version: a FIFO of a quarter, then ghosts, and
    /// LRU for blocks that come back.
    TwoQ,
    /// Least expected hits for time of residence, as learned from conversations: their turns, growth and
    /// trunks. Its hits never fall far behind LRU's.
    Reuse,
}

impl Policy {
    /// All policies, for help texts and tests.
    pub const ALL: [Policy; 7] =
        [Policy::Lru, Policy::Lfu, Policy::Sieve, Policy::S3Fifo, Policy::Arc, Policy::TwoQ, Policy::Reuse];

    /// The name as options spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Lru => "lru",
            Policy::Lfu => "lfu",
            Policy::Sieve => "sieve",
            Policy::S3Fifo => "s3fifo",
            Policy::Arc => "arc",
            Policy::TwoQ => "2q",
            Policy::Reuse => "reuse",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error for a name that is not a policy's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownPolicy;

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown policy: known are lru, lfu, sieve, s3fifo, arc, 2q, reuse")
    }
}

impl core::error::Error for UnknownPolicy {}

impl FromStr for Policy {
    type Err = UnknownPolicy;
    fn from_str(name: &str) -> Result<Policy, UnknownPolicy> {
        Policy::ALL.into_iter().find(|policy| policy.name() == name).ok_or(UnknownPolicy)
    }
}
