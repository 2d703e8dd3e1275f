//! The disk tier behind [`TierPort`]: each read and write is answered at a landing, and no caller waits
//! for it.
//!
//! ```text
//!   caller ── read, write ──► volume's queue ──► ring thread ──┐ outcome; one wakeup for many
//!      └───── request ──► desk ──► task: all requests in flight ◄──┘
//!                                    └── pool metadata ──► landing
//! ```
//!
//! The caller leaves the task's waker with the request. So a request costs no wakeup, and outcomes that
//! come together cost one. The task then looks at all of its requests; the manager bounds them, to a few
//! hundred.
//!
//! Only threads of the disk tier wait for room in a volume's queue (`errand.rs`). The manager never
//! requests more at once than has room. A queue fills when many slots are given back at once (a purge, a
//! preemption, a shutdown), when a device fails, or when a runtime ends and its writes are given up in
//! flight. [`forget_released`](Lasts::forget_released) forgets the records of slots that were given
//! back; only its waiting is deferred. If the system gives no thread, work that would have to wait is
//! given up as if it had not been requested:
//! [`Cause::Abandoned`](kvstrata_tiers::transfer::Cause::Abandoned).
//!
//! A dropped mover leaves its task to answer the requests in flight; before the last answer is given,
//! the volumes are closed. If the task ends early, with its runtime, it answers requests that the device
//! has completed, and gives up the rest:
//! [`Cause::Abandoned`](kvstrata_tiers::transfer::Cause::Abandoned). Their buffers stay with the
//! requests until the device has answered, and their target slots are not used again.
//!
//! Invariants
//! - I1: a request is at the desk, with the task, with a thread that waits for room, or answered. A
//!   dropped request is answered.
//! - I2: a caller puts a request on the desk and leaves the task's waker under the desk's lock. The task
//!   takes requests over under it, too, before it looks at them. An outcome that comes meanwhile wakes
//!   the task again, and the task finds the request.
//! - I3: a landing is called without the desk's lock, so that it may make more requests.
//! - I4: the task does not end while a thread has a request that it will bring to the desk.
//! - I5: where writes end in order, each has a place. It is looked at when all writes before it have
//!   been answered, including those that a thread has yet to bring.

use super::errand::NoThread;
use super::tier::DiskTier;
use kvstrata_core::{BlockId, BlockPool, BlockRef, ImmutableBlock, MutableBlock, SequenceHash};
use kvstrata_ffi::disk::OwnerId;
use kvstrata_tiers::transfer::{
    Admits, Closing, Counts, Erases, Erasing, Extras, Forgetting, Lasts, Loses, Reserve, Sizes, TierFacts,
    TierPort, TierRead, TierStats, TierWrite,
};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::runtime::Handle;

mod request;
#[cfg(test)]
mod tests;

use request::{Asked, Request, Transfer, UnderWay, Whose, forget_all, payload};

/// One in this many places of a volume's write queue is reserved for work other than the manager's
/// writes.
const FOR_OTHERS: usize = 4;

/// A disk tier as transfers use it. Its methods need no runtime; its task runs on the runtime given to
/// `new`.
#[derive(Debug)]
pub struct DiskMover {
    tier: Arc<DiskTier>,
    desk: Arc<Desk>,
    in_order: bool,
}

impl DiskMover {
    /// Returns a mover for `tier`; a task on `runtime` answers its reads and writes.
    #[must_use]
    pub fn new(tier: Arc<DiskTier>, runtime: &Handle) -> DiskMover {
        let desk = Arc::new(Desk::default());
        runtime.spawn(Serving { desk: Arc::clone(&desk), requests: Vec::new(), next: 0 });
        DiskMover { tier, desk, in_order: false }
    }

    /// Makes writes end in the order of their requests: when a block is on disk, all blocks before it
    /// are, too. For callers that rely on the age order of blocks.
    #[must_use]
    pub fn in_order(mut self) -> DiskMover {
        self.in_order = true;
        self
    }

    /// Returns the tier.
    #[must_use]
    pub fn tier(&self) -> &Arc<DiskTier> {
        &self.tier
    }

    fn follow(&self, whose: Whose, transfer: Transfer) {
        let tier = Arc::clone(&self.tier);
        self.desk.put(Request(Some(UnderWay { tier, whose, transfer })), false);
    }

    /// The same, started by a thread that may wait.
    fn follow_later(&self, whose: Whose, asked: Asked) {
        let mut away = Away::of(&self.desk, &self.tier, whose, &asked);
        self.tier.errands_of(asked.slot()).run(Box::new(move |may_wait| {
            away.begin(|tier| match may_wait {
                Ok(()) => asked.begin(tier),
                Err(NoThread) => asked.give_up(tier),
            });
        }));
    }
}

impl TierPort for DiskMover {
    fn pool(&self) -> &BlockPool {
        self.tier.pool()
    }

