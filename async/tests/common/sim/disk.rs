//! A disk tier in virtual time, with slots on one or several volumes. Any volume may be lost. A slot
//! that is given back is free once its block is forgotten, at once or a while later. The next tier over
//! the disk finds the blocks that were written and not forgotten ([`SimDisk::reopened`]).

use super::{Asked, Ear, Fate, Fault, Gate, Plan, RUBBISH, Stage, flip, lock};
use futures_channel::oneshot;
use kvstrata_core::{
    BlockId, BlockPool, BlockRef, EvictedBlock, ImmutableBlock, MutableBlock, PoolConfig, SequenceHash,
};
use kvstrata_ffi::disk::OwnerId;
use kvstrata_tiers::transfer::{
    Admits, Cause, Closing, Erases, Erasing, Extras, Forgetting, Lasts, Loses, Reserve, Sizes, TierFacts,
    TierPort, TierRead, TierWrite,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

mod books;
mod under_way;

pub use books::Counts;
use books::{Books, Stored};
use under_way::{Erased, Forgets, Reading, Writing};

/// Kinds of requests in flight.
const READS: usize = 0;
const WRITES: usize = 1;

/// How long its end hangs at most, in real time.
const PATIENCE: Duration = Duration::from_secs(20);

/// A simulated disk.
#[derive(Debug)]
pub struct SimDisk(Arc<Disk>);

#[derive(Debug)]
struct Disk {
    pool: BlockPool,
    slot_bytes: usize,
    stage: Stage,
    /// The most reads at once, and the most writes.
    at_once: u32,
    /// Slot s is of volume s mod `volumes`.
    volumes: u32,
    books: Mutex<Books>,
    ear: Ear,
    /// The signal that its end waits for.
    end: Mutex<Option<mpsc::Receiver<()>>>,
}

impl SimDisk {
    /// Runs on the current runtime.
    pub fn new(slots: u32, slot_bytes: usize, plan: Plan) -> SimDisk {
        SimDisk::with_at_once(slots, slot_bytes, plan, u32::MAX)
    }

    /// The same. More reads or more writes at once than `at_once` violate the contract.
    pub fn with_at_once(slots: u32, slot_bytes: usize, plan: Plan, at_once: u32) -> SimDisk {
        SimDisk::striped(slots, slot_bytes, plan, at_once, 1)
    }

    /// The same, over so many volumes.
    pub fn striped(slots: u32, slot_bytes: usize, plan: Plan, at_once: u32, volumes: u32) -> SimDisk {
        let pool = BlockPool::new(PoolConfig::new(slots).lanes(1)).expect("a pool");
        let stage = Stage::new(plan);
        let (books, ear, end) = Default::default();
        SimDisk(Arc::new(Disk { pool, slot_bytes, stage, at_once, volumes, books, ear, end }))
    }

    /// The disk as the next process finds it, with all of its volumes. No call may reach this one any more.
    pub fn reopened(&self, plan: Plan) -> SimDisk {
        let Disk { pool, slot_bytes, at_once, volumes, .. } = &*self.0;
        let next = SimDisk::striped(pool.capacity() as u32, *slot_bytes, plan, *at_once, *volumes);
        let old = lock(&self.0.books);
        let mut found: Vec<_> = old.slots.iter().collect();
        found.sort_unstable_by_key(|(_, stored)| stored.number);
        let mut books = lock(&next.0.books);
        books.writes = old.writes;
        let mut all = Vec::new();
        let _ = next.0.pool.allocate_free(pool.capacity(), &mut all);
        let mut all: BTreeMap<u32, _> = all.into_iter().map(|slot| (slot.id().0, slot)).collect();
        let last: BTreeMap<u128, u32> =
            found.iter().map(|(slot, stored)| (stored.hash.to_u128(), **slot)).collect();
        for (slot, stored) in found {
            let free = all.remove(slot).filter(|_| last.get(&stored.hash.to_u128()) == Some(slot));
            if let Some(Ok(complete)) = free.map(|free| free.complete(stored.hash)) {
                drop(next.0.pool.register(complete, None));
                books.slots.insert(*slot, stored.clone());
                if stored.owner != OwnerId::NONE {
                    books.owners.push((BlockId(*slot), stored.owner));
                }
            }
        }
        drop((all, books, old));
        next
    }

    /// Hashes that a restart would find now.
    pub fn left(&self) -> BTreeSet<u128> {
        lock(&self.0.books).slots.values().map(|stored| stored.hash.to_u128()).collect()
    }

    /// Whether a block is there, on a volume that is not lost. Remains of a failed erasure elsewhere do
    /// not count.
    pub fn has(&self, hash: SequenceHash) -> bool {
        let books = lock(&self.0.books);
        let is_it = |(slot, stored): (&u32, &Stored)| {
            let slot = BlockId(*slot);
            stored.hash == hash
                && self.0.pool.registered(slot).is_some_and(|(_, there)| there == hash)
                && !books.unforgotten.contains(&slot)
                && !books.lost.contains(&self.0.volume_of(slot))
        };
        books.slots.iter().any(is_it)
    }

    /// Slots that are not free yet, since their blocks are not forgotten, and whether a request is about
    /// to forget them.
    pub fn unforgotten(&self) -> (usize, bool) {
        let books = lock(&self.0.books);
        (books.unforgotten.len(), books.expected)
    }

    /// Requests from now on follow another plan.
    pub fn change(&self, change: impl FnOnce(&mut Plan)) {
        self.0.stage.change(change);
    }

    /// Calls `ear` at each request, before it is carried out.
    pub fn listen(&self, ear: impl Fn(Asked) + Send + Sync + 'static) {
        *lock(&self.0.ear.0) = Some(Arc::new(ear));
    }

    /// Flips a bit of a slot's bytes.
    pub fn rot(&self, slot: BlockId, number: u64) {
        if let Some(stored) = lock(&self.0.books).slots.get_mut(&slot.0) {
            flip(&mut stored.bytes, number);
        }
    }

    /// Loses the whole disk.
    pub fn lose(&self) {
        lock(&self.0.books).lost.extend(0..self.0.volumes);
    }

    /// Loses the volume of a slot.
    pub fn lose_volume_of(&self, slot: BlockId) {
        self.0.lose(&mut lock(&self.0.books), slot);
    }

    /// Makes its end hang until the sender tells it to go on, or until its patience is over.
    /// Then the sender has no receiver.
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

impl TierPort for SimDisk {
    fn pool(&self) -> &BlockPool {
        &self.0.pool
    }

    fn facts(&self) -> TierFacts {
        let facts = TierFacts::new(format!("a simulated disk of {} slots", self.0.pool.capacity()));
        TierFacts { reads_at_once: self.0.at_once, writes_at_once: self.0.at_once, ..facts }
    }

    fn find(&self, hash: SequenceHash, _: bool) -> Option<ImmutableBlock<'_>> {
        let block = self.0.pool.lookup(hash)?;
        if !self.is_lost(block.id()) {
            return Some(block);
        }
        let reference = block.downgrade();
        drop(block);
        self.forget(reference);
        None
    }

    fn reserve(&self, which: Reserve, slots: &mut Vec<BlockId>) {
        match which {
            Reserve::Some(wanted) => self.0.take(wanted, slots),
            Reserve::This(block) => slots.extend(self.take_this(block)),
        }
    }

    fn read(&self, mut read: TierRead) {
        self.0.ear.hears(Asked::Read);
        read.buffer.fill(RUBBISH);
        let mut books = lock(&self.0.books);
        books.begins(read.slot, false);
        books.enters(READS, self.0.at_once);
        drop(books);
        let fate = self.0.stage.draw(read.buffer.len());
        self.0.stage.perform(fate, Reading { disk: Arc::clone(&self.0), read: Some(read) });
    }

    fn write(&self, write: TierWrite) {
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

    fn release(&self, slot: BlockId) {
        let mut books = lock(&self.0.books);
        match self.0.pool.adopt_mutable(slot) {
            Ok(slot) => books.put_back(slot),
            Err(_) => books.violation(format!("{slot} is given back, and was not taken")),
        }
    }

    fn forget(&self, block: BlockRef) {
        let _ = self.0.pool.unregister(block);
    }

    fn extras(&self) -> Extras<'_> {
        let (admits, erases, lasts, loses) =
            (Some(self as _), Some(self as _), Some(self as _), Some(self as _));
        Extras { admits, erases, lasts, loses, counts: None, sizes: Some(self) }
    }
}

impl Sizes for SimDisk {
    fn bytes_of(&self, block: BlockId) -> usize {
        lock(&self.0.books).slots.get(&block.0).map_or(0, |stored| stored.bytes.len())
    }
}

impl Admits for SimDisk {
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
}

impl Erases for SimDisk {
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
}

impl Lasts for SimDisk {
    fn recovered(&self) -> Vec<(BlockId, OwnerId)> {
        std::mem::take(&mut lock(&self.0.books).owners)
    }

    fn forget_released(&self) {
        self.0.ear.hears(Asked::Forget);
        self.0.try_forget();
    }

    fn forget_for_good(&self) -> Forgetting {
        let (disk, fate) = (Arc::clone(&self.0), self.0.stage.draw(0));
        let (answer, answered) = oneshot::channel();
        self.0.stage.perform(fate, Forgets { disk, answer: Some(answer) });
        Box::pin(async move { answered.await.unwrap_or(false) })
    }

    fn close(&self) -> Option<Closing> {
        let end = lock(&self.0.end).take()?;
        Some(Box::new(move || _ = end.recv_timeout(PATIENCE)))
    }
}

impl Loses for SimDisk {
    fn losses(&self) -> u64 {
        lock(&self.0.books).lost.len() as u64
    }

    fn is_lost(&self, slot: BlockId) -> bool {
        lock(&self.0.books).lost.contains(&self.0.volume_of(slot))
    }
}

impl SimDisk {
    fn take_this(&self, block: BlockRef) -> Option<BlockId> {
        let slot = self.0.pool.take_out(block).ok()?.into_mutable().into_id();
        let mut books = lock(&self.0.books);
        let lost = books.lost.contains(&self.0.volume_of(slot));
        books.counts.quarantined += u64::from(lost);
        (!lost).then_some(slot)
    }
}

impl Disk {
    fn take(&self, wanted: usize, slots: &mut Vec<BlockId>) {
        let (disk, end) = (self, slots.len() + wanted);
        let mut books = lock(&disk.books);
        while slots.len() < end && books.lost.len() < disk.volumes as usize {
            let (mut free, mut victims) = (Vec::new(), Vec::new());
            let _ = disk.pool.allocate_free(disk.pool.free().min(end - slots.len()), &mut free);
            disk.pool.evict(end - slots.len() - free.len(), &mut victims);
            let taken = free.into_iter().chain(victims.into_iter().map(EvictedBlock::into_mutable));
            let taken: Vec<BlockId> = taken.map(MutableBlock::into_id).collect();
            if taken.is_empty() {
                break;
            }
            // Slots of a lost volume are quarantined for good.
            let (quarantined, good): (Vec<_>, Vec<_>) =
                taken.into_iter().partition(|slot| books.lost.contains(&disk.volume_of(*slot)));
            books.counts.quarantined += quarantined.len() as u64;
            slots.extend(good);
        }
    }

    fn volume_of(&self, slot: BlockId) -> u32 {
        slot.0 % self.volumes
    }

    fn lose(&self, books: &mut Books, slot: BlockId) {
        books.lost.insert(self.volume_of(slot));
    }

    /// Whether the volume of a request's slot is lost, or lost by this request.
    fn is_lost_now(&self, books: &mut Books, slot: BlockId, fate: Fate) -> bool {
        if fate.fault == Some(Fault::Lost) {
            self.lose(books, slot);
        }
        books.lost.contains(&self.volume_of(slot))
    }

    /// Forgets the blocks of slots given back, now or when there is room for that.
    fn try_forget(self: &Arc<Disk>) {
        let mut books = lock(&self.books);
        if books.unforgotten.is_empty() || books.expected {
            return;
        }
        if !self.stage.is_full() {
            return self.forget(&mut books);
        }
        books.expected = true;
        drop(books);
        let fate = Fate { fault: None, ..self.stage.draw(0) };
        self.stage.perform(fate, Forgets { disk: Arc::clone(self), answer: None });
    }

    fn forget(&self, books: &mut Books) {
        books.expected = false;
        for slot in std::mem::take(&mut books.unforgotten) {
            if !books.lost.contains(&self.volume_of(slot)) {
                books.slots.remove(&slot.0);
            }
            drop(self.pool.adopt_mutable(slot));
        }
    }
}
