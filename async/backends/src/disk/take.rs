//! Slots for writes: the volumes that they are of, and the victims that make room.
//!
//! ```text
//!   free ────────┬─► on a volume that takes writes ──► the caller's
//!   next victims ┘   on one that does not, for now ──► passed over (victims), aside (free) ──► free, later
//!                    on a lost volume ────────────────► parked
//! ```

use super::tier::{DiskTier, Taking};
use kvstrata_core::pool::Passed;
use kvstrata_core::{BlockId, BlockRef, MutableBlock};
use kvstrata_ffi::disk::ServiceState;
use std::mem;
use std::sync::PoisonError;

impl DiskTier {
    /// Takes up to `wanted` slots to write to: free ones, then victims', whose blocks lookups no longer
    /// find. Fewer if the other blocks are held, or volumes are lost. [Give back](DiskTier::give_back)
    /// each slot that you do not write.
    pub fn take(&self, wanted: usize) -> Vec<MutableBlock<'_>> {
        let mut slots = Vec::with_capacity(wanted);
        self.take_slots(wanted, &mut slots);
        // They are this call's, so none is refused.
        slots.into_iter().filter_map(|slot| self.pool.adopt_mutable(slot).ok()).collect()
    }

    /// The same, appended by number.
    pub(super) fn take_slots(&self, wanted: usize, slots: &mut Vec<BlockId>) {
        let (start, end) = (slots.len(), slots.len().saturating_add(wanted));
        let mut taking = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        let taking = &mut *taking;
        self.bring_back();
        while slots.len() < end && self.any_writable() {
            let from = slots.len();
            // Another thread may be quicker; victims then make up for it.
            let _ = self.pool.allocate_free_ids(self.pool.free().min(end - from), slots);
            let wanted = end - slots.len();
            match (0..self.lost.len()).any(|volume| self.is_hindered(volume)) {
                false => {
                    self.pool.evict_ids_behind(wanted, slots.len() - start, &mut taking.victims);
                }
                true => self.evict_writable(wanted, taking),
            }
            for (slot, hash) in taking.victims.drain(..) {
                self.admission.evicted(hash);
                self.set_stale(slot, true);
                slots.push(slot);
            }
            if slots.len() == from {
                break;
            }
            let mut at = from;
            while let Some(slot) = slots.get(at).copied() {
                let volume = self.volume_of(slot.0);
                if self.is_lost(slot.0) {
                    self.park(slots.remove(at));
                } else if self.is_hindered(volume) && !self.is_stale(slot) {
                    self.aside[volume].lock().unwrap_or_else(PoisonError::into_inner).push(slots.remove(at));
                } else {
                    at += 1;
                }
            }
        }
    }

    /// Evicts victims only of volumes that take writes: blocks of other volumes would be lost in vain.
    fn evict_writable(&self, wanted: usize, taking: &mut Taking) {
        let Taking { victims, found, passed, writable } = taking;
        let now: Vec<bool> = (0..self.lost.len()).map(|volume| !self.is_hindered(volume)).collect();
        if *writable != now {
            (*writable, *passed) = (now, Passed::default());
        }
        found.clear();
        let is_one = |block: BlockRef| writable[self.volume_of(block.id.0)];
        self.pool.next_victims_among(passed, wanted, is_one, found);
        for block in found.drain(..) {
            // Used meanwhile, so no longer a victim.
            let Ok(victim) = self.pool.evict_this(block) else { continue };
            victims.push((victim.id(), victim.hash()));
            victim.into_mutable().into_id();
        }
    }

    /// Frees the slots that were set aside, of volumes that can be written again.
    fn bring_back(&self) {
        for (volume, aside) in self.aside.iter().enumerate().filter(|(volume, _)| !self.is_hindered(*volume))
        {
            let slots = mem::take(&mut *aside.lock().unwrap_or_else(PoisonError::into_inner));
            for slot in slots {
                match self.is_lost_volume(volume) {
                    true => self.park(slot),
                    // Owned by its number, so this is never refused.
                    false => drop(self.pool.adopt_mutable(slot)),
                }
            }
        }
    }

    /// Returns the state of a volume.
    pub(super) fn state(&self, volume: usize) -> ServiceState {
        match self.is_lost_volume(volume) {
            true => ServiceState::Retired,
            false => self.volumes.volumes()[volume].state(),
        }
    }

    /// Whether the volume's device temporarily does not answer.
    pub(super) fn is_away(&self, volume: usize) -> bool {
        self.state(volume) == ServiceState::Away
    }

    /// Whether the volume takes no writes for now, but may later.
    pub(super) fn is_hindered(&self, volume: usize) -> bool {
        matches!(self.state(volume), ServiceState::WritesPaused | ServiceState::Away)
    }

    pub(super) fn any_writable(&self) -> bool {
        (0..self.lost.len()).any(|volume| !self.is_lost_volume(volume) && !self.is_hindered(volume))
    }
}
