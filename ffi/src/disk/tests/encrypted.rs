//! What a volume with a key keeps, hides and refuses.

use super::gate::{Opener, gated};
use super::*;
use crate::disk::error::FailureCause;
use crate::disk::format::{COUNT_BITS, MAX_SEQUENCE, RECORD_BYTES, Record, Superblock};
use crate::disk::recovery::{Recovery, Rejection};
use crate::disk::{Key, VolumeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const SLOTS: u32 = 40;
const BYTES: usize = 70_000;
const TABLE: u64 = 4096;

pub(super) fn key() -> Key {
    Key::new(|key| key.fill(0x5A))
}

fn other_key() -> Key {
    Key::new(|key| key.fill(0x5B))
}

fn plain(dir: &TempDir) -> VolumeOptions {
    options(dir, SLOTS, BYTES).keep(true).backend(Backend::Blocking)
}

fn kept(dir: &TempDir) -> VolumeOptions {
    plain(dir).key(key())
}

fn path(dir: &TempDir) -> PathBuf {
    dir.path().join("volume")
}

fn file(dir: &TempDir) -> File {
    File::options().read(true).write(true).open(path(dir)).expect("there")
}

fn superblock(dir: &TempDir) -> Superblock {
    Superblock::from_bytes(&std::fs::read(path(dir)).expect("there")).expect("a superblock")
}

/// Names with bytes that occur nowhere else.
fn named(slot: u32) -> Name {
    let hash = |slot: u32| {
        SequenceHash::from_u128(u128::from(slot + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835))
    };
    let owner = OwnerId(u64::from(slot + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93));
    Name { hash: hash(slot), parent: (slot > 0).then(|| hash(slot - 1)), owner }
}

fn write(volume: &Volume, slots: impl IntoIterator<Item = u32>, round: u32) {
    let arena = HostArena::new(1, BYTES).expect("arena");
    for slot in slots {
        let mut buffer = arena.write(0).expect("free");
        pattern(slot, round, &mut buffer);
        drop(volume.write(slot, named(slot), buffer.into_read()).wait().expect("written"));
    }
}

/// Why a slot does not give the block written there in a round; None if it does.
fn cause_of(volume: &Volume, slot: u32, block: u32, round: u32) -> Option<FailureCause> {
    let arena = HostArena::new(1, BYTES).expect("arena");
    match volume.read(slot, named(block).hash, Urgency::Urgent, arena.write(0).expect("free")).wait() {
        Ok(buffer) => {
            assert_pattern(block, round, &buffer);
            None
        }
        Err(failure) => Some(failure.cause),
    }
}

fn rejected(rejection: Rejection) -> Option<FailureCause> {
    Some(FailureCause::Rejected(rejection))
}

fn slots_of(recovery: &Recovery) -> Vec<u32> {
    recovery.blocks.iter().map(|block| block.slot).collect()
}

fn copied(dir: &TempDir) -> TempDir {
    let copy = super::dir();
    std::fs::copy(path(dir), path(&copy)).expect("copied");
    copy
}

#[test]
fn encrypted_blocks_are_found_through_many_openings() {
    let dir = dir();
    for opening in 0..5 {
        let (volume, recovery) = Volume::open(kept(&dir)).expect("volume");
        assert_eq!(slots_of(&recovery), (0..3 * opening).rev().collect::<Vec<_>>());
        assert!(recovery.blocks.iter().all(|block| block.label == named(block.slot).into()), "{recovery:?}");
        assert_eq!((recovery.rejected.total(), recovery.created), (0, opening == 0));
        for slot in 0..3 * opening {
            assert_eq!(cause_of(&volume, slot, slot, opening - 1), None);
            assert_eq!(cause_of(&volume, slot, slot + 1, 0), rejected(Rejection::OtherHash));
        }
        write(&volume, (0..3 * (opening + 1)).rev(), opening);
    }
}

#[test]
fn wrong_or_missing_key_is_refused_before_any_change() {
    let dir = dir();
    write(&open(kept(&dir)).expect("volume"), 0..3, 1);
    let before = std::fs::read(path(&dir)).expect("there");
    for (options, field) in [(plain(&dir).key(other_key()), "key"), (plain(&dir), "seal_kind")] {
        let error = open(options).unwrap_err();
        let VolumeError::Foreign { field: found, .. } = &error else { panic!("{error}") };
        assert_eq!(*found, field);
        assert!(error.to_string().contains("reinitialize"), "it says what to do: {error}");
    }
    assert!(std::fs::read(path(&dir)).expect("there") == before);
    let (volume, recovery) = Volume::open(kept(&dir)).expect("volume");
    assert_eq!((recovery.blocks.len(), cause_of(&volume, 2, 2, 1)), (3, None));
    drop(volume);
    let (volume, recovery) = Volume::open(plain(&dir).reinitialize(true)).expect("started over");
    assert!(recovery.created);
    write(&volume, 0..3, 2);
    drop(volume);
    let error = open(kept(&dir)).unwrap_err();
    assert!(matches!(error, VolumeError::Foreign { field: "seal_kind", .. }), "{error}");
    let (_, recovery) = Volume::open(plain(&dir)).expect("as it was");
    assert_eq!(recovery.blocks.len(), 3);
}

#[test]
fn crash_keeps_flushed_blocks() {
    let dir = dir();
    let volume = open(kept(&dir)).expect("volume");
    write(&volume, 0..10, 1);
    volume.flush().wait().expect("flushed");
    let crashed = copied(&dir);
    let (after, recovery) = Volume::open(kept(&crashed)).expect("volume");
    assert_eq!((recovery.blocks.len(), recovery.clean), (10, false));
    assert!((0..10).all(|slot| cause_of(&after, slot, slot, 1).is_none()));
}

/// Two copies of a file continue with the same numbers: their epochs have keys of their own.
#[test]
fn repeated_sequence_number_encrypts_differently() {
    let dir = dir();
    drop(open(kept(&dir)).expect("volume"));
    let streams = [1, 2].map(|round| {
        let copy = copied(&dir);
        write(&open(kept(&copy)).expect("volume"), [20], round);
        let Superblock { shape, volume_id, .. } = superblock(&copy);
        let (mut record, mut stream, mut clear) = ([0; RECORD_BYTES], vec![0; BYTES], vec![0; BYTES]);
        file(&copy).read_exact_at(&mut record, TABLE + 20 * RECORD_BYTES as u64).expect("there");
        file(&copy).read_exact_at(&mut stream, shape.offset(20)).expect("there");
        pattern(20, round, &mut clear);
        stream.iter_mut().zip(clear).for_each(|(byte, clear)| *byte ^= clear);
        let record = Record::decode(&record, volume_id, 20).expect("whole").expect("not empty");
        (record.sequence, record.label.hash, stream)
    });
    assert_eq!(streams[0].0, streams[1].0, "the same number");
    assert!(streams[0].1 != streams[1].1 && streams[0].2 != streams[1].2, "one key stream twice");
}

/// A volume without a key shows that the search can find these bytes.
#[test]
fn encrypted_file_shows_neither_payloads_nor_names() {
    for encrypted in [false, true] {
        let dir = dir();
        let volume = open(if encrypted { kept(&dir) } else { plain(&dir) }).expect("volume");
        write(&volume, 0..5, 1);
        drop(volume);
        let bytes = std::fs::read(path(&dir)).expect("there");
        let shows = |wanted: &[u8]| bytes.windows(wanted.len()).any(|window| window == wanted);
        let mut payload = vec![0; BYTES];
        for slot in 0..5 {
            pattern(slot, 1, &mut payload);
            for part in [&payload[..16], &payload[BYTES / 2..][..16], &payload[BYTES - 16..]] {
                assert_eq!(shows(part), !encrypted, "payload of slot {slot}");
            }
            assert_eq!(shows(&named(slot).hash.to_bytes()), !encrypted, "name of slot {slot}");
        }
        // Neither half a name, nor any part of the key.
        assert_eq!(shows(&named(0).hash.to_bytes()[..8]), !encrypted);
        assert!(!shows(&[0x5A; 8]));
    }
}

#[test]
fn damage_is_a_miss_and_is_not_met_twice() {
    let dir = dir();
    write(&open(kept(&dir)).expect("volume"), 0..10, 1);
    let Superblock { shape, volume_id, .. } = superblock(&dir);
    let file = file(&dir);
    // A bit of a payload; a bit of a record's seal, under the right checksum.
    let mut byte = [0];
    file.read_exact_at(&mut byte, shape.offset(3) + 69_999).expect("there");
    file.write_all_at(&[byte[0] ^ 1], shape.offset(3) + 69_999).expect("written");
    let at = |slot: u32| TABLE + u64::from(slot) * RECORD_BYTES as u64;
    let record = |slot| {
        let mut bytes = [0; RECORD_BYTES];
        file.read_exact_at(&mut bytes, at(slot)).expect("there");
        Record::decode(&bytes, volume_id, slot).expect("whole").expect("not empty")
    };
    let mut forged = record(4);
    forged.seal[0] ^= 1;
    file.write_all_at(&forged.encode(volume_id, 4), at(4)).expect("written");
    // Block 5 with its record, moved to slot 20 under the right checksum.
    let mut payload = vec![0; BYTES];
    file.read_exact_at(&mut payload, shape.offset(5)).expect("there");
    file.write_all_at(&payload, shape.offset(20)).expect("written");
    file.write_all_at(&record(5).encode(volume_id, 20), at(20)).expect("written");
    file.write_all_at(&[0; RECORD_BYTES], at(5)).expect("written");
    // The payload of slot 6 under the record of slot 7.
    file.read_exact_at(&mut payload, shape.offset(6)).expect("there");
    file.write_all_at(&payload, shape.offset(7)).expect("written");

    let (volume, recovery) = Volume::open(kept(&dir)).expect("volume");
    assert_eq!((recovery.blocks.len(), recovery.rejected.total()), (10, 0));
    for (slot, block) in [(3, 3), (4, 4), (20, 5), (7, 7)] {
        assert_eq!(cause_of(&volume, slot, block, 1), rejected(Rejection::Payload), "slot {slot}");
        assert_eq!(cause_of(&volume, slot, block, 1), rejected(Rejection::Empty), "forgotten at once");
    }
    assert_eq!(volume.stats().rejected, 8);
    for slot in [0, 1, 2, 6, 8, 9] {
        assert_eq!(cause_of(&volume, slot, slot, 1), None);
    }
}

/// Taken for real, one would exhaust the epochs, or reuse an epoch's number.
#[test]
fn sequence_number_of_no_opening_spends_no_epoch() {
    let dir = dir();
    write(&open(kept(&dir)).expect("volume"), 0..3, 1);
    let Superblock { volume_id, writes, .. } = superblock(&dir);
    let file = file(&dir);
    let at = |slot: u32| TABLE + u64::from(slot) * RECORD_BYTES as u64;
    let mut bytes = [0; RECORD_BYTES];
    file.read_exact_at(&mut bytes, at(1)).expect("there");
    let record = Record::decode(&bytes, volume_id, 1).expect("whole").expect("not empty");
    // The largest number of all; the first that no opening gave; one of an epoch that no opening began,
    // without a salt.
    for (slot, epoch) in [(20, MAX_SEQUENCE >> COUNT_BITS), (21, writes + 1), (22, writes)] {
        let forged = Record { sequence: epoch << COUNT_BITS, ..record };
        file.write_all_at(&forged.encode(volume_id, slot), at(slot)).expect("written");
    }
    for opening in 0..3 {
        let (volume, recovery) = Volume::open(kept(&dir)).expect("epochs are left");
        assert_eq!(slots_of(&recovery), (0..3 + opening).collect::<Vec<_>>());
        let dropped = (recovery.rejected.record, recovery.rejected.salt);
        assert_eq!(dropped, if opening == 0 { (2, 1) } else { (0, 0) });
        assert!((0..3).all(|slot| cause_of(&volume, slot, slot, 1).is_none()));
        write(&volume, [3 + opening], 1);
    }
}

/// A drive of a set is replaced: its file begins with the current epoch of the others.
#[test]
fn new_file_of_an_old_set_recovers_its_blocks() {
    for gone in [1, 0] {
        let dirs = [dir(), dir()];
        let open = || VolumeSet::open(dirs.iter().map(kept).collect()).expect("set");
        let arena = HostArena::new(1, BYTES).expect("arena");
        let write = |set: &VolumeSet, slot: u32| {
            drop(set.write(slot, named(slot), arena.read(0).expect("free")).wait().expect("written"));
        };
        let left = 1 - gone;
        for slot in [0, 2, 4, 6] {
            write(&open().0, slot + left);
        }
        std::fs::remove_file(path(&dirs[gone as usize])).expect("there");
        write(&open().0, gone);
        let (_, recovery) = open();
        let found = vec![left, 2 + left, 4 + left, 6 + left, gone];
        assert_eq!((slots_of(&recovery), recovery.rejected.total()), (found, 0));
    }
}

/// Verification cannot be skipped: unopened payloads are never served.
#[test]
fn encrypted_damage_is_a_miss_even_if_unverified() {
    let dir = dir();
    write(&open(kept(&dir)).expect("volume"), 0..2, 1);
    file(&dir).write_all_at(&[0xAA; 3], superblock(&dir).shape.offset(0) + 100).expect("written");
    let (volume, _) = Volume::open(kept(&dir).skip_verification_unsafe(true)).expect("volume");
    assert!(!volume.describe().to_string().contains("not verified"));
    assert_eq!(cause_of(&volume, 0, 0, 1), rejected(Rejection::Payload));
    assert_eq!(cause_of(&volume, 1, 1, 1), None);
}

#[test]
fn rolled_back_file_serves_its_old_blocks_or_none() {
    let dir = dir();
    write(&open(kept(&dir)).expect("volume"), 0..10, 1);
    let old = std::fs::read(path(&dir)).expect("there");
    let shape = superblock(&dir).shape;
    write(&open(kept(&dir)).expect("volume"), 5..15, 2);
    let new = std::fs::read(path(&dir)).expect("there");
    let open = |image: &[u8]| {
        std::fs::write(path(&dir), image).expect("written");
        Volume::open(kept(&dir)).expect("volume")
    };

    let (volume, recovery) = open(&old);
    assert_eq!(slots_of(&recovery), (0..10).collect::<Vec<_>>());
    assert!((0..10).all(|slot| cause_of(&volume, slot, slot, 1).is_none()));
    // Its next epoch reuses an epoch's number.
    write(&volume, 20..22, 3);
    drop(volume);
    let forked = std::fs::read(path(&dir)).expect("there");

    // Old superblocks: the salt of the later writes is gone.
    let mut image = new.clone();
    let end = shape.superblock_b() as usize;
    image[..4096].copy_from_slice(&old[..4096]);
    image[end..].copy_from_slice(&old[end..]);
    let (volume, recovery) = open(&image);
    assert_eq!((slots_of(&recovery), recovery.rejected.salt), ((0..5).collect(), 10));
    assert!((0..5).all(|slot| cause_of(&volume, slot, slot, 1).is_none()));
    assert_eq!(cause_of(&volume, 7, 7, 2), rejected(Rejection::Empty));
    drop(volume);

    // Superblocks of the fork: an epoch of the same number, with another salt. Its records' names unmask
    // to nonsense.
    image[..4096].copy_from_slice(&forked[..4096]);
    image[end..].copy_from_slice(&forked[end..]);
    let (volume, recovery) = open(&image);
    assert_eq!((recovery.blocks.len(), recovery.rejected.total()), (15, 0));
    assert!((0..5).all(|slot| cause_of(&volume, slot, slot, 1).is_none()));
    assert!((5..15).all(|slot| cause_of(&volume, slot, slot, 2) == rejected(Rejection::OtherHash)));
    drop(volume);

    // Old payloads under new records, and the other way round.
    let slots = shape.origin as usize..end;
    for (payloads, records, missed) in [(&old, &new, 5..15), (&new, &old, 5..10)] {
        let mut image = records.clone();
        image[slots.clone()].copy_from_slice(&payloads[slots.clone()]);
        let (volume, _) = open(&image);
        assert!((0..5).all(|slot| cause_of(&volume, slot, slot, 1).is_none()));
        for slot in missed {
            assert_eq!(cause_of(&volume, slot, slot, 0), rejected(Rejection::Payload), "slot {slot}");
        }
    }
}

#[test]
fn volumes_of_a_set_recover_in_the_order_of_their_writes() {
    let (one, two) = (dir(), dir());
    let open = || VolumeSet::open(vec![kept(&one), kept(&two)]).expect("set");
    let arena = HostArena::new(1, BYTES).expect("arena");
    let write = |set: &VolumeSet, slot: u32| {
        drop(set.write(slot, named(slot), arena.read(0).expect("free")).wait().expect("written"));
    };
    // Openings with writes to only one of them.
    for slot in [0, 2, 4] {
        write(&open().0, slot);
    }
    let (set, _) = open();
    [9, 7, 6, 5, 8, 11].iter().for_each(|slot| write(&set, *slot));
    drop(set);
    write(&open().0, 1);
    let (set, recovery) = open();
    assert_eq!(slots_of(&recovery), [0, 2, 4, 9, 7, 6, 5, 8, 11, 1]);
    let read = set.read(11, named(11).hash, Urgency::Urgent, arena.write(0).expect("free")).wait();
    assert!(read.expect("read").iter().all(|byte| *byte == 0));
}

/// There are three copies: callers wait, none is lost, and no call allocates.
#[test]
fn callers_wait_while_all_sealed_copies_are_in_flight() {
    let dir = dir();
    let made = gated(options(&dir, 32, BYTES).key(key()).depth(2).backend(Backend::Blocking));
    let (volume, gate) = made.expect("volume");
    let gate = Opener(gate);
    let arena = HostArena::new(32, BYTES).expect("arena");
    let write = |slot: u32| {
        let mut buffer = arena.write(slot as usize).expect("free");
        pattern(slot, 1, &mut buffer);
        volume.write(slot, name(slot, 1), buffer.into_read())
    };
    let mut pending: Vec<_> = (0..3).rev().map(write).collect();
    let refused = volume.try_write(4, name(4, 1), arena.read(4).expect("free"));
    assert_eq!(refused.expect_err("full").block(), 4, "the buffer comes back");
    std::thread::scope(|scope| {
        let callers: Vec<_> = (3..7).map(|slot| scope.spawn(move || write(slot))).collect();
        while volume.stats().blocked < 4 {
            std::thread::yield_now();
        }
        assert!(callers.iter().all(|caller| !caller.is_finished()));
        gate.open();
        pending.extend(callers.into_iter().map(|caller| caller.join().expect("no panic")));
    });
    pending.into_iter().for_each(|pending| drop(pending.wait().expect("written")));
    assert_eq!((volume.stats().blocked, volume.stats().waits), (0, 4));
    (0..7).for_each(|slot| check_pattern(&volume, &arena, 0, slot, 1));
}

/// A caller that waits for a copy learns of the end, though copies in flight never come back.
#[test]
fn lost_ring_keeps_its_copies_and_delays_no_caller() {
    let dir = dir();
    let options = options(&dir, 32, BYTES).key(key()).depth(2).queue(2).backend(Backend::Blocking);
    let volume = faulty(options, |n, _| if n == 1 { Fault::Break(libc::EBADF) } else { Fault::None });
    let volume = volume.expect("volume");
    let arena = HostArena::new(32, BYTES).expect("arena");
    std::thread::scope(|scope| {
        for slot in (0..32).rev() {
            let (volume, arena) = (&volume, &arena);
            scope.spawn(move || {
                let buffer = arena.read(slot as usize).expect("free");
                let outcome = volume.write(slot, name(slot, 1), buffer).wait();
                assert!(outcome.is_ok() || outcome.unwrap_err().cause == FailureCause::OutOfService);
            });
        }
    });
    let kept = (0..32).filter(|block| arena.write(*block).is_err()).count();
    assert!((1..=2).contains(&kept), "{kept} were in flight");
    assert!(format!("{volume:?}").contains("lost: true"), "their copies are kept with them");
    let late = volume.write(0, name(0, 1), HostArena::new(1, BYTES).expect("arena").read(0).expect("free"));
    assert_eq!(late.wait().unwrap_err().cause, FailureCause::OutOfService);
}

#[test]
fn dropped_pending_leaves_its_buffers_with_the_request() {
    let dir = dir();
    let (volume, gate) =
        gated(options(&dir, 8, BYTES).key(key()).backend(Backend::Blocking)).expect("volume");
    let gate = Opener(gate);
    let arena = HostArena::new(2, BYTES).expect("arena");
    let mut buffer = arena.write(0).expect("free");
    pattern(5, 1, &mut buffer);
    drop(volume.write(5, name(5, 1), buffer.into_read()));
    drop(volume.read(6, name(6, 0).hash, Urgency::Ordinary, arena.write(1).expect("free")));
    gate.wait_for(2);
    assert!(arena.write(0).is_err() && arena.read(1).is_err(), "in flight");
    gate.open();
    while volume.stats().writes == 8 || volume.stats().reads == 0 {
        std::thread::yield_now();
    }
    drop(volume);
    assert!(arena.write(0).is_ok());
    assert_pattern(6, 0, &arena.read(1).expect("free"));
}
