//! The state word: one `u64` with all fields that must never be seen out of step.
//!
//! ```text
//!  63            32 31     28 27          8 7  6 5        3 2    0
//! ┌────────────────┬─────────┬─────────────┬────┬──────────┬──────┐
//! │ generation :32 │ leases  │ references  │ pr │ flags :3 │ state│   flags: reserved, orphan, withdrawn
//! └────────────────┴─────────┴─────────────┴────┴──────────┴──────┘
//! ```
//!
//! I1. Every transition is one change of this word, so state, references and generation agree in
//!     any load: a compare-exchange where many may change it (`Registered`), a store where one
//!     owner does (the other states, I2).
//! I2. `references > 0` and `leases > 0` only in `Registered`: the other states have one owner, which
//!     has a typestate handle.
//! I3. Every way to `Reset` bumps the generation; a compare-exchange that expects an
//!     older one fails (no ABA).

use crate::sync::skipped;
use core::fmt;

/// A block's state. `Reset → Partial → Complete → Registered → Reset`, by the table in [`State::allows`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum State {
    /// No content: free, or owned by a [`MutableBlock`](crate::MutableBlock) not yet initialised.
    Reset = 0,
    /// Being filled with tokens by its owner.
    Partial = 1,
    /// Full, committed, not yet visible to others.
    Complete = 2,
    /// Visible to lookups, shared by reference count.
    Registered = 3,
}

impl State {
    const fn from_bits(bits: u64) -> State {
        match bits & 0b111 {
            0 => State::Reset,
            1 => State::Partial,
            2 => State::Complete,
            _ => State::Registered,
        }
    }

    /// Returns whether the table of states allows `self` to become `to`. Further conditions
    /// (page full, no references) apply.
    pub const fn allows(self, to: State) -> bool {
        matches!(
            (self, to),
            (State::Reset, State::Partial)
                | (State::Partial, State::Partial | State::Complete | State::Reset)
                | (State::Complete, State::Registered | State::Reset)
                | (State::Registered, State::Reset)
        )
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Reset => "Reset",
            State::Partial => "Partial",
            State::Complete => "Complete",
            State::Registered => "Registered",
        })
    }
}

/// The value of a block to its owner: lower classes are evicted first, pinned blocks never.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Priority {
    /// Evicted before all others.
    Low = 0,
    /// The default.
    #[default]
    Normal = 1,
    /// Evicted only when no lower class has a block left.
    High = 2,
    /// Never evicted.
    Pinned = 3,
}

impl Priority {
    /// The classes that eviction serves, in its order.
    pub(crate) const EVICTABLE: usize = 3;

    const fn from_bits(bits: u64) -> Priority {
        match bits & 0b11 {
            0 => Priority::Low,
            1 => Priority::Normal,
            2 => Priority::High,
            _ => Priority::Pinned,
        }
    }
}

/// The state word, unpacked by accessors and changed by pure functions; the slot does the compare-exchange.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Word(pub(crate) u64);

const WITHDRAWN: u64 = 1 << 3;
const ORPHAN: u64 = 1 << 4;
const RESERVED: u64 = 1 << 5;
const PRIORITY_SHIFT: u32 = 6;
const REF_SHIFT: u32 = 8;
const REF_ONE: u64 = 1 << REF_SHIFT;
/// The most references that a word can count, 2^20 - 1.
pub(crate) const MAX_REFERENCES: u32 = (1 << 20) - 1;
const REF_MASK: u64 = (MAX_REFERENCES as u64) << REF_SHIFT;
const LEASE_SHIFT: u32 = 28;
const LEASE_ONE: u64 = 1 << LEASE_SHIFT;
/// The most leases that a word can count.
pub(crate) const MAX_LEASES: u32 = (1 << 4) - 1;
const GENERATION_SHIFT: u32 = 32;

impl Word {
    /// A slot that was never used.
    pub(crate) const NEW: Word = Word((Priority::Normal as u64) << PRIORITY_SHIFT);

