//! The tier over real volumes, and blocks of volumes that are out of service.

use super::*;
use crate::disk::{ReadOutcome, WriteOutcome};
use kvstrata_core::MutableBlock;
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::disk::{
    Backend, FailureCause, IoFailure, Name, Payload, Rejection, ServiceState, Urgency, seal_of,
};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use twox_hash::XxHash3_64;

const BYTES: usize = 4096;
const NOW: Duration = Duration::ZERO;

fn hash(number: u64) -> SequenceHash {
    SequenceHash::from_u128(u128::from(number) << 64 | 7)
}

fn name(number: u64) -> Name {
    Name { hash: hash(number), parent: number.checked_sub(1).map(hash), owner: OwnerId(number % 3) }
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

fn files(folder: &TempDir, volumes: usize) -> Vec<PathBuf> {
    (0..volumes).map(|number| folder.path().join(number.to_string())).collect()
}

/// A tier of `slots` slots on each of `files`, with the backend that every machine has.
fn open(files: &[PathBuf], slots: u32, options: TierOptions) -> (DiskTier, RecoveryReport) {
    let volume =
        |file: &PathBuf| VolumeOptions::new(file, slots, BYTES).backend(Backend::Blocking).keep(true);
    let pool = PoolConfig::new(slots * files.len() as u32);
    DiskTier::open(files.iter().map(volume).collect(), pool, options).expect("a tier")
}

fn arena() -> Arc<HostArena> {
    HostArena::new(4, BYTES).expect("memory")
}

fn write_to(tier: &DiskTier, arena: &Arc<HostArena>, slot: MutableBlock<'_>, number: u64) -> WriteOutcome {
    let mut bytes = arena.write(0).expect("idle");
    bytes.fill(number as u8);
    tier.finish(tier.write(slot, name(number), bytes.into_read()))
}

fn store(tier: &DiskTier, arena: &Arc<HostArena>, number: u64) -> u32 {
    let slot = tier.take(1).pop().expect("a slot");
    let place = slot.id().0;
    assert_eq!(write_to(tier, arena, slot, number), WriteOutcome::Stored);
    place
}

fn read(tier: &DiskTier, arena: &Arc<HostArena>, block: &ImmutableBlock<'_>) -> Result<Vec<u8>, IoFailure> {
    let buffer = arena.write(1).expect("idle");
    tier.read(block, Urgency::Urgent, buffer).wait().map(|bytes| bytes.to_vec())
}

fn flip_a_bit_in(file: &Path, slots: u64, slot: u64) {
    let file = std::fs::File::options().read(true).write(true).open(file).expect("there");
    let offset = 4096 + (slots * 64).next_multiple_of(4096) + slot * BYTES as u64;
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("within the file");
    file.write_all_at(&[byte[0] ^ 1], offset).expect("within the file");
}

#[test]
fn stored_blocks_are_found_after_a_restart() {
    let (folder, arena) = (folder(), arena());
    for volumes in [1, 3] {
        let files = files(&folder, volumes);
        let options = TierOptions { linked: true, ..TierOptions::default() };
        let (tier, report) = open(&files, 8 + volumes as u32, options);
        assert_eq!((report.recovered_blocks, report.created), (0, true));
        let places: Vec<u32> = (0..5).map(|number| store(&tier, &arena, number)).collect();
        drop(tier);
        let (tier, report) = open(&files, 8 + volumes as u32, options);
        assert_eq!((report.recovered_blocks, report.clean, report.created), (5, true, false));
        for (number, place) in (0..5).zip(places) {
            let block = tier.lookup(hash(number)).expect("recovered");
            assert_eq!(block.id().0, place);
            assert_eq!(read(&tier, &arena, &block).expect("whole"), vec![number as u8; BYTES]);
        }
        let states = tier.stats().volumes;
        assert_eq!(states.serving, volumes as u64);
        assert_eq!(tier.stats(), TierStats { volumes: states, ..TierStats::default() });
        drop(tier);
        files.iter().for_each(|file| std::fs::remove_file(file).expect("removed"));
    }
}

#[test]
fn rejected_read_ends_the_block_for_good() {
    let (folder, arena) = (folder(), arena());
    let files = files(&folder, 1);
    let (tier, _) = open(&files, 8, TierOptions::default());
    let place = store(&tier, &arena, 1);
    store(&tier, &arena, 2);
    flip_a_bit_in(&files[0], 8, u64::from(place));
    let block = tier.lookup(hash(1)).expect("registered");
    let failure = read(&tier, &arena, &block).expect_err("a bit is wrong");
    assert_eq!(failure.cause, FailureCause::Rejected(Rejection::Payload));
    assert_eq!(tier.rejected(&block, &failure), ReadOutcome::Rejected);
    // Another holder, which had it already, finds an empty slot.
    let failure = read(&tier, &arena, &block).expect_err("forgotten");
    assert_eq!(tier.rejected(&block, &failure), ReadOutcome::Rejected);
    let reference = block.downgrade();
    drop(block);
    tier.unregister(reference);
    tier.unregister(reference);
    assert!(tier.lookup(hash(1)).is_none() && tier.lookup(hash(2)).is_some());
    let Rejected { payload, empty, .. } = tier.stats().rejected;
    assert_eq!((payload, empty, tier.stats().rejected.total()), (1, 1, 2));
    drop(tier);
    let (tier, report) = open(&files, 8, TierOptions::default());
    assert_eq!((report.recovered_blocks, report.rejected.total()), (1, 0));
    assert!(tier.lookup(hash(2)).is_some());
}

#[test]
fn block_with_a_wrong_sum_is_a_counted_miss() {
    let (folder, arena) = (folder(), arena());
    let (tier, _) = open(&files(&folder, 1), 8, TierOptions::default());
    for number in [1, 2] {
        let mut bytes = arena.write(0).expect("idle");
        bytes.fill(number as u8);
        let sum = seal_of(&[XxHash3_64::oneshot_with_seed(0, &bytes)]) + number - 1;
        let slot = tier.take(1).pop().expect("a slot");
        let writing = tier.write(slot, name(number), Payload::summed(bytes.into_read(), sum));
        assert_eq!(tier.finish(writing), WriteOutcome::Stored);
    }
    let block = tier.lookup(hash(1)).expect("registered");
    assert_eq!(read(&tier, &arena, &block).expect("served"), [1; BYTES]);
    let block = tier.lookup(hash(2)).expect("registered");
    let failure = read(&tier, &arena, &block).expect_err("its sum is another");
    assert_eq!(tier.rejected(&block, &failure), ReadOutcome::Rejected);
    let reference = block.downgrade();
    drop(block);
    tier.unregister(reference);
    assert!(tier.lookup(hash(2)).is_none());
    let rejected = tier.stats().rejected;
    assert_eq!((rejected.payload, rejected.total()), (1, 1));
}

#[test]
fn failed_read_ends_the_block_for_good() {
    let (folder, arena) = (folder(), arena());
    let files = files(&folder, 1);
    let (tier, _) = open(&files, 8, TierOptions::default());
    (0..3).for_each(|number| assert!(store(&tier, &arena, number) < 8));
    let file = std::fs::File::options().write(true).open(&files[0]).expect("there");
    let length = file.metadata().expect("there").len();
    file.set_len(4096).expect("truncated");
    let block = tier.lookup(hash(1)).expect("registered");
    let failure = read(&tier, &arena, &block).expect_err("there is nothing to read");
    file.set_len(length).expect("as long as it was");
    assert_eq!(tier.rejected(&block, &failure), ReadOutcome::Failed);
    assert_eq!(tier.stats().rejected.total(), 0);
    let reference = block.downgrade();
    drop(block);
    tier.unregister(reference);
    assert!(tier.lookup(hash(1)).is_none());
    drop(tier);
    assert_eq!(open(&files, 8, TierOptions::default()).1.recovered_blocks, 2);
}

#[test]
fn admission_filter_hears_of_uses_and_victims() {
    let (folder, arena) = (folder(), arena());
    let options = TierOptions { admission: AdmissionPolicy::TinyLfu, ..TierOptions::default() };
    let (tier, _) = open(&files(&folder, 1), 2, options);
    (0..3).for_each(|_| tier.used(hash(0)));
    (1..4).for_each(|number| tier.used(hash(number)));
    for number in 0..3 {
        assert!(tier.admits(hash(number), NOW), "{number}: there is room, or nobody had to leave yet");
        store(&tier, &arena, number);
    }
    assert!(!tier.admits(hash(3), NOW), "block 0 had to leave, which was used more often");
    (0..3).for_each(|_| tier.used(hash(3)));
    assert!(tier.admits(hash(3), NOW));
}

#[test]
fn blocks_of_a_lost_volume_are_misses_and_its_slots_are_parked() {
    let (folder, arena) = (folder(), arena());
    let (tier, _) = open(&files(&folder, 2), 8, TierOptions::default());
    let places: Vec<u32> = (0..16).map(|number| store(&tier, &arena, number)).collect();
    tier.lose(1);
    for (number, place) in (0..16).zip(places) {
        assert_eq!(tier.lookup(hash(number)).is_some(), place % 2 == 0, "slot {place}");
    }
    assert_eq!((tier.stats().lost_volumes, tier.stats().quarantined), (1, 0));
    // Sixteen blocks are wanted, and the other volume has eight.
    let taken = tier.take(16);
    assert!(taken.len() == 8 && taken.iter().all(|slot| slot.id().0 % 2 == 0), "I2");
    assert_eq!(tier.stats().quarantined, 8);
    drop(taken);
    let places: Vec<u32> = (20..40).map(|number| store(&tier, &arena, number)).collect();
    assert!(places.iter().all(|place| place % 2 == 0));
    let census = tier.pool().census();
    assert_eq!((census.owned, census.inactive, census.free, census.active), (8, 8, 0, 0));
    tier.lose(0);
    assert!(tier.take(4).is_empty(), "nothing is left to take");
    assert!((20..40).all(|number| tier.lookup(hash(number)).is_none()));
    assert_eq!(tier.stats().lost_volumes, 2);
}

#[test]
fn unused_blocks_of_a_lost_volume_leave_by_eviction() {
    let (folder, arena) = (folder(), arena());
    let (tier, _) = open(&files(&folder, 2), 8, TierOptions::default());
    (0..16).for_each(|number| assert!(store(&tier, &arena, number) < 16));
    tier.lose(0);
    let places: Vec<u32> = (20..36).map(|number| store(&tier, &arena, number)).collect();
    assert!(places.iter().all(|place| place % 2 == 1));
    assert_eq!((tier.stats().quarantined, tier.pool().census().inactive), (8, 8));
}

#[test]
fn short_blocks_keep_their_lengths_through_a_restart() {
    let (folder, arena) = (folder(), arena());
    let files = files(&folder, 2);
    let lengths = [BYTES, 1, BYTES / 2, BYTES - 1, 513];
    let check = |tier: &DiskTier| {
        for (number, bytes) in (0..).zip(lengths) {
            let block = tier.lookup(hash(number)).expect("stored");
            assert_eq!(tier.bytes_of(block.id()), bytes);
            let buffer = |bytes| arena.write(1).expect("idle").first(bytes);
            for wrong in [bytes - 1, bytes + 1].into_iter().filter(|wrong| (1..=BYTES).contains(wrong)) {
                let failure = tier.read(&block, Urgency::Urgent, buffer(wrong)).wait().unwrap_err();
                assert!(matches!(failure.cause, FailureCause::PayloadLength { .. }), "{failure}");
                assert_eq!(tier.rejected(&block, &failure), ReadOutcome::Refused);
            }
            let read = tier.read(&block, Urgency::Urgent, buffer(bytes)).wait().expect("it stays");
            assert!(read.len() == bytes && read.iter().all(|byte| *byte == number as u8 + 1));
        }
        assert_eq!(tier.stats().rejected_reads, RejectedReads::default());
    };
    let (tier, _) = open(&files, 4, TierOptions::default());
    for (number, bytes) in (0..).zip(lengths) {
        let mut payload = arena.write(0).expect("idle").first(bytes);
        payload.fill(number as u8 + 1);
        let slot = tier.take(1).pop().expect("a slot");
        let outcome = tier.finish(tier.write(slot, name(number), payload.into_read()));
        assert_eq!(outcome, WriteOutcome::Stored);
    }
    check(&tier);
    drop(tier);
    check(&open(&files, 4, TierOptions::default()).0);
}

#[test]
fn failed_or_dropped_write_frees_its_slot() {
    let (folder, arena) = (folder(), arena());
    let files = files(&folder, 1);
    let (tier, _) = open(&files, 4, TierOptions::default());
    let longer = HostArena::new(1, BYTES + 1).expect("memory");
    let slot = tier.take(1).pop().expect("a slot");
    let outcome = tier.finish(tier.write(slot, name(1), longer.read(0).expect("idle")));
    assert_eq!(outcome, WriteOutcome::Failed);
    let slot = tier.take(1).pop().expect("a slot");
    drop(tier.write(slot, name(2), arena.read(0).expect("idle")));
    assert_eq!(
        (tier.pool().free(), tier.lookup(hash(1)).is_none(), tier.lookup(hash(2)).is_none()),
        (4, true, true)
    );
    drop(tier);
    assert_eq!(open(&files, 4, TierOptions::default()).1.recovered_blocks, 0);
}

#[test]
fn second_copy_is_neither_kept_nor_recovered() {
    let (folder, arena) = (folder(), arena());
    let files = files(&folder, 1);
    let (tier, _) = open(&files, 4, TierOptions::default());
    let slots = tier.take(2);
    assert!(slots.into_iter().all(|slot| write_to(&tier, &arena, slot, 1) == WriteOutcome::Stored));
    assert_eq!(tier.pool().free(), 3);
    drop(tier);
    let (_, report) = open(&files, 4, TierOptions::default());
    assert_eq!((report.recovered_blocks, report.rejected.duplicate), (1, 0));
}

#[test]
fn refused_blocks_are_counted_by_reason() {
    let folder = folder();
    let write_budget = Some(144 * 3 * BYTES as u64);
    let options = TierOptions { admission: AdmissionPolicy::SecondUse, write_budget, linked: false };
    let (tier, _) = open(&files(&folder, 1), 8, options);
    (0..20).for_each(|number| tier.used(hash(number)));
    (0..10).for_each(|number| tier.used(hash(number)));
    let admitted = (0..20).filter(|number| tier.admits(hash(*number), NOW)).count();
    assert_eq!(admitted, 3, "ten minutes' worth");
    let TierStats { offered, refused_by_admission, refused_by_budget, written, .. } = tier.stats();
    assert_eq!((offered, refused_by_admission, refused_by_budget, written), (20, 10, 7, 0));
    assert!(tier.admits(hash(0), NOW + Duration::from_secs(600)));
}

#[test]
fn pool_and_volumes_of_other_sizes_are_refused() {
    let folder = folder();
    let volume = VolumeOptions::new(folder.path().join("v"), 8, BYTES).backend(Backend::Blocking);
    let error =
        DiskTier::open(vec![volume], PoolConfig::new(9), TierOptions::default()).expect_err("refused");
    let message = error.to_string();
    assert!(message.contains("pool: 9") && message.contains("volumes: 8"), "{message}");
}

#[test]
fn retired_volume_is_lost_at_the_first_request_to_it() {
    let (folder, arena) = (folder(), arena());
    let (tier, _) = open(&files(&folder, 2), 8, TierOptions::default());
    let places: Vec<u32> = (0..16).map(|number| store(&tier, &arena, number)).collect();
    tier.volumes().volumes()[1].retire();
    // No request has met it yet: its blocks are found, and the first read of one reports it.
    let on_it = places.iter().position(|place| place % 2 == 1).expect("striped") as u64;
    let block = tier.lookup(hash(on_it)).expect("still known");
    let failure = loop {
        // The ring thread takes a moment to end.
        if let Err(failure) = read(&tier, &arena, &block) {
            break failure;
        }
    };
    assert_eq!(tier.rejected(&block, &failure), ReadOutcome::Failed);
    assert_eq!(tier.stats().lost_volumes, 1);
    drop(block);
    assert!(tier.lookup(hash(on_it)).is_none());
    // A write that meets it is lost with its slot, and another slot serves.
    let other = self::folder();
    let (tier, _) = open(&files(&other, 2), 8, TierOptions::default());
    tier.volumes().volumes()[0].retire();
    let mut lost = 0;
    for number in 0..8 {
        loop {
            let slot = tier.take(1).pop().expect("a slot of the other volume");
            match write_to(&tier, &arena, slot, number) {
                WriteOutcome::Lost => lost += 1,
                WriteOutcome::Stored => break,
                WriteOutcome::Failed => panic!("the other volume works"),
            }
        }
    }
    assert_eq!((lost, tier.stats().lost_volumes), (1, 1), "met once, and avoided from then on");
    assert_eq!(tier.pool().census().owned as u64, tier.stats().quarantined);
    let kept = (0..8).filter(|number| tier.lookup(hash(*number)).is_some()).count();
    assert!(kept >= 7, "but for what the volume took before it left");
}

/// Waits until a volume is in a state.
fn until(tier: &DiskTier, volume: usize, state: ServiceState) {
    while tier.state(volume) != state {
        thread::yield_now();
    }
}

/// An empty file has no superblock, as if its drive were gone.
#[test]
fn away_volume_keeps_its_blocks() {
    let (folder, arena) = (folder(), arena());
    let files = files(&folder, 2);
    let (tier, _) = open(&files, 8, TierOptions::default());
    let places: Vec<u32> = (0..14).map(|number| store(&tier, &arena, number)).collect();
    let bytes = std::fs::read(&files[1]).expect("there");
    let file = std::fs::File::options().write(true).open(&files[1]).expect("there");
    file.set_len(0).expect("truncated");
    let mut gone = Vec::new();
    for (number, _) in (0..14).zip(&places).filter(|(_, place)| *place % 2 == 1) {
        let Some(block) = tier.lookup(hash(number)) else { continue };
        let failure = read(&tier, &arena, &block).expect_err("there is nothing");
        let reference = block.downgrade();
        if tier.rejected(&block, &failure) != ReadOutcome::Spared {
            drop(block);
            tier.unregister(reference);
            gone.push(number);
        }
    }
    until(&tier, 1, ServiceState::Away);
    assert!(gone.len() <= 3, "a bad place costs its block, a drive that fails none: {gone:?}");
    // Its blocks are not found, its slots neither written nor evicted.
    let is_on_it = |number: u64| places[number as usize] % 2 == 1;
    for number in 0..14 {
        assert_eq!(tier.lookup(hash(number)).is_some(), !is_on_it(number), "{number}");
    }
    assert!(tier.admits(hash(99), NOW));
    let taken = tier.take(16);
    assert!(taken.len() == 8 && taken.iter().all(|slot| slot.id().0 % 2 == 0), "I2");
    taken.into_iter().for_each(|slot| tier.give_back(slot.into_id()));
    // A block stored anew meanwhile is found at its new place.
    let again = (0..14).find(|number| is_on_it(*number) && !gone.contains(number)).expect("one is left");
    assert!(store(&tier, &arena, again).is_multiple_of(2));
    assert_eq!(tier.lookup(hash(again)).expect("found").id().0 % 2, 0);
    file.write_all_at(&bytes, 0).expect("as it was");
    until(&tier, 1, ServiceState::Serving);
    for number in (0..14).filter(|number| is_on_it(*number) && !gone.contains(number)) {
        let block = tier.lookup(hash(number)).unwrap_or_else(|| panic!("{number} is found again"));
        assert_eq!(read(&tier, &arena, &block).expect("whole"), vec![number as u8; BYTES]);
    }
    let slots = tier.take(16);
    assert_eq!(slots.iter().filter(|slot| slot.id().0 % 2 == 1).count(), 8, "what was aside is back");
    assert_eq!((tier.stats().quarantined, tier.stats().lost_volumes), (0, 0));
}

/// On a small file system of its own, where one can be made: another file takes its room.
#[test]
fn volume_without_room_is_read_and_not_written() {
    let run = |program: &str, arguments: &[&str]| {
        let done = std::process::Command::new(program).args(arguments).output();
        done.is_ok_and(|done| done.status.success())
    };
    let (folder, arena) = (folder(), arena());
    let place = folder.path().join("small");
    std::fs::create_dir(&place).expect("made");
    let at = place.to_str().expect("utf-8");
    if !run("mount", &["-t", "tmpfs", "-o", "size=1m", "none", at]) {
        return println!("SKIP mount: this process may not mount a tmpfs");
    }
    let files = [folder.path().join("0"), place.join("1")];
    let (tier, _) = open(&files, 8, TierOptions::default());
    let places: Vec<u32> = (0..12).map(|number| store(&tier, &arena, number)).collect();
    // The last two of its slots are given back to the file system, and another file fills them.
    let hole = (8192 + 6 * BYTES).to_string();
    let punched = run("fallocate", &["-p", "-o", &hole, "-l", "8192", files[1].to_str().expect("utf-8")]);
    if !punched {
        drop(tier);
        assert!(run("umount", &[at]));
        return println!("SKIP fallocate: holes cannot be punched");
    }
    let filler = place.join("filler");
    let mut full = std::fs::File::create(&filler).expect("made");
    while std::io::Write::write_all(&mut full, &[1; 4096]).is_ok() {}
    for slot in tier.take(4) {
        let (there, number) = (slot.id().0 % 2, 50 + u64::from(slot.id().0));
        let stored = write_to(&tier, &arena, slot, number) == WriteOutcome::Stored;
        assert_eq!(stored, there == 0, "{number}");
    }
    assert!(tier.state(1) == ServiceState::WritesPaused && tier.stats().failed.no_room > 0);
    // Its blocks stay readable, while the other volume takes all writes.
    for number in 20..40 {
        assert!(tier.admits(hash(number), NOW));
        assert_eq!(store(&tier, &arena, number) % 2, 0);
    }
    for (number, _) in (0..12).zip(&places).filter(|(_, place)| *place % 2 == 1) {
        let block = tier.lookup(hash(number)).expect("kept");
        assert_eq!(read(&tier, &arena, &block).expect("whole"), vec![number as u8; BYTES]);
    }
    drop(full);
    std::fs::remove_file(&filler).expect("removed");
    until(&tier, 1, ServiceState::Serving);
    let places: Vec<u32> = (60..76).map(|number| store(&tier, &arena, number)).collect();
    assert!(places.iter().any(|place| place % 2 == 1), "it is written again");
    drop(tier);
    assert!(run("umount", &[at]));
}
