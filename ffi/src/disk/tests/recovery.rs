//! The blocks of a volume that is opened again, and the volumes that are refused.

use super::*;
use crate::disk::description::Concern;
use crate::disk::error::FailureCause;
use crate::disk::format::{MAX_SEQUENCE, Record, Superblock};
use crate::disk::recovery::{Recovery, Rejection};
use crate::disk::set::VolumeSet;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

const SLOTS: u32 = 100;
const BYTES: usize = 8192;

fn kept(dir: &TempDir) -> VolumeOptions {
    options(dir, SLOTS, BYTES)
        .keep(true)
        .backend(Backend::Blocking)
        .model_fingerprint(7)
        .layout_fingerprint(9)
}

fn file(dir: &TempDir) -> std::fs::File {
    std::fs::File::options().read(true).write(true).open(dir.path().join("volume")).expect("there")
}

/// Opens a volume and writes the blocks of `slots`.
fn written(dir: &TempDir, slots: impl Iterator<Item = u32>) -> Volume {
    let volume = open(kept(dir)).expect("volume");
    let arena = HostArena::new(1, BYTES).expect("arena");
    slots.for_each(|slot| write_pattern(&volume, &arena, 0, slot, 1));
    volume
}

fn slots_of(recovery: &Recovery) -> Vec<u32> {
    recovery.blocks.iter().map(|block| block.slot).collect()
}

fn cause_of(volume: &Volume, slot: u32) -> Option<FailureCause> {
    let arena = HostArena::new(1, BYTES).expect("arena");
    let buffer = arena.write(0).expect("free");
    match volume.read(slot, name(slot, 1).hash, Urgency::Urgent, buffer).wait() {
        Ok(buffer) => {
            assert_pattern(slot, 1, &buffer);
            None
        }
        Err(failure) => Some(failure.cause),
    }
}

#[test]
fn written_blocks_are_recovered_in_order_and_forgotten_not() {
    let dir = dir();
    let order = (0..SLOTS).rev().step_by(3);
    let volume = written(&dir, order.clone());
    volume.forget(99);
    drop(volume);
    let (volume, recovery) = Volume::open(kept(&dir)).expect("volume");
    assert_eq!(slots_of(&recovery), order.skip(1).collect::<Vec<_>>());
    assert!(recovery.clean && !recovery.created && recovery.rejected.total() == 0, "{recovery:?}");
    assert!(recovery.blocks.iter().all(|block| block.label == name(block.slot, 1).into()));
    for slot in slots_of(&recovery) {
        assert_eq!(cause_of(&volume, slot), None);
    }
    assert_eq!(cause_of(&volume, 99), Some(FailureCause::Rejected(Rejection::Empty)));
    // Sequence numbers continue.
    let arena = HostArena::new(1, BYTES).expect("arena");
    write_pattern(&volume, &arena, 0, 0, 1);
    drop(volume);
    let (_, recovery) = Volume::open(kept(&dir)).expect("volume");
    assert_eq!(slots_of(&recovery).last(), Some(&0));
}

#[test]
fn crash_keeps_blocks_of_the_background_table_write() {
    let dir = dir();
    let volume = open(kept(&dir).table_delay(Duration::from_millis(1))).expect("volume");
    let arena = HostArena::new(1, BYTES).expect("arena");
    (0..10).for_each(|slot| write_pattern(&volume, &arena, 0, slot, 1));
    let since = Instant::now();
    let mut table = [0; 64 * 10];
    while table.chunks(64).any(|record| record.iter().all(|byte| *byte == 0)) {
        assert!(since.elapsed() < Duration::from_secs(20), "the table was not written");
        file(&dir).read_exact_at(&mut table, 4096).expect("there");
    }
    // As a crash leaves it: a copy of the file while it is in use.
    let crashed = super::dir();
    std::fs::copy(dir.path().join("volume"), crashed.path().join("volume")).expect("copied");
    let (volume, recovery) = Volume::open(kept(&crashed)).expect("volume");
    assert_eq!((recovery.blocks.len(), recovery.clean), (10, false));
    assert!((0..10).all(|slot| cause_of(&volume, slot).is_none()));
}

#[test]
fn dropped_records_are_cleared_without_any_write() {
    let dir = dir();
    drop(written(&dir, 0..10));
    file(&dir).write_all_at(&[0xAA], 4096 + 64 * 4 + 20).expect("written");
    let (_volume, recovery) = Volume::open(kept(&dir).table_delay(Duration::from_millis(1))).expect("volume");
    assert_eq!(recovery.rejected.record, 1);
    let since = Instant::now();
    let mut record = [1; 64];
    while record != [0; 64] {
        assert!(since.elapsed() < Duration::from_secs(20), "the table was not written");
        file(&dir).read_exact_at(&mut record, 4096 + 64 * 4).expect("there");
    }
}

