//! Who holds what, and until when: dropped interest, dropped files, full queues, callers' code that misbehaves.

use super::super::driver::GdsOptions;
use super::super::error::{GdsError, TransferError};
use super::super::file::GdsFile;
use super::super::memory::GdsBuffer;
use super::fake::{Allocation, Answer, Event, Fake};
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

const BYTES: usize = 16 << 10;

fn file() -> Arc<std::fs::File> {
    let file = tempfile::tempfile().expect("a temporary file");
    file.set_len(BYTES as u64).expect("room");
    Arc::new(file)
}

/// The first transfer waits; its two ends: it is there, let it go.
fn hold_first(fake: &Fake) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (there, is_there) = mpsc::channel();
    let (go, gone) = mpsc::channel();
    let mut ends = Some((there, gone));
    fake.plan(move |_| ends.take().map_or(Answer::All, |(there, go)| Answer::Held(there, go)));
    (is_there, go)
}

#[test]
fn dropped_interest_leaves_the_memory_until_cufile_has_answered() {
    let fake = Fake::new();
    let driver = fake.driver();
    let gds = GdsFile::register(&driver, file(), GdsOptions::new(0)).expect("registered");
    let (is_there, go) = hold_first(&fake);
    // The range alone keeps the buffer, and that the memory.
    let range = {
        let buffer = GdsBuffer::register(&driver, Allocation::new(BYTES).memory()).expect("registered");
        buffer.range(0, BYTES).expect("in range")
    };
    let pending = gds.read(range, 0);
    is_there.recv().expect("under way");
    drop(pending);
    let log = fake.log();
    assert!(!log.contains(&Event::Freed) && !log.contains(&Event::BufferDeregister), "{log:?}");
    go.send(()).expect("waits");
    drop(gds);
    assert_eq!(fake.log(), [Event::BufferDeregister, Event::Freed, Event::Deregister]);
}

#[test]
fn a_dropped_file_answers_everything_first() {
    let fake = Fake::new();
    let driver = fake.driver();
    let gds = GdsFile::register(&driver, file(), GdsOptions::new(0).threads(1)).expect("registered");
    let buffer = GdsBuffer::unregistered(&driver, Allocation::new(BYTES).memory());
    let (is_there, go) = hold_first(&fake);
    let pending: Vec<_> = (0..3).map(|_| gds.read(buffer.range(0, 4096).expect("in range"), 0)).collect();
    is_there.recv().expect("under way");
    fake.log();
    let dropper = thread::spawn(move || drop(gds));
    assert!(pending.iter().all(|pending| !pending.is_done()), "the first is held, the others wait behind it");
    assert!(!fake.log().contains(&Event::Deregister));
    go.send(()).expect("waits");
    dropper.join().expect("ends");
    for pending in pending {
        assert!(pending.is_done());
        pending.wait().expect("read");
    }
    let read = Event::Read(4096, 0, 0);
    assert_eq!(fake.log(), [read, read, Event::Deregister]);
    drop((buffer, driver));
    assert_eq!(fake.log(), [Event::Freed, Event::Close, Event::Release(0)]);
}

#[test]
fn a_full_queue_refuses_and_never_waits() {
    let fake = Fake::new();
    let driver = fake.driver();
    let gds = GdsFile::register(&driver, file(), GdsOptions::new(0).threads(1).queue(2)).expect("registered");
    let buffer = GdsBuffer::unregistered(&driver, Allocation::new(BYTES).memory());
    let (is_there, go) = hold_first(&fake);
    let read = || gds.read(buffer.range(0, 4096).expect("in range"), 0);
    let under_way = read();
    is_there.recv().expect("under way");
    let waiting = [read(), read()];
    assert!(matches!(read().try_wait(), Ok(Err(TransferError::Full { queued: 2 }))));
    go.send(()).expect("waits");
    under_way.wait().expect("read");
    waiting.into_iter().for_each(|pending| drop(pending.wait().expect("read")));
    read().wait().expect("room again");
}

