//! Sets with files that have changed: missing, damaged, mixed up, or of another owner.

use super::*;
use crate::disk::description::Concern;
use crate::disk::error::FailureCause;
use crate::disk::file::System;
use crate::disk::recovery::Recovery;
use crate::disk::set::VolumeSet;
use crate::disk::stats::ServiceState;
use std::fs::{File, TryLockError};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

const SLOTS: u32 = 8;
const BYTES: usize = 4096;
const VOLUMES: u32 = 3;

/// The volumes of a set in a folder of their own.
struct Set(TempDir);

impl Set {
    /// A set with a block in each slot of its first two rows.
    fn new() -> Set {
        let set = Set(dir());
        let (volumes, recovery) = set.open().expect("made");
        assert!(recovery.created);
        let arena = HostArena::new(1, BYTES).expect("arena");
        for slot in 0..2 * VOLUMES {
            let mut buffer = arena.write(0).expect("free");
            pattern(slot, 1, &mut buffer);
            drop(volumes.write(slot, name(slot, 1), buffer.into_read()).wait().expect("written"));
        }
        drop(volumes);
        set
    }

    fn path(&self, index: u32) -> PathBuf {
        self.0.path().join(index.to_string())
    }

    fn file(&self, index: u32) -> File {
        File::options().read(true).write(true).open(self.path(index)).expect("there")
    }

    fn options(&self) -> Vec<VolumeOptions> {
        (0..VOLUMES).map(|index| at(self.path(index))).collect()
    }

    fn open(&self) -> Result<(VolumeSet, Recovery), VolumeError> {
        VolumeSet::open(self.options())
    }

    /// Bytes and mode of each file; None for a missing one.
    fn files(&self) -> Vec<Option<(Vec<u8>, u32)>> {
        let file = |path: PathBuf| {
            let mode = std::fs::metadata(&path).ok()?.permissions().mode();
            Some((std::fs::read(&path).expect("readable"), mode))
        };
        (0..VOLUMES).map(|index| file(self.path(index))).collect()
    }

    fn remove(&self, index: u32) {
        std::fs::remove_file(self.path(index)).expect("there");
    }

    fn damage_superblocks(&self, index: u32) {
        let file = self.file(index);
        let end = file.metadata().expect("there").len() - 4096;
        [0, end].iter().for_each(|at| file.write_all_at(&[0x55; 4096], *at).expect("written"));
    }
}

fn at(path: PathBuf) -> VolumeOptions {
    VolumeOptions::new(path, SLOTS, BYTES).keep(true).backend(Backend::Blocking)
}

fn slots_of(recovery: &Recovery) -> Vec<u32> {
    recovery.blocks.iter().map(|block| block.slot).collect()
}

/// The notes of each volume.
fn notes(set: &VolumeSet) -> Vec<String> {
    set.descriptions().map(|description| description.notes.join("; ")).collect()
}

/// A drive that was replaced, or returns garbage, costs its own blocks, whichever drive of the set it is.
#[test]
fn set_serves_the_blocks_of_its_intact_files() {
    // One bit a volume: the lost ones. And whether they are missing or damaged.
    for (lost, gone) in (1..1_u32 << VOLUMES).flat_map(|lost| [(lost, true), (lost, false)]) {
        let set = Set::new();
        let is_lost = |volume: u32| lost >> volume & 1 == 1;
        for volume in (0..VOLUMES).filter(|volume| is_lost(*volume)) {
            if gone { set.remove(volume) } else { set.damage_superblocks(volume) }
        }
        let (volumes, recovery) =
            set.open().unwrap_or_else(|error| panic!("{lost:03b}, gone {gone}: {error}"));
        let left: Vec<_> = (0..2 * VOLUMES).filter(|slot| !is_lost(slot % VOLUMES)).collect();
        assert_eq!(slots_of(&recovery), left, "{lost:03b}, gone {gone}");
        assert_eq!(recovery.created, left.is_empty(), "{lost:03b}, gone {gone}");
        let superblocks = if gone { 0 } else { 2 * lost.count_ones() };
        assert_eq!(recovery.rejected.total(), u64::from(superblocks), "{lost:03b}, gone {gone}");
        let said = if gone { "the file was not there" } else { "both superblocks are damaged" };
        for (volume, note) in (0..).zip(notes(&volumes)) {
            // If no file of a set is left, it is a new set.
            let wanted = is_lost(volume) && !(gone && left.is_empty());
            assert_eq!(note.contains(said), wanted, "{lost:03b}, gone {gone}, volume {volume}: {note}");
        }
        let arena = HostArena::new(1, BYTES).expect("arena");
        for slot in left {
            let buffer = arena.write(0).expect("free");
            let read = volumes.read(slot, name(slot, 1).hash, Urgency::Urgent, buffer).wait();
            assert_pattern(slot, 1, &read.expect("read"));
        }
        // The files are one set again.
        let mut buffer = arena.write(0).expect("free");
        pattern(20, 1, &mut buffer);
        drop(volumes.write(20, name(20, 1), buffer.into_read()).wait().expect("written"));
        drop(volumes);
        let (volumes, again) = set.open().expect("the same set");
        assert_eq!((slots_of(&again).last(), again.clean), (Some(&20), true));
        assert_eq!((again.blocks.len(), again.rejected.total()), (recovery.blocks.len() + 1, 0));
        assert!(!notes(&volumes).join("").contains("not there"), "{:?}", notes(&volumes));
    }
}

