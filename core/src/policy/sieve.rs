//! SIEVE (Zhang, Yang, Yue, Vigfusson and Rashmi, NSDI 2024): one list a class in order of insertion, and a hand.
//!
//! The hand goes from the oldest to the youngest and round again; a block that was hit since the hand's last visit is spared and
//! loses its mark, one that was not goes. Blocks never change their place, so a hit costs one byte.

use super::{Eviction, Scan};
use crate::slot::{Priority, Slot};
use crate::sync::Relaxed;
use crate::timeline::Verdict;

pub(crate) struct Sieve;

impl Eviction for Sieve {
    fn lists(&self) -> usize {
        Priority::EVICTABLE
    }

    fn keeps_place(&self, _list: u8) -> bool {
        true
    }

    #[inline]
    fn on_hit(&self, slot: &Slot) {
        // Relaxed: an estimate.
        slot.heat.store(1, Relaxed);
    }

    #[inline]
    fn place(&self, _slot: &Slot, priority: Priority) -> u8 {
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
