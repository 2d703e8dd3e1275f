//! Payloads shorter than a slot, and buffers that a caller lends: run over every backend by the contract.

use super::*;
use crate::arena::{BLOCK_ALIGN_BYTES, Span};
use crate::disk::error::FailureCause;
use crate::disk::pending::Pending;

/// A block of lent memory that starts `skew` bytes behind a multiple of 4096.
fn lent(bytes: usize, skew: usize) -> Arc<HostArena> {
    let mut owner = vec![0_u8; bytes + 2 * BLOCK_ALIGN_BYTES];
    let base = owner.as_mut_ptr();
    let start = base.wrapping_add(base.align_offset(BLOCK_ALIGN_BYTES) + skew);
    let span = Span::new(start, bytes).expect("memory");
    // SAFETY: within `owner`, which goes with the arena; nothing else touches it.
    unsafe { HostArena::lent(vec![span], Box::new(owner)) }.expect("an arena")
}

fn cause<B>(pending: Pending<B>) -> FailureCause {
    match pending.wait() {
        Ok(_) => panic!("it succeeds"),
        Err(failure) => {
            assert!(!failure.is_retryable() && failure.cause.is_of_the_buffer(), "{failure}");
            failure.cause
        }
    }
}

/// Writes a block of so many bytes from the start of an arena's block.
fn write(volume: &Volume, arena: &Arc<HostArena>, slot: u32, round: u32, bytes: usize) {
    let mut buffer = arena.write(0).expect("free").first(bytes);
    pattern(slot, round, &mut buffer);
    let back = volume.write(slot, name(slot, round), buffer.into_read()).wait().expect("written");
    assert_eq!(back.len(), bytes, "as narrow as it was");
}

/// Reads it back, and looks at the bytes behind the transfer.
fn check(volume: &Volume, arena: &Arc<HostArena>, slot: u32, round: u32, bytes: usize) {
    let mut buffer = arena.write(0).expect("free");
    buffer.fill(0xEE);
    let hash = name(slot, round).hash;
    let buffer = volume.read(slot, hash, Urgency::Ordinary, buffer.first(bytes)).wait().expect("read");
    assert_eq!(buffer.len(), bytes);
    assert_pattern(slot, round, &buffer);
    let end = bytes.next_multiple_of(volume.describe().alignment);
    assert!(buffer.whole().iter().skip(end).all(|byte| *byte == 0xEE), "a byte beside the transfer");
}

fn lengths_of(volume: &Volume) -> Vec<usize> {
    let slot = volume.slot_bytes();
    let all = [1, 2, 511, 512, 513, 4095, 4096, 4097, 65_536, 65_537, slot / 2, slot - 1, slot];
    all.into_iter().filter(|bytes| (1..=slot).contains(bytes)).collect()
}

pub(super) fn payload_keeps_its_length(volume: &Volume) {
    let arena = HostArena::new(1, volume.slot_bytes()).expect("arena");
    for (round, bytes) in (100..).zip(lengths_of(volume)) {
        let slot = round % volume.slots();
        write(volume, &arena, slot, round, bytes);
        check(volume, &arena, slot, round, bytes);
        for wrong in [bytes - 1, bytes + 1].into_iter().filter(|n| (1..=volume.slot_bytes()).contains(n)) {
            let buffer = arena.write(0).expect("free").first(wrong);
            let asked = volume.read(slot, name(slot, round).hash, Urgency::Urgent, buffer);
            assert_eq!(
                cause(asked),
                FailureCause::PayloadLength { buffer_bytes: wrong, payload_bytes: bytes }
            );
        }
        // Neither forgotten nor damaged.
        check(volume, &arena, slot, round, bytes);
    }
}

pub(super) fn lent_buffer_is_moved_or_refused(volume: &Volume) {
    let arena = HostArena::new(1, volume.slot_bytes()).expect("arena");
    let (direct, alignment) = (volume.describe().direct, volume.describe().alignment);
    let lengths = lengths_of(volume);
    let spans = lengths.iter().flat_map(|bytes| [0, 1, 512].map(|skew| (*bytes, skew)));
    for (round, (bytes, skew)) in (200..).zip(spans) {
        // With room for the padding, and without.
        for room in [bytes.next_multiple_of(BLOCK_ALIGN_BYTES), bytes] {
            let memory = lent(room, skew);
            let fits = skew % alignment == 0 && bytes.next_multiple_of(alignment) <= room;
            let is_aligned = memory.read(0).expect("free").first(bytes).is_aligned();
            assert!(fits || !is_aligned, "what is aligned is moved");
            write(volume, &arena, 0, round, bytes);
            let unaligned = FailureCause::Unaligned { alignment };
            let hash = name(0, round).hash;
            let buffer = || memory.write(0).expect("free").first(bytes);
            if fits || !direct {
                check_within(volume, &memory, round, bytes);
            } else {
                assert_eq!(cause(volume.read(0, hash, Urgency::Ordinary, buffer())), unaligned);
                assert_eq!(
                    volume.try_read(0, hash, Urgency::Ordinary, buffer()).map(cause).ok(),
                    Some(unaligned)
                );
            }
            // An encrypted volume writes a copy.
            let mut payload = buffer();
            pattern(0, round + 1000, &mut payload);
            match volume.write(0, name(0, round + 1000), payload.into_read()).wait() {
                Ok(_) => check(volume, &arena, 0, round + 1000, bytes),
                Err(failure) => {
                    assert!(direct && !fits && failure.cause == unaligned, "{failure}");
                    // The former block stays.
                    check(volume, &arena, 0, round, bytes);
                }
            }
            assert_eq!(Arc::strong_count(&memory), 1, "the guards are back");
        }
    }
}

