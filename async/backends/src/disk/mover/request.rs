//! A request, with the buffer and slot that it owns until its answer.
//!
//! ```text
//!   requested ──► in flight in a volume ──► answered
//!     │ the queue is full     │ a read failed, and the queue of writes is full
//!     └──► with a thread ──►  └──► with a thread, which ends the record and answers
//!              └── no thread: given up
//! ```
//!
//! Invariants
//! - I1: a request is answered once: by a look, by an errand, or by its drop.
//! - I2: it owns buffer and slot until the device has answered, or was never asked. An abandoned request
//!   keeps both.

use super::super::errand::NoThread;
use super::super::read::ReadOutcome;
use super::super::tier::DiskTier;
use super::super::write::WriteOutcome;
use kvstrata_core::{BlockId, SequenceHash};
use kvstrata_ffi::arena::{BlockRead, BlockWrite};
use kvstrata_ffi::disk::{IoFailure, Name, Payload, Pending, Urgency};
use kvstrata_tiers::transfer::{Cause, Failure, Landed, Landing, Token};
use std::pin::Pin;
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};

/// A transfer with its landing; `None` once it is answered.
#[derive(Debug)]
pub(super) struct Request(pub(super) Option<UnderWay>);

#[derive(Debug)]
pub(super) struct UnderWay {
    /// Keeps the volumes open.
    pub(super) tier: Arc<DiskTier>,
    pub(super) whose: Whose,
    pub(super) transfer: Transfer,
}

/// Where to answer.
#[derive(Debug)]
pub(super) struct Whose {
    pub(super) token: Token,
    pub(super) landing: Landing,
    /// For a write that ends in order (`mover.rs`, I5).
    pub(super) place: Option<u64>,
}

/// A request that its volume has not got yet, because the queue is full.
#[derive(Debug)]
pub(super) enum Asked {
    Read { slot: BlockId, hash: SequenceHash, urgency: Urgency, buffer: BlockWrite },
    Write { slot: BlockId, name: Name, bytes: BlockRead, sum: Option<u64> },
}

#[derive(Debug)]
pub(super) enum Transfer {
    Read {
        slot: BlockId,
        pending: Pending<BlockWrite>,
    },
    Write {
        slot: BlockId,
        name: Name,
        pending: Pending<BlockRead>,
    },
    /// No volume got it, and none will.
    GivenUp {
        is_write: bool,
    },
}

/// The data of a write, with its sum if the engine has it.
pub(super) fn payload(bytes: BlockRead, sum: Option<u64>) -> Payload {
    match sum {
        Some(sum) => Payload::summed(bytes, sum),
        None => bytes.into(),
    }
}

impl Asked {
    pub(super) fn slot(&self) -> BlockId {
        match self {
            Asked::Read { slot, .. } | Asked::Write { slot, .. } => *slot,
        }
    }

    pub(super) fn is_write(&self) -> bool {
        matches!(self, Asked::Write { .. })
    }

    /// Starts the transfer; waits for room.
    pub(super) fn begin(self, tier: &DiskTier) -> Transfer {
        #[cfg(test)]
        assert!(!tier.errands_of(self.slot()).panics.swap(false, Relaxed), "a panic, as it should be");
        match self {
            Asked::Read { slot, hash, urgency, buffer } => {
                Transfer::Read { slot, pending: tier.read_slot(slot, hash, urgency, buffer) }
            }
            Asked::Write { slot, name, bytes, sum } => {
                Transfer::Write { slot, name, pending: tier.write_slot(slot, name, payload(bytes, sum)) }
            }
        }
    }

    /// Returns the buffer to its owner. The target slot of a write becomes free, or goes to the list of
    /// slots to forget.
    pub(super) fn give_up(self, tier: &DiskTier) -> Transfer {
        let is_write = self.is_write();
        if is_write {
            tier.put_back(self.slot());
        }
        Transfer::GivenUp { is_write }
    }
}

impl Request {
    /// Sets the waker, as [`Pending::tell`].
    pub(super) fn tell(&self, task: &Waker) -> bool {
        self.0.as_ref().is_some_and(|under_way| match &under_way.transfer {
            Transfer::Read { pending, .. } => pending.tell(task),
            Transfer::Write { pending, .. } => pending.tell(task),
            Transfer::GivenUp { .. } => false,
        })
    }

    pub(super) fn place(&self) -> Option<u64> {
        self.0.as_ref().and_then(|under_way| under_way.whose.place)
    }