#[test]
fn flush_syncs_the_whole_table() {
    let dir = dir();
    let volume = open(kept(&dir).table_delay(Duration::from_secs(1000))).expect("volume");
    let arena = HostArena::new(1, BYTES).expect("arena");
    (0..SLOTS).for_each(|slot| write_pattern(&volume, &arena, 0, slot, 1));
    volume.flush().wait().expect("flushed");
    let crashed = super::dir();
    std::fs::copy(dir.path().join("volume"), crashed.path().join("volume")).expect("copied");
    let (_, recovery) = Volume::open(kept(&crashed)).expect("volume");
    assert_eq!((recovery.blocks.len(), recovery.clean), (SLOTS as usize, false));
}

/// The first version had other records, whose bytes would pass for labels of this one.
#[test]
fn other_version_is_refused_and_can_be_started_over() {
    let dir = dir();
    drop(written(&dir, 0..5));
    let length = file(&dir).metadata().expect("there").len();
    for at in [0, length - 4096] {
        let mut superblock = [0; 4096];
        file(&dir).read_exact_at(&mut superblock, at).expect("there");
        superblock[8] = 1;
        let sum = twox_hash::XxHash3_64::oneshot(&superblock[..4088]);
        superblock[4088..].copy_from_slice(&sum.to_le_bytes());
        file(&dir).write_all_at(&superblock, at).expect("written");
    }
    let before = std::fs::read(dir.path().join("volume")).expect("there");
    let error = open(kept(&dir)).unwrap_err();
    assert!(
        matches!(&error, VolumeError::Foreign { field: "version", found, .. } if found == "1"),
        "{error}"
    );
    assert!(error.to_string().contains("reinitialize"), "{error}");
    assert!(std::fs::read(dir.path().join("volume")).expect("there") == before, "it was changed");
    let (_, recovery) = Volume::open(kept(&dir).reinitialize(true)).expect("started over");
    assert!(recovery.blocks.is_empty() && recovery.created);
}

#[test]
fn foreign_volume_is_refused_by_field_and_can_start_over() {
    let at = |dir: &TempDir, slots, bytes| options(dir, slots, bytes).keep(true).backend(Backend::Blocking);
    let dir = dir();
    drop(written(&dir, 0..5));
    for (options, field) in [
        (kept(&dir).model_fingerprint(8), "model_fingerprint"),
        (kept(&dir).layout_fingerprint(8), "layout_fingerprint"),
        (at(&dir, SLOTS + 1, BYTES).model_fingerprint(7).layout_fingerprint(9), "slots"),
        (at(&dir, SLOTS, BYTES + 1).model_fingerprint(7).layout_fingerprint(9), "slot_bytes"),
    ] {
        let error = open(options).unwrap_err();
        let VolumeError::Foreign { field: found, .. } = &error else { panic!("{error}") };
        assert_eq!(*found, field);
        assert!(error.to_string().contains(field) && error.to_string().contains("reinitialize"), "{error}");
    }
    let (volume, recovery) = Volume::open(kept(&dir)).expect("untouched by all that");
    assert_eq!(recovery.blocks.len(), 5);
    drop(volume);
    let (volume, recovery) =
        Volume::open(at(&dir, 3 * SLOTS, BYTES).reinitialize(true)).expect("started over");
    assert!(recovery.blocks.is_empty() && recovery.created);
    assert_eq!(cause_of(&volume, 0), Some(FailureCause::Rejected(Rejection::Empty)));
    drop(volume);
    let (_, recovery) = Volume::open(at(&dir, 3 * SLOTS, BYTES)).expect("volume");
    assert!(recovery.blocks.is_empty() && recovery.rejected.total() == 0, "{recovery:?}");
}

#[test]
fn damage_is_a_miss_and_is_not_met_twice() {
    let dir = dir();
    drop(written(&dir, 0..10));
    let origin = 4096 + 8192;
    // A payload, a record, and padding that is never read.
    file(&dir).write_all_at(&[0xAA; 3], origin + 3 * BYTES as u64 + 5000).expect("written");
    file(&dir).write_all_at(&[0xAA], 4096 + 64 * 4 + 20).expect("written");
    let (volume, recovery) = Volume::open(kept(&dir)).expect("volume");
    assert_eq!((recovery.blocks.len(), recovery.rejected.record), (9, 1));
    for slot in 0..10 {
        let expected = match slot {
            3 => Some(FailureCause::Rejected(Rejection::Payload)),
            4 => Some(FailureCause::Rejected(Rejection::Empty)),
            _ => None,
        };
        assert_eq!(cause_of(&volume, slot), expected);
    }
    assert_eq!(cause_of(&volume, 3), Some(FailureCause::Rejected(Rejection::Empty)), "forgotten at once");
    drop(volume);
    let (_, recovery) = Volume::open(kept(&dir)).expect("volume");
    assert_eq!((recovery.blocks.len(), recovery.rejected.total()), (8, 0));
}

