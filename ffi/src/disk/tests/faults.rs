//! Failures of a device that callers see, and failures that they never see.

use super::gate::{Opener, gated, gated_with};
use super::*;
use crate::arena::BorrowError;
use crate::disk::error::{Direction, FailureCause, IoFailure};
use crate::disk::ring::Op;
use crate::disk::stats::ServiceState;
use std::sync::atomic::{AtomicBool, Ordering};

const PIECE: u64 = 64 << 10;
/// Where slot 0 starts: behind a superblock and one page of the table.
const ORIGIN: u64 = 8192;

/// The slot that a piece belongs to, and the piece's number in it.
fn whose(op: &Op<'_>) -> (u64, u64) {
    let at = op.file_offset - ORIGIN;
    (at / (4 * PIECE), at / PIECE % 4)
}

/// A volume of 8 slots of 4 pieces each, over the backend that works anywhere.
fn volume(plan: impl FnMut(u64, &Op<'_>) -> Fault + Send + 'static) -> (TempDir, Volume, Arc<HostArena>) {
    let dir = dir();
    let options =
        options(&dir, 8, 4 * PIECE as usize).piece_bytes(PIECE as usize).depth(4).backend(Backend::Blocking);
    let volume = faulty(options, plan).expect("volume");
    (dir, volume, HostArena::new(8, 4 * PIECE as usize).expect("arena"))
}

#[test]
fn error_names_volume_slot_and_errno_and_frees_the_buffer() {
    for (errno, retryable) in [(libc::EIO, false), (libc::ENOSPC, false), (libc::ENOMEM, true)] {
        // The third of four pieces.
        let (dir, volume, arena) = volume(move |n, _| if n == 2 { Fault::Errno(errno) } else { Fault::None });
        let failure = volume.write(3, name(3, 1), arena.read(0).expect("free")).wait().unwrap_err();
        assert_eq!((failure.slot, failure.direction), (3, Direction::Write));
        assert_eq!((&failure.cause, failure.is_retryable()), (&FailureCause::Os { errno }, retryable));
        let message = failure.to_string();
        let path = dir.path().join("volume");
        assert!(message.contains(path.to_str().expect("utf-8")), "{message}");
        assert!(message.contains("slot 3") && message.contains(&errno.to_string()), "{message}");
        assert!(arena.write(0).is_ok(), "the buffer is free when the failure is known");
        assert_eq!(volume.stats().failures, 1);
        // The volume goes on: at once or, after it had no room, when a probe has found some.
        while volume.state() != ServiceState::Serving {
            std::thread::yield_now();
        }
        write_pattern(&volume, &arena, 1, 3, 1);
        check_pattern(&volume, &arena, 2, 3, 1);
        assert_eq!(volume.stats().pauses, u64::from(errno == libc::ENOSPC));
    }
}

#[test]
fn interruptions_and_short_transfers_are_hidden() {
    let (_dir, volume, arena) = volume(|n, op| match n % 6 {
        0..3 => Fault::Errno(if n % 2 == 0 { libc::EINTR } else { libc::EAGAIN }),
        // Not a multiple of any alignment: the bytes past the last aligned place move again.
        3 if op.bytes > 600 => Fault::Short(512),
        _ => Fault::None,
    });
    for slot in 0..8 {
        write_pattern(&volume, &arena, 0, slot, 3);
    }
    for slot in 0..8 {
        check_pattern(&volume, &arena, 1, slot, 3);
    }
    let stats = volume.stats();
    assert!(stats.retried > 0 && stats.resumed > 0 && stats.failures == 0, "{stats:?}");
}

#[test]
fn endless_interruption_is_reported() {
    let (_dir, volume, arena) = volume(|_, _| Fault::Errno(libc::EAGAIN));
    let failure = volume.write(0, name(0, 1), arena.read(0).expect("free")).wait().unwrap_err();
    assert_eq!(failure.cause, FailureCause::Os { errno: libc::EAGAIN });
    assert!(failure.is_retryable());
    assert_eq!((volume.state(), volume.stats().failed.passing), (ServiceState::Serving, 1));
}

#[test]
fn truncated_file_is_an_error_and_no_loop() {
    let (_dir, volume, arena) = volume(|_, op| if whose(op).1 >= 2 { Fault::Nothing } else { Fault::None });
    let failure = volume.write(0, name(0, 0), arena.read(0).expect("free")).wait().unwrap_err();
    assert_eq!(failure.cause, FailureCause::NoProgress { done_bytes: 2 * PIECE as usize });
}

#[test]
fn lost_ring_fails_all_requests_and_leaks_buffers_in_use() {
    // The first piece of slot 1 breaks the ring while slot 0 is in flight.
    let (_dir, volume, arena) = volume(|n, _| if n == 4 { Fault::Break(libc::EBADF) } else { Fault::None });
    let first = volume.write(0, name(0, 0), arena.read(0).expect("free"));
    let others: Vec<_> = (1..8)
        .map(|slot| volume.write(slot, name(slot, 0), arena.read(slot as usize).expect("free")))
        .collect();
    let flush = volume.flush();
    // Slot 0 may have been written or not; the others have not.
    drop(first.wait());
    for pending in others {
        assert_eq!(pending.wait().unwrap_err().cause, FailureCause::OutOfService);
    }
    drop(flush.wait());
    let late = HostArena::new(1, 4 * PIECE as usize).expect("arena");
    let late = volume.read(0, name(0, 0).hash, Urgency::Urgent, late.write(0).expect("free")).wait();
    assert_eq!(late.unwrap_err().cause, FailureCause::OutOfService);
    assert_eq!(volume.flush().wait().unwrap_err().cause, FailureCause::OutOfService);
    let leaked = (0..8).filter(|block| arena.write(*block).is_err()).count();
    assert!(leaked >= 1, "slot 1's block was in flight");
    assert_eq!(arena.write(1).unwrap_err(), BorrowError::Reading { block: 1 });
    drop(volume);
}

#[test]
fn bad_slot_spares_its_merged_neighbours() {
    let dir = dir();
    let options = options(&dir, 32, 64 << 10).depth(4).backend(Backend::Blocking);
    let bad = ORIGIN + (2 << 16);
    let sick = Arc::new(AtomicBool::new(false));
    let is_sick = Arc::clone(&sick);
    let plan = move |_, op: &Op<'_>| {
        let hit = (op.file_offset..op.file_offset + op.bytes as u64).contains(&bad);
        if hit && is_sick.load(Ordering::Relaxed) { Fault::Errno(libc::EIO) } else { Fault::None }
    };
    let (volume, gate) = gated_with(options, |ring| Box::new(FaultyRing::new(ring, plan))).expect("volume");
    let gate = Opener(gate);
    sick.store(true, Ordering::Relaxed);
    let arena = HostArena::new(32, 64 << 10).expect("arena");
    let read = |slot: u32, round| {
        let buffer = arena.write(slot as usize).expect("free");
        volume.read(slot, name(slot, round).hash, Urgency::Ordinary, buffer)
    };
    // Reads fill the ring; four writes behind them become one piece.
    let others = [31, 29, 27, 25].map(|slot| read(slot, 0));
    gate.wait_for(4);
    let writes = [0, 1, 2, 3].map(|slot: u32| {
        let mut buffer = arena.write(slot as usize).expect("free");
        pattern(slot, 1, &mut buffer);
        volume.write(slot, name(slot, 1), buffer.into_read())
    });
    while volume.queued() > 0 {
        std::thread::yield_now();
    }
    gate.open();
    others.into_iter().for_each(|pending| drop(pending.wait().expect("read")));
    assert_eq!(writes.map(|pending| pending.wait().is_ok()), [true, true, false, true]);
    assert_eq!((volume.stats().merged, volume.stats().failures), (3, 1));
    for slot in [0, 1, 3] {
        check_pattern(&volume, &arena, 0, slot, 1);
    }
}

