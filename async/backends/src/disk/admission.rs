//! Which blocks are worth a write: flash wears out by writes, and most blocks that leave a host tier are
//! never asked for again.
//!
//! ```text
//!   every use of a block ──► used(hash) ──► filter ◄── admits(hash)? ── a block on its way down
//! ```
//!
//! | policy | a block is written if | memory a block of the tier |
//! |---|---|---|
//! | [`Always`](AdmissionPolicy::Always) | it comes | none |
//! | [`SecondUse`](AdmissionPolicy::SecondUse) | it was used at least twice within the window | 8 bytes |
//! | [`TinyLfu`](AdmissionPolicy::TinyLfu) | the tier has room, or it was used more often than the last victim | 16 to 24 bytes |
//!
//! A *use* is a request that has the block, whether some tier had it or not. Uses are counted by estimate, in
//! memory fixed at construction: a block used once passes for one used twice with a probability below 0.5 %
//! (measured by the tests), a write more; one used twice within the window is never taken for less, but by a
//! race.
//!
//! ```text
//!   doorkeeper   two Bloom filters, each of the last N insertions or fewer;    hash ─► one cache line of 512 bits, 6 of them
//!                the older is cleared and filled anew after N
//!   sketch       4-bit counters, 16 a word; the least of a hash's four counts; hash ─► one cache line of 8 words, 4 counters
//!                all halved after 10 × blocks additions
//! ```
//!
//! TinyLFU is that of Einziger, Friedman and Manes (2017): the doorkeeper takes first uses, so that blocks
//! used once do not wear out the counters.
//!
//! # Orderings
//! Everything is Relaxed: the filters are estimates and publish nothing. A bit or a count that is lost while
//! one thread clears or halves is a block taken for rarer than it is.

use kvstrata_core::SequenceHash;
use kvstrata_core::hash::Placement;
use kvstrata_tiers::shared::{LINE, Sketch, line_of, remix, words};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// What is written to the disk tier, of what leaves the tier above.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AdmissionPolicy {
    /// Every block.
    #[default]
    Always,
    /// Blocks used twice.
    SecondUse,
    /// Blocks used more often than what has to leave for them.
    TinyLfu,
}

impl AdmissionPolicy {
    /// Each of them.
    pub const ALL: [AdmissionPolicy; 3] =
        [AdmissionPolicy::Always, AdmissionPolicy::SecondUse, AdmissionPolicy::TinyLfu];

    /// Its name, as `--disk-admission` has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            AdmissionPolicy::Always => "always",
            AdmissionPolicy::SecondUse => "second-use",
            AdmissionPolicy::TinyLfu => "tinylfu",
        }
    }
}

/// No admission policy has that name.
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

/// Decides what is written. `Send + Sync`, without a lock.
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
        /// Key of the last victim; 0 before there is one. Its count is asked for anew each time, so that it ages.
        victim: AtomicU64,
    },
}

impl Admission {
    /// A filter for a tier of `blocks` blocks, taken for 1024 if there are fewer. The window is the last 2 × `blocks` to
    /// 4 × `blocks` uses that were a block's first, or its second, in the window. The seed is to be secret where others choose hashes.
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

    /// A request has this block.
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

    /// Whether this block is to be written; `full`: another one has to leave the tier for it.
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

    /// This block had to leave the tier.
    pub fn evicted(&self, hash: SequenceHash) {
        if let Filter::TinyLfu { victim, .. } = &self.filter {
            victim.store(self.key(hash), Relaxed);
        }
    }

    /// 64 bits of a hash, which may be a caller's own and not mixed at all; never 0.
    fn key(&self, hash: SequenceHash) -> u64 {
        self.place.of(hash).max(1)
    }

    /// Bytes that it holds.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.filter {
            Filter::Always => 0,
            Filter::SecondUse(doorkeeper) => doorkeeper.memory_bytes(),
            Filter::TinyLfu { doorkeeper, sketch, .. } => doorkeeper.memory_bytes() + sketch.memory_bytes(),
        }
    }
}

/// Which keys were inserted lately: at least the last half of `window` insertions, at most all of it.
#[derive(Debug)]
struct Doorkeeper {
    filters: [Box<[AtomicU64]>; 2],
    /// Which of them is filled: its lowest bit.
    turn: AtomicUsize,
    inserted: AtomicUsize,
    half: usize,
}

impl Doorkeeper {
    /// Bits a key in each filter.
    const BITS: usize = 16;
    /// Bits that a key sets.
    const SET: u32 = 6;

    fn new(window: usize) -> Doorkeeper {
        let half = window / 2;
        let filter = || words((half * Doorkeeper::BITS).div_ceil(64 * LINE));
        let (turn, inserted) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Doorkeeper { filters: [filter(), filter()], turn, inserted, half }
    }

    /// The nine bits each that name the places of a key in its line.
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

    /// True if it was there already, in which case nothing changes.
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

    /// Whoever makes the count full, and nobody else, comes here; the others go on in the full filter meanwhile.
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