/// Reads a block into lent memory, which has no byte to spare.
fn check_within(volume: &Volume, memory: &Arc<HostArena>, round: u32, bytes: usize) {
    let buffer = memory.write(0).expect("free").first(bytes);
    let buffer = volume.read(0, name(0, round).hash, Urgency::Ordinary, buffer).wait().expect("read");
    assert_pattern(0, round, &buffer);
}

#[test]
fn direct_volume_refuses_unaligned_writes() {
    let dir = dir();
    let made = open(options(&dir, 1, 8192).backend(Backend::Blocking));
    let Some(volume) = volume_or_skip(made) else { return };
    if !volume.describe().direct {
        return skip("o_direct", volume.describe());
    }
    let alignment = volume.describe().alignment;
    for memory in [lent(8192, 1), lent(5000, 0)] {
        let buffer = memory.read(0).expect("free");
        assert_eq!(cause(volume.write(0, name(0, 1), buffer)), FailureCause::Unaligned { alignment });
        let buffer = memory.read(0).expect("free");
        let refused = volume.try_write(0, name(0, 1), buffer).map(cause).ok();
        assert_eq!(refused, Some(FailureCause::Unaligned { alignment }));
    }
    assert_eq!(volume.stats().written_bytes, 0);
}

#[test]
fn short_payloads_are_recovered_with_their_length() {
    let dir = dir();
    let kept = || options(&dir, 8, 9000).keep(true).backend(Backend::Blocking);
    let arena = HostArena::new(1, 9000).expect("arena");
    let lengths = [9000, 1, 4096, 5001];
    let volume = open(kept()).expect("volume");
    (0..).zip(lengths).for_each(|(slot, bytes)| write(&volume, &arena, slot, 1, bytes));
    drop(volume);
    let (volume, recovery) = Volume::open(kept()).expect("volume");
    let found: Vec<_> = recovery.blocks.iter().map(|block| block.payload_bytes as usize).collect();
    assert_eq!(found, lengths);
    (0..).zip(lengths).for_each(|(slot, bytes)| check(&volume, &arena, slot, 1, bytes));
}

#[test]
fn damaged_short_payload_is_a_miss() {
    use crate::disk::recovery::Rejection;
    use std::os::unix::fs::FileExt;
    let dir = dir();
    let volume = open(options(&dir, 4, 9000).keep(true).backend(Backend::Blocking)).expect("volume");
    let arena = HostArena::new(1, 9000).expect("arena");
    let file = std::fs::File::options().write(true).open(dir.path().join("volume")).expect("there");
    write(&volume, &arena, 0, 1, 5000);
    // Behind the payload nothing has a meaning.
    file.write_all_at(&[0xA5], 2 * 4096 + 5000).expect("written");
    check(&volume, &arena, 0, 1, 5000);
    file.write_all_at(&[!0, !0, !0, !0, !0, !0, !0, !0], 2 * 4096 + 4990).expect("written");
    let hash = name(0, 1).hash;
    let read = || volume.read(0, hash, Urgency::Ordinary, arena.write(0).expect("free").first(5000)).wait();
    assert_eq!(read().unwrap_err().cause, FailureCause::Rejected(Rejection::Payload));
    assert_eq!(read().unwrap_err().cause, FailureCause::Rejected(Rejection::Empty), "forgotten at once");
}

/// Two copies, so that each is used again: no byte of a longer payload follows a shorter one.
#[cfg(feature = "encryption")]
#[test]
fn sealed_copy_shows_nothing_of_an_earlier_payload() {
    use std::os::unix::fs::FileExt;
    const BYTES: usize = 200_000;
    let dir = dir();
    let kept = options(&dir, 8, BYTES).keep(true).backend(Backend::Blocking);
    let volume = open(kept.key(super::encrypted::key())).expect("volume");
    let arena = HostArena::new(1, BYTES).expect("arena");
    let stride = volume.describe().stride as u64;
    let file = std::fs::File::open(dir.path().join("volume")).expect("there");
    (0..4).for_each(|slot| write(&volume, &arena, slot, 1, BYTES));
    (4..8).for_each(|slot| write(&volume, &arena, slot, 1, 5000));
    for slot in 4..8 {
        let alignment = volume.describe().alignment;
        let mut behind = vec![0xFF; 5000_usize.next_multiple_of(alignment) - 5000];
        file.read_exact_at(&mut behind, 2 * 4096 + u64::from(slot) * stride + 5000).expect("there");
        assert!(behind.iter().all(|byte| *byte == 0), "slot {slot}");
        check(&volume, &arena, slot, 1, 5000);
    }
}