/// Both have the same shape and the same places: only their ids tell them apart.
#[test]
fn files_of_two_sets_are_refused_by_both_names() {
    // The file from the other set, and a file that is missing besides.
    for (other, gone) in [(0, None), (1, None), (2, None), (2, Some(0)), (2, Some(1)), (1, Some(0))] {
        let (one, two) = (Set::new(), Set::new());
        std::fs::copy(two.path(other), one.path(other)).expect("copied");
        gone.iter().for_each(|index| one.remove(*index));
        let before = one.files();
        let error = one.open().expect_err("of two sets");
        assert!(matches!(&error, VolumeError::Foreign { field: "set_id", .. }), "{error}");
        let text = error.to_string();
        let whole: Vec<_> = (0..VOLUMES).filter(|index| Some(*index) != gone).collect();
        let named = |index: u32| text.contains(&*one.path(index).to_string_lossy());
        let first_other = if whole[0] == other { whole[1] } else { other };
        assert!(named(whole[0]) && named(first_other), "{text}");
        assert!(one.files() == before, "a file was changed: {text}");
        // The same places serve their own set.
        std::fs::copy(two.path(other), one.path(other)).expect("copied");
    }
}

#[test]
fn files_in_another_order_are_refused_though_one_is_gone() {
    let set = Set::new();
    set.remove(0);
    let before = set.files();
    for order in [[1, 0, 2], [0, 2, 1], [2, 1, 0], [1, 2, 0]] {
        let error =
            VolumeSet::open(order.map(|index| at(set.path(index))).into()).expect_err("not its order");
        assert!(matches!(&error, VolumeError::Foreign { field: "stripe_index", .. }), "{error}");
        assert!(set.files() == before, "a file was changed: {order:?}");
    }
    assert_eq!(slots_of(&set.open().expect("in its order").1), [1, 2, 4, 5]);
}

/// A refusal costs nothing, whichever file causes it.
#[test]
fn files_are_untouched_until_all_are_read() {
    for refused in 0..VOLUMES {
        let (set, other) = (Set::new(), Set::new());
        // A file of another place in a set refuses the whole set.
        let elsewhere = (refused + 1) % VOLUMES;
        std::fs::copy(other.path(elsewhere), set.path(refused)).expect("copied");
        for index in 0..VOLUMES {
            std::fs::set_permissions(set.path(index), std::fs::Permissions::from_mode(0o644)).expect("ours");
        }
        let before = set.files();
        let error = set.open().expect_err("another's place");
        assert!(matches!(error, VolumeError::Foreign { field: "stripe_index", .. }), "{error}");
        assert!(set.files() == before, "a file was changed");
        // Files that were created for it are removed again.
        let gone = (refused + 2) % VOLUMES;
        set.remove(gone);
        set.open().expect_err("another's place");
        assert!(!set.path(gone).exists());
    }
}

/// Puts something that cannot be opened in a volume's place.
type Spoil = fn(&Path);