    #[inline]
    pub(crate) const fn state(self) -> State {
        State::from_bits(self.0)
    }
    #[inline]
    pub(crate) const fn references(self) -> u32 {
        ((self.0 & REF_MASK) >> REF_SHIFT) as u32
    }
    /// Number of copies that read its bytes without using it.
    #[inline]
    pub(crate) const fn leases(self) -> u32 {
        (self.0 >> LEASE_SHIFT) as u32 & MAX_LEASES
    }
    #[inline]
    pub(crate) const fn generation(self) -> u32 {
        (self.0 >> GENERATION_SHIFT) as u32
    }
    #[inline]
    pub(crate) const fn priority(self) -> Priority {
        Priority::from_bits(self.0 >> PRIORITY_SHIFT)
    }
    /// Returns whether its registration was withdrawn while it was referenced or leased: the end
    /// of the last of both resets it.
    #[inline]
    pub(crate) const fn withdrawn(self) -> bool {
        self.0 & WITHDRAWN != 0
    }
    /// Returns whether it is registered and unreferenced: lookups find it, and it may be evicted.
    #[inline]
    pub(crate) const fn inactive(self) -> bool {
        self.0 & (REF_MASK | 0b111) == State::Registered as u64
    }
    /// Returns whether it gave way to an equal block before it was inserted: it was never
    /// stored, so its end is no removal.
    #[inline]
    pub(crate) const fn orphan(self) -> bool {
        self.0 & ORPHAN != 0
    }
    /// Returns whether the request table owns it.
    #[inline]
    pub(crate) const fn reserved(self) -> bool {
        self.0 & RESERVED != 0
    }
    #[inline]
    pub(crate) const fn with_state(self, state: State) -> Word {
        Word((self.0 & !0b111) | state as u64)
    }
    #[inline]
    pub(crate) const fn with_priority(self, priority: Priority) -> Word {
        Word((self.0 & !(0b11 << PRIORITY_SHIFT)) | ((priority as u64) << PRIORITY_SHIFT))
    }
    #[inline]
    pub(crate) const fn with_withdrawal(self) -> Word {
        Word(self.0 | WITHDRAWN)
    }
    #[inline]
    pub(crate) const fn with_orphanhood(self) -> Word {
        Word(self.0 | WITHDRAWN | ORPHAN)
    }
    #[inline]
    pub(crate) const fn with_reservation(self, reserved: bool) -> Word {
        Word(if reserved { self.0 | RESERVED } else { self.0 & !RESERVED })
    }
    /// Adds a reference; the caller has checked [`MAX_REFERENCES`].
    #[inline]
    pub(crate) const fn acquired(self) -> Word {
        Word(self.0 + REF_ONE)
    }
    /// Removes a reference, which the caller holds.
    #[inline]
    pub(crate) const fn released(self) -> Word {
        Word(self.0 - REF_ONE)
    }
    /// The word after a release: one reference less, and `Reset` if nothing keeps the block any more.
    #[inline]
    pub(crate) fn let_go(self) -> Word {
        self.released().settled()
    }
    /// Adds a lease; the caller has checked [`MAX_LEASES`].
    #[inline]
    pub(crate) const fn leased(self) -> Word {
        Word(self.0 + LEASE_ONE)
    }
    /// The word after the end of a lease, which the caller has.
    #[inline]
    pub(crate) fn lease_ended(self) -> Word {
        Word(self.0 - LEASE_ONE).settled()
    }
    /// Resets a withdrawn block without references or leases.
    #[inline]
    fn settled(self) -> Word {
        let leased = self.leases() > 0 && !skipped!("lease_ends_with_reference");
        if self.withdrawn() && self.references() == 0 && !leased { self.reset() } else { self }
    }
    /// `Reset`, next generation, default priority, no flags (I3).
    #[inline]
    pub(crate) const fn reset(self) -> Word {
        let generation = self.generation().wrapping_add(1) as u64;
        Word((generation << GENERATION_SHIFT) | Word::NEW.0)
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (generation, references, leases) = (self.generation(), self.references(), self.leases());
        write!(f, "{} (generation {generation}, references {references}, leases {leases})", self.state())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_fields_do_not_overlap() {
        let word =
            Word(u64::MAX << GENERATION_SHIFT).with_state(State::Registered).with_priority(Priority::High);
        let word = word.acquired().acquired().leased().leased().with_withdrawal();
        assert_eq!((word.leases(), word.lease_ended().lease_ended().leases()), (2, 0));
        assert_eq!(word.generation(), u32::MAX);
        assert_eq!(word.references(), 2);
        assert_eq!(word.state(), State::Registered);
        assert_eq!(word.priority(), Priority::High);
        assert!(word.withdrawn());
        assert!(!word.inactive());
        assert!(word.released().released().inactive());
        let leased = word.let_go().let_go();
        assert!(leased.inactive() && leased.lease_ended().inactive(), "one lease keeps it");
        assert_eq!(leased.lease_ended().lease_ended(), word.reset());
        assert_eq!(word.lease_ended().lease_ended().let_go().let_go(), word.reset());
        let reset = word.reset();
        assert_eq!((reset.generation(), reset.references(), reset.state()), (0, 0, State::Reset));
        assert_eq!(reset.priority(), Priority::Normal);
        assert!(!reset.withdrawn());
    }
}
