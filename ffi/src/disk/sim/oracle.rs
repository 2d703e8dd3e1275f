//! The reads that may succeed: for each slot, the state that its writes and forgets add up to.
//!
//! ```text
//!             write, alone          succeeded                     settled, flushed
//!   Empty ───────────────► Unknown ───────────► Holds(hash) ────► the same, arrived / synced
//!     ▲  ▲  failed ──────────┘ │ ▲                 │   │
//!     │  └─────────────────────┘ │ several at once │   │ read refused for its payload (only in doubt)
//!     └── forget, settled ◄──────┴── forget ◄──────┘   ▼
//!                                                    Empty
//! ```
//!
//! Bytes are a function of the hash alone: a read that succeeds has the requested block's bytes, or the
//! simulation has failed, whatever the oracle knows. From its knowledge follows when *not* serving a
//! block is a failure too.
//!
//! Invariants
//! - I1: `Holds` and `Empty` are the answers that the engine must give for a slot, unless the slot is in
//!   doubt. Then it may also answer that the slot is empty, or that the payload is damaged.

use super::super::error::{FailureCause, IoFailure};
use super::super::recovery::{Name, OwnerId, Rejection};
use super::random::mix;
use kvstrata_core::SequenceHash;

/// A block, by a small number.
pub(in crate::disk) type BlockNumber = u64;

/// A block's name.
pub(in crate::disk) fn name_of(block: BlockNumber) -> Name {
    // Lower halves collide, so that the table, which sorts by them, meets equal ones.
    let hash =
        |block: u64| SequenceHash::from_u128(u128::from(mix(block + 1)) << 64 | u128::from(block / 2 + 1));
    let parent = (!block.is_multiple_of(3)).then(|| hash(block / 3));
    Name { hash: hash(block), parent, owner: OwnerId(mix(block) % 3) }
}

/// The bytes of a block, 16 at a time: different at each place, and from every other block's.
fn words(block: BlockNumber) -> impl Iterator<Item = [u8; 16]> {
    let wide = |seed| u128::from(mix(seed)) << 64 | u128::from(mix(!seed));
    let (first, step) = (wide(block ^ 0x5EED), wide(block) | 1);
    core::iter::successors(Some(first), move |word| Some(word.wrapping_add(step))).map(u128::to_le_bytes)
}

