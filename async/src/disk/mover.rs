//! The disk tier behind [`DiskPort`]: reads and writes that are answered at a landing, and nobody waits for.
//!
//! ```text
//!   caller ── read, write ──► volume's queue ──► ring thread ──┐ outcome, and one waking for many
//!      └───── request ──► desk ──► task: all requests that are under way ◄──┘
//!                                    └── books of the tier ──► landing
//! ```
//!
//! The caller leaves word at the request that the task be woken, so that what is asked for costs no waking, and what has ended costs
//! one for all that end together. The task looks at all of its requests then: the manager bounds them, to some hundreds at the most.
//!
//! Nobody waits for room in a volume's queue, but threads that the runtime has for that (`errand.rs`): the manager asks for no more at once
//! than has room, so that it takes a purge to fill a queue, or a device that fails. What slots held that were given back is forgotten by
//! [`forget_given_back`](DiskPort::forget_given_back), of which only the waiting is put off.
//!
//! Dropped, the mover leaves its task to answer what is under way; the last answer closes the volumes, before it is given. A task
//! that ends early, with its runtime, answers what the device has, and gives up the rest: [`Cause::Abandoned`]. Their buffers stay with
//! the requests until the device has answered, and the slots that were to be written are not used again.
//!
//! Invariants
//! - I1: a request is at the desk, or with the task, or with a thread that waits for room, or answered; a request that is dropped is answered.
//! - I2: who puts a request on the desk leaves word for the task under the desk's lock, and the task takes over what is there under it
//!   before it looks: an outcome that comes meanwhile wakes it again, and it finds the request.
//! - I3: a landing is called without the desk's lock, so that it may ask for more.
//! - I4: the task does not end while a thread has a request that it will bring to the desk.

use super::errand;
use super::tier::DiskTier;
use super::write::WriteOutcome;
use crate::transfer::{
    Cause, Closing, DiskPort, DiskRead, DiskWrite, Erasing, Failure, Landed, Landing, Token,
};
use kvstrata_core::{BlockId, BlockPool, BlockRef, ImmutableBlock, MutableBlock, SequenceHash};
use kvstrata_ffi::arena::{BlockRead, BlockWrite};
use kvstrata_ffi::disk::{IoFailure, Name, OwnerId, Pending};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::runtime::Handle;

/// One in so many places of a volume's queue of writes is left to what is not a write of the manager's.
const FOR_OTHERS: usize = 4;

/// A disk tier as transfers use it. Its methods need no runtime; the task that answers runs on the one that it was made with.
#[derive(Debug)]
pub struct DiskMover {
    tier: Arc<DiskTier>,
    desk: Arc<Desk>,
    runtime: Handle,
}

impl DiskMover {
    /// Reads and writes of `tier`, answered by a task on `runtime`.
    #[must_use]
    pub fn new(tier: Arc<DiskTier>, runtime: &Handle) -> DiskMover {
        let desk = Arc::new(Desk::default());
        let runtime = runtime.clone();
        let serving = Serving { desk: Arc::clone(&desk), requests: Vec::new(), runtime: runtime.clone() };
        runtime.spawn(serving);
        DiskMover { tier, desk, runtime }
    }

    /// The same, and writes end in the order in which they began, for whoever counts on the age of blocks: one that is down is found when
    /// those before it are.
    #[must_use]
    pub fn in_order(self) -> DiskMover {
        self.desk.lock().in_order = true;
        self
    }

    /// The tier.
    #[must_use]
    pub fn tier(&self) -> &Arc<DiskTier> {
        &self.tier
    }

    fn follow(&self, token: Token, landing: Landing, transfer: Transfer) {
        let tier = Arc::clone(&self.tier);
        self.desk.put(Request(Some(UnderWay { tier, token, landing, transfer })), false);
    }

    /// The same, begun by a thread that may wait.
    fn follow_later(
        &self,
        token: Token,
        landing: Landing,
        begin: impl FnOnce(&DiskTier) -> Transfer + Send + 'static,
    ) {
        let (tier, desk) = (Arc::clone(&self.tier), Arc::clone(&self.desk));
        desk.lock().away += 1;
        errand::run(&self.runtime, move || {
            let transfer = begin(&tier);
            desk.put(Request(Some(UnderWay { tier, token, landing, transfer })), true);
        });
    }
}

impl DiskPort for DiskMover {
    fn pool(&self) -> &BlockPool {
        self.tier.pool()
    }

    fn recovered(&self) -> Vec<(BlockId, OwnerId)> {
        self.tier.take_owners()
    }

