//! The owner of a buffer at each moment: dropped interest, full queues, shutdown.

use super::gate::{Opener, gated};
use super::*;
use crate::arena::BorrowError;
use crate::disk::pending::Pending;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

const BACKENDS: [Backend; 3] = [Backend::UringDirect, Backend::UringBuffered, Backend::Blocking];

/// Runs a body over each backend of this machine. Arguments are dropped last to first: the gate opens
/// before the volume waits for the pieces at it.
fn over_each(configure: impl Fn(VolumeOptions) -> VolumeOptions, body: impl Fn(Volume, Opener)) {
    for backend in BACKENDS {
        let dir = dir();
        match gated(configure(options(&dir, 32, 8192)).backend(backend)) {
            Ok((volume, gate)) => body(volume, Opener(gate)),
            Err(error) => drop(volume_or_skip(Err(error))),
        }
    }
}

#[test]
fn dropped_pending_leaves_the_buffer_with_the_request() {
    over_each(
        |options| options,
        |volume, gate| {
            let arena = HostArena::new(2, 8192).expect("arena");
            let mut buffer = arena.write(0).expect("free");
            pattern(5, 1, &mut buffer);
            drop(volume.write(5, name(5, 1), buffer.into_read()));
            drop(volume.read(6, name(6, 0).hash, Urgency::Ordinary, arena.write(1).expect("free")));
            gate.wait_for(2);
            // In flight without a waiter: the blocks are as borrowed as before.
            assert_eq!(arena.write(0).unwrap_err(), BorrowError::Reading { block: 0 });
            assert_eq!(arena.read(1).unwrap_err(), BorrowError::Writing { block: 1 });
            gate.open();
            // A request behind them; then the volume ends, and with it all three.
            drop(
                volume
                    .read(
                        7,
                        name(7, 0).hash,
                        Urgency::Ordinary,
                        HostArena::new(1, 8192).expect("arena").write(0).expect("free"),
                    )
                    .wait(),
            );
            drop(volume);
            assert!(arena.write(0).is_ok() && arena.write(1).is_ok(), "both came back");
        },
    );
}

#[test]
fn dropped_write_still_happens() {
    over_each(
        |options| options,
        |volume, gate| {
            let arena = HostArena::new(1, 8192).expect("arena");
            let mut buffer = arena.write(0).expect("free");
            pattern(5, 1, &mut buffer);
            drop(volume.write(5, name(5, 1), buffer.into_read()));
            gate.wait_for(1);
            gate.open();
            while volume.stats().writes == u64::from(volume.slots()) {
                std::thread::yield_now();
            }
            // The counter is raised just before the buffer is back.
            let buffer = loop {
                match arena.write(0) {
                    Ok(buffer) => break buffer,
                    Err(_) => std::thread::yield_now(),
                }
            };
            let buffer = volume.read(5, name(5, 1).hash, Urgency::Ordinary, buffer).wait().expect("read");
            assert_pattern(5, 1, &buffer);
        },
    );
}

#[test]
fn full_queue_makes_callers_wait_and_loses_no_request() {
    over_each(
        |options| options.depth(2).queue(2),
        |volume, gate| {
            let arena = HostArena::new(32, 8192).expect("arena");
            // Two in flight, two queued: there is no room for the next. Backwards, so that none is merged
            // with another.
            let mut pending = Vec::new();
            for slot in (0..2).rev() {
                pending.push(volume.write(slot, name(slot, 1), arena.read(slot as usize).expect("free")));
            }
            gate.wait_for(2);
            for slot in 2..4 {
                pending.push(volume.write(slot, name(slot, 1), arena.read(slot as usize).expect("free")));
            }
            let refused = volume.try_write(4, name(4, 1), arena.read(4).expect("free"));
            assert_eq!(refused.expect_err("full").block(), 4, "the buffer comes back");
            assert!(
                volume.try_write(99, name(99, 1), arena.read(4).expect("free")).is_ok(),
                "a wrong slot is an outcome"
            );
            // Reads have a queue of their own: still room for them.
            drop(
                volume
                    .try_read(9, name(9, 0).hash, Urgency::Ordinary, arena.write(9).expect("free"))
                    .expect("room for reads"),
            );
            std::thread::scope(|scope| {
                let callers: Vec<_> = (0..3)
                    .map(|n| {
                        let (volume, arena) = (&volume, &arena);
                        scope.spawn(move || {
                            let slot = 20 + n;
                            volume
                                .write(slot, name(slot, 1), arena.read(slot as usize).expect("free"))
                                .wait()
                                .is_ok()
                        })
                    })
                    .collect();
                while volume.stats().blocked < 3 {
                    std::thread::yield_now();
                }
                assert!(callers.iter().all(|caller| !caller.is_finished()));
                gate.open();
                assert!(callers.into_iter().all(|caller| caller.join().expect("no panic")));
            });
            let stats = volume.stats();
            assert_eq!((stats.waits, stats.blocked), (3, 0));
            assert!(pending.into_iter().all(|pending| pending.wait().is_ok()));
            assert_eq!(volume.stats().writes, u64::from(volume.slots()) + 7);
        },
    );
}

