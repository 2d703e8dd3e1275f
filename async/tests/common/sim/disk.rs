//! A disk tier in virtual time.

use super::{Asked, Ear, Fate, Fault, Gate, Plan, RUBBISH, Stage, UnderWay, flip, lock};
use kvstrata::core::{
    BlockId, BlockPool, BlockRef, EvictedBlock, ImmutableBlock, MutableBlock, PoolConfig, SequenceHash,
};
use kvstrata::ffi::arena::{BlockRead, BlockWrite};
use kvstrata::ffi::disk::OwnerId;
use kvstrata::transfer::{Cause, Closing, DiskPort, DiskRead, DiskWrite, Erasing, Failure, Landed};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use tokio::sync::oneshot;
use twox_hash::XxHash3_64;

/// What is in flight.
const READS: usize = 0;
const WRITES: usize = 1;

/// How long its end hangs at most, in real time.
const PATIENCE: Duration = Duration::from_secs(20);

/// What it has done. `violations`: what the port's caller must not do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    pub read: u64,
    pub written: u64,
    pub failed: u64,
    pub rejected: u64,
    pub used: u64,
    pub asked: u64,
    pub refused: u64,
    pub parked: u64,
    pub violations: Vec<String>,
}

/// Blocks on a disk that there is not.
#[derive(Debug)]
pub struct SimDisk(Arc<Disk>);

#[derive(Debug)]
struct Disk {
    pool: BlockPool,
    slot_bytes: usize,
    stage: Stage,
    /// Reads that it takes at once, and writes.
    at_once: u32,
    books: Mutex<Books>,
    ear: Ear,
    /// What its end waits for.
    end: Mutex<Option<mpsc::Receiver<()>>>,
}

#[derive(Debug, Default)]
struct Books {
    slots: BTreeMap<u32, Stored>,
    /// By slot: how many reads, and whether a write.
    under_way: BTreeMap<u32, (u32, bool)>,
    /// How many reads in all, and writes of the manager's.
    in_flight: [u32; 2],
    /// Slots that are free once it is told to forget them.
    given_back: Vec<BlockId>,
    lost: bool,
    counts: Counts,
}

#[derive(Debug)]
struct Stored {
    hash: SequenceHash,
    bytes: Vec<u8>,
    sum: u64,
}

impl SimDisk {
    /// On the runtime that it is called on.
    pub fn new(slots: u32, slot_bytes: usize, plan: Plan) -> SimDisk {
        SimDisk::with_at_once(slots, slot_bytes, plan, u32::MAX)
    }

    /// The same, and who asks for more reads at once, or writes, violates the contract.
    pub fn with_at_once(slots: u32, slot_bytes: usize, plan: Plan, at_once: u32) -> SimDisk {
        let pool = BlockPool::new(PoolConfig::new(slots).lanes(1)).expect("a pool");
        let stage = Stage::new(plan);
        let (books, ear, end) = Default::default();
        SimDisk(Arc::new(Disk { pool, slot_bytes, stage, at_once, books, ear, end }))
    }

    /// What is asked for from now on goes by another plan.
    pub fn change(&self, change: impl FnOnce(&mut Plan)) {
        self.0.stage.change(change);
    }

    /// Is called by whoever asks for something, before it is done.
    pub fn listen(&self, ear: impl Fn(Asked) + Send + Sync + 'static) {
        *lock(&self.0.ear.0) = Some(Arc::new(ear));
    }

    /// A bit of what a slot holds flips.
    pub fn rot(&self, slot: BlockId, number: u64) {
        if let Some(stored) = lock(&self.0.books).slots.get_mut(&slot.0) {
            flip(&mut stored.bytes, number);
        }
    }

    /// The whole disk is gone.
    pub fn lose(&self) {
        lock(&self.0.books).lost = true;
    }