#[test]
fn failing_device_is_left_alone_for_a_while() {
    let sick = Arc::new(AtomicBool::new(true));
    let is_sick = Arc::clone(&sick);
    let (_dir, volume, arena) = volume(move |_, _| match is_sick.load(Ordering::Relaxed) {
        true => Fault::Errno(libc::EIO),
        false => Fault::None,
    });
    let mut causes = Vec::new();
    for _ in 0..100 {
        let failure = volume.write(0, name(0, 0), arena.read(0).expect("free")).wait().unwrap_err();
        causes.push(failure.cause);
    }
    assert_eq!(causes[0], FailureCause::Os { errno: libc::EIO });
    assert_eq!((causes[99], volume.state()), (FailureCause::Away, ServiceState::Away));
    assert!((0..8).all(|block| arena.write(block).is_ok()), "nothing was in flight: nothing is kept");
    sick.store(false, Ordering::Relaxed);
    while volume.state() != ServiceState::Serving {
        std::thread::yield_now();
    }
    write_pattern(&volume, &arena, 0, 0, 1);
    check_pattern(&volume, &arena, 1, 0, 1);
}

#[test]
fn path_gone_for_a_moment_costs_no_block() {
    let gone = Arc::new(AtomicBool::new(false));
    let is_gone = Arc::clone(&gone);
    let (_dir, volume, arena) = volume(move |_, _| match is_gone.load(Ordering::Relaxed) {
        true => Fault::Errno(libc::ENODEV),
        false => Fault::None,
    });
    write_pattern(&volume, &arena, 0, 0, 1);
    write_pattern(&volume, &arena, 0, 2, 1);
    gone.store(true, Ordering::Relaxed);
    let failure = volume.write(1, name(1, 1), arena.read(1).expect("free")).wait().unwrap_err();
    assert_eq!(failure.cause, FailureCause::Os { errno: libc::ENODEV });
    let read = |slot: u32| {
        volume.read(slot, name(slot, 1).hash, Urgency::Urgent, arena.write(0).expect("free")).wait()
    };
    // Now and then the device is probed, and fails.
    let away = |failure: IoFailure| {
        matches!(failure.cause, FailureCause::Away | FailureCause::Os { errno: libc::ENODEV })
    };
    assert!(away(read(0).unwrap_err()) && volume.state() == ServiceState::Away);
    assert!(volume.flush().wait().is_err());
    // Blocks forgotten meanwhile stay forgotten.
    volume.forget(2);
    gone.store(false, Ordering::Relaxed);
    while volume.state() != ServiceState::Serving {
        std::thread::yield_now();
    }
    check_pattern(&volume, &arena, 0, 0, 1);
    assert!(matches!(read(2).unwrap_err().cause, FailureCause::Rejected(_)));
    let stats = volume.stats();
    assert!(stats.outages == 1 && stats.failed.drive > 0 && stats.probes >= 2, "{stats:?}");
    drop(volume);
    assert!((0..8).all(|block| arena.write(block).is_ok()));
}

