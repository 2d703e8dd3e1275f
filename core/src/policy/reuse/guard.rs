//! The guard: how many hits may be risked against LRU.
//!
//! ```text
//!   a try begins (stake) ─► deviates while ghosts < 8 × stake + 5 × lead ─► bank spent
//!                           ─► rests in LRU's order until ghosts are settled ─► next try
//! ```
//!
//! The bank is the number of hits that may be lost since the best moment of the try. It is the stake (the
//! regret budget of the try), which is small where few blocks were released so far, and a quarter of the hits
//! won until that moment, so that most of them are kept. Ghosts are blocks that LRU has and we have not. A
//! number of them is allowed for each hit of the stake that is left, and of the lead, as if all except one of
//! that number were never used again. The next try has half the first stake, or an eighth of the lead.
//!
//! I1. A try ends when its losses have reached its bank. After that only the remaining ghosts can cost
//!     hits, which are no more than LRU holds. The stake grows with the releases of a try, by 3 of 10,000.
//! I2. The lead fades as evidence does, and is never more than the hits won in all: another
//!     load finds little of it to spend.
//! I3. Once a try has failed, a bank that allows less than a ghost allows none.

use super::ages::half_life;
use super::shadow::Shadow;

/// The first bank, in capacities, and the least one, in mean requests.
const BANK: f64 = 0.002;
const BANK_REQUESTS: f64 = 2.0;
/// The first bank is at most one hit and this part of the releases so far: where few blocks were
/// requested, a mean request or two are many hits.
const EARLY: f64 = 0.001;
/// Growth of the stake per release.
const TRICKLE: f64 = 0.0003;
/// The part of a try's gains that it may lose again. Where single requests decide, tries that win first
/// and lose in the end are common.
const OF_WON: f64 = 0.25;
/// Ghosts per hit of the stake, and of the lead.
const GHOSTS_OF_STAKE: f64 = 8.0;
const GHOSTS_OF_LEAD: f64 = 5.0;
/// In capacities: the most that may be lost since the best moment of a try.
const DRAWDOWN: f64 = 0.25;

#[derive(Default)]
pub(super) struct Guard {
    resting: bool,
    /// The deficit when the try began, and its minimum since.
    base: f64,
    low: f64,
    began: u64,
    /// The part of the lead that the try may spend.
    share: f64,
    tries: u32,
    rest_until: u64,
    /// When the guard was asked last, and the deficit then; hits won until then that have not faded,
    /// less hits lost.
    asked: u64,
    deficit: f64,
    won: f64,
}

impl Guard {
    /// Our hits less LRU's, as of the last call of `room` (I2).
    pub(super) fn lead(&self) -> f64 {
        self.won.min(-self.deficit).max(0.0)
    }

    /// Number of tries that have ended.
    pub(super) fn tries(&self) -> u32 {
        self.tries
    }

    fn fade(&mut self, deficit: f64, now: u64, capacity: u32) {
        let passed = (now - self.asked) as f64 / f64::from(half_life(capacity));
        self.won = self.won * (1.0 - core::f64::consts::LN_2 * passed).max(0.0) + self.deficit - deficit;
        (self.asked, self.deficit) = (now, deficit);
    }

    /// Returns the number of ghosts that are still allowed. `now`: releases so far; `length`: mean
    /// blocks per request.
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
        let early = 1.0 + EARLY * now as f64;
        let first = (BANK * c).max(BANK_REQUESTS * f64::from(length)).min(c / 16.0).min(early);
        let stake = self.share.max(first / f64::from(1u32 << self.tries.min(30)));
        let stake = stake + TRICKLE * (now - self.began) as f64;
        let bank = (stake + OF_WON * (self.base - self.low)).min(DRAWDOWN * c) - (deficit - self.low);
        if bank <= 0.0 {
            self.resting = true;
            self.tries += 1;
            self.rest_until = now + 4 * u64::from(capacity);
            return 0;
        }
        // As many as reach the limit. In the first try a fraction of a ghost counts as a whole one (I3).
        let allowed = GHOSTS_OF_STAKE * bank.min(stake) + GHOSTS_OF_LEAD * self.lead();
        let room = (allowed - ghosts).clamp(0.0, 1e9);
        room as i32 + i32::from(self.tries == 0 && room > f64::from(room as i32))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::journal::Key;
    use super::*;
    use alloc::vec::Vec;

    /// By then the stake of a pool of 1,000 is two hits.
    const NOW: u64 = 1000;

    /// A guard whose first try begins at `NOW`.
    fn later() -> Guard {
        Guard { began: NOW, asked: NOW, ..Guard::default() }
    }