    /// Its end hangs until it is told to go on, or has been waited for in vain: then there is nobody to be told.
    pub fn hang_at_end(&self) -> mpsc::Sender<()> {
        let (go_on, end) = mpsc::channel();
        *lock(&self.0.end) = Some(end);
        go_on
    }

    pub fn gate(&self) -> &Gate {
        &self.0.stage.gate
    }

    pub fn shutdown(&self) {
        self.0.stage.shutdown();
    }

    pub fn counts(&self) -> Counts {
        lock(&self.0.books).counts.clone()
    }
}

impl Drop for SimDisk {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl DiskPort for SimDisk {
    fn pool(&self) -> &BlockPool {
        &self.0.pool
    }

    fn recovered(&self) -> Vec<(BlockId, OwnerId)> {
        Vec::new()
    }

    fn lookup(&self, hash: SequenceHash) -> Option<ImmutableBlock<'_>> {
        let block = self.0.pool.lookup(hash)?;
        if !lock(&self.0.books).lost {
            return Some(block);
        }
        let reference = block.downgrade();
        drop(block);
        self.unregister(reference);
        None
    }

    fn used(&self, _hash: SequenceHash) {
        lock(&self.0.books).counts.used += 1;
    }

    fn admits(&self, _hash: SequenceHash, _now: Duration) -> bool {
        let refused = self.0.stage.refuses();
        let counts = &mut lock(&self.0.books).counts;
        counts.asked += 1;
        counts.refused += u64::from(refused);
        !refused
    }

    fn take(&self, wanted: usize, slots: &mut Vec<BlockId>) {
        let Disk { pool, books, .. } = &*self.0;
        if lock(books).lost {
            return;
        }
        let (mut free, mut victims) = (Vec::new(), Vec::new());
        let _ = pool.allocate_free(pool.free().min(wanted), &mut free);
        pool.evict(wanted - free.len(), &mut victims);
        let taken = free.into_iter().chain(victims.into_iter().map(EvictedBlock::into_mutable));
        slots.extend(taken.map(MutableBlock::into_id));
    }

    fn erase(&self, slots: Vec<BlockId>, zero: bool) -> Erasing {
        let (disk, fate) = (Arc::clone(&self.0), self.0.stage.draw(slots.len() * self.0.slot_bytes));
        let mut books = lock(&self.0.books);
        for slot in &slots {
            if self.0.pool.adopt_mutable(*slot).map(MutableBlock::into_id).is_err() {
                books.violation(format!("{slot} is erased, and was not taken"));
            }
            books.begins(*slot, true);
        }
        drop(books);
        let (answer, answered) = oneshot::channel();
        let given = slots.clone();
        self.0.stage.perform(fate, Erased { disk, slots, zero, answer: Some(answer) });
        Box::pin(async move { answered.await.unwrap_or(given) })
    }

    fn give_back(&self, slot: BlockId) {
        let mut books = lock(&self.0.books);
        match self.0.pool.adopt_mutable(slot).map(MutableBlock::into_id) {
            Ok(slot) => books.given_back.push(slot),
            Err(_) => books.violation(format!("{slot} is given back, and was not taken")),
        }
    }

    fn forget_given_back(&self) {
        self.0.ear.hears(Asked::Forget);
        for slot in lock(&self.0.books).given_back.drain(..) {
            drop(self.0.pool.adopt_mutable(slot));
        }
    }

    fn reads_at_once(&self) -> u32 {
        self.0.at_once
    }

    fn writes_at_once(&self) -> u32 {
        self.0.at_once
    }

    fn read(&self, mut read: DiskRead) {
        self.0.ear.hears(Asked::Read);
        read.buffer.fill(RUBBISH);
        let mut books = lock(&self.0.books);
        books.begins(read.slot, false);
        books.enters(READS, self.0.at_once);
        drop(books);
        let fate = self.0.stage.draw(read.buffer.len());
        self.0.stage.perform(fate, Reading { disk: Arc::clone(&self.0), read: Some(read) });
    }

