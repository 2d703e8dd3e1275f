//! SIEVE (Zhang, Yang, Yue, Vigfusson and Rashmi, NSDI 2024): one list a class in order
//! of insertion, and a hand.
//!
//! The hand goes from the oldest to the youngest and round again. A block that was hit since the
//! hand's last visit is spared and loses its mark; one that was not hit goes. Blocks never change
//! their place, so a hit costs one byte.

use super::carried::Batch;
use super::eviction::{Event, Eviction, Shape};
use super::scan::Scan;
use super::turns::{ByTurns, Outset, Turn};
use crate::slot::{Priority, Slot};
use crate::sync::Relaxed;
use crate::timeline::Verdict;

pub(crate) struct Sieve;

impl Eviction for Sieve {
    fn shape(&self) -> Shape {
        Shape::new(Priority::EVICTABLE).keeping(u64::MAX).swept()
    }

    #[inline(always)]
    fn on(&self, _number: u32, slot: &Slot, event: Event<'_>) {
        if let Event::Used(..) = event {
            // Relaxed: an estimate.
            slot.heat.store(1, Relaxed);
        }
    }

    #[inline]
    fn place(&self, _: &mut Batch, _number: u32, _slot: &Slot, priority: Priority, _position: u64) -> u8 {
        priority as u8
    }

    fn evict<'p>(&self, wanted: usize, scan: &impl Scan<'p>) -> usize {
        let (mut taken, mut class) = (0, 0);
        while taken < wanted && class < Priority::EVICTABLE {
            taken += scan.timeline().sweep(scan.slots(), class, wanted - taken, |candidate, slot| {
                if slot.heat.load(Relaxed) != 0 {
                    slot.heat.store(0, Relaxed);
                    Verdict::Spared
                } else {
                    scan.claim(candidate)
                }
            });
            class = if scan.reordered() { 0 } else { class + 1 };
        }
        taken
    }
}

impl ByTurns for Sieve {
    fn turn(&self, nth: usize, _outset: &Outset) -> Option<Turn> {
        Turn::of_class(nth)
    }
}
