//! Eviction policies: in which list of the timeline a block waits, and from which list the next victim comes.
//!
//! A policy never sees a lock, a queue or a block's bytes. The pool tells it of hits and releases; it answers
//! with a list number; asked for victims, it names lists in its order, and the timeline hands over their
//! oldest. Priority classes come first in every policy: nothing of a higher class goes while a lower class
//! has a block to give. Parents wait for their children (`Verdict::Deferred`).
//!
//! | file | what |
//! |---|---|
//! | `eviction.rs` | what a pool asks of a policy |
//! | `order.rs`, `turns.rs` | the order of victims, for callers that look and take nothing; lists that give victims by turns |
//! | `carried.rs` | what a pool carries from one call of its policy to the next, and never looks into |
//! | `scan.rs` | what a policy asks of the pool while it searches |
//! | `any.rs` | the policies as one type |
//! | `stats.rs` | what a policy tells of itself |
//! | `lru.rs`, `lfu.rs`, `sieve.rs`, `s3fifo.rs`, `arc.rs`, `two_q.rs`, `reuse/` | a policy each; `pair.rs` and `ghosts.rs` are shared |

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

/// Which block goes first when room is needed. Chosen at construction. The classic policies are their papers', block by block, where blocks have no
/// parents; a parent waits for its children, whatever the policy, so over paths they have other hits than on paper.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Policy {
    /// Least recently released, exact.
    #[default]
    Lru,
    /// Least frequently used, with dynamic ageing (LFU-DA: Arlitt et al., 1999); ties by recency. Uses are counted to 15.
    Lfu,
    /// SIEVE (Zhang et al., NSDI 2024): insertion order, a hand, and one bit for "visited".
    Sieve,
    /// S3-FIFO (Yang et al., SOSP 2023): a small and a main FIFO, and a ghost of what was evicted from the small one, as long as main.
    S3Fifo,
    /// ARC (Megiddo and Modha, FAST 2003): used once, and used again, in a balance that ghosts of both teach.
    Arc,
    /// 2Q (Johnson and Shasha, VLDB 1994), the full version: a FIFO of a quarter, then a ghost, and LRU for what comes back.
    TwoQ,
    /// Least expected hits for time of residence, by what was learned of conversations: their turns, growth and trunks; never far behind LRU.
    Reuse,
}

impl Policy {
    /// All of them, for help texts and tests.
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

/// No such policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownPolicy;

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown policy: lru, lfu, sieve, s3fifo, arc, 2q and reuse are known")
    }
}

impl core::error::Error for UnknownPolicy {}

impl FromStr for Policy {
    type Err = UnknownPolicy;
    fn from_str(name: &str) -> Result<Policy, UnknownPolicy> {
        Policy::ALL.into_iter().find(|policy| policy.name() == name).ok_or(UnknownPolicy)
    }
}