    fn lookup(&self, hash: SequenceHash) -> Option<ImmutableBlock<'_>> {
        self.tier.lookup(hash)
    }

    fn used(&self, hash: SequenceHash) {
        self.tier.used(hash);
    }

    fn admits(&self, hash: SequenceHash, now: Duration) -> bool {
        self.tier.admits(hash, now)
    }

    fn take(&self, wanted: usize, slots: &mut Vec<BlockId>) {
        slots.extend(self.tier.take(wanted).into_iter().map(|slot| slot.into_id()));
    }

    fn take_this(&self, block: BlockRef) -> Option<BlockId> {
        self.tier.take_this(block).map(MutableBlock::into_id)
    }

    fn erase(&self, slots: Vec<BlockId>, zero: bool) -> Erasing {
        let (tier, given) = (Arc::clone(&self.tier), slots.clone());
        let erased = self.runtime.spawn_blocking(move || tier.erase(&slots, zero));
        // The runtime has ended: nobody knows what became of them.
        Box::pin(async move { erased.await.unwrap_or(given) })
    }

    fn give_back(&self, slot: BlockId) {
        self.tier.put_back(slot);
    }

    fn forget_given_back(&self) {
        forget_all(&self.tier, &self.runtime);
    }

    fn reads_at_once(&self) -> u32 {
        self.tier.volumes().reads_at_once().try_into().unwrap_or(u32::MAX)
    }

    fn writes_at_once(&self) -> u32 {
        let most = self.tier.volumes().writes_at_once();
        // What is forgotten, and overwritten by a purge, takes its turn among them.
        (most - most / FOR_OTHERS).try_into().unwrap_or(u32::MAX)
    }

    fn losses(&self) -> u64 {
        self.tier.losses()
    }

    fn is_lost(&self, slot: BlockId) -> bool {
        self.tier.is_lost(slot.0)
    }

    fn read(&self, read: DiskRead) {
        let DiskRead { token, slot, hash, urgency, buffer, landing } = read;
        match self.tier.volumes().try_read(slot.0, hash, urgency, buffer) {
            Ok(pending) => self.follow(token, landing, Transfer::Read { slot, pending }),
            Err(buffer) => self.follow_later(token, landing, move |tier| {
                let pending = tier.read_slot(slot, hash, urgency, buffer);
                Transfer::Read { slot, pending }
            }),
        }
    }

    fn write(&self, write: DiskWrite) {
        let DiskWrite { token, slot, name, bytes, landing } = write;
        match self.tier.try_write_slot(slot, name, bytes) {
            Ok(pending) => self.follow(token, landing, Transfer::Write { slot, name, pending }),
            Err(bytes) => self.follow_later(token, landing, move |tier| {
                let pending = tier.write_slot(slot, name, bytes);
                Transfer::Write { slot, name, pending }
            }),
        }
    }

    fn unregister(&self, block: BlockRef) {
        self.tier.unregister(block);
    }

    fn describe(&self) -> String {
        let volumes: Vec<String> = self.tier.volumes().descriptions().map(ToString::to_string).collect();
        volumes.join("\n")
    }

    fn close(&self) -> Option<Closing> {
        let tier = Arc::clone(&self.tier);
        Some(Box::new(move || tier.close()))
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

/// Where the task finds what has been asked for.
#[derive(Debug, Default)]
struct Desk(Mutex<Books>);

#[derive(Debug, Default)]
struct Books {
    /// `None` before the task has run, and after its end.
    task: Option<Waker>,
    asked: Vec<Request>,
    /// Requests with threads that will put them here (I4).
    away: usize,
    /// Writes end in order.
    in_order: bool,
    /// Nothing more will be asked for.
    closing: bool,
    /// The task is no more.
    gone: bool,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, Books> {
        // A waker that panics does so before or after a change, never in the middle of one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, request: Request, was_away: bool) {
        let mut books = self.lock();
        books.away -= usize::from(was_away);
        if books.gone {
            drop(books);
            // Here it is answered (I1).
            return drop(request);
        }
        // A task that has not run yet looks at all that is there.
        let told = books.task.as_ref().is_none_or(|task| request.tell(task));
        books.asked.push(request);
        let late = if told { None } else { books.task.clone() };
        drop(books);
        if let Some(task) = late {
            task.wake();
        }
    }

    /// Moves all that has been asked for to `requests`, and remembers whom to wake. Whether that is the last of it, and whether writes end
    /// in order.
    fn take_over(&self, task: &Waker, requests: &mut Vec<Request>) -> (bool, bool) {
        let mut books = self.lock();
        if !books.task.as_ref().is_some_and(|known| known.will_wake(task)) {
            books.task = Some(task.clone());
        }
        requests.append(&mut books.asked);
        (books.closing && books.away == 0, books.in_order)
    }

    fn end(&self) -> (Option<Waker>, Vec<Request>) {
        let mut books = self.lock();
        books.gone = true;
        (books.task.take(), std::mem::take(&mut books.asked))
    }
}

/// The task.
struct Serving {
    desk: Arc<Desk>,
    requests: Vec<Request>,
    runtime: Handle,
}

impl Future for Serving {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Serving { desk, requests, runtime } = self.get_mut();
        let (last, in_order) = desk.take_over(context.waker(), requests);
        let mut behind = false;
        requests.retain_mut(|request| {
            let write = in_order && request.is_write();
            // One that is passed over is looked at when the one before it has ended.
            let pending = write && behind || request.look(context, Some(runtime)).is_pending();
            behind |= write && pending;
            pending
        });
        if last && requests.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Answered without the lock (I3), like those of the task's own, which are dropped after this.
        drop(self.desk.end());
    }
}