    /// Returns the number of ghosts allowed now; `lost` hits later the try has ended and allows none.
    fn lose(guard: &mut Guard, shadow: &mut Shadow, now: u64, lost: u32) -> i32 {
        let room = guard.room(shadow, now, 1000, 1.0);
        shadow.lost_hits(lost);
        assert_eq!(guard.room(shadow, now, 1000, 1.0), 0, "the bank is spent");
        room
    }

    /// I1: 2 hits at first, and 8 ghosts for each; existing ghosts count.
    #[test]
    fn guard_bank_allows_eight_ghosts_for_each_hit() {
        let (mut guard, mut shadow) = (later(), Shadow::new(1000, 0));
        assert_eq!(guard.room(&shadow, NOW, 1000, 1.0), 16);
        shadow.released(0, 100);
        (0..10).for_each(|number| shadow.evicted(Key::some(number), number as u32));
        assert_eq!(guard.room(&shadow, NOW, 1000, 1.0), 6);
        shadow.lost_hits(1);
        assert_eq!(guard.room(&shadow, NOW, 1000, 1.0), 0, "of one hit, with 10 there");
        shadow.won(2);
        assert_eq!(guard.room(&shadow, NOW, 1000, 1.0), 11, "of the stake of two, and a lead of one");
    }

    /// Where few blocks were requested, little may be lost: at first one hit, whatever the
    /// length of a mean request.
    #[test]
    fn guard_first_stake_grows_with_the_blocks_released() {
        let stakes = [0, 2000, 5000, 10_000_000].map(|now| {
            let shadow = Shadow::new(3000, 0);
            Guard { began: now, asked: now, ..Guard::default() }.room(&shadow, now, 3000, 28.0) / 8
        });
        assert_eq!(stakes, [1, 3, 6, 56]);
    }

    /// A try may lose a quarter of its gains, and its stake of two. Hits that ghosts cost
    /// after its end do not count.
    #[test]
    fn guard_try_risks_a_quarter_of_the_gains() {
        let (mut guard, mut shadow) = (later(), Shadow::new(1000, 0));
        shadow.won(100);
        assert_eq!(guard.room(&shadow, NOW, 1000, 1.0), 516, "of a stake of two, and a lead of a hundred");
        shadow.lost_hits(25);
        assert_eq!(guard.room(&shadow, NOW, 1000, 1.0), 391, "of the stake, and 75");
        shadow.lost_hits(1);
        assert_eq!(guard.room(&shadow, NOW, 1000, 1.0), 378, "of one, and 74");
        shadow.lost_hits(1);
        assert_eq!(guard.room(&shadow, NOW, 1000, 1.0), 0);
        assert_eq!(guard.lead(), 73.0);
    }

    /// I3: halved try after try, the bank in the end allows none.
    #[test]
    fn guard_bank_below_one_ghost_allows_none() {
        let (mut guard, mut shadow) = (later(), Shadow::new(1000, 0));
        let rooms: Vec<i32> = (0..5).map(|_| lose(&mut guard, &mut shadow, NOW, 2)).collect();
        assert_eq!(rooms, [16, 8, 4, 2, 1]);
        assert_eq!(guard.room(&shadow, NOW, 1000, 1.0), 0);
    }

    /// I2: hits won long ago are no bank of a new try, except the little that has not faded.
    #[test]
    fn guard_lead_fades_with_time() {
        let half_life = 262_144;
        let rooms = [1, 10 * half_life].map(|now| {
            let (mut guard, mut shadow) = (Guard::default(), Shadow::new(1000, 0));
            shadow.won(400);
            guard.room(&shadow, 0, 1000, 1.0);
            assert_eq!(guard.lead(), 400.0);
            // The guard is asked often, as in use.
            (0..=1000).for_each(|nth| _ = guard.room(&shadow, now * nth / 1000, 1000, 1.0));
            // No try loses more than this.
            lose(&mut guard, &mut shadow, now, 250);
            (guard.room(&shadow, now, 1000, 1.0), guard.lead() as i32)
        });
        assert_eq!(
            rooms,
            [(899, 149), (8, 0)],
            "8 ghosts for each of an eighth of 150, and 5 of the lead; and of the half of 2"
        );
    }

    /// A lead is no more than the hits won in all, though the first losses have faded.
    #[test]
    fn guard_lead_never_exceeds_the_net_hits() {
        let (mut guard, mut shadow) = (Guard::default(), Shadow::new(1000, 0));
        shadow.lost_hits(300);
        guard.room(&shadow, 0, 1000, 1.0);
        (0..=1000).for_each(|nth| _ = guard.room(&shadow, 5000 * nth, 1000, 1.0));
        shadow.won(310);
        guard.room(&shadow, 5_000_000, 1000, 1.0);
        assert_eq!(guard.lead(), 10.0);
    }
}
