//! The scan cache: the heads that an evictor has found, from which the next search for few victims continues.
//!
//! ```text
//!   heads, youngest segments ─► choice ─► run: the list that victims are taken from,
//!                                         each compared with the rivals of its list
//! ```

use super::classes::CLASSES;
use super::orders::{Choice, Head, Heads, Rivals, Youngs};

/// Releases and victims for which one scan is good enough: as many as between two computations of an
/// index, and few of a small pool's blocks.
const STANDS: u32 = 64;

/// Heads as they were scanned, and advanced since.
pub(super) struct Sight {
    pub(super) heads: Heads,
    /// The choice that still stood when a search had taken all that it wanted: the next search continues
    /// with it (`evict.rs`, I6). The list of an `Oldest` has no head meanwhile.
    pub(super) run: Option<Choice>,
    /// The rivals that heads of a list were compared with last.
    pub(super) rivals: Option<Rivals>,
    /// Lists without a head that have more entries to scan: a bit each (`evict.rs`, I5).
    pub(super) unfinished: u32,
    /// Scanned once they may be chosen.
    pub(super) youngs: Option<Youngs>,
    /// When the heads were scanned; none: never. `victims`: victims since.
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

    /// Forgets a scan that is too old to be used.
    pub(super) fn age(&mut self, now: u32, capacity: u32) {
        let stands = STANDS.min(capacity / 32);
        let past = |since: u32| now.wrapping_sub(since).saturating_add(self.victims);
        if self.since.is_some_and(|since| past(since) > stands) {
            *self = Sight::none();
        }
    }
}