#[test]
fn failed_requests_do_not_delay_the_others() {
    // Every odd slot fails at its second piece.
    let (_dir, volume, arena) = volume(|_, op| {
        let (slot, piece) = whose(op);
        if slot % 2 == 1 && piece == 1 { Fault::Errno(libc::EIO) } else { Fault::None }
    });
    let pending: Vec<_> = (0..8)
        .map(|slot| volume.write(slot, name(slot, 1), arena.read(slot as usize).expect("free")))
        .collect();
    for (slot, pending) in pending.into_iter().enumerate() {
        assert_eq!(pending.wait().is_ok(), slot % 2 == 0, "slot {slot}");
    }
    assert_eq!((volume.stats().writes, volume.stats().failures), (4, 4));
}

#[test]
fn retired_volume_answers_transfers_in_flight_only() {
    let dir = dir();
    let options = || options(&dir, 32, 8192).keep(true).backend(Backend::Blocking).depth(2);
    let (volume, gate) = gated(options()).expect("volume");
    let gate = Opener(gate);
    let arena = HostArena::new(8, 8192).expect("arena");
    let read = |slot: u32| {
        volume.read(slot, name(slot, 0).hash, Urgency::Urgent, arena.write(slot as usize).expect("free"))
    };
    let in_flight = [read(3), read(1)];
    gate.wait_for(2);
    volume.retire();
    let (late, since) = (arena.read(7).expect("free"), std::time::Instant::now());
    let mut late = volume.write(9, name(9, 1), late);
    while !late.is_done() {
        assert!(since.elapsed().as_secs() < 20, "answered at once, though the device is not");
        std::thread::yield_now();
        if let Ok(buffer) = arena.read(7) {
            late = volume.write(9, name(9, 1), buffer);
        }
    }
    assert_eq!(late.wait().unwrap_err().cause, FailureCause::OutOfService);
    assert!(in_flight.iter().all(|pending| !pending.is_done()));
    gate.open();
    in_flight.into_iter().for_each(|pending| drop(pending.wait().expect("read")));
    drop(volume);
    assert!((0..8).all(|block| arena.write(block).is_ok()), "nothing is kept");
    let (_, recovery) = Volume::open(options()).expect("volume");
    assert!(!recovery.clean);
}
