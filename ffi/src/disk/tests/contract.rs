//! The promises of every backend: one body, run over each.

use super::lengths;
use super::*;
use crate::disk::error::{Direction, FailureCause};
use crate::disk::recovery::Rejection;
use std::future::Future;
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Wake};

type Make = dyn Fn(VolumeOptions) -> Result<Volume, VolumeError>;

fn contract(make: &Make) {
    for (slots, slot_bytes, piece_bytes) in [
        (9, 4096, 1 << 20),
        (5, 200_000, 1 << 16),
        (3, 1, 1 << 16),
        (4, (1 << 20) + 4096, 1 << 18),
        (2, 3 << 20, 1 << 16),
    ] {
        let dir = dir();
        let arena = HostArena::new(slots, slot_bytes).expect("arena");
        let options =
            options(&dir, slots as u32, slot_bytes).piece_bytes(piece_bytes).register(&arena).depth(8);
        let Some(volume) = volume_or_skip(make(options)) else { return };
        every_slot_keeps_its_bytes(&volume, &arena);
        wrong_requests_fail(&volume);
        if slot_bytes <= 200_000 {
            lengths::payload_keeps_its_length(&volume);
            lengths::lent_buffer_is_moved_or_refused(&volume);
        }
    }
    let dir = dir();
    let Some(volume) = volume_or_skip(make(options(&dir, 64, 20_000).queue(4).depth(4))) else { return };
    threads_share_a_volume(&volume);
    a_pending_is_a_future(&volume);
}

fn every_slot_keeps_its_bytes(volume: &Volume, arena: &Arc<HostArena>) {
    let slots = volume.slots();
    for round in 0..2 {
        let pending: Vec<_> = (0..slots)
            .map(|slot| {
                let mut buffer = arena.write(slot as usize).expect("free");
                pattern(slot, round, &mut buffer);
                volume.write(slot, name(slot, round), buffer.into_read())
            })
            .collect();
        for (slot, pending) in pending.into_iter().enumerate() {
            let buffer = pending.wait().expect("written");
            assert_eq!(buffer.block(), slot, "the same buffer comes back");
        }
        // In another order than written, each into another block.
        let pending: Vec<_> = (0..slots)
            .rev()
            .map(|slot| {
                let buffer = arena.write((slots - 1 - slot) as usize).expect("free");
                (slot, volume.read(slot, name(slot, round).hash, Urgency::Urgent, buffer))
            })
            .collect();
        for (slot, pending) in pending {
            assert_pattern(slot, round, &pending.wait().expect("read"));
        }
    }
    // Only one slot changes, its neighbours stay.
    let middle = slots / 2;
    write_pattern(volume, arena, 0, middle, 7);
    for slot in 0..slots {
        check_pattern(volume, arena, 0, slot, if slot == middle { 7 } else { 1 });
    }
    let stats = volume.stats();
    assert_eq!(
        (stats.writes, stats.reads, stats.failures, stats.rejected),
        (u64::from(2 * slots + 1), u64::from(3 * slots), 0, 0)
    );
    assert!(arena.write(0).is_ok(), "all buffers are back");
    read_of_a_block_not_in_the_slot_is_refused(volume, arena, middle);
}

fn read_of_a_block_not_in_the_slot_is_refused(volume: &Volume, arena: &Arc<HostArena>, slot: u32) {
    let refused = |hash| {
        let failure =
            volume.read(slot, hash, Urgency::Ordinary, arena.write(0).expect("free")).wait().unwrap_err();
        assert_eq!((failure.slot, failure.direction), (slot, Direction::Read));
        failure.cause
    };
    assert_eq!(refused(name(slot, 1).hash), FailureCause::Rejected(Rejection::OtherHash), "overwritten");
    volume.forget(slot);
    volume.flush().wait().expect("flushed");
    assert_eq!(refused(name(slot, 7).hash), FailureCause::Rejected(Rejection::Empty), "forgotten");
    assert_eq!((volume.stats().failures, volume.stats().rejected), (0, 2));
    volume.forget(volume.slots());
    write_pattern(volume, arena, 0, slot, 8);
    check_pattern(volume, arena, 0, slot, 8);
}