#[test]
fn shutdown_answers_requests_in_flight_and_queued() {
    over_each(
        |options| options.depth(2).queue(8),
        |volume, gate| {
            let arena = HostArena::new(8, 8192).expect("arena");
            let pending: Vec<_> = (0..8)
                .rev()
                .map(|slot| volume.write(slot, name(slot, 1), arena.read(slot as usize).expect("free")))
                .collect();
            gate.wait_for(2);
            std::thread::scope(|scope| {
                let ending = scope.spawn(move || drop(volume));
                assert!(!ending.is_finished() && pending.iter().all(|pending| !pending.is_done()));
                gate.open();
                ending.join().expect("no panic");
                // The volume is gone, and every request was answered before that.
                for pending in pending {
                    drop(pending.try_wait().expect("answered").expect("written"));
                }
            });
            assert!((0..8).all(|block| arena.write(block).is_ok()));
        },
    );
}

#[test]
fn sleeping_ring_is_woken_and_a_busy_one_is_left_alone() {
    over_each(
        |options| options.depth(1).queue(16),
        |volume, gate| {
            let arena = HostArena::new(16, 8192).expect("arena");
            // One read and one write are taken in; then the ring takes neither until a piece completes.
            drop(volume.read(0, name(0, 0).hash, Urgency::Ordinary, arena.write(0).expect("free")));
            drop(volume.write(15, name(15, 1), arena.read(15).expect("free")));
            gate.wait_for(1);
            while volume.queued() > 0 {
                std::thread::yield_now();
            }
            let before = volume.stats().wakes;
            for slot in 1..8 {
                drop(volume.read(
                    slot,
                    name(slot, 0).hash,
                    Urgency::Ordinary,
                    arena.write(slot as usize).expect("free"),
                ));
            }
            assert_eq!(volume.stats().wakes, before, "no system call for requests that cannot start yet");
            gate.open();
        },
    );
}

/// The smallest possible queues, so that callers and the ring thread fall asleep at every chance: a
/// wake-up lost on either side would hang this.
#[test]
fn no_wake_up_is_lost() {
    for backend in BACKENDS {
        let dir = dir();
        let made = open(options(&dir, 4, 512).depth(1).queue(1).threads(1).backend(backend));
        let Some(volume) = volume_or_skip(made) else { continue };
        let arena = HostArena::new(4, 512).expect("arena");
        let rounds = 500;
        std::thread::scope(|scope| {
            for thread in 0..4_u32 {
                let (volume, arena) = (&volume, &arena);
                scope.spawn(move || {
                    for round in 0..rounds {
                        write_pattern(volume, arena, thread as usize, thread, round);
                        check_pattern(volume, arena, thread as usize, thread, round);
                    }
                });
            }
        });
        let stats = volume.stats();
        assert_eq!((stats.reads, stats.writes), (4 * u64::from(rounds), 4 * u64::from(rounds)));
    }
}

/// When a caller drops its interest.
#[derive(Debug, Clone, Copy)]
enum Leaves {
    Unpolled,
    Polled,
    TimedOut,
    /// When the request has ended, without looking.
    Unread,
}

/// Drops a request at one of its await points; `ended` waits for its end.
fn give_up<B: core::fmt::Debug>(mut pending: Pending<B>, leaves: Leaves, ended: impl FnOnce(&Pending<B>)) {
    let mut context = Context::from_waker(Waker::noop());
    match leaves {
        Leaves::Unpolled => drop(pending),
        Leaves::Polled => {
            assert!(Pin::new(&mut pending).poll(&mut context).is_pending());
            drop(pending);
        }
        Leaves::TimedOut => drop(pending.wait_for(Duration::from_millis(1)).expect_err("still under way")),
        Leaves::Unread => {
            ended(&pending);
            drop(pending);
        }
    }
}

#[test]
fn future_dropped_at_any_await_keeps_the_devices_buffers() {
    for leaves in [Leaves::Unpolled, Leaves::Polled, Leaves::TimedOut, Leaves::Unread] {
        for queued in [false, true] {
            over_each(
                |options| options.depth(1),
                |volume, gate| {
                    let before = volume.stats();
                    // In flight, or queued behind one that is.
                    let arena = HostArena::new(3, 8192).expect("arena");
                    if queued {
                        let other = arena.write(2).expect("free");
                        drop(volume.read(30, name(30, 0).hash, Urgency::Urgent, other));
                        gate.wait_for(1);
                    }
                    let mut buffer = arena.write(0).expect("free");
                    pattern(5, 1, &mut buffer);
                    let write = volume.write(5, name(5, 1), buffer.into_read());
                    let read =
                        volume.read(9, name(9, 0).hash, Urgency::Ordinary, arena.write(1).expect("free"));
                    // The requests hold the last references to the arena.
                    drop(arena);
                    let wait = |done: &dyn Fn() -> bool| {
                        gate.open();
                        while !done() {
                            std::thread::yield_now();
                        }
                    };
                    give_up(write, leaves, |pending| wait(&|| pending.is_done()));
                    give_up(read, leaves, |pending| wait(&|| pending.is_done()));
                    gate.open();
                    let arena = HostArena::new(1, 8192).expect("arena");
                    volume.flush().wait().expect("flushed");
                    while volume.stats().reads < before.reads + 1 + u64::from(queued) {
                        std::thread::yield_now();
                    }
                    while volume.stats().writes == before.writes {
                        std::thread::yield_now();
                    }
                    check_pattern(&volume, &arena, 0, 5, 1);
                    let stats = volume.stats();
                    assert_eq!((stats.failures, stats.rejected), (0, 0), "{leaves:?}, {queued}");
                },
            );
        }
    }
}