#[test]
fn memory_that_cannot_be_registered_is_given_back_or_used_as_it_is() {
    let fake = Fake::new();
    let driver = fake.driver();
    fake.set(|world| world.buffer_register = 5036);
    let refused = GdsBuffer::register(&driver, Allocation::new(BYTES).memory()).expect_err("refused");
    assert!(matches!(refused, GdsError::BufferRefused { bytes: BYTES, .. }));
    assert!(
        refused
            .to_string()
            .contains("16384 bytes of device memory with 5036 CU_FILE_GPU_MEMORY_PINNING_FAILED")
    );
    let log = fake.log();
    assert_eq!(log[log.len() - 2..], [Event::BufferRegister(BYTES), Event::Freed]);
    let gds = GdsFile::register(&driver, file(), GdsOptions::new(0)).expect("registered");
    let buffer = GdsBuffer::unregistered(&driver, Allocation::new(BYTES).memory());
    gds.write(buffer.range(0, BYTES).expect("in range"), 0).wait().expect("written");
    drop((gds, buffer));
    assert!(!fake.log().contains(&Event::BufferDeregister));
}

/// A file that is dropped by one of its own threads: in the waker of a task.
struct Dropper(Mutex<Option<GdsFile>>, Mutex<mpsc::Sender<()>>);

impl Wake for Dropper {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().expect("whole").take());
        self.1.lock().expect("whole").send(()).expect("the test waits");
    }
}

#[test]
fn a_file_may_be_dropped_by_its_own_thread() {
    let fake = Fake::new();
    let driver = fake.driver();
    let gds = GdsFile::register(&driver, file(), GdsOptions::new(0).threads(2)).expect("registered");
    let buffer = GdsBuffer::unregistered(&driver, Allocation::new(BYTES).memory());
    let (is_there, go) = hold_first(&fake);
    let (dropped, is_dropped) = mpsc::channel();
    let mut pending = pin!(gds.read(buffer.range(0, BYTES).expect("in range"), 0));
    is_there.recv().expect("under way");
    let waker = Waker::from(Arc::new(Dropper(Mutex::new(Some(gds)), Mutex::new(dropped))));
    let mut context = Context::from_waker(&waker);
    assert!(pending.as_mut().poll(&mut context).is_pending());
    go.send(()).expect("waits");
    is_dropped.recv().expect("by the thread that served it");
    assert!(matches!(pending.as_mut().poll(&mut context), Poll::Ready(Ok(_))));
    // That thread deregisters the file and gives the driver back, in its own time.
    drop(buffer);
    while Arc::strong_count(&driver) > 1 {
        thread::yield_now();
    }
    assert!(fake.log().contains(&Event::Deregister));
}

/// An owner that panics when it goes.
struct Bad(Arc<Allocation>);

impl Drop for Bad {
    fn drop(&mut self) {
        let _ = &self.0;
        std::panic::resume_unwind(Box::new("a bad owner"));
    }
}

#[test]
fn an_owner_that_panics_takes_no_thread_with_it() {
    let fake = Fake::new();
    let driver = fake.driver();
    let gds = GdsFile::register(&driver, file(), GdsOptions::new(0).threads(1)).expect("registered");
    let memory = Allocation::new(BYTES);
    let bad = || {
        let owner = Arc::new(Bad(Arc::clone(&memory)));
        GdsBuffer::unregistered(&driver, memory.memory_of(owner)).range(0, 4096).expect("in range")
    };
    // Nobody is interested any more: the thread drops the memory, after a success and after a failure.
    for answer in [0, -5030] {
        fake.plan(move |_| if answer == 0 { Answer::All } else { Answer::Number(answer) });
        let (is_there, go) = hold_first(&fake);
        let _first =
            gds.read(GdsBuffer::unregistered(&driver, memory.memory()).range(0, 1).expect("in range"), 0);
        is_there.recv().expect("under way");
        drop(gds.read(bad(), 0));
        fake.plan(move |_| if answer == 0 { Answer::All } else { Answer::Number(answer) });
        go.send(()).expect("waits");
    }
    let refused = gds.read(bad(), 0).wait().expect_err("the last plan");
    assert!(
        matches!(refused, TransferError::CuFile(code) if code.code == 5030),
        "and the news comes all the same"
    );
    fake.plan(|_| Answer::All);
    let good = GdsBuffer::unregistered(&driver, memory.memory()).range(0, BYTES).expect("in range");
    gds.read(good, 0).wait().expect("the one thread is alive");
}
