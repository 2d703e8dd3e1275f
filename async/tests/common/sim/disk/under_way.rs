//! Requests in flight at a simulated disk: each ends by its fate, or is dropped.

use super::super::{Fate, Fault, UnderWay, flip, lock};
use super::{Books, Disk, READS, Stored, WRITES};
use futures_channel::oneshot;
use kvstrata_core::BlockId;
use kvstrata_ffi::arena::{BlockRead, BlockWrite};
use kvstrata_ffi::disk::{Name, sum_of_payload};
use kvstrata_tiers::transfer::{Cause, Failure, Landed, TierRead, TierWrite};
use std::sync::Arc;

pub(super) struct Reading {
    pub(super) disk: Arc<Disk>,
    pub(super) read: Option<TierRead>,
}

impl Reading {
    fn answer(&mut self, outcome: impl FnOnce(&mut Books, &mut TierRead) -> Result<(), Cause>) {
        let Some(mut read) = self.read.take() else { return };
        let mut books = lock(&self.disk.books);
        books.ends(read.slot, false);
        books.in_flight[READS] -= 1;
        let outcome = outcome(&mut books, &mut read);
        drop(books);
        let TierRead { token, buffer, landing, .. } = read;
        let answer: Result<BlockWrite, Failure> = match outcome {
            Ok(()) => Ok(buffer),
            Err(cause) => {
                drop(buffer);
                Err(Failure::of(cause))
            }
        };
        landing.land(Landed::Read(token, answer));
    }
}

impl UnderWay for Reading {
    fn end(mut self, fate: Fate) {
        let disk = Arc::clone(&self.disk);
        self.answer(|books, read| match disk.is_lost_now(books, read.slot, fate) {
            true => Err(Cause::Lost),
            false => books.bring(read.slot, read.hash, &mut read.buffer, fate),
        });
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.answer(|_, _| Err(Cause::Abandoned));
    }
}

pub(super) struct Writing {
    pub(super) disk: Arc<Disk>,
    pub(super) write: Option<TierWrite>,
    /// The bytes as they were at the start, if they were read then.
    pub(super) early: Option<Vec<u8>>,
}

impl Writing {
    fn answer(&mut self, outcome: impl FnOnce(&Disk, &mut Books, &TierWrite) -> Result<(), Cause>) {
        let Some(write) = self.write.take() else { return };
        let mut books = lock(&self.disk.books);
        books.ends(write.slot, true);
        books.in_flight[WRITES] -= 1;
        let outcome = outcome(&self.disk, &mut books, &write);
        match outcome {
            Ok(()) => books.counts.written += 1,
            Err(Cause::Lost | Cause::Abandoned) => books.counts.quarantined += 1,
            Err(_) => books.counts.failed += 1,
        }
        let quarantined = matches!(outcome, Err(Cause::Lost | Cause::Abandoned));
        if !quarantined && let Ok(slot) = self.disk.pool.adopt_mutable(write.slot) {
            let hash = write.name.hash;
            match outcome.is_ok() && self.disk.pool.lookup(hash).is_none() {
                true => _ = slot.complete(hash).map(|complete| drop(self.disk.pool.register(complete, None))),
                false => books.put_back(slot),
            }
        }
        drop(books);
        self.disk.try_forget();
        let TierWrite { token, bytes, landing, .. } = write;
        let answer: Result<BlockRead, Failure> = outcome.map_err(Failure::of).map(|()| bytes);
        landing.land(Landed::Write(token, answer));
    }
}

impl UnderWay for Writing {
    fn end(mut self, fate: Fate) {
        let early = self.early.take();
        self.answer(|disk, books, write| {
            if disk.is_lost_now(books, write.slot, fate) {
                return Err(Cause::Lost);
            }
            if fate.fault == Some(Fault::Fails) {
                return Err(Cause::Tier);
            }
            if write.bytes.len() > disk.slot_bytes {
                return Err(Cause::Buffer);
            }
            let mut bytes = early.unwrap_or_else(|| write.bytes.to_vec());
            let sum = write.sum.unwrap_or_else(|| sum_of_payload(&bytes));
            if fate.fault == Some(Fault::Damaged) {
                flip(&mut bytes, fate.number);
            }
            books.writes += 1;
            let (number, Name { hash, owner, .. }) = (books.writes, write.name);
            books.slots.insert(write.slot.0, Stored { hash, owner, number, bytes, sum });
            Ok(())
        });
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.answer(|_, _, _| Err(Cause::Abandoned));
    }
}

pub(super) struct Erased {
    pub(super) disk: Arc<Disk>,
    pub(super) slots: Vec<BlockId>,
    pub(super) zero: bool,
    pub(super) answer: Option<oneshot::Sender<Vec<BlockId>>>,
}

impl Erased {
    /// Forgets the slots that have not failed, and blocks given back before. Answers with the failed
    /// slots, where a restart may still find something.
    fn answer(&mut self, failed: impl Fn(&mut Books, BlockId) -> bool) {
        let Some(answer) = self.answer.take() else { return };
        let mut books = lock(&self.disk.books);
        let (kept, erased): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.slots).into_iter().partition(|slot| failed(&mut books, *slot));
        for slot in &erased {
            books.slots.remove(&slot.0);
        }
        kept.iter().chain(&erased).for_each(|slot| books.ends(*slot, true));
        self.disk.forget(&mut books);
        books.counts.quarantined += kept.len() as u64;
        drop(books);
        let _ = answer.send(kept);
    }
}

impl UnderWay for Erased {
    fn end(mut self, fate: Fate) {
        let disk = Arc::clone(&self.disk);
        self.answer(|books, slot| disk.is_lost_now(books, slot, fate) || fate.fault == Some(Fault::Fails));
    }
}

impl Drop for Erased {
    fn drop(&mut self) {
        self.answer(|_, _| true);
    }
}

/// Forgets the blocks given back when it ends. A caller that asked is told whether that is for good.
pub(super) struct Forgets {
    pub(super) disk: Arc<Disk>,
    pub(super) answer: Option<oneshot::Sender<bool>>,
}

impl UnderWay for Forgets {
    fn end(mut self, fate: Fate) {
        if let Some(answer) = self.answer.take() {
            let mut books = lock(&self.disk.books);
            if fate.fault == Some(Fault::Lost) {
                self.disk.lose(&mut books, BlockId(fate.number as u32));
            }
            self.disk.forget(&mut books);
            let _ = answer.send(!matches!(fate.fault, Some(Fault::Lost | Fault::Fails)));
        }
    }
}

impl Drop for Forgets {
    fn drop(&mut self) {
        self.disk.forget(&mut lock(&self.disk.books));
    }
}
