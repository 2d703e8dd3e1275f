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
//! Dropped, the mover leaves its task to answer what is under way; the last answer closes the volumes, before it is given. A task
//! that ends early, with its runtime, answers what the device has, and gives up the rest: [`Cause::Abandoned`]. Their buffers stay with
//! the requests until the device has answered, and the slots that were to be written are not used again.
//!
//! Invariants
//! - I1: a request is at the desk, or with the task, or answered; a request that is dropped is answered.
//! - I2: who puts a request on the desk leaves word for the task under the desk's lock, and the task takes over what is there under it
//!   before it looks: an outcome that comes meanwhile wakes it again, and it finds the request.
//! - I3: a landing is called without the desk's lock, so that it may ask for more.

use super::tier::DiskTier;
use super::write::WriteOutcome;
use crate::transfer::{
    Cause, Closing, DiskPort, DiskRead, DiskWrite, Erasing, Failure, Landed, Landing, Token,
};
use kvstrata_core::{BlockId, BlockPool, BlockRef, ImmutableBlock, MutableBlock, SequenceHash};
use kvstrata_ffi::arena::{BlockRead, BlockWrite};
use kvstrata_ffi::disk::{IoFailure, Name, Pending};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::runtime::Handle;

/// A disk tier as transfers use it. Its methods need no runtime; the task that answers runs on the one that it was made with.
#[derive(Debug)]
pub struct DiskMover {
    tier: Arc<DiskTier>,
    desk: Arc<Desk>,
}

impl DiskMover {
    /// Reads and writes of `tier`, answered by a task on `runtime`.
    #[must_use]
    pub fn new(tier: Arc<DiskTier>, runtime: &Handle) -> DiskMover {
        let desk = Arc::new(Desk::default());
        runtime.spawn(Serving { desk: Arc::clone(&desk), requests: Vec::new() });
        DiskMover { tier, desk }
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
        self.desk.put(Request(Some(UnderWay { tier, token, landing, transfer })));
    }
}

impl DiskPort for DiskMover {
    fn pool(&self) -> &BlockPool {
        self.tier.pool()
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
        let tier = Arc::clone(&self.tier);
        Box::pin(async move { tier.erase(&slots, zero).await })
    }

    fn give_back(&self, slot: BlockId) {
        self.tier.give_back(slot);
    }

    fn losses(&self) -> u64 {
        self.tier.losses()
    }

    fn is_lost(&self, slot: BlockId) -> bool {
        self.tier.is_lost(slot.0)
    }

    fn read(&self, read: DiskRead) {
        let DiskRead { token, slot, hash, urgency, buffer, landing } = read;
        let pending = self.tier.read_slot(slot, hash, urgency, buffer);
        self.follow(token, landing, Transfer::Read { slot, pending });
    }

    fn write(&self, write: DiskWrite) {
        let DiskWrite { token, slot, name, bytes, landing } = write;
        let pending = self.tier.write_slot(slot, name, bytes);
        self.follow(token, landing, Transfer::Write { slot, name, pending });
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

    fn put(&self, request: Request) {
        let mut books = self.lock();
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
        (books.closing, books.in_order)
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
}

impl Future for Serving {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Serving { desk, requests } = self.get_mut();
        let (last, in_order) = desk.take_over(context.waker(), requests);
        let mut behind = false;
        requests.retain_mut(|request| {
            let write = in_order && request.is_write();
            // One that is passed over is looked at when the one before it has ended.
            let pending = write && behind || request.look(context).is_pending();
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
    Read { slot: BlockId, pending: Pending<BlockWrite> },
    Write { slot: BlockId, name: Name, pending: Pending<BlockRead> },
}

impl Request {
    /// [`Pending::tell`].
    fn tell(&self, task: &Waker) -> bool {
        self.0.as_ref().is_some_and(|under_way| match &under_way.transfer {
            Transfer::Read { pending, .. } => pending.tell(task),
            Transfer::Write { pending, .. } => pending.tell(task),
        })
    }

    fn is_write(&self) -> bool {
        matches!(&self.0, Some(UnderWay { transfer: Transfer::Write { .. }, .. }))
    }

    /// Answers, if the device has.
    fn look(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(UnderWay { tier, token, transfer, .. }) = &mut self.0 else { return Poll::Ready(()) };
        let landed = match transfer {
            Transfer::Read { slot, pending } => {
                let outcome = std::task::ready!(Pin::new(pending).poll(context));
                Landed::Read(*token, read_ended(tier, *slot, outcome))
            }
            Transfer::Write { slot, name, pending } => {
                let outcome = std::task::ready!(Pin::new(pending).poll(context));
                Landed::Write(*token, write_ended(tier, *slot, *name, outcome))
            }
        };
        self.answer(landed);
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
        if self.look(&mut Context::from_waker(Waker::noop())).is_ready() {
            return;
        }
        let Some(UnderWay { tier, token, transfer, .. }) = &self.0 else { return };
        let failure = Failure::of(Cause::Abandoned);
        let landed = match transfer {
            Transfer::Read { .. } => Landed::Read(*token, Err(failure)),
            Transfer::Write { slot, .. } => {
                tier.abandoned(*slot);
                Landed::Write(*token, Err(failure))
            }
        };
        self.answer(landed);
    }
}

fn read_ended(
    tier: &DiskTier,
    slot: BlockId,
    outcome: Result<BlockWrite, IoFailure>,
) -> Result<BlockWrite, Failure> {
    outcome.map_err(|failure| {
        // The block is held until the answer.
        tier.rejected_slot(slot, &failure);
        Failure::from(&failure)
    })
}

fn write_ended(
    tier: &DiskTier,
    slot: BlockId,
    name: Name,
    outcome: Result<BlockRead, IoFailure>,
) -> Result<BlockRead, Failure> {
    let books = tier.ended(slot, name, outcome.as_ref().map(drop));
    match (outcome, books) {
        (Ok(bytes), WriteOutcome::Stored) => Ok(bytes),
        // The slot was not the caller's.
        (Ok(_), _) => Err(Failure::of(Cause::Busy)),
        (Err(failure), _) => Err(Failure::from(&failure)),
    }
}
