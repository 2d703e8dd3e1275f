//! Admission: a request starts when the device has room for all its blocks, so that nobody waits while holding blocks.
//!
//! Workers share one device tier. If each took blocks as it went, two half-served requests could fill it and wait for
//! each other for ever. Instead a request reserves as many blocks as it can come to hold, before it takes the first.
//!
//! Invariants
//! - I1: reservations never add up to more than the tier has.
//! - I2: a request holds no more blocks than it reserved, shared ones counted for each holder. With I1: whatever a
//!   request may still ask for is free, or evictable, or about to be given back by a step that waits for nothing.
//! - I3: who waits here holds no reservation and no block. Requests are admitted in the order in which they came, since
//!   the next one is taken from the trace only after this one has been admitted.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A count of device blocks that are not spoken for.
#[derive(Debug)]
pub(super) struct Gate {
    room: Mutex<usize>,
    given_back: Condvar,
}

/// Room for some blocks; dropping it gives the room back.
#[derive(Debug)]
pub(super) struct Reservation<'g> {
    gate: &'g Gate,
    blocks: usize,
}

impl Gate {
    pub(super) fn new(blocks: usize) -> Gate {
        Gate { room: Mutex::new(blocks), given_back: Condvar::new() }
    }

    /// Waits for room for `blocks`. `None` after `patience`: by I2 that takes a transfer that does not end.
    pub(super) fn enter(&self, blocks: usize, patience: Duration) -> Option<Reservation<'_>> {
        let deadline = Instant::now() + patience;
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        while *room < blocks {
            let left = deadline.checked_duration_since(Instant::now())?;
            room = self.given_back.wait_timeout(room, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        *room -= blocks;
        Some(Reservation { gate: self, blocks })
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        *self.gate.room.lock().unwrap_or_else(PoisonError::into_inner) += self.blocks;
        self.gate.given_back.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn room_is_counted_and_given_back() {
        let gate = Gate::new(10);
        let first = gate.enter(7, LONG).expect("room");
        let second = gate.enter(3, LONG).expect("just enough");
        assert!(gate.enter(1, Duration::ZERO).is_none());
        drop(first);
        assert!(gate.enter(8, Duration::ZERO).is_none());
        let third = gate.enter(7, Duration::ZERO).expect("room again");
        drop((second, third));
        assert!(gate.enter(10, Duration::ZERO).is_some());
    }

    #[test]
    fn many_waiters_all_get_through() {
        let gate = Gate::new(5);
        let served = Mutex::new(0usize);
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let (gate, served) = (&gate, &served);
                scope.spawn(move || {
                    for round in 0..200 {
                        let _room = gate.enter(1 + (worker + round) % 5, LONG).expect("no deadlock");
                        *served.lock().expect("no panic") += 1;
                    }
                });
            }
        });
        assert_eq!((*served.lock().expect("no panic"), *gate.room.lock().expect("no panic")), (800, 5));
    }
}