    fn write(&self, write: DiskWrite) {
        self.0.ear.hears(Asked::Write);
        let fate = self.0.stage.draw(write.bytes.len());
        let mut books = lock(&self.0.books);
        if self.0.pool.adopt_mutable(write.slot).map(MutableBlock::into_id).is_err() {
            books.violation(format!("{} is written, and was not taken", write.slot));
        }
        books.begins(write.slot, true);
        books.enters(WRITES, self.0.at_once);
        books.slots.remove(&write.slot.0);
        drop(books);
        let early = fate.early.then(|| write.bytes.to_vec());
        self.0.stage.perform(fate, Writing { disk: Arc::clone(&self.0), write: Some(write), early });
    }

    fn unregister(&self, block: BlockRef) {
        let _ = self.0.pool.unregister(block);
    }

    fn describe(&self) -> String {
        format!("a simulated disk of {} slots", self.0.pool.capacity())
    }

    fn close(&self) -> Option<Closing> {
        let end = lock(&self.0.end).take()?;
        Some(Box::new(move || _ = end.recv_timeout(PATIENCE)))
    }
}

impl Books {
    fn violation(&mut self, what: String) {
        self.counts.violations.push(what);
    }

    fn enters(&mut self, kind: usize, at_once: u32) {
        self.in_flight[kind] += 1;
        if self.in_flight[kind] > at_once {
            let what = ["reads", "writes"][kind];
            self.violation(format!("{} {what} are under way, of {at_once} at once", self.in_flight[kind]));
        }
    }

    fn begins(&mut self, slot: BlockId, write: bool) {
        let (reads, written) = self.under_way.entry(slot.0).or_default();
        let conflict = *written || write && *reads > 0;
        if write {
            *written = true;
        } else {
            *reads += 1;
        }
        if conflict {
            let what = if write { "written" } else { "read" };
            self.violation(format!("{slot} is {what} beside another request of it"));
        }
    }

    fn ends(&mut self, slot: BlockId, write: bool) {
        let Some((reads, written)) = self.under_way.get_mut(&slot.0) else { return };
        if write {
            *written = false;
        } else {
            *reads -= 1;
        }
    }

    /// The slot's bytes, if they are the block's. Whatever else was there is gone then.
    fn bring(
        &mut self,
        slot: BlockId,
        hash: SequenceHash,
        buffer: &mut [u8],
        fate: Fate,
    ) -> Result<(), Cause> {
        self.lost |= fate.fault == Some(Fault::Lost);
        if self.lost {
            return Err(Cause::Lost);
        }
        if fate.fault == Some(Fault::Fails) {
            self.slots.remove(&slot.0);
            self.counts.failed += 1;
            return Err(Cause::Disk);
        }
        if fate.fault == Some(Fault::Damaged)
            && let Some(stored) = self.slots.get_mut(&slot.0)
        {
            match fate.number % 2 {
                0 => flip(&mut stored.bytes, fate.number),
                _ => stored.hash = SequenceHash::from_u128(hash.to_u128() ^ 1),
            }
        }
        let whole =
            |stored: &&Stored| stored.hash == hash && XxHash3_64::oneshot(&stored.bytes) == stored.sum;
        match self.slots.get(&slot.0).filter(whole) {
            Some(stored) => {
                buffer.copy_from_slice(&stored.bytes);
                self.counts.read += 1;
                Ok(())
            }
            None => {
                self.slots.remove(&slot.0);
                self.counts.rejected += 1;
                Err(Cause::Rejected)
            }
        }
    }
}

struct Reading {
    disk: Arc<Disk>,
    read: Option<DiskRead>,
}

