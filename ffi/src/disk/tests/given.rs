//! Payloads that come with their sum: the results of a right sum, and of a wrong one.

use super::*;
use crate::arena::BlockRead;
use crate::disk::error::FailureCause;
use crate::disk::recovery::Rejection;
use crate::disk::{Payload, seal_of};
use twox_hash::XxHash3_64;

const SLOTS: u32 = 12;

/// The sum as `docs/disk-format.md` defines it.
fn sum_of(payload: &[u8]) -> u64 {
    let chunks = (0..).zip(payload.chunks(64 << 10));
    let sums: Vec<u64> = chunks.map(|(seed, chunk)| XxHash3_64::oneshot_with_seed(seed, chunk)).collect();
    seal_of(&sums)
}

/// Runs `body` over the ring and the threads: with small slots, whose writes are merged, and with slots
/// of several pieces and chunks.
fn over_each(body: impl Fn(&dyn Fn(&TempDir) -> VolumeOptions, usize)) {
    for backend in [Backend::UringDirect, Backend::Blocking] {
        for slot_bytes in [4096, (200 << 10) + 512] {
            let kept = |dir: &TempDir| {
                options(dir, SLOTS, slot_bytes).backend(backend).keep(true).piece_bytes(64 << 10)
            };
            if volume_or_skip(open(kept(&dir()))).is_some() {
                body(&kept, slot_bytes);
            }
        }
    }
}

/// Writes all slots at the same time.
fn write_all(volume: &Volume, slot_bytes: usize, payload: impl Fn(BlockRead) -> Payload) {
    let arena = HostArena::new(SLOTS as usize, slot_bytes).expect("arena");
    let begin = |slot: u32| {
        let mut buffer = arena.write(slot as usize).expect("free");
        pattern(slot, 1, &mut buffer);
        volume.write(slot, name(slot, 1), payload(buffer.into_read()))
    };
    let pending: Vec<_> = (0..SLOTS).map(begin).collect();
    pending.into_iter().for_each(|pending| drop(pending.wait().expect("written")));
}

fn refused(volume: &Volume, arena: &Arc<HostArena>, slot: u32) -> FailureCause {
    let buffer = arena.write(0).expect("free");
    volume.read(slot, name(slot, 1).hash, Urgency::Urgent, buffer).wait().expect_err("refused").cause
}

#[test]
fn right_given_sum_writes_the_same_file() {
    over_each(|kept, slot_bytes| {
        let new = dir();
        drop(open(kept(&new)).expect("volume"));
        let files = [false, true].map(|given| {
            let copy = dir();
            std::fs::copy(new.path().join("volume"), copy.path().join("volume")).expect("copied");
            let volume = open(kept(&copy)).expect("volume");
            write_all(&volume, slot_bytes, |bytes| {
                let sum = sum_of(&bytes);
                if given { Payload::summed(bytes, sum) } else { bytes.into() }
            });
            let arena = HostArena::new(1, slot_bytes).expect("arena");
            (0..SLOTS).for_each(|slot| check_pattern(&volume, &arena, 0, slot, 1));
            drop(volume);
            std::fs::read(copy.path().join("volume")).expect("there")
        });
        assert!(files[0] == files[1], "slots of {slot_bytes} bytes");
    });
}

/// The volume takes the caller's sum unchecked: nothing else would make these reads misses.
#[test]
fn wrong_given_sum_is_a_counted_miss() {
    over_each(|kept, slot_bytes| {
        let (dir, arena) = (dir(), HostArena::new(1, slot_bytes).expect("arena"));
        let volume = open(kept(&dir)).expect("volume");
        write_all(&volume, slot_bytes, |bytes| {
            let sum = sum_of(&bytes) ^ 1;
            Payload::summed(bytes, sum)
        });
        for slot in 0..SLOTS - 1 {
            assert_eq!(refused(&volume, &arena, slot), FailureCause::Rejected(Rejection::Payload));
            assert_eq!(refused(&volume, &arena, slot), FailureCause::Rejected(Rejection::Empty));
        }
        let (stats, each) = (volume.stats(), u64::from(SLOTS - 1));
        assert_eq!((stats.reads, stats.rejected, stats.failures), (0, 2 * each, 0));
        write_pattern(&volume, &arena, 0, 3, 2);
        check_pattern(&volume, &arena, 0, 3, 2);
        drop(volume);
        let (volume, recovery) = Volume::open(kept(&dir)).expect("volume");
        assert_eq!(recovery.blocks.len(), 2, "the one that was not read has a record like any other");
        assert_eq!(refused(&volume, &arena, SLOTS - 1), FailureCause::Rejected(Rejection::Payload));
        assert_eq!((volume.stats().reads, volume.stats().rejected), (0, 1));
    });
}

#[test]
fn try_write_takes_a_given_sum() {
    let (dir, arena) = (dir(), HostArena::new(1, 4096).expect("arena"));
    let volume = open(options(&dir, 2, 4096).backend(Backend::Blocking)).expect("volume");
    for (slot, flip) in [(0, 0), (1, 1)] {
        let mut buffer = arena.write(0).expect("free");
        pattern(slot, 1, &mut buffer);
        let sum = sum_of(&buffer) ^ flip;
        let written = volume.try_write(slot, name(slot, 1), Payload::summed(buffer.into_read(), sum));
        drop(written.expect("room").wait().expect("written"));
    }
    check_pattern(&volume, &arena, 0, 0, 1);
    assert_eq!(refused(&volume, &arena, 1), FailureCause::Rejected(Rejection::Payload));
}

#[test]
#[cfg(feature = "encryption")]
fn encrypted_volume_refuses_a_payload_that_changed() {
    let (dir, arena) = (dir(), HostArena::new(1, 4096).expect("arena"));
    let volume = open(options(&dir, 2, 4096).key(encrypted::key())).expect("volume");
    for (slot, flip) in [(0, 0), (1, 1)] {
        let mut buffer = arena.write(0).expect("free");
        pattern(slot, 1, &mut buffer);
        let sum = sum_of(&buffer) ^ flip;
        let written = volume.write(slot, name(slot, 1), Payload::summed(buffer.into_read(), sum)).wait();
        let cause = written.err().map(|failure| failure.cause);
        assert_eq!(cause, (flip > 0).then_some(FailureCause::Rejected(Rejection::Payload)));
    }
    check_pattern(&volume, &arena, 0, 0, 1);
}
