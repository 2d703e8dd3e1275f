//! Erasing slots: what they held is found by nobody any more, not after a restart either; overwritten before,
//! if asked for.
//!
//! Overwriting is a write like any other, of zeros, under a name that no sequence has: so it takes its turn,
//! is encrypted where the volume is, and has been answered by the device before the record is forgotten. A
//! process that is killed between the two leaves a record of zeros.
//!
//! What a volume forgets is forgotten for good when it has written its table: one that is out of service, or
//! cannot write, goes on having what it had. Nobody finds that while this tier is open; the next opening may,
//! and so the slots are told.
//!
//! Invariants
//! - I1: a slot here is the caller's, so no block of anybody's is registered in it.
//! - I2: each volume does its part for itself, so that one that hangs keeps no other from it.
//! - I3: of a volume one is under way at a time, and whoever asks meanwhile is served by the next, all of
//!   them at once: one thread, and one table that is written, however many ask. What is asked for and not
//!   begun has one errand.

use super::errand::Errands;
use super::tier::DiskTier;
use kvstrata_core::hash::BlockHasher;
use kvstrata_core::{BlockId, BlockRef, MutableBlock, SequenceHash, Xxh3};
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::disk::{FailureCause, Name, OwnerId};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Writes of zeros under way at most.
const AT_ONCE: usize = 32;

/// What is to be erased of a volume.
#[derive(Debug, Default)]
pub(super) struct Erasures {
    /// Not begun (I3).
    asked: Mutex<Vec<Erasure>>,
    pub(super) errands: Errands,
}

/// Slots of one who asks; it may be none, for the sake of what was given back before.
#[derive(Debug)]
struct Erasure {
    slots: Vec<BlockId>,
    zero: bool,
    tell: oneshot::Sender<Erased>,
}

/// What has become of it.
#[derive(Debug)]
pub(super) struct Erased {
    /// The slots of which it is not so that nobody finds what they held: they could not be overwritten, or the volume has not written down that they
    /// are forgotten.
    pub(super) kept: Vec<BlockId>,
    /// Whether what was given back before is found by no restart.
    pub(super) forgotten: bool,
}

impl Erasures {
    /// Those whose turn has not come.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Erasure>> {
        // Nothing that panics runs under it.
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DiskTier {
    /// Takes the slot of a particular block that nobody holds. None: it is held, gone, or its volume lost.
    pub fn take_this(&self, block: BlockRef) -> Option<MutableBlock<'_>> {
        // Its slot could not be written.
        if self.is_hindered(self.volume_of(block.id.0)) {
            return None;
        }
        let slot = self.pool.take_out(block).ok()?.into_mutable();
        match self.is_lost(slot.id().0) {
            false => {
                self.set_stale(slot.id(), true);
                Some(slot)
            }
            true => {
                self.park(slot.into_id());
                None
            }
        }
    }

    /// Takes the free slots whose bytes an erasure without zeros has left; and whether those are all of
    /// them, which they are not where a volume takes no writes. They are the caller's.
    pub(super) fn take_left(&self) -> (Vec<BlockId>, bool) {
        if self.left.iter().all(|left| !left.load(Relaxed)) {
            return (Vec::new(), true);
        }
        let mut free = Vec::new();
        // For the moment nobody else has one: who wants a slot now gets a victim's.
        let _ = self.pool.allocate_free_ids(self.pool.free(), &mut free);
        let is_left = |slot: &BlockId| self.left.get(slot.index()).is_some_and(|left| left.load(Relaxed));
        let (taken, others): (Vec<_>, Vec<_>) =
            free.into_iter().partition(|slot| is_left(slot) && !self.is_hindered(self.volume_of(slot.0)));
        others.into_iter().for_each(|slot| drop(self.pool.adopt_mutable(slot)));
        // What somebody else has just taken is overwritten by that, or left for the next time.
        let (slots, left) = (0.., self.left.iter());
        let mut left = slots.zip(left).filter(|(_, left)| left.load(Relaxed));
        let all = !left.any(|(slot, _)| self.is_hindered(self.volume_of(slot)));
        (taken, all)
    }

    /// Whether the bytes of a slot are what an erasure has left there.
    pub(super) fn set_left(&self, slot: BlockId, is_left: bool) {
        if let Some(left) = self.left.get(slot.index()) {
            left.store(is_left, Relaxed);
        }
    }

    /// Erases slots of a volume, which the caller has taken, and forgets what those held that were given back before. Told when that is on the device
    /// for good, or is known never to be; nothing is told where nobody could be found to do it.
    pub(super) fn erase(
        self: &Arc<DiskTier>,
        volume: usize,
        slots: Vec<BlockId>,
        zero: bool,
    ) -> oneshot::Receiver<Erased> {
        let (tell, told) = oneshot::channel();
        let erasures = &self.erasures[volume];
        let first = {
            let mut asked = erasures.lock();
            asked.push(Erasure { slots, zero, tell });
            asked.len() == 1
        };
        if first {
            let tier = Arc::clone(self);
            erasures.errands.run(Box::new(move |may_wait| {
                let asked = std::mem::take(&mut *tier.erasures[volume].lock());
                if may_wait.is_ok() {
                    tier.erase_all(volume, asked);
                }
            }));
        }
        told
    }

    /// Blocks until it is on the device.
    fn erase_all(&self, volume: usize, asked: Vec<Erasure>) {
        let overwrite = |asked: &Erasure| if asked.zero { self.overwrite(&asked.slots) } else { Vec::new() };
        let kept: Vec<_> = asked.iter().map(overwrite).collect();
        for (asked, kept) in asked.iter().zip(&kept) {
            // Of what could not be overwritten the owner hears.
            asked.slots.iter().for_each(|slot| self.set_left(*slot, !asked.zero || kept.contains(slot)));
        }
        self.forget_all(volume);
        for slot in asked.iter().flat_map(|asked| &asked.slots) {
            self.volumes.forget(slot.0);
            self.set_stale(*slot, false);
        }
        let forgotten = self.flush(volume);
        for (Erasure { slots, tell, .. }, kept) in asked.into_iter().zip(kept) {
            let kept = if forgotten { kept } else { slots };
            // Who does not listen any more has asked all the same.
            let _ = tell.send(Erased { kept, forgotten });
        }
    }

    fn flush(&self, volume: usize) -> bool {
        match self.volumes.volumes()[volume].flush().wait() {
            Ok(()) => true,
            Err(failure) => {
                if matches!(failure.cause, FailureCause::OutOfService) {
                    self.lose_volume(volume);
                }
                false
            }
        }
    }

    fn overwrite(&self, slots: &[BlockId]) -> Vec<BlockId> {
        let hash = SequenceHash::from_u128(Xxh3.bytes(b"kvstrata.erased"));
        let name = Name { hash, parent: None, owner: OwnerId::NOBODY };
        // Fresh memory is zeros.
        let Ok(zeros) = HostArena::new(1, self.volumes.slot_bytes()) else { return slots.to_vec() };
        let mut kept = Vec::new();
        for some in slots.chunks(AT_ONCE) {
            let begin = |slot: &BlockId| {
                let bytes = Arc::clone(&zeros).read(0).ok();
                (*slot, bytes.map(|bytes| self.write_slot(*slot, name, bytes)))
            };
            let writes: Vec<_> = some.iter().map(begin).collect();
            for (slot, write) in writes {
                let written = match write {
                    Some(write) => write.wait().is_ok(),
                    None => false,
                };
                if !written {
                    kept.push(slot);
                }
            }
        }
        kept
    }
}
