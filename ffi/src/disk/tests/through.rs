//! The never-written parts of a file that is found, and parts given back to the file system.

use super::*;
use crate::disk::file::{Kernel, System};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;

const SLOTS: u32 = 64;
const BYTES: usize = 64 << 10;
/// The table of 64 slots takes one page behind the superblock.
const TABLE: u64 = 4096;
const ORIGIN: u64 = 2 * 4096;
const END: u64 = ORIGIN + SLOTS as u64 * BYTES as u64;
const HELD: [u32; 5] = [2, 3, 20, 41, 63];

fn kept(dir: &TempDir) -> VolumeOptions {
    options(dir, SLOTS, BYTES).keep(true)
}

fn file(dir: &TempDir) -> File {
    File::options().read(true).write(true).open(dir.path().join("volume")).expect("there")
}

/// Never-written bytes in a part of the file. None, with a SKIP line, if the file system does not tell.
fn unwritten(dir: &TempDir, part: Range<u64>) -> Option<u64> {
    match Kernel.unwritten(&file(dir)) {
        Err(error) => {
            skip("fiemap", &error);
            None
        }
        Ok(ranges) => {
            let within =
                |range: Range<u64>| range.end.min(part.end).saturating_sub(range.start.max(part.start));
            Some(ranges.into_iter().map(within).sum())
        }
    }
}

/// A volume that holds blocks and was not written through, as after a kill; one of its free
/// slots is a hole.
fn holding(dir: &TempDir) {
    let arena = HostArena::new(1, BYTES).expect("arena");
    let volume = open(kept(dir)).expect("volume");
    HELD.iter().for_each(|slot| write_pattern(&volume, &arena, 0, *slot, 1));
    drop(volume);
    // Refused on some file systems: then the file is as before.
    let _ = punch(dir, ORIGIN + 5 * BYTES as u64, BYTES);
}

