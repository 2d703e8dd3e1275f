//! What an evictor has seen of the lists, which the next of few goes on with.
//!
//! ```text
//!   heads, youngest segments ─► choice ─► run: the list that victims are taken from, each compared with the rivals of its list
//! ```

use super::classes::CLASSES;
use super::orders::{Choice, Head, Heads, Rivals, Youngs};

/// Releases and victims for which one look is good enough: as many as an index is, before it is computed anew; and few of a small pool's blocks.
const STANDS: u32 = 64;

/// The heads as they were looked at, and went on since.
pub(super) struct Sight {
    pub(super) heads: Heads,
    /// What as many were taken of as were wanted: the next search goes on with it (`evict.rs`, I6). The list of an `Oldest` has no head meanwhile.
    pub(super) run: Option<Choice>,
    /// What heads of a list were compared with last.
    pub(super) rivals: Option<Rivals>,
    /// Lists without a head, that have more to be looked at: a bit each (`evict.rs`, I5).
    pub(super) unfinished: u32,
    /// Looked at when they may be chosen.
    pub(super) youngs: Option<Youngs>,
    /// When; none: never. And victims since.
    pub(super) since: Option<u32>,
    pub(super) victims: u32,
}

impl Sight {
    pub(super) fn none() -> Sight {
        Sight {
            heads: [Head::NONE; CLASSES],
            run: None,
            rivals: None,
            unfinished: 0,
            youngs: None,
            since: None,
            victims: 0,
        }
    }

    /// What is not to be used any more is forgotten.
    pub(super) fn age(&mut self, now: u32, capacity: u32) {
        let stands = STANDS.min(capacity / 32);
        let past = |since: u32| now.wrapping_sub(since).saturating_add(self.victims);
        if self.since.is_some_and(|since| past(since) > stands) {
            *self = Sight::none();
        }
    }
}