/// If numbers continued from it, later writes would never be found again.
#[test]
fn only_sequence_numbers_of_openings_are_recovered() {
    let dir = dir();
    drop(written(&dir, 0..5));
    let superblock =
        || Superblock::from_bytes(&std::fs::read(dir.path().join("volume")).expect("there")).expect("whole");
    let forge = |slot: u32, sequence: u64| {
        let Superblock { volume_id, .. } = superblock();
        let label = name(slot, 1).into();
        let record = Record { label, sequence, seal: [0; 16], payload_bytes: BYTES as u32 };
        file(&dir)
            .write_all_at(&record.encode(volume_id, slot), 4096 + 64 * u64::from(slot))
            .expect("written");
    };
    type Forged = fn(u64) -> u64;
    let forged: [(Forged, bool); 3] =
        [(|_| MAX_SEQUENCE, false), (|last| last + 1, false), (|last| last, true)];
    for (round, (sequence, found)) in (0..).zip(forged) {
        forge(50 + round, sequence(superblock().last_sequence()));
        let (volume, recovery) = Volume::open(kept(&dir)).expect("volume");
        assert_eq!(slots_of(&recovery).contains(&(50 + round)), found);
        assert_eq!(recovery.rejected.record, u64::from(!found));
        let arena = HostArena::new(1, BYTES).expect("arena");
        write_pattern(&volume, &arena, 0, 10 + round, 1);
        drop(volume);
        let (_, recovery) = Volume::open(kept(&dir)).expect("volume");
        assert_eq!((recovery.rejected.total(), slots_of(&recovery).last()), (0, Some(&(10 + round))));
    }
}

#[test]
fn skipped_verification_serves_damaged_payloads() {
    let dir = dir();
    drop(written(&dir, 0..2));
    file(&dir).write_all_at(&[0xAA; 3], 4096 + 8192 + 100).expect("written");
    let (volume, _) = Volume::open(kept(&dir).skip_verification_unsafe(true)).expect("volume");
    assert!(volume.describe().to_string().contains("not verified"));
    let arena = HostArena::new(1, BYTES).expect("arena");
    let buffer = volume.read(0, name(0, 1).hash, Urgency::Urgent, arena.write(0).expect("free")).wait();
    assert_eq!(&buffer.expect("read")[100..103], [0xAA; 3]);
    let other = volume.read(1, name(0, 1).hash, Urgency::Urgent, arena.write(0).expect("free")).wait();
    assert_eq!(other.unwrap_err().cause, FailureCause::Rejected(Rejection::OtherHash));
}

#[test]
fn volume_survives_one_damaged_superblock_but_not_two() {
    let dir = dir();
    drop(written(&dir, 0..10));
    let end = file(&dir).metadata().expect("there").len() - 4096;
    for at in [0, end] {
        file(&dir).write_all_at(&[0x55; 4096], at).expect("written");
        let (volume, recovery) = Volume::open(kept(&dir)).expect("volume");
        assert_eq!((recovery.blocks.len(), recovery.rejected.superblock, recovery.clean), (10, 1, false));
        assert!(volume.describe().notes.iter().any(|note| note.contains("superblock")));
        assert!(volume.describe().concerns.contains(&Concern::Superblock));
        assert_eq!(volume.describe().rejected, recovery.rejected);
    }
    for at in [0, end] {
        file(&dir).write_all_at(&[0x55; 4096], at).expect("written");
    }
    let (volume, recovery) = Volume::open(kept(&dir)).expect("volume");
    assert_eq!((recovery.blocks.len(), recovery.rejected.superblock, recovery.created), (0, 2, true));
    drop(volume);
    let (_, recovery) = Volume::open(kept(&dir)).expect("volume");
    assert_eq!((recovery.blocks.len(), recovery.rejected.total(), recovery.clean), (0, 0, true));
}

