//! What can be done to a pool, as data: four bytes make one [`Operation`], so property test and fuzzer draw from one table.

use kvstrata_core::{Duplicates, Policy, Priority};

/// How the pool is built.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub policy: Policy,
    pub duplicates: Duplicates,
    pub capacity: u8,
    pub page_size: u8,
    /// Requests that the table is built for.
    pub requests: u8,
}

/// Which of the ways to register a chain of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// `register`, a block at a time.
    Single,
    /// `register_sequence`, behind a held block of the hash before, if there is one.
    Sequence,
    /// `register_scoped`; the handles are kept.
    Scoped,
    /// `register_scoped`; each handle is dropped at once, while its block is held.
    ScopedAtOnce,
}

/// Hashes, classes and numbers are taken modulo what there is, so every string of operations makes sense.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// Allocate, complete and register a chain of hashes `from, from + 1, …`, each the parent of the next; keep the references.
    Store { from: u8, count: u8, how: How },
    /// Match a prefix and keep the references.
    Match { from: u8, count: u8 },
    /// Match in any position and keep the references.
    MatchAny { from: u8, step: u8 },
    /// Look up one hash and keep the reference.
    Lookup { hash: u8 },
    /// Release some of the references held: the youngest, tail first, or the oldest, head first.
    Release { count: u8, tail_first: bool },
    /// Drop one reference.
    DropOne { which: u8 },
    /// Copy one reference.
    CloneOne { which: u8 },
    /// Set a held block's class.
    SetPriority { which: u8, class: Priority },
    /// Evict by hand; keep the victims, drop them, or make them blocks for new content.
    Evict { count: u8, then: Then },
    /// Let go of kept victims.
    DropVictims,
    /// Allocate blocks and keep them as they are.
    Allocate { count: u8 },
    /// The same from free blocks only.
    AllocateFree { count: u8 },
    /// Give back some of the kept blocks, in a batch or one by one: untouched, filled partly, full, reset.
    GiveBack { count: u8, batch: bool },
    /// Drop the handle of a registration: its block may be held, inactive, evicted or recycled by now.
    Withdraw { which: u8 },
    /// Withdraw the registration of a hash.
    Unregister { hash: u8 },
    /// The same by a weak reference taken earlier, as it is, of the next generation, or of a block beyond the last.
    UnregisterWeak { which: u8, what: u8 },
    /// Upgrade a weak reference taken earlier.
    Upgrade { which: u8 },
    /// Upgrade a reference of the next generation, or of a block beyond the last.
    UpgradeForged { which: u8, beyond: bool },
    /// Give up a handle but not the block.
    IntoId { which: u8, mutable: bool },
    /// Take back what was given up.
    Adopt { which: u8 },
    /// Adopt a block that is not to be had.
    AdoptRefused { block: u8 },
    /// Reserve blocks for a request.
    Reserve { request: u8, count: u8 },
    /// Release a request.
    ReleaseRequest { request: u8 },
    /// Detach a request's blocks and keep them.
    Detach { request: u8 },
}

/// What becomes of victims.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    Keep,
    Drop,
    Reuse,
}

impl Operation {
    /// The operation that four bytes stand for. The first says which, by weight.
    pub fn from_bytes([kind, a, b, c]: [u8; 4]) -> Operation {
        match kind % 64 {
            0..8 => Operation::Store { from: a, count: b, how: How::Single },
            8..11 => Operation::Store { from: a, count: b, how: How::Sequence },
            11..14 => Operation::Store { from: a, count: b, how: How::Scoped },
            14 => Operation::Store { from: a, count: b, how: How::ScopedAtOnce },
            15..21 => Operation::Match { from: a, count: b },
            21..23 => Operation::MatchAny { from: a, step: b },
            23 => Operation::Lookup { hash: a },
            24..34 => Operation::Release { count: a, tail_first: b.is_multiple_of(2) },
            34..36 => Operation::DropOne { which: a },
            36 => Operation::CloneOne { which: a },
            37..40 => {
                let classes = [Priority::Low, Priority::Normal, Priority::High, Priority::Pinned];
                Operation::SetPriority { which: a, class: classes[usize::from(b % 4)] }
            }
            40..43 => {
                Operation::Evict { count: a, then: [Then::Drop, Then::Keep, Then::Reuse][usize::from(b % 3)] }
            }
            43 => Operation::DropVictims,
            44 => Operation::Allocate { count: a },
            45 => Operation::AllocateFree { count: a },
            46..49 => Operation::GiveBack { count: a, batch: b.is_multiple_of(2) },
            49..51 => Operation::Withdraw { which: a },
            51 => Operation::Unregister { hash: a },
            52 => Operation::UnregisterWeak { which: a, what: b },
            53 => Operation::Upgrade { which: a },
            54 => Operation::UpgradeForged { which: a, beyond: b.is_multiple_of(2) },
            55 => Operation::IntoId { which: a, mutable: b.is_multiple_of(2) },
            56..58 => Operation::Adopt { which: a },
            58 => Operation::AdoptRefused { block: a },
            // Now and then many: most requests are small, and a large one is refused.
            59..61 => Operation::Reserve { request: a, count: if c.is_multiple_of(4) { b } else { b % 4 } },
            61..63 => Operation::ReleaseRequest { request: a },
            _ => Operation::Detach { request: a },
        }
    }
}
