//! loom models of I1, I2 and I3: `RUSTFLAGS="--cfg loom" cargo test -p kvstrata-ffi --lib inbox`. Real
//! requests over a real arena; the queues are stand-ins with room for one request each (`src/sync.rs`). A
//! caller or a ring thread that sleeps for ever is a deadlock, which loom reports.

use super::{Bell, Inbox};
use crate::arena::{BlockRead, BlockWrite, HostArena};
use crate::disk::error::FailureCause;
use crate::disk::pending::{Cell, Pending};
use crate::disk::recovery::Name;
use crate::disk::request::{Class, Place, Request, Urgency};
use crate::sync::{Arc, Notify, model, spawn};
use std::future::Future;
use std::path::Path;
use std::sync::Mutex;
use std::task::{Context, Wake};

const BLOCKS: usize = 4;
const NAME: Name =
    Name { hash: kvstrata_core::SequenceHash::from_u128(1), parent: None, owner: crate::disk::OwnerId::NONE };

struct Rig {
    inbox: Inbox,
    arena: std::sync::Arc<HostArena>,
}

impl Rig {
    fn new() -> Arc<Rig> {
        let inbox = Inbox::new(1, std::sync::Arc::from(Path::new("model")));
        Arc::new(Rig { inbox, arena: HostArena::new(BLOCKS, 8).expect("memory") })
    }

    /// A request that writes a block, and the caller's end of it. Its place in the file is the
    /// block's number.
    fn write(&self, block: usize) -> (Request, Pending<BlockRead>) {
        let cell = Cell::new();
        let buffer = self.arena.read(block).expect("free");
        (Request::write(buffer.into(), NAME, std::sync::Arc::clone(&cell), place(block)), Pending::new(cell))
    }

    /// As `write`, but it reads into the block.
    fn read(&self, block: usize) -> (Request, Pending<BlockWrite>) {
        let cell = Cell::new();
        let buffer = self.arena.write(block).expect("free");
        let request =
            Request::read(buffer, NAME.hash, Urgency::Ordinary, std::sync::Arc::clone(&cell), place(block));
        (request, Pending::new(cell))
    }

    /// The ring thread's part: takes the queued requests, and answers them at once. Returns their
    /// blocks, in order.
    fn pull(&self, class: Class) -> Vec<u64> {
        let mut blocks = Vec::new();
        while let Some(request) = self.inbox.pop(class) {
            blocks.push(request.file_offset);
            request.finish(&self.inbox.path);
        }
        if !blocks.is_empty() {
            self.inbox.made_room();
        }
        blocks
    }

    /// The engine's loop, up to the volume's end.
    fn serve(&self, bell: &Notify) -> Vec<u64> {
        let mut served = Vec::new();
        loop {
            served.extend(self.pull(Class::Read));
            served.extend(self.pull(Class::Write));
            if self.inbox.closing() && self.inbox.is_empty() {
                self.inbox.leave();
                return served;
            }
            if self.inbox.doze([true; 3], true) {
                bell.wait();
                self.inbox.woke();
            }
        }
    }

    fn bell(&self) -> Arc<Notify> {
        let bell = Arc::new(Notify::new());
        let ring = bell.clone();
        self.inbox.set_bell(Box::new(move || ring.notify()) as Bell);
        bell
    }

    /// Nothing is queued, no caller waits, and every buffer is back in its arena.
    fn at_rest(&self) {
        assert!(self.inbox.is_empty(), "a request is left in its queue");
        assert_eq!(self.inbox.blocked(), 0);
        for block in 0..BLOCKS {
            assert!(self.arena.write(block).is_ok(), "block {block} did not come back");
        }
    }
}

fn place(block: usize) -> Place {
    Place { slot: block as u32, file_offset: block as u64, transfer_bytes: 8 }
}

fn succeeded<B>(pending: Pending<B>) {
    let Ok(outcome) = pending.try_wait() else { panic!("a request was not answered") };
    drop(outcome.expect("served"));
}

fn refused<B: core::fmt::Debug>(pending: Pending<B>) {
    let Ok(outcome) = pending.try_wait() else { panic!("a request was not answered") };
    assert_eq!(outcome.expect_err("nobody served it").cause, FailureCause::OutOfService);
}

/// I3: a caller that finds its queue full, just when the ring thread makes room, does not sleep for ever.
#[test]
fn waiting_caller_finds_room() {
    model(|| {
        let rig = Rig::new();
        let (first, answer) = rig.write(0);
        rig.inbox.push(first);
        let other = rig.clone();
        let caller = spawn(move || {
            let (second, answer) = other.write(1);
            other.inbox.push(second);
            answer
        });
        // One turn: a later request must have come by itself, or as an effect of this turn.
        let mut served = rig.pull(Class::Write);
        let second = caller.join().expect("no panic");
        served.extend(rig.pull(Class::Write));
        assert_eq!(served, [0, 1], "in order");
        succeeded(answer);
        succeeded(second);
        rig.at_rest();
    });
}

