//! Erasure of slots: no lookup finds their blocks again, not even after a restart. On request, the bytes
//! are overwritten first.
//!
//! Overwriting is an ordinary write of zeros under a name that no sequence has. So it takes its turn, is
//! encrypted if the volume is, and the device has answered it before the record is forgotten. A process
//! that is killed between the two leaves a record of zeros.
//!
//! A volume has forgotten a record for good once it has written its table. A volume that is out of
//! service, or cannot write, keeps its records. No lookup finds them while this tier is open, but the
//! next opening may; so the caller is told of these slots.
//!
//! Invariants
//! - I1: the slots here belong to the caller, so no registered block is in them.
//! - I2: each volume erases independently, so that a volume that hangs delays no other.
//! - I3: a volume runs one erasure at a time. All requests that arrive meanwhile are served together by
//!   the next: with one thread and one write of the table, however many there are. Requests that have
//!   not begun have one errand.

use super::errand::Errands;
use super::tier::DiskTier;
use kvstrata_core::hash::BlockHasher;
use kvstrata_core::{BlockId, BlockRef, MutableBlock, SequenceHash, Xxh3};
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::disk::{FailureCause, Name, OwnerId};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// The most writes of zeros in flight.
const AT_ONCE: usize = 32;

/// The erasures of a volume.
#[derive(Debug, Default)]
pub(super) struct Erasures {
    /// Not begun (I3).
    asked: Mutex<Vec<Erasure>>,
    pub(super) errands: Errands,
}

/// The slots of one request. They may be none: the request is then for slots that were given back
/// before.
#[derive(Debug)]
struct Erasure {
    slots: Vec<BlockId>,
    zero: bool,
    tell: oneshot::Sender<Erased>,
}

/// The result of an erasure.
#[derive(Debug)]
pub(super) struct Erased {
    /// Slots that may still be found: they could not be overwritten, or the volume has not written down
    /// that they are forgotten.
    pub(super) kept: Vec<BlockId>,
    /// Whether no restart finds the slots that were given back before.
    pub(super) forgotten: bool,
}

impl Erasures {
    /// Returns the number of erasures that have not started.
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
    /// Takes the slot of this block, if it is not held. `None`: it is held, gone, or its volume takes no
    /// writes or is lost.
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
                self.quarantine(slot.into_id());
                None
            }
        }
    }

    /// Takes the free slots whose bytes an erasure without zeros has left. They become the caller's.
    /// Returns whether these are all of them: slots of a volume that takes no writes are left out.
    pub(super) fn take_left(&self) -> (Vec<BlockId>, bool) {
        if self.left.iter().all(|left| !left.load(Relaxed)) {
            return (Vec::new(), true);
        }
        let mut free = Vec::new();
        // For a moment no slot is free: other callers get victims' slots.
        let _ = self.pool.allocate_free_ids(self.pool.free(), &mut free);
        let is_left = |slot: &BlockId| self.left.get(slot.index()).is_some_and(|left| left.load(Relaxed));
        let (taken, others): (Vec<_>, Vec<_>) =
            free.into_iter().partition(|slot| is_left(slot) && !self.is_hindered(self.volume_of(slot.0)));
        others.into_iter().for_each(|slot| drop(self.pool.adopt_mutable(slot)));
        // A slot that another caller has just taken is overwritten by its write, or left for the next
        // time.
        let (slots, left) = (0.., self.left.iter());
        let mut left = slots.zip(left).filter(|(_, left)| left.load(Relaxed));
        let all = !left.any(|(slot, _)| self.is_hindered(self.volume_of(slot)));
        (taken, all)
    }

    /// Sets whether a slot's bytes are those that an erasure left.
    pub(super) fn set_left(&self, slot: BlockId, is_left: bool) {
        if let Some(left) = self.left.get(slot.index()) {
            left.store(is_left, Relaxed);
        }
    }

    /// Erases slots of a volume, which the caller has taken, and forgets the slots that were given back
    /// before. The answer comes when that is on the device for good, or has failed for good. If the
    /// system gave no thread, the channel closes without an answer.
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

    /// Blocks until the erasures are on the device.
    fn erase_all(&self, volume: usize, asked: Vec<Erasure>) {
        let overwrite = |asked: &Erasure| if asked.zero { self.overwrite(&asked.slots) } else { Vec::new() };
        let kept: Vec<_> = asked.iter().map(overwrite).collect();
        for (asked, kept) in asked.iter().zip(&kept) {
            // The caller is told which slots could not be overwritten.
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
            // The receiver may be gone; its slots are erased anyway.
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
        let name = Name { hash, parent: None, owner: OwnerId::NONE };
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