/// A transfer, with whom to answer; `None` once that has been done.
#[derive(Debug)]
struct Request(Option<UnderWay>);

#[derive(Debug)]
struct UnderWay {
    /// Keeps the volumes open.
    tier: Arc<DiskTier>,
    token: Token,
    landing: Landing,
    transfer: Transfer,
}

#[derive(Debug)]
enum Transfer {
    Read {
        slot: BlockId,
        pending: Pending<BlockWrite>,
    },
    Write {
        slot: BlockId,
        name: Name,
        pending: Pending<BlockRead>,
    },
    /// A read that has failed, of which no note could be taken without waiting.
    Failed {
        slot: BlockId,
        failure: IoFailure,
    },
}

impl Request {
    /// [`Pending::tell`].
    fn tell(&self, task: &Waker) -> bool {
        self.0.as_ref().is_some_and(|under_way| match &under_way.transfer {
            Transfer::Read { pending, .. } => pending.tell(task),
            Transfer::Write { pending, .. } => pending.tell(task),
            Transfer::Failed { .. } => false,
        })
    }

    fn is_write(&self) -> bool {
        matches!(&self.0, Some(UnderWay { transfer: Transfer::Write { .. }, .. }))
    }

    /// Answers, if the device has. With a runtime it does not wait: one of its threads does, if need be, and answers. Ready: there is
    /// nothing more to do here.
    fn look(&mut self, context: &mut Context<'_>, runtime: Option<&Handle>) -> Poll<()> {
        let Some(UnderWay { tier, token, transfer, .. }) = &mut self.0 else { return Poll::Ready(()) };
        let landed = match transfer {
            Transfer::Read { slot, pending } => {
                let outcome = std::task::ready!(Pin::new(pending).poll(context));
                match outcome {
                    Ok(bytes) => Landed::Read(*token, Ok(bytes)),
                    // The block is held until the answer.
                    Err(failure) => match tier.try_rejected_slot(*slot, &failure) {
                        Some(_) => Landed::Read(*token, Err(Failure::from(&failure))),
                        None => {
                            *transfer = Transfer::Failed { slot: *slot, failure };
                            return self.wait_for_room(context, runtime);
                        }
                    },
                }
            }
            Transfer::Write { slot, name, pending } => {
                let outcome = std::task::ready!(Pin::new(pending).poll(context));
                let landed = Landed::Write(*token, write_ended(tier, *slot, *name, outcome));
                match runtime {
                    Some(runtime) => forget_all(tier, runtime),
                    None => tier.forget_all(),
                }
                landed
            }
            Transfer::Failed { slot, failure } => {
                tier.rejected_slot(*slot, failure);
                Landed::Read(*token, Err(Failure::from(&*failure)))
            }
        };
        self.answer(landed);
        Poll::Ready(())
    }

    /// For one that is to be looked at by a thread that may wait.
    fn wait_for_room(&mut self, context: &mut Context<'_>, runtime: Option<&Handle>) -> Poll<()> {
        let Some(runtime) = runtime else { return self.look(context, None) };
        let request = Request(self.0.take());
        // Dropped, it is looked at.
        errand::run(runtime, move || drop(request));
        Poll::Ready(())
    }

    fn answer(&mut self, landed: Landed) {
        let Some(UnderWay { tier, landing, .. }) = self.0.take() else { return };
        // The last one closes the volumes: whoever has heard of all finds them closed.
        drop(tier);
        landing.land(landed);
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // What has ended is not given up.
        if self.look(&mut Context::from_waker(Waker::noop()), None).is_ready() {
            return;
        }
        let Some(UnderWay { tier, token, transfer, .. }) = &self.0 else { return };
        let failure = Failure::of(Cause::Abandoned);
        let landed = match transfer {
            Transfer::Read { .. } | Transfer::Failed { .. } => Landed::Read(*token, Err(failure)),
            Transfer::Write { slot, .. } => {
                tier.abandoned(*slot);
                Landed::Write(*token, Err(failure))
            }
        };
        self.answer(landed);
    }
}

/// What is on the tier's list is forgotten; a thread that may wait sees to what cannot be at once.
fn forget_all(tier: &Arc<DiskTier>, runtime: &Handle) {
    if !tier.try_forget_all() {
        let tier = Arc::clone(tier);
        errand::run(runtime, move || tier.forget_all());
    }
}

fn write_ended(
    tier: &DiskTier,
    slot: BlockId,
    name: Name,
    outcome: Result<BlockRead, IoFailure>,
) -> Result<BlockRead, Failure> {
    let books = tier.note_ended(slot, name, outcome.as_ref().map(drop));
    match (outcome, books) {
        (Ok(bytes), WriteOutcome::Stored) => Ok(bytes),
        // The slot was not the caller's.
        (Ok(_), _) => Err(Failure::of(Cause::Busy)),
        (Err(failure), _) => Err(Failure::from(&failure)),
    }
}