/// A faulty volume costs only its own blocks: it stays as it is, and its blocks are found again.
#[test]
fn unopenable_volume_of_a_set_is_left_out() {
    let spoils: [(&str, Spoil); 3] = [
        ("no sign of a volume", |path| std::fs::write(path, b"precious").expect("written")),
        ("symbolic link", |path| std::os::unix::fs::symlink("/dev/null", path).expect("linked")),
        ("not a regular file", |path| std::fs::create_dir(path).expect("made")),
    ];
    for (bad, (words, spoil)) in (0..VOLUMES).flat_map(|bad| spoils.map(|spoil| (bad, spoil))) {
        let set = Set::new();
        let aside = set.0.path().join("aside");
        std::fs::rename(set.path(bad), &aside).expect("set aside");
        spoil(&set.path(bad));
        let there = std::fs::symlink_metadata(set.path(bad)).expect("there").len();
        let (volumes, recovery) = set.open().unwrap_or_else(|error| panic!("{bad}, {words}: {error}"));
        let left: Vec<_> = (0..2 * VOLUMES).filter(|slot| slot % VOLUMES != bad).collect();
        assert_eq!(slots_of(&recovery), left, "{bad}, {words}");
        for (volume, of) in (0..).zip(volumes.volumes()) {
            let out = of.describe().concerns.contains(&Concern::NotOpened);
            assert_eq!(out, volume == bad, "{volume}: {:?}", of.describe());
            assert_eq!(of.state() == ServiceState::Retired, volume == bad);
        }
        let said = volumes.volumes()[bad as usize].describe();
        assert!(said.notes[0].contains(words) && said.to_string().contains("out of service"), "{said}");
        let arena = HostArena::new(1, BYTES).expect("arena");
        for slot in 0..2 * VOLUMES {
            let buffer = arena.write(0).expect("free");
            let read = volumes.read(slot, name(slot, 1).hash, Urgency::Urgent, buffer).wait();
            match slot % VOLUMES == bad {
                true => assert_eq!(read.unwrap_err().cause, FailureCause::OutOfService),
                false => assert_pattern(slot, 1, &read.expect("read")),
            }
        }
        let mut buffer = arena.write(0).expect("free");
        let slot = 9 + (bad + 1) % VOLUMES;
        pattern(slot, 2, &mut buffer);
        drop(volumes.write(slot, name(slot, 2), buffer.into_read()).wait().expect("written"));
        drop(volumes);
        assert_eq!(std::fs::symlink_metadata(set.path(bad)).expect("there").len(), there, "as it was");
        // Its blocks come back with it, in the same slots.
        if set.path(bad).is_dir() {
            std::fs::remove_dir(set.path(bad))
        } else {
            std::fs::remove_file(set.path(bad))
        }
        .expect("removed");
        std::fs::rename(&aside, set.path(bad)).expect("back");
        let (_, recovery) = set.open().expect("one set");
        let mut all: Vec<_> = (0..2 * VOLUMES).chain([slot]).collect();
        let mut found = slots_of(&recovery);
        all.sort_unstable();
        found.sort_unstable();
        assert_eq!((found, recovery.rejected.total()), (all, 0));
    }
}

#[test]
fn set_without_openable_volume_reports_the_first_error() {
    let set = Set::new();
    for volume in 0..VOLUMES {
        std::fs::write(set.path(volume), b"precious").expect("written");
    }
    let error = set.open().expect_err("nothing is left");
    assert!(matches!(&error, VolumeError::NotAVolume { path } if *path == set.path(0)), "{error}");
}

#[test]
fn new_set_leaves_out_a_volume_without_folder() {
    let set = Set(dir());
    let folder = set.0.path().join("mounted later");
    let options = || {
        let mut options = set.options();
        options[1].path = folder.join("1");
        options
    };
    let (volumes, recovery) = VolumeSet::open(options()).expect("the others");
    assert!(recovery.created && set.path(2).exists());
    let states: Vec<_> = volumes.volumes().iter().map(Volume::state).collect();
    assert_eq!(states, [ServiceState::Serving, ServiceState::Retired, ServiceState::Serving]);
    drop(volumes);
    // It is created for its set as soon as it can be.
    std::fs::create_dir(&folder).expect("made");
    let (volumes, recovery) = VolumeSet::open(options()).expect("a whole set");
    assert!(!recovery.created && volumes.volumes().iter().all(|of| of.state() == ServiceState::Serving));
}

/// Checks the first file when it is the last file's turn.
struct LooksBack {
    first: PathBuf,
    before: Vec<u8>,
}

impl System for LooksBack {
    fn try_lock(&self, file: &File) -> Result<(), TryLockError> {
        let first = File::open(&self.first).expect("there");
        assert!(matches!(first.try_lock(), Err(TryLockError::WouldBlock)), "the first is not locked");
        assert!(std::fs::read(&self.first).expect("there") == self.before, "the first was changed");
        file.try_lock()
    }
}

#[test]
fn all_files_of_a_set_are_locked_before_any_write() {
    let set = Set::new();
    for reinitialize in [false, true] {
        let mut options = set.options();
        if reinitialize {
            options = options.into_iter().map(|options| options.reinitialize(true)).collect();
        }
        let (first, before) = (set.path(0), std::fs::read(set.path(0)).expect("there"));
        options[VOLUMES as usize - 1].system = Box::new(LooksBack { first, before });
        VolumeSet::open(options).expect("a set");
    }
}

#[test]
fn reinitialized_set_starts_over_with_any_files() {
    let (set, other) = (Set::new(), Set::new());
    set.remove(0);
    std::fs::copy(other.path(1), set.path(1)).expect("copied");
    let over = set.options().into_iter().map(|options| options.reinitialize(true)).collect();
    let (volumes, recovery) = VolumeSet::open(over).expect("started over");
    assert!(recovery.created && recovery.blocks.is_empty());
    drop(volumes);
    let (_, recovery) = set.open().expect("one set");
    assert!(!recovery.created && recovery.clean);
}
