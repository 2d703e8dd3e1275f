//! The end of the mover, and landings that call it.

use crate::ground::{BLOCKS, Ground, Heard, LAYERS, until};
use kvstrata::movers::{CudaMover, CudaMoverOptions};
use kvstrata::transfer::{
    Cause, Copies, Copy, DeviceMover, Failure, HostSide, Landed, Landing, Lands, Token,
};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

#[test]
fn mover_dropped_waits_for_the_device() {
    let mut ground = Ground::new(CudaMoverOptions::new());
    ground.double.hold();
    let heard = Heard::new();
    ground.start(vec![ground.down(0, 0, 0..LAYERS)], &heard);
    ground.start(vec![ground.down(1, 1, 0..LAYERS)], &heard);
    ground.double.called("cuEventRecord", 2);
    let mover = ground.mover.take();
    let dropped = thread::spawn(move || drop(mover));
    assert_eq!(heard.answers(), 0);
    ground.double.release();
    dropped.join().expect("no panic");
    assert_eq!(heard.answers(), 2, "when the mover is gone");
    for list in heard.wait(2) {
        assert_eq!(list[0].outcome, Ok(()));
    }
    assert!(ground.host(1) == ground.peek(1));
    ground.finish();
}

#[test]
fn mover_dropped_without_patience_answers_from_its_threads() {
    let mut ground = Ground::new(CudaMoverOptions::new().patience(Duration::ZERO));
    ground.double.hold();
    let heard = Heard::new();
    ground.start(vec![ground.down(0, 0, 0..LAYERS)], &heard);
    ground.double.called("cuEventRecord", 1);
    drop(ground.mover.take());
    assert_eq!(heard.answers(), 0);
    assert!(ground.memory.read(0).is_err(), "the device may still write it");
    ground.double.release();
    assert_eq!(heard.wait(1)[0][0].outcome, Ok(()));
    assert!(ground.host(0) == ground.peek(0));
    ground.finish();
}

/// A landing that waits until it is let go.
struct Waits {
    told: Barrier,
    let_go: Barrier,
}

impl Lands for Waits {
    fn landed(&self, _landed: Landed) {
        self.told.wait();
        self.let_go.wait();
    }
}

#[test]
fn unqueued_lists_of_a_dropped_mover_are_abandoned() {
    let mut ground = Ground::new(CudaMoverOptions::new().threads(1).patience(Duration::ZERO));
    let waits = Arc::new(Waits { told: Barrier::new(2), let_go: Barrier::new(2) });
    let first = Copies::new(vec![ground.down(0, 0, 0..LAYERS)], Landing::new(Arc::<Waits>::clone(&waits)));
    ground.mover().start(first);
    waits.told.wait();
    // The only thread is busy, and comes to this list when the mover is gone.
    let heard = Heard::new();
    ground.start(vec![ground.down(1, 1, 0..LAYERS)], &heard);
    let queued = ground.double.calls("cuEventRecord");
    drop(ground.mover.take());
    waits.let_go.wait();
    let list = heard.wait(1).remove(0);
    assert_eq!(list[0].outcome, Err(Failure::of(Cause::Abandoned)));
    assert_eq!(ground.double.calls("cuEventRecord"), queued, "nothing was queued");
    assert!(matches!(list[0].host, HostSide::Write(_)));
    drop(list);
    ground.finish();
}

/// Starts the next list from the answer of the last, then drops the mover.
struct Chain {
    mover: Mutex<Option<Arc<CudaMover>>>,
    left: AtomicUsize,
    this: Mutex<Option<Arc<Chain>>>,
}

impl Lands for Chain {
    fn landed(&self, landed: Landed) {
        let Landed::Copies(mut list) = landed else { return };
        assert_eq!(list[0].outcome, Ok(()));
        // SeqCst: one thread after the other, by the mover's lock.
        if self.left.fetch_sub(1, SeqCst) > 1 {
            let mover = self.mover.lock().expect("no panic").clone().expect("there");
            let this = self.this.lock().expect("no panic").clone().expect("there");
            let last = list.remove(0);
            let copy = Copy::new(Token(0), last.device, last.host, last.layers, false);
            mover.start(Copies::new(vec![copy], Landing::new(this)));
        } else {
            drop(list);
            // The last share of the mover: its own thread drops it.
            let mover = self.mover.lock().expect("no panic").take();
            drop(mover);
            self.this.lock().expect("no panic").take();
        }
    }
}

#[test]
fn landing_may_start_the_next_list_and_drop_the_mover() {
    for threads in [1, 3] {
        let mut ground = Ground::new(CudaMoverOptions::new().threads(threads));
        let mover = Arc::new(ground.mover.take().expect("there"));
        let chain = Arc::new(Chain {
            mover: Mutex::new(Some(Arc::clone(&mover))),
            left: AtomicUsize::new(20),
            this: Mutex::default(),
        });
        *chain.this.lock().expect("no panic") = Some(Arc::clone(&chain));
        let landing = Landing::new(Arc::<Chain>::clone(&chain));
        mover.start(Copies::new(vec![ground.down(0, 0, 0..LAYERS)], landing));
        drop(mover);
        until("the chain's end", || chain.this.lock().expect("no panic").is_none());
        assert_eq!(chain.left.load(SeqCst), 0);
        drop(chain);
        until("the threads' end", || Arc::strong_count(&ground.memory) == 1);
        ground.finish();
    }
}

struct Panics;

impl Lands for Panics {
    fn landed(&self, landed: Landed) {
        drop(landed);
        std::panic::resume_unwind(Box::new("as a test"));
    }
}

#[test]
fn landing_that_panics_ends_nothing_else() {
    let ground = Ground::new(CudaMoverOptions::new().threads(1));
    for block in 0..BLOCKS {
        let list = vec![ground.down(block, block, 0..LAYERS)];
        ground.mover().start(Copies::new(list, Landing::new(Arc::new(Panics))));
        let list = vec![ground.down((block + 1) % BLOCKS, (block + 1) % BLOCKS, 0..LAYERS)];
        assert_eq!(ground.carry_out(list)[0].outcome, Ok(()));
    }
    ground.finish();
}