    fn facts(&self) -> TierFacts {
        let volumes: Vec<String> = self.tier.volumes().descriptions().map(ToString::to_string).collect();
        let most = self.tier.volumes().writes_at_once();
        TierFacts {
            description: volumes.join("\n"),
            reads_at_once: self.tier.volumes().reads_at_once().try_into().unwrap_or(u32::MAX),
            // Records to forget and zeros of a purge share this queue.
            writes_at_once: (most - most / FOR_OTHERS).try_into().unwrap_or(u32::MAX),
            logs_failures: true,
        }
    }

    fn find(&self, hash: SequenceHash, uses: bool) -> Option<ImmutableBlock<'_>> {
        if uses { self.tier.lookup(hash) } else { self.tier.find(hash) }
    }

    fn reserve(&self, which: Reserve, slots: &mut Vec<BlockId>) {
        match which {
            Reserve::Some(wanted) => self.tier.take_slots(wanted, slots),
            Reserve::This(block) => slots.extend(self.tier.take_this(block).map(MutableBlock::into_id)),
        }
    }

    fn read(&self, read: TierRead) {
        let TierRead { token, slot, hash, urgency, buffer, landing } = read;
        let whose = Whose { token, landing, place: None };
        match self.tier.volumes().try_read(slot.0, hash, urgency, buffer) {
            Ok(pending) => self.follow(whose, Transfer::Read { slot, pending }),
            Err(buffer) => self.follow_later(whose, Asked::Read { slot, hash, urgency, buffer }),
        }
    }

    fn write(&self, write: TierWrite) {
        let TierWrite { token, slot, name, bytes, sum, landing } = write;
        let place = self.in_order.then(|| self.desk.place());
        let whose = Whose { token, landing, place };
        match self.tier.try_write_slot(slot, name, payload(bytes, sum)) {
            Ok(pending) => self.follow(whose, Transfer::Write { slot, name, pending }),
            Err(bytes) => self.follow_later(whose, Asked::Write { slot, name, bytes, sum }),
        }
    }

    fn release(&self, slot: BlockId) {
        self.tier.put_back(slot);
    }

    fn forget(&self, block: BlockRef) {
        self.tier.unregister(block);
    }

    fn extras(&self) -> Extras<'_> {
        Extras {
            admits: Some(self),
            erases: Some(self),
            lasts: Some(self),
            loses: Some(self),
            counts: Some(self),
            sizes: Some(self),
        }
    }
}

impl Admits for DiskMover {
    fn used(&self, hash: SequenceHash) {
        self.tier.used(hash);
    }

    fn admits(&self, hash: SequenceHash, now: Duration) -> bool {
        self.tier.admits(hash, now)
    }
}

impl Erases for DiskMover {
    fn erase(&self, slots: Vec<BlockId>, zero: bool) -> Erasing {
        let mut parts = vec![Vec::new(); self.tier.errands.len()];
        slots.into_iter().for_each(|slot| parts[self.tier.volume_of(slot.0)].push(slot));
        let begin = |(volume, given): (usize, Vec<BlockId>)| {
            let told = self.tier.erase(volume, given.clone(), zero);
            (given, told)
        };
        let parts = parts.into_iter().enumerate().filter(|(_, slots)| !slots.is_empty());
        let parts: Vec<_> = parts.map(begin).collect();
        Box::pin(async move {
            let mut kept = Vec::new();
            for (given, told) in parts {
                // Without a thread nothing of this part is erased.
                kept.extend(told.await.map_or(given, |erased| erased.kept));
            }
            kept
        })
    }

    fn erase_left(&self) -> Forgetting {
        let (taken, mut erased) = self.tier.take_left();
        let mut parts = vec![Vec::new(); self.tier.errands.len()];
        taken.into_iter().for_each(|slot| parts[self.tier.volume_of(slot.0)].push(slot));
        let parts = parts.into_iter().enumerate().filter(|(_, slots)| !slots.is_empty());
        let begin =
            |(volume, slots): (usize, Vec<BlockId>)| (self.tier.erase(volume, slots.clone(), true), slots);
        let parts: Vec<_> = parts.map(begin).collect();
        let tier = Arc::clone(&self.tier);
        Box::pin(async move {
            for (told, slots) in parts {
                // Without a thread nothing of this part is erased: its bytes stay, and its slots are
                // free.
                erased &= told.await.is_ok_and(|erased| erased.kept.is_empty());
                slots.into_iter().for_each(|slot| tier.put_back(slot));
            }
            erased
        })
    }
}

impl Lasts for DiskMover {
    fn recovered(&self) -> Vec<(BlockId, OwnerId)> {
        self.tier.take_owners()
    }

    fn forget_released(&self) {
        (0..self.tier.errands.len()).for_each(|volume| forget_all(&self.tier, volume));
    }

    fn forget_for_good(&self) -> Forgetting {
        let volumes = (0..self.tier.errands.len()).filter(|volume| !self.tier.is_lost_volume(*volume));
        let all: Vec<_> = volumes.map(|volume| self.tier.erase(volume, Vec::new(), false)).collect();
        Box::pin(async move {
            let mut forgotten = true;
            for told in all {
                forgotten &= told.await.is_ok_and(|erased| erased.forgotten);
            }
            forgotten
        })
    }

