//! Admission: which blocks are worth a write. Flash wears out by writes, and most blocks that leave a
//! host tier are never requested again.
//!
//! ```text
//!   every use of a block ──► used(hash) ──► filter ◄── admits(hash)? ── a block on its way down
//! ```
//!
//! | [`AdmissionPolicy`] | a block is written if | memory per block |
//! |---|---|---|
//! | `Always` | it is offered | none |
//! | `SecondUse` | it was used at least twice within the window | 8 bytes |
//! | `TinyLfu` | the tier has room, or it was used more often than the last victim | 16 to 24 bytes |
//!
//! A *use* is a request that has the block, whether a tier had it or not. Uses are estimated, in memory
//! of fixed size. A block used once passes for one used twice with a probability below 0.5 % (measured
//! by the tests), which costs a write. A block used twice within the window is underestimated only after
//! a race.
//!
//! ```text
//!   doorkeeper   two Bloom filters, each over the last N insertions or fewer; after N insertions the older
//!                one is cleared and refilled.           hash ─► a cache line of 512 bits, 6 of them
//!   sketch       4-bit counters, 16 a word; the least of a hash's 4 counts; all halved after 10 × blocks
//!                additions.                             hash ─► a cache line of 8 words, 4 counters
//! ```
//!
//! TinyLFU is that of Einziger, Friedman and Manes (2017): the doorkeeper absorbs first uses, so that
//! blocks used once do not wear out the counters.
//!
//! # Orderings
//! Everything is Relaxed: the filters are estimates and publish nothing. If another thread clears or
//! halves a filter meanwhile, a bit or a count may be lost: the block then counts as rarer than it is.

use kvstrata_core::SequenceHash;
use kvstrata_core::hash::Placement;
use kvstrata_tiers::shared::{LINE, Sketch, line_of, remix, words};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The policy that decides which blocks leaving the tier above are written to the disk tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AdmissionPolicy {
    /// Every block.
    #[default]
    Always,
    /// Blocks that were used twice.
    SecondUse,
    /// Blocks that were used more often than the victim that they would replace.
    TinyLfu,
}

impl AdmissionPolicy {
    /// All policies.
    pub const ALL: [AdmissionPolicy; 3] =
        [AdmissionPolicy::Always, AdmissionPolicy::SecondUse, AdmissionPolicy::TinyLfu];

    /// Returns the policy's name, as in `--disk-admission`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            AdmissionPolicy::Always => "always",
            AdmissionPolicy::SecondUse => "second-use",
            AdmissionPolicy::TinyLfu => "tinylfu",
        }
    }
}

/// The name belongs to no admission policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown admission policy {0:?}; use always, second-use or tinylfu")]
pub struct UnknownAdmission(pub String);

impl FromStr for AdmissionPolicy {
    type Err = UnknownAdmission;

    fn from_str(name: &str) -> Result<AdmissionPolicy, UnknownAdmission> {
        let found = AdmissionPolicy::ALL.into_iter().find(|policy| policy.name() == name);
        found.ok_or_else(|| UnknownAdmission(name.to_owned()))
    }
}

/// Decides which blocks are written. `Send + Sync`, without a lock.
#[derive(Debug)]
pub struct Admission {
    place: Placement,
    filter: Filter,
}

#[derive(Debug)]
enum Filter {
    Always,
    SecondUse(Doorkeeper),
    TinyLfu {
        doorkeeper: Doorkeeper,
        sketch: Sketch,
        /// Key of the last victim; 0 before the first. Its count is read anew each time, so that it
        /// ages.
        victim: AtomicU64,
    },
}

impl Admission {
    /// Returns a filter for a tier of `blocks` blocks; fewer than 1024 count as 1024. The window is the
    /// last 2 × `blocks` to 4 × `blocks` uses that were the first or the second of their block in the
    /// window. The seed must be secret if others choose hashes.
    #[must_use]
    pub fn new(policy: AdmissionPolicy, blocks: u32, seed: u64) -> Admission {
        let blocks = (blocks as usize).max(1024);
        let filter = match policy {
            AdmissionPolicy::Always => Filter::Always,
            AdmissionPolicy::SecondUse => Filter::SecondUse(Doorkeeper::new(4 * blocks)),
            AdmissionPolicy::TinyLfu => Filter::TinyLfu {
                doorkeeper: Doorkeeper::new(4 * blocks),
                sketch: Sketch::new(blocks, seed),
                victim: AtomicU64::new(0),
            },
        };
        Admission { place: Placement::new(seed), filter }
    }

