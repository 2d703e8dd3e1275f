//! How much may be risked against LRU.
//!
//! ```text
//!   a try begins (bank) ─► deviates while ghosts < STAKE × bank ─► bank spent ─► rests in LRU's order until ghosts are settled ─► next
//! ```
//!
//! The bank is what may be lost, and more by what was won; each hit in it allows `STAKE` ghosts, blocks that LRU has and we have not. The
//! next try has half the first bank, or an eighth of the lead.
//!
//! I1. A try ends when its losses have reached its bank: what follows is what the ghosts that are left can cost.

use super::shadow::Shadow;

/// The first bank in capacities, and at least so many mean requests.
const BANK: f64 = 0.002;
const BANK_REQUESTS: f64 = 2.0;
/// What a release adds to it.
const TRICKLE: f64 = 0.0003;
/// Ghosts a banked hit.
const STAKE: f64 = 8.0;
/// In capacities: what may be lost since the best moment of a try.
const DRAWDOWN: f64 = 0.25;

#[derive(Default)]
pub(super) struct Guard {
    resting: bool,
    /// The deficit when the try began, and the least since.
    base: f64,
    low: f64,
    began: u64,
    lead: f64,
    tries: u32,
    rest_until: u64,
}

impl Guard {
    /// How many ghosts more are allowed. `now`: releases so far; `length`: mean blocks a request.
    pub(super) fn room(&mut self, shadow: &Shadow, now: u64, capacity: u32, length: f32) -> i32 {
        let (c, deficit, ghosts) = (f64::from(capacity), shadow.deficit() as f64, f64::from(shadow.ghosts()));
        if self.resting {
            if ghosts > c / 256.0 && now < self.rest_until {
                return 0;
            }
            self.resting = false;
            (self.base, self.low, self.began) = (deficit, deficit, now);
            let lead = (-deficit).max(0.0);
            self.lead = (lead / 8.0).min(c / 16.0);
        }
        self.low = self.low.min(deficit);
        let first = (BANK * c).max(BANK_REQUESTS * f64::from(length)).min(c / 16.0);
        let stake = self.lead.max(first / f64::from(1u32 << self.tries.min(30)));
        let bank = stake + TRICKLE * (now - self.began) as f64 + self.base - deficit;
        let bank = bank.min(DRAWDOWN * c - (deficit - self.low));
        if bank <= 0.0 {
            self.resting = true;
            self.tries += 1;
            self.rest_until = now + 4 * u64::from(capacity);
            return 0;
        }
        // As many as bring them to the limit: one more than there is room for in full.
        let room = STAKE * bank - ghosts;
        if room <= 0.0 { 0 } else { room.min(1e9) as i32 + i32::from(room > (room.min(1e9) as i32) as f64) }
    }
}