    fn close(&self) -> Option<Closing> {
        let tier = Arc::clone(&self.tier);
        Some(Box::new(move || tier.close()))
    }
}

impl Loses for DiskMover {
    fn losses(&self) -> u64 {
        self.tier.losses()
    }

    fn is_lost(&self, slot: BlockId) -> bool {
        self.tier.is_lost(slot.0)
    }
}

impl Counts for DiskMover {
    fn stats(&self) -> TierStats {
        self.tier.stats()
    }
}

impl Sizes for DiskMover {
    fn bytes_of(&self, block: BlockId) -> usize {
        self.tier.bytes_of(block)
    }
}

impl Drop for DiskMover {
    fn drop(&mut self) {
        let mut books = self.desk.lock();
        books.closing = true;
        let task = books.task.clone();
        drop(books);
        if let Some(task) = task {
            task.wake();
        }
    }
}

/// Where requests wait for the task.
#[derive(Debug, Default)]
struct Desk(Mutex<Books>);

#[derive(Debug, Default)]
struct Books {
    /// `None` before the task has run, and after its end.
    task: Option<Waker>,
    asked: Vec<Request>,
    /// Requests with threads that will bring them here (I4).
    away: usize,
    /// The place of the next write, where writes end in order.
    place: u64,
    /// No more requests will come.
    closing: bool,
    /// The task has ended.
    gone: bool,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, Books> {
        // A waker panics before or after a change, never in the middle of one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self) -> u64 {
        let mut books = self.lock();
        books.place += 1;
        books.place - 1
    }

    fn put(&self, request: Request, was_away: bool) {
        let mut books = self.lock();
        books.away -= usize::from(was_away);
        if books.gone {
            drop(books);
            // The drop answers it (I1).
            return drop(request);
        }
        // A task that has not run yet will look at all requests.
        let told = books.task.as_ref().is_none_or(|task| request.tell(task));
        books.asked.push(request);
        let late = if told { None } else { books.task.clone() };
        drop(books);
        if let Some(task) = late {
            task.wake();
        }
    }

    /// Moves all requests of the desk to `requests`, and stores the task's waker. Returns whether no
    /// more will come.
    fn take_over(&self, task: &Waker, requests: &mut Vec<Request>) -> bool {
        let mut books = self.lock();
        if !books.task.as_ref().is_some_and(|known| known.will_wake(task)) {
            books.task = Some(task.clone());
        }
        requests.append(&mut books.asked);
        books.closing && books.away == 0
    }

    fn end(&self) -> (Option<Waker>, Vec<Request>) {
        let mut books = self.lock();
        books.gone = true;
        (books.task.take(), std::mem::take(&mut books.asked))
    }
}

/// A request with a thread, which brings it to the desk even if the thread panics (I4, I5).
struct Away {
    desk: Arc<Desk>,
    /// `GivenUp` until the transfer has begun.
    under_way: Option<UnderWay>,
    /// The slot of a write that the device may or may not get.
    slot: Option<BlockId>,
}

impl Away {
    fn of(desk: &Arc<Desk>, tier: &Arc<DiskTier>, whose: Whose, asked: &Asked) -> Away {
        let (tier, transfer) = (Arc::clone(tier), Transfer::GivenUp { is_write: asked.is_write() });
        desk.lock().away += 1;
        let slot = Some(asked.slot()).filter(|_| asked.is_write());
        Away { desk: Arc::clone(desk), under_way: Some(UnderWay { tier, whose, transfer }), slot }
    }

    fn begin(&mut self, begin: impl FnOnce(&DiskTier) -> Transfer) {
        if let Some(UnderWay { tier, transfer, .. }) = &mut self.under_way {
            *transfer = begin(tier);
            self.slot = None;
        }
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        if let (Some(slot), Some(UnderWay { tier, .. })) = (self.slot, &self.under_way) {
            tier.abandoned(slot);
        }
        self.desk.put(Request(self.under_way.take()), true);
    }
}

/// The task that answers requests.
struct Serving {
    desk: Arc<Desk>,
    requests: Vec<Request>,
    /// The place of the next write to answer (I5).
    next: u64,
}

impl Future for Serving {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Serving { desk, requests, next } = self.get_mut();
        let last = desk.take_over(context.waker(), requests);
        if requests.iter().any(|request| request.place().is_some()) {
            requests.sort_unstable_by_key(Request::place);
        }
        requests.retain_mut(|request| {
            let place = request.place();
            // Looked at again when the write before it has ended.
            if place.is_some_and(|place| place != *next) {
                return true;
            }
            let pending = request.look(context).is_pending();
            *next += u64::from(place.is_some() && !pending);
            pending
        });
        if last && requests.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Answered without the lock (I3), like the task's own requests, which are dropped after this.
        drop(self.desk.end());
    }
}