    /// Answers if the device has; if that would have to wait for room, an errand does it. Ready: nothing
    /// is left to do here.
    pub(super) fn look(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(UnderWay { tier, whose, transfer }) = &mut self.0 else { return Poll::Ready(()) };
        let token = whose.token;
        let landed = match transfer {
            Transfer::Read { slot, pending } => {
                let outcome = std::task::ready!(Pin::new(pending).poll(context));
                match outcome {
                    Ok(bytes) => {
                        tier.say_state(tier.volume_of(slot.0));
                        Landed::Read(token, Ok(bytes))
                    }
                    // The block is held until the answer.
                    Err(failure) => match tier.try_rejected_slot(*slot, &failure) {
                        Some(outcome) => Landed::Read(token, Err(failed(outcome, &failure))),
                        None => {
                            let slot = *slot;
                            self.answer_later(slot, failure);
                            return Poll::Ready(());
                        }
                    },
                }
            }
            Transfer::Write { slot, name, pending } => {
                let outcome = std::task::ready!(Pin::new(pending).poll(context));
                let landed = Landed::Write(token, write_ended(tier, *slot, *name, outcome));
                forget_all(tier, tier.volume_of(slot.0));
                landed
            }
            Transfer::GivenUp { is_write } => abandoned(token, *is_write),
        };
        self.answer(landed);
        Poll::Ready(())
    }

    /// Answers a failed read, whose record must end first, on a thread that may wait. Without a thread
    /// the record and the block stay, and the read is given up.
    fn answer_later(&mut self, slot: BlockId, failure: IoFailure) {
        let mut request = Request(self.0.take());
        let Some(UnderWay { tier, .. }) = &request.0 else { return };
        // A clone of the errands, not of the tier: the errand may drop the tier's last reference.
        let errands = Arc::clone(tier.errands_of(slot));
        errands.run(Box::new(move |may_wait| {
            let Some(UnderWay { tier, whose, .. }) = &request.0 else { return };
            let landed = match may_wait {
                Ok(()) => {
                    let outcome = tier.rejected_slot(slot, &failure);
                    Landed::Read(whose.token, Err(failed(outcome, &failure)))
                }
                Err(NoThread) => abandoned(whose.token, false),
            };
            request.answer(landed);
        }));
    }

    fn answer(&mut self, landed: Landed) {
        let Some(UnderWay { tier, whose, .. }) = self.0.take() else { return };
        // The last reference closes the volumes: after all answers they are closed.
        drop(tier);
        whose.landing.land(landed);
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // A transfer that has ended is answered, not given up.
        if self.look(&mut Context::from_waker(Waker::noop())).is_ready() {
            return;
        }
        let Some(UnderWay { tier, whose, transfer }) = &self.0 else { return };
        let is_write = match transfer {
            Transfer::Read { .. } => false,
            Transfer::Write { slot, .. } => {
                tier.abandoned(*slot);
                true
            }
            Transfer::GivenUp { is_write } => *is_write,
        };
        let landed = abandoned(whose.token, is_write);
        self.answer(landed);
    }
}

/// A spared read is not the slot's failure.
fn failed(outcome: ReadOutcome, failure: &IoFailure) -> Failure {
    match outcome {
        ReadOutcome::Spared => Failure::of(Cause::Away),
        ReadOutcome::Rejected | ReadOutcome::Failed | ReadOutcome::Refused => Failure::from(failure),
    }
}

fn abandoned(token: Token, is_write: bool) -> Landed {
    let failure = Failure::of(Cause::Abandoned);
    if is_write { Landed::Write(token, Err(failure)) } else { Landed::Read(token, Err(failure)) }
}

/// Forgets the slots on a volume's list; an errand forgets those for which the queue has no room.
pub(super) fn forget_all(tier: &Arc<DiskTier>, volume: usize) {
    if !tier.try_forget_all(volume) {
        let of = Arc::clone(tier);
        tier.errands[volume].run(Box::new(move |may_wait| match may_wait {
            Ok(()) => of.forget_all(volume),
            Err(NoThread) => of.no_thread_comes(volume),
        }));
    }
}

fn write_ended(
    tier: &DiskTier,
    slot: BlockId,
    name: Name,
    outcome: Result<BlockRead, IoFailure>,
) -> Result<BlockRead, Failure> {
    let books = tier.note_ended(slot, name, outcome.as_ref());
    match (outcome, books) {
        (Ok(bytes), WriteOutcome::Stored) => Ok(bytes),
        // The caller did not own the slot.
        (Ok(_), _) => Err(Failure::of(Cause::Busy)),
        (Err(failure), _) => Err(Failure::from(&failure)),
    }
}
