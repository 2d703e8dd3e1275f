//! The answer for one key, as a number.

use kvstrata::store::{Miss, Outcome};
use kvstrata::{Cause, Tier};
use std::ffi::{CStr, c_char};

/// The answer for one key. Numbers never change, and new ones may be added: 1 to 63 mean that the key was
/// stored, loaded or forgotten as asked; from 64 on, it was not. A load that was not done is a miss: compute
/// the block. The memory of a miss may have been overwritten, except by KVS_ABSENT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum kvs_outcome {
    /// Not answered yet. The library never writes it.
    KVS_UNANSWERED = 0,
    /// The bytes are in host memory.
    KVS_STORED_HOST = 1,
    /// The bytes are on the disk.
    KVS_STORED_DISK = 2,
    /// The key was there already, with as many bytes. Nothing was written.
    KVS_PRESENT = 3,
    /// The memory has the bytes. They came from host memory.
    KVS_LOADED_HOST = 4,
    /// The memory has the bytes. They came from the disk.
    KVS_LOADED_DISK = 5,
    /// No lookup finds the key any more.
    KVS_FORGOTTEN = 6,
    /// The key is not there. A load has left the memory as it was.
    KVS_ABSENT = 64,
    /// The key has another number of bytes.
    KVS_MISS_LENGTH = 65,
    /// The entry is longer than the largest of store.sizes.
    KVS_MISS_TOO_LONG = 66,
    /// No block is free, and none can be evicted just now.
    KVS_MISS_FULL = 67,
    /// The disk takes no more just now, or its filter or write budget refused the block.
    KVS_MISS_REFUSED = 68,
    /// Too many transfers wait already (transfer.queue).
    KVS_MISS_BUSY = 69,
    /// The disk takes too long, so it is spared for a while (transfer.slow_above).
    KVS_MISS_SLOW = 70,
    /// The deadline passed first.
    KVS_MISS_LATE = 71,
    /// The store is closed.
    KVS_MISS_CLOSED = 72,
    /// The transfer failed, for another reason than those below.
    KVS_MISS_FAILED = 96,
    /// The bytes are not those that were stored: their checksum differs.
    KVS_MISS_MISMATCH = 97,
    /// The disk failed, or the part of it that has the block.
    KVS_MISS_DISK = 98,
    /// The volume is out of service for good.
    KVS_MISS_LOST = 99,
    /// The volume does not answer just now, or takes no writes. Its blocks stay.
    KVS_MISS_AWAY = 100,
}

use kvs_outcome::*;

/// The first number that means "not done".
const NOT_DONE: u8 = KVS_ABSENT as u8;

impl kvs_outcome {
    pub(crate) fn of(outcome: Outcome) -> kvs_outcome {
        match outcome {
            Outcome::Stored(Tier::Below(_)) => KVS_STORED_DISK,
            Outcome::Stored(_) => KVS_STORED_HOST,
            Outcome::Present => KVS_PRESENT,
            Outcome::Loaded(Tier::Below(_)) => KVS_LOADED_DISK,
            Outcome::Loaded(_) => KVS_LOADED_HOST,
            Outcome::Forgotten => KVS_FORGOTTEN,
            Outcome::Absent => KVS_ABSENT,
            Outcome::Missed(miss) => kvs_outcome::of_miss(miss),
        }
    }

    fn of_miss(miss: Miss) -> kvs_outcome {
        match miss {
            Miss::Length => KVS_MISS_LENGTH,
            Miss::TooLong => KVS_MISS_TOO_LONG,
            Miss::Full => KVS_MISS_FULL,
            Miss::Refused => KVS_MISS_REFUSED,
            Miss::Busy => KVS_MISS_BUSY,
            Miss::Slow | Miss::Failed(Cause::Slow) => KVS_MISS_SLOW,
            Miss::Late | Miss::Failed(Cause::Deadline) => KVS_MISS_LATE,
            Miss::Closed => KVS_MISS_CLOSED,
            Miss::Failed(Cause::Mismatch) => KVS_MISS_MISMATCH,
            Miss::Failed(Cause::Tier | Cause::Device) => KVS_MISS_DISK,
            Miss::Failed(Cause::Lost) => KVS_MISS_LOST,
            Miss::Failed(Cause::Away) => KVS_MISS_AWAY,
            _ => KVS_MISS_FAILED,
        }
    }
}

/// Returns whether an outcome means that the key was stored, loaded or forgotten as asked.
#[unsafe(no_mangle)]
pub extern "C" fn kvs_outcome_is_done(outcome: u8) -> bool {
    (1..NOT_DONE).contains(&outcome)
}

/// Returns the name of an outcome, for example "KVS_MISS_LATE"; "unknown" for other numbers. It is never
/// freed.
#[unsafe(no_mangle)]
pub extern "C" fn kvs_outcome_name(outcome: u8) -> *const c_char {
    name(outcome).as_ptr()
}

fn name(outcome: u8) -> &'static CStr {
    const NAMES: [(kvs_outcome, &CStr); 21] = [
        (KVS_UNANSWERED, c"KVS_UNANSWERED"),
        (KVS_STORED_HOST, c"KVS_STORED_HOST"),
        (KVS_STORED_DISK, c"KVS_STORED_DISK"),
        (KVS_PRESENT, c"KVS_PRESENT"),
        (KVS_LOADED_HOST, c"KVS_LOADED_HOST"),
        (KVS_LOADED_DISK, c"KVS_LOADED_DISK"),
        (KVS_FORGOTTEN, c"KVS_FORGOTTEN"),
        (KVS_ABSENT, c"KVS_ABSENT"),
        (KVS_MISS_LENGTH, c"KVS_MISS_LENGTH"),
        (KVS_MISS_TOO_LONG, c"KVS_MISS_TOO_LONG"),
        (KVS_MISS_FULL, c"KVS_MISS_FULL"),
        (KVS_MISS_REFUSED, c"KVS_MISS_REFUSED"),
        (KVS_MISS_BUSY, c"KVS_MISS_BUSY"),
        (KVS_MISS_SLOW, c"KVS_MISS_SLOW"),
        (KVS_MISS_LATE, c"KVS_MISS_LATE"),
        (KVS_MISS_CLOSED, c"KVS_MISS_CLOSED"),
        (KVS_MISS_FAILED, c"KVS_MISS_FAILED"),
        (KVS_MISS_MISMATCH, c"KVS_MISS_MISMATCH"),
        (KVS_MISS_DISK, c"KVS_MISS_DISK"),
        (KVS_MISS_LOST, c"KVS_MISS_LOST"),
        (KVS_MISS_AWAY, c"KVS_MISS_AWAY"),
    ];
    NAMES.iter().find(|(of, _)| *of as u8 == outcome).map_or(c"unknown", |(_, name)| name)
}