impl Reading {
    fn answer(&mut self, outcome: impl FnOnce(&mut Books, &mut DiskRead) -> Result<(), Cause>) {
        let Some(mut read) = self.read.take() else { return };
        let mut books = lock(&self.disk.books);
        books.ends(read.slot, false);
        books.in_flight[READS] -= 1;
        let outcome = outcome(&mut books, &mut read);
        drop(books);
        let DiskRead { token, buffer, landing, .. } = read;
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
        self.answer(|books, read| books.bring(read.slot, read.hash, &mut read.buffer, fate));
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.answer(|_, _| Err(Cause::Abandoned));
    }
}

struct Writing {
    disk: Arc<Disk>,
    write: Option<DiskWrite>,
    /// The bytes as they were at the start, if they were read then.
    early: Option<Vec<u8>>,
}

impl Writing {
    fn answer(&mut self, outcome: impl FnOnce(&Disk, &mut Books, &DiskWrite) -> Result<(), Cause>) {
        let Some(write) = self.write.take() else { return };
        let mut books = lock(&self.disk.books);
        books.ends(write.slot, true);
        books.in_flight[WRITES] -= 1;
        let outcome = outcome(&self.disk, &mut books, &write);
        match outcome {
            Ok(()) => books.counts.written += 1,
            Err(Cause::Lost | Cause::Abandoned) => books.counts.parked += 1,
            Err(_) => books.counts.failed += 1,
        }
        drop(books);
        let parked = matches!(outcome, Err(Cause::Lost | Cause::Abandoned));
        if !parked && let Ok(slot) = self.disk.pool.adopt_mutable(write.slot) {
            let DiskWrite { name, .. } = &write;
            if outcome.is_ok()
                && self.disk.pool.lookup(name.hash).is_none()
                && let Ok(complete) = slot.complete(name.hash)
            {
                drop(self.disk.pool.register(complete, None));
            }
        }
        let DiskWrite { token, bytes, landing, .. } = write;
        let answer: Result<BlockRead, Failure> = outcome.map_err(Failure::of).map(|()| bytes);
        landing.land(Landed::Write(token, answer));
    }
}

impl UnderWay for Writing {
    fn end(mut self, fate: Fate) {
        let early = self.early.take();
        self.answer(|disk, books, write| {
            books.lost |= fate.fault == Some(Fault::Lost);
            if books.lost {
                return Err(Cause::Lost);
            }
            if fate.fault == Some(Fault::Fails) || write.bytes.len() != disk.slot_bytes {
                return Err(Cause::Disk);
            }
            let mut bytes = early.unwrap_or_else(|| write.bytes.to_vec());
            let sum = XxHash3_64::oneshot(&bytes);
            if fate.fault == Some(Fault::Damaged) {
                flip(&mut bytes, fate.number);
            }
            books.slots.insert(write.slot.0, Stored { hash: write.name.hash, bytes, sum });
            Ok(())
        });
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.answer(|_, _, _| Err(Cause::Abandoned));
    }
}

struct Erased {
    disk: Arc<Disk>,
    slots: Vec<BlockId>,
    zero: bool,
    answer: Option<oneshot::Sender<Vec<BlockId>>>,
}

impl Erased {
    /// Forgets all, and says of which a restart may find something still.
    fn answer(&mut self, failed: impl FnOnce(&mut Books) -> bool) {
        let Some(answer) = self.answer.take() else { return };
        let mut books = lock(&self.disk.books);
        for slot in &self.slots {
            books.ends(*slot, true);
            books.slots.remove(&slot.0);
        }
        let failed = if failed(&mut books) { std::mem::take(&mut self.slots) } else { Vec::new() };
        books.counts.parked += failed.len() as u64;
        drop(books);
        let _ = answer.send(failed);
    }
}

impl UnderWay for Erased {
    fn end(mut self, fate: Fate) {
        self.answer(|books| {
            books.lost |= fate.fault == Some(Fault::Lost);
            books.lost || fate.fault == Some(Fault::Fails)
        });
    }
}

impl Drop for Erased {
    fn drop(&mut self) {
        self.answer(|_| true);
    }
}
