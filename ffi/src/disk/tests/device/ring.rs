//! When the ring of both kinds sleeps, and how it calls the inner ring.

use super::*;
use crate::disk::ring::gds::GdsRing;
use crate::disk::ring::{Action, Bell, Completion, DevicePart, Op, Ring, Wait};
use crate::gds::{GdsFile, Pool};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

/// A ring that moves nothing. Instead of waiting it notes each wait, and runs `meanwhile`, if there is one.
#[derive(Clone, Default)]
struct Inner {
    waits: Arc<Mutex<Vec<Wait>>>,
    meanwhile: Arc<Mutex<Option<Meanwhile>>>,
}

type Meanwhile = Box<dyn FnOnce() + Send>;

impl Ring for Inner {
    fn depth(&self) -> usize {
        64
    }

    fn bell(&self) -> Bell {
        Box::new(|| {})
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    unsafe fn push(&mut self, _token: u32, _op: &Op<'_>) {
        panic!("no piece of host memory was pushed");
    }

    fn turn(&mut self, _done: &mut Vec<Completion>, wait: Wait) -> Result<u32, i32> {
        self.waits.lock().expect("no panic").push(wait);
        if let Some(meanwhile) = self.meanwhile.lock().expect("no panic").take() {
            meanwhile();
        }
        Ok(1)
    }
}

#[test]
fn ring_waits_for_one_piece_unless_a_device_answer_is_there() {
    let fake = Fake::new();
    let driver = fake.driver();
    let file = Arc::new(tempfile::tempfile().expect("a temporary file"));
    file.set_len(1 << 20).expect("room");
    let gds = GdsFile::register(&driver, file).expect("registered");
    let (ring_bell, rung) = mpsc::channel();
    let bell: Bell = Box::new(move || {
        let _ = ring_bell.send(());
    });
    let pool = Pool::start(gds, GdsOptions::new(0), None, bell).expect("threads");
    let inner = Inner::default();
    let mut ring = GdsRing::new(Box::new(inner.clone()), pool);
    let last_wait = || inner.waits.lock().expect("no panic").pop().expect("the inner ring was asked");
    let range =
        GdsBuffer::unregistered(&driver, Allocation::new(8192).memory()).range(4096, 4096).expect("in range");
    let push = |ring: &mut GdsRing, token, action, offset| {
        let device = Some(DevicePart { range: &range, offset });
        let op = Op { action, file_offset: 0, bytes: 4096, buffers: &[], device };
        // SAFETY: the memory is used by nothing else.
        unsafe { ring.push(token, &op) };
    };
    let mut done = Vec::new();
    let batch = Wait::Batch { pieces: 4, patience: Duration::from_millis(4) };
    ring.turn(&mut done, batch).expect("a turn");
    assert_eq!(last_wait(), batch, "nothing of the device's is under way");
    let (is_there, go) = fake.hold(0);
    push(&mut ring, 3, Action::Read, 0);
    is_there.recv().expect("under way");
    for (wait, asked) in [
        (batch, Wait::Forever),
        (Wait::For(Duration::from_secs(1)), Wait::For(Duration::from_secs(1))),
        (Wait::Forever, Wait::Forever),
        (Wait::No, Wait::No),
    ] {
        ring.turn(&mut done, wait).expect("a turn");
        assert_eq!((last_wait(), done.as_slice()), (asked, &[][..]));
    }
    // The answer comes while it sleeps.
    let bell = Arc::new(Mutex::new(rung));
    let wait_for_bell = move || bell.lock().expect("no panic").recv().expect("the bell rings");
    let wakes = wait_for_bell.clone();
    *inner.meanwhile.lock().expect("no panic") = Some(Box::new(move || {
        go.send(()).expect("waits");
        wakes();
    }));
    ring.turn(&mut done, Wait::Forever).expect("a turn");
    let ended = Completion { token: 3, result: 4096 };
    assert_eq!((last_wait(), done.as_slice()), (Wait::Forever, &[ended][..]));
    done.clear();
    // A piece beyond its range, or an action that device memory does not have, is refused.
    push(&mut ring, 4, Action::Read, 1);
    push(&mut ring, 5, Action::Punch, 0);
    ring.turn(&mut done, Wait::Forever).expect("a turn");
    let refused = [4, 5].map(|token| Completion { token, result: -libc::EINVAL });
    assert_eq!((last_wait(), done.as_slice()), (Wait::Look, &refused[..]));
    done.clear();
    // A sum without an implementation.
    push(&mut ring, 6, Action::Sum, 0);
    wait_for_bell();
    ring.turn(&mut done, Wait::Forever).expect("a turn");
    let ended = Completion { token: 6, result: 0 };
    assert_eq!((last_wait(), done.as_slice()), (Wait::Look, &[ended][..]));
    assert_eq!(ring.take_sum(6), Err(FailureCause::DeviceSum { code: libc::ENOSYS }));
    ring.turn(&mut done, batch).expect("a turn");
    assert_eq!(last_wait(), batch);
}