    /// Records that a request has this block.
    pub fn used(&self, hash: SequenceHash) {
        let key = self.key(hash);
        match &self.filter {
            Filter::Always => {}
            Filter::SecondUse(doorkeeper) => {
                if doorkeeper.insert(key) {
                    doorkeeper.insert(!key);
                }
            }
            Filter::TinyLfu { doorkeeper, sketch, .. } => {
                if doorkeeper.insert(key) {
                    sketch.add(key);
                }
            }
        }
    }

    /// Whether to write this block. `full`: another block must leave the tier for it.
    #[must_use]
    pub fn admits(&self, hash: SequenceHash, full: bool) -> bool {
        match &self.filter {
            Filter::Always => true,
            Filter::SecondUse(doorkeeper) => doorkeeper.contains(!self.key(hash)),
            Filter::TinyLfu { doorkeeper, sketch, victim } => {
                let uses = |key| sketch.count(key) + u64::from(doorkeeper.contains(key));
                let victim = victim.load(Relaxed);
                !full || victim == 0 || uses(self.key(hash)) > uses(victim)
            }
        }
    }

    /// Records that this block had to leave the tier.
    pub fn evicted(&self, hash: SequenceHash) {
        if let Filter::TinyLfu { victim, .. } = &self.filter {
            victim.store(self.key(hash), Relaxed);
        }
    }

    /// Returns 64 bits of a hash, never 0. The hash may be a caller's own, without any mixing.
    fn key(&self, hash: SequenceHash) -> u64 {
        self.place.of(hash).max(1)
    }

    /// Returns the memory of the filter in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.filter {
            Filter::Always => 0,
            Filter::SecondUse(doorkeeper) => doorkeeper.memory_bytes(),
            Filter::TinyLfu { doorkeeper, sketch, .. } => doorkeeper.memory_bytes() + sketch.memory_bytes(),
        }
    }
}

/// The keys that were inserted lately: at least the last half of `window` insertions, at most all of it.
#[derive(Debug)]
struct Doorkeeper {
    filters: [Box<[AtomicU64]>; 2],
    /// Its lowest bit: the filter that is being filled.
    turn: AtomicUsize,
    inserted: AtomicUsize,
    half: usize,
}

impl Doorkeeper {
    /// Bits per key in each filter.
    const BITS: usize = 16;
    /// Bits that each key sets.
    const SET: u32 = 6;

    fn new(window: usize) -> Doorkeeper {
        let half = window / 2;
        let filter = || words((half * Doorkeeper::BITS).div_ceil(64 * LINE));
        let (turn, inserted) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Doorkeeper { filters: [filter(), filter()], turn, inserted, half }
    }

    /// Returns the places of a key in its line; nine bits of the mixed key name each of them.
    fn places(key: u64) -> impl Iterator<Item = (usize, u64)> {
        let places = remix(key) >> 10;
        (0..Doorkeeper::SET).map(move |place| {
            let bit = (places >> (9 * place)) as usize % (64 * LINE);
            (bit / 64, 1 << (bit % 64))
        })
    }

    fn contains(&self, key: u64) -> bool {
        self.filters.iter().any(|filter| {
            let line = line_of(filter, key);
            Doorkeeper::places(key).all(|(word, bit)| filter[line + word].load(Relaxed) & bit != 0)
        })
    }

    /// Inserts a key. Returns true, and changes nothing, if the filter had it already.
    fn insert(&self, key: u64) -> bool {
        if self.contains(key) {
            return true;
        }
        let filter = &self.filters[self.turn.load(Relaxed) % 2];
        let line = line_of(filter, key);
        for (word, bit) in Doorkeeper::places(key) {
            filter[line + word].fetch_or(bit, Relaxed);
        }
        if self.inserted.fetch_add(1, Relaxed) + 1 == self.half {
            self.rotate();
        }
        false
    }

    /// Called only by the thread that fills the filter. Others use the full filter meanwhile.
    #[cold]
    fn rotate(&self) {
        let turn = self.turn.load(Relaxed) + 1;
        self.filters[turn % 2].iter().for_each(|word| word.store(0, Relaxed));
        self.turn.store(turn, Relaxed);
        self.inserted.store(0, Relaxed);
    }

    fn memory_bytes(&self) -> usize {
        self.filters.iter().map(|filter| size_of_val(&**filter)).sum()
    }
}

#[cfg(test)]
mod tests;
