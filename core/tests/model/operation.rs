//! The operations on a pool, as data: four bytes make one [`Operation`], so property test and fuzzer
//! draw from one table.

use kvstrata_core::{Duplicates, Policy, Priority};

/// The settings of the pool.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub policy: Policy,
    pub duplicates: Duplicates,
    pub capacity: u8,
    pub page_size: u8,
    /// Requests that the table is built for.
    pub requests: u8,
}

/// The way to register a chain of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// `register`, a block at a time.
    Single,
    /// `register_sequence`, behind a held block of the hash before, if there is one.
    Sequence,
    /// The same by numbers: `register_ids`, of blocks that are `Reset` or `Partial` and full;
    /// before it, calls that are refused.
    Numbers,
    /// `register_scoped`; the handles are kept.
    Scoped,
    /// `register_scoped`; each handle is dropped at once, while its block is held.
    ScopedAtOnce,
}

/// Hashes, classes and numbers are taken modulo their present range, so every string
/// of operations makes sense.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// Allocate, complete and register a chain of hashes `from, from + 1, …`, each the parent of
    /// the next; keep the references.
    Store { from: u8, count: u8, how: How },
    /// Match a prefix and keep the references; `numbers`: as [`BlockRef`]s that are adopted, here and below.
    Match { from: u8, count: u8, numbers: bool },
    /// Match in any position and keep the references.
    MatchAny { from: u8, step: u8 },
    /// Look up one hash and keep the reference.
    Lookup { hash: u8, numbers: bool },
    /// Release some of the references held: the youngest, tail first, or the oldest, head first.
    Release { count: u8, tail_first: bool, numbers: bool },
    /// Drop one reference.
    DropOne { which: u8 },
    /// Copy one reference.
    CloneOne { which: u8, numbers: bool },
    /// Set a held block's class.
    SetPriority { which: u8, class: Priority },
    /// Evict by hand; keep the victims, drop them, or make them blocks for new content.
    Evict { count: u8, then: Then },
    /// Drop kept victims.
    DropVictims,
    /// Allocate blocks and keep them as they are.
    Allocate { count: u8 },
    /// The same from free blocks only.
    AllocateFree { count: u8, numbers: bool },
    /// Give back some of the kept blocks, in a batch, by their numbers, or one by one:
    /// untouched, filled partly, full, reset.
    GiveBack { count: u8, back: Back },
    /// Drop the handle of a registration: its block may be held, inactive, evicted or recycled by now.
    Withdraw { which: u8 },
    /// Withdraw the registration of a hash.
    Unregister { hash: u8 },
    /// The same by a weak reference taken earlier, as it is, of the next generation, or of a block
    /// beyond the last.
    UnregisterWeak { which: u8, what: u8 },
    /// Lease a block by a weak reference taken earlier, or by one of the next generation, or of a block
    /// beyond the last.
    Lease { which: u8, what: u8 },
    /// End a lease.
    EndLease { which: u8 },
    /// Take out a block by a weak reference taken earlier, as `UnregisterWeak` does, and keep the victim.
    TakeOut { which: u8, what: u8 },
    /// Upgrade a weak reference taken earlier.
    Upgrade { which: u8 },
    /// Upgrade a reference of the next generation, or of a block beyond the last.
    UpgradeForged { which: u8, beyond: bool },
    /// Give up a handle but not the block.
    IntoId { which: u8, mutable: bool },
    /// Take back a handle that was given up.
    Adopt { which: u8 },
    /// Adopt a block that cannot be adopted.
    AdoptRefused { block: u8 },
    /// Reserve blocks for a request.
    Reserve { request: u8, count: u8 },
    /// Release a request.
    ReleaseRequest { request: u8 },
    /// Detach a request's blocks and keep them.
    Detach { request: u8 },
}

/// The way in which blocks go back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Back {
    Batch,
    Numbers,
    OneByOne,
}

/// The treatment of victims.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    Keep,
    Drop,
    Reuse,
}

impl Operation {
    /// The operation for four bytes. The first one selects it, by weight.
    pub fn from_bytes([kind, a, b, c]: [u8; 4]) -> Operation {
        let numbers = c.is_multiple_of(2);
        match kind % 64 {
            0..6 => Operation::Store { from: a, count: b, how: How::Single },
            6..8 => Operation::Store { from: a, count: b, how: How::Numbers },
            8..11 => Operation::Store { from: a, count: b, how: How::Sequence },
            11..14 => Operation::Store { from: a, count: b, how: How::Scoped },
            14 => Operation::Store { from: a, count: b, how: How::ScopedAtOnce },
            15..21 => Operation::Match { from: a, count: b, numbers },
            21 => Operation::MatchAny { from: a, step: b },
            22 => Operation::Lease { which: a, what: b },
            23 => Operation::Lookup { hash: a, numbers },
            24..26 => Operation::Lease { which: a, what: b },
            26..28 => Operation::EndLease { which: a },
            28..34 => Operation::Release { count: a, tail_first: b.is_multiple_of(2), numbers },
            34..36 => Operation::DropOne { which: a },
            36 => Operation::CloneOne { which: a, numbers },
            37..40 => {
                let classes = [Priority::Low, Priority::Normal, Priority::High, Priority::Pinned];
                Operation::SetPriority { which: a, class: classes[usize::from(b % 4)] }
            }
            40..43 => {
                Operation::Evict { count: a, then: [Then::Drop, Then::Keep, Then::Reuse][usize::from(b % 3)] }
            }
            43 => Operation::DropVictims,
            44 => Operation::Allocate { count: a },
            45 => Operation::AllocateFree { count: a, numbers },
            46..49 => {
                let back = [Back::Batch, Back::Numbers, Back::OneByOne][usize::from(b % 3)];
                Operation::GiveBack { count: a, back }
            }
            49..51 => Operation::Withdraw { which: a },
            51 => Operation::Unregister { hash: a },
            52 if numbers => Operation::UnregisterWeak { which: a, what: b },
            52 => Operation::TakeOut { which: a, what: b },
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