/// I3: room in one queue wakes its own caller, though another caller waits for the other queue.
#[test]
fn room_in_a_queue_wakes_its_own_caller() {
    model(|| {
        let rig = Rig::new();
        let (to_read, read) = rig.read(0);
        let (to_write, write) = rig.write(1);
        rig.inbox.push(to_read);
        rig.inbox.push(to_write);
        let (other, another) = (rig.clone(), rig.clone());
        let writer = spawn(move || {
            let (request, answer) = other.write(3);
            other.inbox.push(request);
            answer
        });
        let reader = spawn(move || {
            let (request, answer) = another.read(2);
            another.inbox.push(request);
            answer
        });
        let mut served = rig.pull(Class::Read);
        succeeded(read);
        // The writes get no turn before the reader has ended.
        let second_read = reader.join().expect("no panic");
        served.extend(rig.pull(Class::Read));
        assert_eq!(served, [0, 2], "in order");
        succeeded(second_read);
        let mut served = rig.pull(Class::Write);
        let second_write = writer.join().expect("no panic");
        served.extend(rig.pull(Class::Write));
        assert_eq!(served, [1, 3], "in order");
        succeeded(write);
        succeeded(second_write);
        rig.at_rest();
    });
}

/// I1, I2: the whole path, against a ring thread that sleeps whenever it may. A caller sends two requests
/// through a queue of one place, and another thread, which knows that it has, closes. Both are served, in
/// order, and the ring thread ends.
#[test]
fn requests_are_served_in_order_and_the_end_is_heard() {
    model(|| {
        let rig = Rig::new();
        let bell = rig.bell();
        let (served, sent) = (rig.clone(), rig.clone());
        let ring = spawn(move || served.serve(&bell));
        let caller = spawn(move || {
            [0, 1].map(|block| {
                let (request, answer) = sent.write(block);
                sent.inbox.push(request);
                answer
            })
        });
        let answers = caller.join().expect("no panic");
        rig.inbox.close();
        assert_eq!(ring.join().expect("no panic"), [0, 1], "in order");
        answers.into_iter().for_each(succeeded);
        rig.at_rest();
    });
}

/// I1: the ring thread goes while a caller comes to an empty queue: its request is swept, or the caller
/// finds out itself.
#[test]
fn lost_ring_leaves_no_request_behind() {
    model(|| {
        let rig = Rig::new();
        let other = rig.clone();
        let caller = spawn(move || {
            let (request, answer) = other.write(0);
            other.inbox.push(request);
            answer
        });
        rig.inbox.leave();
        refused(caller.join().expect("no panic"));
        rig.at_rest();
    });
}

/// I1: the ring thread goes while a caller waits for room, or is about to: the caller does not sleep for
/// ever, and its request fails.
#[test]
fn lost_ring_wakes_callers_that_wait_for_room() {
    model(|| {
        let rig = Rig::new();
        let (first, answer) = rig.write(0);
        rig.inbox.push(first);
        let other = rig.clone();
        let caller = spawn(move || {
            let (request, answer) = other.write(1);
            other.inbox.push(request);
            answer
        });
        rig.inbox.leave();
        refused(caller.join().expect("no panic"));
        refused(answer);
        rig.at_rest();
    });
}

/// I1: callers that come after the ring thread is gone do not wait, though the queue has room for only
/// one of them.
#[test]
fn request_to_a_gone_ring_fails_without_waiting() {
    model(|| {
        let rig = Rig::new();
        rig.inbox.leave();
        let other = rig.clone();
        let caller = spawn(move || {
            let (request, answer) = other.write(0);
            other.inbox.push(request);
            answer
        });
        let (request, answer) = rig.write(1);
        rig.inbox.push(request);
        refused(caller.join().expect("no panic"));
        refused(answer);
        rig.at_rest();
    });
}

/// A task that sends one more request when it is woken.
struct Resend {
    rig: Arc<Rig>,
    answer: Mutex<Option<Pending<BlockRead>>>,
}

impl Wake for Resend {
    fn wake(self: std::sync::Arc<Self>) {
        let (request, answer) = self.rig.write(2);
        self.rig.inbox.push(request);
        *self.answer.lock().expect("nobody panics") = Some(answer);
    }
}

/// A failed request wakes its task, whose waker may push again, and find the queue full again. So it is
/// never woken under the lock that this push takes.
#[test]
fn waker_of_a_failed_request_may_send_it_again() {
    model(|| {
        let rig = Rig::new();
        rig.inbox.leave();
        let task = std::sync::Arc::new(Resend { rig: rig.clone(), answer: Mutex::new(None) });
        let waker = std::sync::Arc::clone(&task).into();
        let (request, mut first) = rig.write(0);
        assert!(core::pin::Pin::new(&mut first).poll(&mut Context::from_waker(&waker)).is_pending());
        let other = rig.clone();
        let caller = spawn(move || {
            let (request, answer) = other.write(1);
            other.inbox.push(request);
            answer
        });
        rig.inbox.push(request);
        let (request, second) = rig.write(3);
        rig.inbox.push(request);
        refused(caller.join().expect("no panic"));
        refused(first);
        refused(second);
        refused(task.answer.lock().expect("nobody panics").take().expect("woken"));
        rig.at_rest();
    });
}