pub(in crate::disk) fn fill(block: BlockNumber, bytes: &mut [u8]) {
    for (chunk, word) in bytes.chunks_mut(16).zip(words(block)) {
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

/// Whether these are the bytes of a block.
pub(in crate::disk) fn is_block(block: BlockNumber, bytes: &[u8]) -> bool {
    bytes.chunks(16).zip(words(block)).all(|(chunk, word)| *chunk == word[..chunk.len()])
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::disk) enum State {
    Unknown,
    #[default]
    Empty,
    Holds(BlockNumber),
}

#[derive(Debug, Clone, Default)]
pub(in crate::disk) struct Slot {
    pub(in crate::disk) state: State,
    /// Changes with each write and forget.
    version: u64,
    /// Number of records that reads had cleared.
    cleared: u64,
    writes: u32,
    reads: u32,
    forgetting: bool,
    /// A silent fault has happened to it since it was last written.
    pub(in crate::disk) doubt: bool,
    /// Whether its record is in the file, and whether it is on the device for good.
    pub(in crate::disk) arrived: bool,
    pub(in crate::disk) synced: bool,
}

/// The known facts when a request was made.
#[derive(Debug, Clone, Copy)]
pub(in crate::disk) struct Ticket {
    version: u64,
    /// For a write: no other write was under way. For a read: the slot's state was known.
    alone: bool,
}

impl Slot {
    /// The state after an opening that found it.
    pub(in crate::disk) fn found(state: State, doubt: bool) -> Slot {
        // Opening syncs the file.
        Slot { state, doubt, arrived: true, synced: true, ..Slot::default() }
    }

    /// The state after an opening that dropped the slot's record: the file has it until the
    /// table is written.
    pub(in crate::disk) fn dropped() -> Slot {
        Slot::default()
    }

    fn changes(&mut self) {
        self.version += 1;
        self.state = State::Unknown;
        (self.arrived, self.synced, self.forgetting) = (false, false, false);
    }

    /// Notes that a read found damage and had the record cleared, perhaps after a flush that was
    /// requested before.
    fn clears(&mut self) {
        self.cleared += 1;
        (self.arrived, self.synced) = (false, false);
    }

    /// Changes with everything that a later flush would cover.
    pub(in crate::disk) fn moment(&self) -> u64 {
        self.version + self.cleared
    }

    pub(in crate::disk) fn write(&mut self) -> Ticket {
        self.changes();
        // A read under way may still find damage, and have the record cleared.
        self.doubt = self.reads > 0;
        self.writes += 1;
        Ticket { version: self.version, alone: self.writes == 1 }
    }

    /// Takes the end of a write: succeeded, failed, or unknown.
    pub(in crate::disk) fn write_ended(&mut self, ticket: Ticket, block: BlockNumber, well: Option<bool>) {
        self.writes -= 1;
        if ticket.version == self.version && ticket.alone {
            self.state = match well {
                Some(true) => State::Holds(block),
                Some(false) => State::Empty,
                None => State::Unknown,
            };
        }
    }

    pub(in crate::disk) fn forget(&mut self) {
        self.changes();
        self.forgetting = self.writes == 0;
    }

    pub(in crate::disk) fn read(&mut self) -> Ticket {
        self.reads += 1;
        Ticket { version: self.version, alone: self.state != State::Unknown }
    }

    pub(in crate::disk) fn read_dropped(&mut self) {
        self.reads -= 1;
    }

    /// Checks whether a read may have ended so. `device_failed`: a fault happened there, and the
    /// engine was told.
    pub(in crate::disk) fn read_ended(
        &mut self,
        ticket: Ticket,
        asked: BlockNumber,
        outcome: Result<&[u8], &IoFailure>,
        device_failed: bool,
    ) -> Result<(), String> {
        self.reads -= 1;
        let same = ticket.version == self.version;
        let certain = same && ticket.alone;
        let wrong = |fault: &str| Err(format!("asked for {asked}, {fault}; the slot is {self:?}"));
        let rejection = match outcome {
            Ok(bytes) if !is_block(asked, bytes) => return wrong("OTHER BYTES WERE SERVED"),
            // In doubt, another read may have had the record cleared after this one, and be seen first.
            Ok(_) if certain && self.state != State::Holds(asked) && !self.doubt => {
                return wrong("it was served from elsewhere");
            }
            Ok(_) => return Ok(()),
            Err(failure) => match failure.cause {
                FailureCause::Rejected(rejection) => rejection,
                _ if device_failed => return Ok(()),
                ref cause => return wrong(&format!("{cause}, but nothing failed")),
            },
        };
        if !certain {
            // The slot's present block may be the refused one, and is gone then.
            self.clears();
            return Ok(());
        }
        let damaged = self.doubt && matches!(rejection, Rejection::Payload | Rejection::Empty);
        match self.state {
            State::Unknown => {}
            // In doubt, another read that is seen first may have found the block damaged.
            State::Empty if rejection == Rejection::Empty || self.doubt => {}
            State::Holds(held) if held != asked && rejection == Rejection::OtherHash => {}
            State::Holds(_) if damaged => {
                // Found by this read, or by an earlier one.
                self.state = State::Empty;
                self.clears();
                // The record is gone, and no other read will find it: the slot is certainly empty.
                self.doubt = self.reads > 0;
            }
            State::Empty | State::Holds(_) => return wrong(&format!("refused as `{rejection}`")),
        }
        Ok(())
    }

    /// Everything has been answered, and nothing is left to write.
    pub(in crate::disk) fn settled(&mut self) {
        if self.forgetting {
            self.state = State::Empty;
            self.forgetting = false;
        }
        self.arrived = true;
    }

    /// Whether a flush that is requested now is sure to cover the known state.
    pub(in crate::disk) fn flushable(&self) -> bool {
        self.writes == 0 && (self.state != State::Unknown || self.forgetting)
    }

    /// Takes the end of a flush that was requested at this moment.
    pub(in crate::disk) fn flushed(&mut self, moment: u64, synced: bool) {
        if moment == self.moment() && self.flushable() {
            self.settled();
            self.synced |= synced;
        }
    }
}
