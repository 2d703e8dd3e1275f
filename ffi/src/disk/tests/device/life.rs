//! The owner of device memory at each moment: dropped interest, a volume that ends or is
//! retired, a lost ring.

use super::*;
use crate::gds::tests::fake::Answer;
use std::sync::mpsc;
use std::thread;

const BYTES: usize = 8192;

/// Puts all memory of a test into one request, and holds its first call. Returns the ends of the hold.
fn hold(bench: &Bench) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
    let ends = bench.fake.hold(0);
    bench.fake.log();
    ends
}

fn is_held(fake: &Fake) -> bool {
    let log = fake.log();
    !log.contains(&Event::BufferDeregister) && !log.contains(&Event::Freed)
}

#[test]
fn dropped_interest_leaves_the_memory_until_cufile_has_answered() {
    for writes in [false, true] {
        over_each(
            2,
            BYTES,
            |options| options,
            |bench| {
                bench.write(0, 1, 1).wait().expect("written");
                let (is_there, go) = hold(&bench);
                let pending = if writes { bench.write(0, 1, 2) } else { bench.read(0, 1, 1) };
                is_there.recv().expect("under way");
                drop(pending);
                // The range alone keeps the buffer, and the buffer keeps the memory.
                let Bench { volume, buffer, memory, dir, fake } = bench;
                drop((buffer, memory));
                assert!(is_held(&fake));
                go.send(()).expect("waits");
                // Answered, after it in the queue of the ring thread.
                volume.flush().wait().expect("flushed");
                while volume.stats().reads + volume.stats().writes < 2 {
                    thread::yield_now();
                }
                drop(volume);
                let log = fake.log();
                let at = |event| log.iter().position(|other| *other == event).expect("it was called");
                assert!(
                    at(Event::BufferDeregister) < at(Event::Freed)
                        && at(Event::Freed) < at(Event::Deregister)
                );
                drop(dir);
            },
        );
    }
}

#[test]
fn dropped_volume_answers_all_requests_first() {
    over_each(
        4,
        BYTES,
        |options| options.depth(2),
        |bench| {
            let (is_there, go) = hold(&bench);
            let pending: Vec<_> = (0..4).map(|slot| bench.write(slot, slot, 1)).collect();
            is_there.recv().expect("under way");
            let Bench { volume, buffer, memory, dir, fake } = bench;
            let ending = thread::spawn(move || drop(volume));
            assert!(
                !pending[0].is_done() && !ending.is_finished() && !fake.log().contains(&Event::Deregister)
            );
            go.send(()).expect("waits");
            ending.join().expect("ends");
            for pending in pending {
                drop(pending.try_wait().expect("answered").expect("written"));
            }
            assert!(fake.log().contains(&Event::Deregister));
            drop((memory, buffer));
            assert!(fake.log().ends_with(&[Event::Freed, Event::Close, Event::Release(0)]));
            let (_, recovery) = Volume::open(options(&dir, 4, BYTES).keep(true)).expect("the same volume");
            assert!(recovery.clean && recovery.blocks.len() == 4);
        },
    );
}

#[test]
fn retired_volume_sums_and_answers_transfers_in_flight() {
    over_each(
        2,
        BYTES,
        |options| options,
        |bench| {
            bench.write(0, 1, 1).wait().expect("written");
            let (is_there, go) = hold(&bench);
            let in_flight = bench.read(0, 1, 1);
            is_there.recv().expect("under way");
            bench.volume.retire();
            // Until the ring thread has taken the request to retire, it answers that the slot is empty.
            while bench.refused(0, 1) != FailureCause::OutOfService {}
            assert!(!in_flight.is_done());
            go.send(()).expect("waits");
            drop(in_flight.wait().expect("verified"));
            drop(bench.volume);
            assert_eq!(Arc::strong_count(&bench.buffer), 1, "nothing is kept");
        },
    );
}

#[test]
fn lost_ring_fails_the_request_and_keeps_the_memory_for_good() {
    let breaks = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let shall = Arc::clone(&breaks);
    let made = bench_with(2, BYTES, |_, options| {
        faulty(options.backend(Backend::Blocking), move |_, _| {
            match shall.load(std::sync::atomic::Ordering::Relaxed) {
                true => Fault::Break(libc::EBADF),
                false => Fault::None,
            }
        })
    });
    let Some(bench) = made else { return };
    let (is_there, go) = hold(&bench);
    let pending = bench.write(0, 1, 1);
    is_there.recv().expect("under way");
    breaks.store(true, std::sync::atomic::Ordering::Relaxed);
    let arena = HostArena::new(1, BYTES).expect("arena");
    let other = bench.volume.write(0, name(0, 1), arena.read(0).expect("free"));
    assert_eq!(other.wait().expect_err("it broke the ring").cause, FailureCause::OutOfService);
    assert_eq!(pending.wait().expect_err("its answer is never heard").cause, FailureCause::OutOfService);
    let Bench { volume, buffer, memory, dir, fake } = bench;
    drop((buffer, memory));
    assert!(is_held(&fake), "cuFile may still read it");
    go.send(()).expect("waits");
    drop(volume);
    let log = fake.log();
    assert!(log.contains(&Event::Deregister) && !log.contains(&Event::Freed), "{log:?}");
    drop(dir);
}

/// An owner that panics when it is dropped.
struct Bad(Arc<Allocation>);

impl Drop for Bad {
    fn drop(&mut self) {
        let _ = &self.0;
        std::panic::resume_unwind(Box::new("a bad owner"));
    }
}

#[test]
fn panicking_owner_loses_neither_thread_nor_outcome() {
    let Some(bench) = bench(2, BYTES, |options| options) else { return };
    let driver = bench.volume.gds().expect("it takes device memory");
    let bad = || {
        let owner = Arc::new(Bad(Arc::clone(&bench.memory)));
        let buffer = GdsBuffer::unregistered(driver, bench.memory.memory_of(owner));
        buffer.range(0, BYTES).expect("in range")
    };
    // The interest is dropped: the ring thread drops the memory.
    let (is_there, go) = hold(&bench);
    drop(bench.volume.write_device(0, name(0, 1), bad()));
    is_there.recv().expect("under way");
    go.send(()).expect("waits");
    while bench.volume.stats().writes < 1 {
        thread::yield_now();
    }
    bench.fake.plan(|_| Answer::Number(-5030));
    let refused = bench.volume.write_device(0, name(0, 2), bad()).wait().expect_err("the plan");
    assert!(
        matches!(refused.cause, FailureCause::CuFile(code) if code.code == 5030),
        "the news comes all the same"
    );
    bench.fake.plan(|_| Answer::All);
    bench.write(0, 1, 1).wait().expect("the ring thread is alive");
}