#[test]
fn truncated_volume_gets_its_end_back_empty() {
    let dir = dir();
    drop(written(&dir, 0..SLOTS));
    let whole = file(&dir).metadata().expect("there").len();
    file(&dir).set_len(4096 + 8192 + 40 * BYTES as u64 + 100).expect("cut");
    let (volume, recovery) = Volume::open(kept(&dir)).expect("volume");
    assert_eq!((recovery.blocks.len(), recovery.rejected.truncated), (40, 60));
    let found = volume.describe();
    assert!(found.concerns.contains(&Concern::Truncated), "{:?}", found.concerns);
    assert_eq!(found.rejected, recovery.rejected);
    assert_eq!(file(&dir).metadata().expect("there").len(), whole);
    let arena = HostArena::new(1, BYTES).expect("arena");
    write_pattern(&volume, &arena, 0, 99, 1);
    assert_eq!((cause_of(&volume, 99), cause_of(&volume, 39)), (None, None));
}

#[test]
fn volumes_of_a_set_are_striped_by_index() {
    let (one, two) = (dir(), dir());
    let both = || vec![kept(&one), kept(&two)];
    let arena = HostArena::new(1, BYTES).expect("arena");
    let (set, _) = VolumeSet::open(both()).expect("set");
    assert_eq!((set.slots(), set.slot_bytes()), (2 * SLOTS, BYTES));
    for slot in [0, 1, 5, 2 * SLOTS - 1, 4] {
        let mut buffer = arena.write(0).expect("free");
        pattern(slot, 1, &mut buffer);
        drop(set.write(slot, name(slot, 1), buffer.into_read()).wait().expect("written"));
    }
    set.forget(5);
    set.flush().into_iter().for_each(|flush| flush.wait().expect("flushed"));
    assert!(set.volumes().iter().all(|volume| volume.stats().writes >= 2));
    drop(set);
    let error = VolumeSet::open(vec![kept(&two), kept(&one)]).unwrap_err();
    assert!(error.to_string().contains("stripe_index"), "{error}");
    let error = open(kept(&one)).unwrap_err();
    assert!(error.to_string().contains("stripe_count"), "{error}");
    let (set, recovery) = VolumeSet::open(both()).expect("set");
    assert_eq!(slots_of(&recovery), [0, 1, 2 * SLOTS - 1, 4]);
    for slot in slots_of(&recovery) {
        let buffer =
            set.read(slot, name(slot, 1).hash, Urgency::Urgent, arena.write(0).expect("free")).wait();
        assert_pattern(slot, 1, &buffer.expect("read"));
    }
    // Of two copies on two volumes the later one stays.
    for slot in [7, 10] {
        let mut buffer = arena.write(0).expect("free");
        pattern(7, 1, &mut buffer);
        drop(set.write(slot, name(7, 1), buffer.into_read()).wait().expect("written"));
    }
    drop(set);
    for duplicates in [1, 0] {
        let (set, recovery) = VolumeSet::open(both()).expect("set");
        assert_eq!(slots_of(&recovery), [0, 1, 2 * SLOTS - 1, 4, 10]);
        assert_eq!(recovery.rejected.total(), duplicates);
        // The copy in slot 7.
        let of_volumes: Vec<u64> = set.descriptions().map(|found| found.rejected.duplicate).collect();
        assert_eq!(of_volumes, [0, duplicates]);
    }
    let (set, _) = VolumeSet::open(both()).expect("set");
    let lost = set.read(2 * SLOTS, name(0, 1).hash, Urgency::Urgent, arena.write(0).expect("free")).wait();
    assert!(matches!(lost.unwrap_err().cause, FailureCause::SlotOutOfRange { .. }));
    assert!(VolumeSet::open(Vec::new()).is_err());
}

/// Closed while its owner still has it: for the next opener as if dropped, and useless to its owner.
#[test]
fn closed_volume_is_found_clean_before_its_drop() {
    let dir = dir();
    let volume = written(&dir, 0..10);
    volume.forget(3);
    volume.close();
    volume.close();
    let (next, recovery) = Volume::open(kept(&dir)).expect("nobody has it");
    assert_eq!(slots_of(&recovery), (0..10).filter(|slot| *slot != 3).collect::<Vec<_>>());
    assert!(recovery.clean && recovery.rejected.total() == 0, "{recovery:?}");
    // Requests are answered, and nothing of the next opener's is touched.
    assert_eq!(cause_of(&volume, 0), Some(FailureCause::OutOfService));
    let arena = HostArena::new(1, BYTES).expect("arena");
    let bytes = arena.read(0).expect("free");
    assert!(volume.write(0, name(0, 2), bytes).wait().is_err());
    volume.forget(1);
    assert!(volume.flush().wait().is_err());
    drop(volume);
    assert_eq!((cause_of(&next, 0), cause_of(&next, 1)), (None, None));
    drop(next);
    let (_, recovery) = Volume::open(kept(&dir)).expect("volume");
    assert!(recovery.clean && recovery.blocks.len() == 9, "{recovery:?}");
}