fn punch(dir: &TempDir, offset: u64, bytes: usize) -> io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let file = file(dir);
    // SAFETY: the call takes a descriptor, which is open, and numbers.
    match unsafe {
        libc::fallocate(std::os::fd::AsRawFd::as_raw_fd(&file), mode, offset as i64, bytes as i64)
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Checks that all blocks are found, with the bytes that were written.
fn opened(options: VolumeOptions) -> Volume {
    let (volume, recovery) = Volume::open(options).expect("volume");
    let slots: Vec<_> = recovery.blocks.iter().map(|block| block.slot).collect();
    assert_eq!((slots, recovery.rejected.total()), (Vec::from(HELD), 0));
    all_served(&volume);
    volume
}

fn all_served(volume: &Volume) {
    let arena = HostArena::new(1, BYTES).expect("arena");
    HELD.iter().for_each(|slot| check_pattern(volume, &arena, 0, *slot, 1));
}

fn until_filled(volume: &Volume) {
    while volume.stats().unfilled_bytes > 0 {
        std::thread::yield_now();
    }
}

fn notes(volume: &Volume) -> String {
    volume.describe().notes.join("; ")
}

#[test]
fn unwritten_ranges_are_written_before_use() {
    let dir = dir();
    holding(&dir);
    let Some(before) = unwritten(&dir, TABLE..END) else { return };
    assert!(before > 0, "the test has made holes");
    drop(opened(kept(&dir)));
    assert_eq!(unwritten(&dir, TABLE..END), Some(before), "nobody asked for it");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let through = kept(&dir).write_through(true);
    let volume =
        opened(through.progress(move |done, bytes| sink.lock().expect("no panic").push((done, bytes))));
    assert!(notes(&volume).contains(&format!("{before} bytes had never been")), "{}", notes(&volume));
    assert_eq!(unwritten(&dir, TABLE..END), Some(0));
    let seen = seen.lock().expect("no panic");
    assert!(seen.is_sorted() && seen.last() == Some(&(before, before)), "{seen:?}");
    drop(volume);
    // Only once.
    let again = opened(kept(&dir).write_through(true).progress(|_, _| panic!("written already")));
    assert!(!notes(&again).contains("written"), "{}", notes(&again));
}

#[test]
fn unwritten_ranges_are_written_in_the_background() {
    let dir = dir();
    holding(&dir);
    let Some(before) = unwritten(&dir, ORIGIN..END) else { return };
    assert!(before > 0, "the test has made holes");
    let volume = opened(kept(&dir).write_through_in_background(true));
    assert!(notes(&volume).contains(&format!("{before} bytes were never")), "{}", notes(&volume));
    until_filled(&volume);
    all_served(&volume);
    assert!((before..before + (1 << 20)).contains(&volume.stats().written_bytes), "{:?}", volume.stats());
    drop(volume);
    assert_eq!(unwritten(&dir, ORIGIN..END), Some(0));
    let again = opened(kept(&dir).write_through_in_background(true));
    assert!(!notes(&again).contains("written") && again.stats().unfilled_bytes == 0, "{}", notes(&again));
}

#[test]
fn trimmed_ranges_stay_unwritten() {
    let dir = dir();
    holding(&dir);
    let Some(before) = unwritten(&dir, TABLE..END) else { return };
    for in_background in [false, true] {
        let options = kept(&dir).trim(true).write_through(!in_background);
        let options = options.write_through_in_background(in_background);
        let volume = opened(options.progress(|_, _| panic!("written through")));
        assert!(notes(&volume).contains("trim freed them"), "{}", notes(&volume));
        assert_eq!(volume.stats().unfilled_bytes, 0);
        drop(volume);
        assert_eq!(unwritten(&dir, TABLE..END), Some(before));
    }
}

/// A file system that reports all of a file as unwritten, or reports nothing.
struct Says(bool);

impl System for Says {
    fn unwritten(&self, file: &File) -> io::Result<Vec<Range<u64>>> {
        let all = 0..file.metadata()?.len();
        match self.0 {
            true => Ok(vec![all]),
            false => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        }
    }
}

fn with(system: Says, mut options: VolumeOptions) -> VolumeOptions {
    options.system = Box::new(system);
    options
}

#[test]
fn write_through_spares_blocks_reported_as_unwritten() {
    let dir = dir();
    holding(&dir);
    drop(opened(with(Says(true), kept(&dir).write_through(true))));
    let volume = opened(with(Says(true), kept(&dir).write_through_in_background(true)));
    until_filled(&volume);
    all_served(&volume);
    drop(volume);
    drop(opened(kept(&dir)));
}

#[test]
fn unlisted_unwritten_ranges_are_left_with_a_note() {
    let dir = dir();
    holding(&dir);
    for in_background in [false, true] {
        let options = kept(&dir).write_through(!in_background).write_through_in_background(in_background);
        let volume = opened(with(Says(false), options.progress(|_, _| panic!("written through"))));
        assert!(notes(&volume).contains("does not list"), "{}", notes(&volume));
        assert_eq!(volume.stats().unfilled_bytes, 0);
    }
    // It is not asked about a new file.
    let new = |name: &str| with(Says(false), VolumeOptions::new(dir.path().join(name), 8, BYTES));
    assert!(!notes(&open(new("a").write_through(true)).expect("volume")).contains("does not list"));
    let volume = open(new("b").write_through_in_background(true)).expect("volume");
    assert!(notes(&volume).contains("in the background"), "{}", notes(&volume));
}

#[test]
fn trim_frees_the_space_of_forgotten_slots() {
    for backend in [Backend::Auto, Backend::Blocking] {
        for trim in [false, true] {
            let dir = dir();
            holding(&dir);
            let room = || file(&dir).metadata().expect("there").blocks() * 512;
            let volume = opened(kept(&dir).backend(backend).trim(trim));
            let before = room();
            if let Err(error) = punch(&dir, ORIGIN, BYTES) {
                return skip("punch", &error);
            }
            if room() + BYTES as u64 != before {
                return skip("punch", &"the file system does not count the room of a hole as free");
            }
            // The last three are not adjacent.
            HELD[2..].iter().for_each(|slot| volume.forget(*slot));
            let arena = HostArena::new(1, BYTES).expect("arena");
            HELD[..2].iter().for_each(|slot| check_pattern(&volume, &arena, 0, *slot, 1));
            drop(volume);
            let given_back = if trim { 3 * BYTES as u64 } else { 0 };
            assert_eq!(before - BYTES as u64 - room(), given_back, "{backend}, trim: {trim}");
        }
    }
}