fn wrong_requests_fail(volume: &Volume) {
    let slots = volume.slots();
    let arena = HostArena::new(1, volume.slot_bytes()).expect("arena");
    for slot in [slots, slots + 1, u32::MAX] {
        let failure = volume
            .read(slot, name(slot, 0).hash, Urgency::Ordinary, arena.write(0).expect("free"))
            .wait()
            .unwrap_err();
        assert_eq!(failure.cause, FailureCause::SlotOutOfRange { slots });
        assert_eq!((failure.slot, failure.direction), (slot, Direction::Read));
        assert!(failure.to_string().contains("volume"), "the message names the path: {failure}");
        assert!(volume.write(slot, name(slot, 1), arena.read(0).expect("free")).wait().is_err());
    }
    let longer = HostArena::new(1, volume.slot_bytes() + 1).expect("arena");
    let failure = volume.write(0, name(0, 1), longer.read(0).expect("free")).wait().unwrap_err();
    assert!(matches!(failure.cause, FailureCause::BufferLength { .. }), "{failure}");
    assert!(!failure.is_retryable());
    drop(longer.write(0).expect("the refused buffer is free again"));
}

fn threads_share_a_volume(volume: &Volume) {
    let threads = 4;
    let arena = HostArena::new(threads * 2, volume.slot_bytes()).expect("arena");
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let arena = &arena;
            scope.spawn(move || {
                let own = |n: usize| (thread + threads * n) as u32;
                for round in 0..6 {
                    // Two requests at a time, over the thread's own slots.
                    for pair in (0..16).step_by(2) {
                        let pending: Vec<_> = (0..2)
                            .map(|n| {
                                let mut buffer = arena.write(thread * 2 + n).expect("one's own");
                                pattern(own(pair + n), round, &mut buffer);
                                volume.write(own(pair + n), name(own(pair + n), round), buffer.into_read())
                            })
                            .collect();
                        pending.into_iter().for_each(|pending| drop(pending.wait().expect("written")));
                    }
                    for n in 0..16 {
                        check_pattern(volume, arena, thread * 2, own(n), round);
                    }
                }
            });
        }
    });
}

struct Signal(mpsc::Sender<()>);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
    }
}

fn a_pending_is_a_future(volume: &Volume) {
    let arena = HostArena::new(1, volume.slot_bytes()).expect("arena");
    let (woken, wakes) = mpsc::channel();
    let waker = Arc::new(Signal(woken)).into();
    let mut context = Context::from_waker(&waker);
    write_pattern(volume, &arena, 0, 3, 0);
    let mut pending = pin!(volume.read(3, name(3, 0).hash, Urgency::Ordinary, arena.write(0).expect("free")));
    let outcome = loop {
        match pending.as_mut().poll(&mut context) {
            Poll::Ready(outcome) => break outcome,
            Poll::Pending => wakes.recv().expect("the waker is called"),
        }
    };
    drop(outcome.expect("read"));
}

#[test]
fn uring_direct_keeps_the_contract() {
    contract(&|options| open(options.backend(Backend::UringDirect)));
}

#[test]
fn uring_buffered_keeps_the_contract() {
    contract(&|options| open(options.backend(Backend::UringBuffered)));
}

#[test]
fn blocking_backend_keeps_the_contract() {
    contract(&|options| open(options.backend(Backend::Blocking)));
}

#[test]
fn automatic_backend_keeps_the_contract() {
    contract(&|options| {
        let volume = open(options)?;
        assert_ne!(volume.describe().backend, Backend::Auto, "it says what it took");
        Ok(volume)
    });
}

/// Every third piece short, every fifth interrupted, every seventh refused for now.
fn nuisances(n: u64, op: &crate::disk::ring::Op<'_>) -> Fault {
    match n {
        n if n % 3 == 0 && op.bytes > 200 => Fault::Short(op.bytes / 2 + 100),
        n if n % 5 == 0 => Fault::Errno(libc::EINTR),
        n if n % 7 == 0 => Fault::Errno(libc::EAGAIN),
        _ => Fault::None,
    }
}

#[test]
fn uring_with_nuisances_keeps_the_contract() {
    // Buffered, so that a short transfer may end anywhere.
    contract(&|options| faulty(options.backend(Backend::UringBuffered), nuisances));
}

#[test]
fn direct_blocking_with_nuisances_keeps_the_contract() {
    contract(&|options| {
        faulty(options.backend(Backend::Blocking), |n, op| match nuisances(n, op) {
            // Direct transfers have aligned lengths.
            Fault::Short(bytes) if bytes >= 4096 => Fault::Short(bytes / 4096 * 4096),
            Fault::Short(_) => Fault::None,
            other => other,
        })
    });
}

#[cfg(feature = "encryption")]
#[test]
fn encrypted_volume_over_each_backend_keeps_the_contract() {
    use super::encrypted::key;

    for backend in [Backend::UringDirect, Backend::UringBuffered, Backend::Blocking] {
        contract(&move |options| open(options.backend(backend).key(key())));
    }
    contract(&|options| faulty(options.backend(Backend::UringBuffered).key(key()), nuisances));
}
