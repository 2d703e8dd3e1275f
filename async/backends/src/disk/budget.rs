//! A write budget in bytes a day: the unit in which makers of flash state its endurance.
//!
//! It is a token bucket that holds ten minutes' worth, and at least one block. Its state is a time: the
//! moment at which the bucket is full again. The caller passes the clock, so that tests and replays can
//! use their own.
//!
//! ```text
//!   full_at:  each write adds bytes ÷ rate; a write that would set it more than `burst` past now is refused
//!
//!   ───────────┼──────────────┼───────────────────┼────────► time
//!             now          full_at          now + burst
//! ```
//!
//! # Orderings
//! Relaxed: one word, changed by compare-and-swap, that publishes nothing.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The bucket's size.
const BURST: Duration = Duration::from_secs(10 * 60);

/// A budget of bytes a day. `Send + Sync`, without a lock.
#[derive(Debug)]
pub struct Budget {
    bytes_a_day: u64,
    /// In nanoseconds of the caller's clock.
    full_at: AtomicU64,
    burst: u64,
}

impl Budget {
    /// Returns a full budget of `bytes_a_day` for writes of `block_bytes` each.
    #[must_use]
    pub fn new(bytes_a_day: u64, block_bytes: u64) -> Budget {
        let burst = nanoseconds(BURST).max(worth(block_bytes, bytes_a_day));
        Budget { bytes_a_day, full_at: AtomicU64::new(0), burst }
    }

    /// Takes `bytes` out of the budget, or nothing if it has fewer. `now` is the time since a fixed
    /// moment.
    #[must_use]
    pub fn take(&self, bytes: u64, now: Duration) -> bool {
        let (now, worth) = (nanoseconds(now), worth(bytes, self.bytes_a_day));
        let taken = self.full_at.fetch_update(Relaxed, Relaxed, |full_at| {
            let full_at = full_at.max(now).saturating_add(worth);
            (full_at - now <= self.burst).then_some(full_at)
        });
        taken.is_ok()
    }
}

/// Nanoseconds in which the budget grows by `bytes`, rounded up so that writes never exceed the budget.
fn worth(bytes: u64, bytes_a_day: u64) -> u64 {
    let worth = (u128::from(bytes) * DAY.as_nanos()).div_ceil(u128::from(bytes_a_day.max(1)));
    u64::try_from(worth).unwrap_or(u64::MAX)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 64 << 10;
    const HOUR: Duration = Duration::from_secs(3600);

    /// Blocks written of `offers` a second, over a span of time.
    fn written(budget: &Budget, offers: u32, from: Duration, to: Duration) -> u64 {
        let seconds = from.as_secs()..to.as_secs();
        let offers = seconds.flat_map(|second| (0..offers).map(move |_| Duration::from_secs(second)));
        offers.filter(|now| budget.take(BLOCK, *now)).count() as u64
    }

    #[test]
    fn day_writes_a_days_budget_and_the_burst() {
        let blocks_a_day = 100_000;
        let budget = Budget::new(blocks_a_day * BLOCK, BLOCK);
        let burst = blocks_a_day / 144;
        let first = written(&budget, 5, Duration::ZERO, DAY);
        assert!((blocks_a_day..=blocks_a_day + burst).contains(&first), "{first}");
        let second = written(&budget, 5, DAY, 2 * DAY);
        assert!((blocks_a_day - 1..=blocks_a_day + 1).contains(&second), "{second}");
    }

    #[test]
    fn bucket_holds_ten_minutes_of_budget() {
        let budget = Budget::new(144_000 * BLOCK, BLOCK);
        let at_once = |now| (0..5000).filter(|_| budget.take(BLOCK, now)).count();
        assert_eq!(at_once(Duration::ZERO), 1000);
        assert_eq!(at_once(HOUR), 1000, "no more after an idle hour");
        assert_eq!(at_once(HOUR + BURST / 2), 500);
        assert_eq!(at_once(HOUR), 0, "a clock that goes back gives nothing");
    }

    #[test]
    fn smallest_budget_writes_a_block_now_and_then() {
        let budget = Budget::new(BLOCK, BLOCK);
        assert_eq!(written(&budget, 1, Duration::ZERO, 3 * DAY), 3);
        assert!(!Budget::new(0, BLOCK).take(BLOCK + 1, Duration::ZERO));
        assert!(Budget::new(u64::MAX, BLOCK).take(u64::MAX / 144, Duration::ZERO));
    }

    #[test]
    fn threads_share_one_bucket() {
        let budget = Budget::new(144_000 * BLOCK, BLOCK);
        let taken = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..2000).filter(|_| budget.take(BLOCK, HOUR)).count()))
                .collect();
            workers.into_iter().map(|worker| worker.join().expect("no panic")).sum::<usize>()
        });
        assert_eq!(taken, 1000);
    }
}
