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
//! I2. The lead fades as evidence does, and is no more than was ever won: another load finds little of it to be spent.
//! I3. Once a try has failed, a bank that allows less than a ghost allows none.

use super::ages::half_life;
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
    /// What the try may spend of the lead.
    share: f64,
    tries: u32,
    rest_until: u64,
    /// When it was asked last, and the deficit then; what was won until then and has not faded, less what was lost.
    asked: u64,
    deficit: f64,
    won: f64,
}

impl Guard {
    /// Hits that we have had more than LRU, as of the last time that it was asked (I2).
    pub(super) fn lead(&self) -> f64 {
        self.won.min(-self.deficit).max(0.0)
    }

    fn fade(&mut self, deficit: f64, now: u64, capacity: u32) {
        let passed = (now - self.asked) as f64 / f64::from(half_life(capacity));
        self.won = self.won * (1.0 - core::f64::consts::LN_2 * passed).max(0.0) + self.deficit - deficit;
        (self.asked, self.deficit) = (now, deficit);
    }

    /// How many ghosts more are allowed. `now`: releases so far; `length`: mean blocks a request.
    pub(super) fn room(&mut self, shadow: &Shadow, now: u64, capacity: u32, length: f32) -> i32 {
        let (c, deficit, ghosts) = (f64::from(capacity), shadow.deficit() as f64, f64::from(shadow.ghosts()));
        self.fade(deficit, now, capacity);
        if self.resting {
            if ghosts > c / 256.0 && now < self.rest_until {
                return 0;
            }
            self.resting = false;
            (self.base, self.low, self.began) = (deficit, deficit, now);
            self.share = (self.lead() / 8.0).min(c / 16.0);
        }
        self.low = self.low.min(deficit);
        let first = (BANK * c).max(BANK_REQUESTS * f64::from(length)).min(c / 16.0);
        let stake = self.share.max(first / f64::from(1u32 << self.tries.min(30)));
        let bank = stake + TRICKLE * (now - self.began) as f64 + self.base - deficit;
        let bank = bank.min(DRAWDOWN * c - (deficit - self.low));
        if bank <= 0.0 {
            self.resting = true;
            self.tries += 1;
            self.rest_until = now + 4 * u64::from(capacity);
            return 0;
        }
        // As many as bring them to the limit; in the first try one more than there is room for in full (I3).
        let room = (STAKE * bank - ghosts).clamp(0.0, 1e9);
        room as i32 + i32::from(self.tries == 0 && room > f64::from(room as i32))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::journal::Key;
    use super::*;
    use alloc::vec::Vec;

    /// So many ghosts are allowed now; `lost` hits later the try has ended, and the ghosts of it are none.
    fn lose(guard: &mut Guard, shadow: &mut Shadow, now: u64, lost: u32) -> i32 {
        let room = guard.room(shadow, now, 1000, 1.0);
        shadow.lost(lost);
        assert_eq!(guard.room(shadow, now, 1000, 1.0), 0, "the bank is spent");
        room
    }

    /// I1: 2 hits at first, and 8 ghosts for each; ghosts that there are count.
    #[test]
    fn a_bank_allows_ghosts() {
        let (mut guard, mut shadow) = (Guard::default(), Shadow::new(1000, 0));
        assert_eq!(guard.room(&shadow, 0, 1000, 1.0), 16);
        shadow.released(0, 100);
        (0..10).for_each(|number| shadow.evicted(Key::some(number), number as u32));
        assert_eq!(guard.room(&shadow, 0, 1000, 1.0), 6);
        shadow.lost(1);
        assert_eq!(guard.room(&shadow, 0, 1000, 1.0), 0, "of one hit, with 10 there");
        shadow.won(2);
        assert_eq!(guard.room(&shadow, 0, 1000, 1.0), 14, "three hits");
    }

    /// I3: halved try after try, a bank comes to allow none.
    #[test]
    fn a_bank_of_less_than_a_ghost_allows_none() {
        let (mut guard, mut shadow) = (Guard::default(), Shadow::new(1000, 0));
        let rooms: Vec<i32> = (0..5).map(|_| lose(&mut guard, &mut shadow, 0, 2)).collect();
        assert_eq!(rooms, [16, 8, 4, 2, 1]);
        assert_eq!(guard.room(&shadow, 0, 1000, 1.0), 0);
    }

    /// I2: what was won long ago is no bank of a new try, but for the little that has not faded.
    #[test]
    fn the_lead_fades() {
        let half_life = 262_144;
        let rooms = [1, 10 * half_life].map(|now| {
            let (mut guard, mut shadow) = (Guard::default(), Shadow::new(1000, 0));
            shadow.won(400);
            guard.room(&shadow, 0, 1000, 1.0);
            assert_eq!(guard.lead(), 400.0);
            // Asked often, as it is.
            (0..=1000).for_each(|nth| _ = guard.room(&shadow, now * nth / 1000, 1000, 1.0));
            // No try loses more than this.
            lose(&mut guard, &mut shadow, now, 250);
            (guard.room(&shadow, now, 1000, 1.0), guard.lead() as i32)
        });
        assert_eq!(
            rooms,
            [(149, 149), (8, 0)],
            "8 ghosts for each of an eighth of 150, and of the half of 2"
        );
    }

    /// A lead is no more than what was won in all, though what was lost at first has faded.
    #[test]
    fn a_loss_is_not_forgotten() {
        let (mut guard, mut shadow) = (Guard::default(), Shadow::new(1000, 0));
        shadow.lost(300);
        guard.room(&shadow, 0, 1000, 1.0);
        (0..=1000).for_each(|nth| _ = guard.room(&shadow, 5000 * nth, 1000, 1.0));
        shadow.won(310);
        guard.room(&shadow, 5_000_000, 1000, 1.0);
        assert_eq!(guard.lead(), 10.0);
    }
}
