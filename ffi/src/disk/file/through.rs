//! Writing a file through: extents that were never written are slower to write.
//!
//! ```text
//!   just created   everything between the superblocks, at once ─ or the slots, later: engine/fill.rs
//!   found          the never-written parts of that, if the options ask for it: the previous process may have
//!                  been killed while it wrote the file through, or did not have to; or the file was shorter
//! ```
//!
//! Invariants
//! - I1: in a file that was found, zeros are written at once only where zeros are read. So its
//!   contents stay as they are, whatever the file system reports. In the background, slots that hold a
//!   block are left alone.
//! - I2: a file that was found is opened even if it cannot be written through: a note says why.

use super::super::error::VolumeError;
use super::super::format::{PAGE_BYTES, Shape};
use super::super::options::{Progress, VolumeOptions};
use super::refused::{no_memory, os};
use super::system::available_bytes;
use crate::arena::HostArena;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes written at a time.
const FILL_BYTES: usize = 4 << 20;

/// The state of a file before it is written through.
pub(super) struct Found {
    /// It has no volume whose blocks are kept.
    pub(super) fresh: bool,
    /// Its length when it was opened.
    pub(super) length: u64,
    /// Whether the file system has allocated all its blocks.
    pub(super) allocated: bool,
}

/// Writes the file through if that is to be done at once. Returns the ranges of the slots to be written
/// in the background, if the options ask for that.
pub(super) fn write_through(
    file: &File,
    options: &mut VolumeOptions,
    shape: &Shape,
    found: &Found,
    notes: &mut Vec<String>,
) -> Result<Vec<Range<u64>>, VolumeError> {
    let all = shape.table_offset..shape.superblock_b();
    let slots = shape.origin..shape.origin + u64::from(shape.slots) * shape.stride;
    if found.fresh && (!found.allocated || (found.length == 0 && options.write_through)) {
        if !found.allocated {
            notes.push("the file system cannot preallocate: the file was written through instead".to_owned());
        }
        fill(file, &options.path, &[all], false, options.progress.as_mut())?;
        return Ok(Vec::new());
    }
    if !found.allocated {
        notes.push("the file system cannot preallocate: it may run out of space for blocks later".to_owned());
    }
    if !options.write_through && !options.in_background {
        return Ok(Vec::new());
    }
    let (part, whole) = if options.write_through { (all, false) } else { (slots, found.length == 0) };
    let ranges = match whole {
        true => vec![part],
        false => match options.system.unwritten(file) {
            Ok(ranges) => within(ranges, &part),
            Err(error) => {
                notes.push(format!(
                    "the file system does not list unwritten ranges ({error}): they stay unwritten"
                ));
                return Ok(Vec::new());
            }
        },
    };
    let bytes = total(&ranges);
    if bytes == 0 {
        return Ok(Vec::new());
    }
    if options.trim && !whole {
        notes.push(format!(
            "{bytes} bytes were never written, or trim freed them: they \
             stay so, and their first write is slower"
        ));
        return Ok(Vec::new());
    }
    if !options.write_through {
        notes.push(format!(
            "{bytes} bytes were never written: the volume writes them \
             through in the background, while it is idle"
        ));
        return Ok(ranges);
    }
    let filled = fill(file, &options.path, &ranges, true, options.progress.as_mut());
    notes.push(match filled {
        Ok(()) => format!("{bytes} bytes had never been written: they are written through now"),
        Err(error) => {
            format!("{bytes} bytes had never been written, and writing them through failed: {error}")
        }
    });
    Ok(Vec::new())
}

/// The whole pages of `ranges` that lie in `part`, whatever the file system's block size.
fn within(ranges: Vec<Range<u64>>, part: &Range<u64>) -> Vec<Range<u64>> {
    let page = PAGE_BYTES as u64;
    let cut = |range: Range<u64>| {
        let start = range.start.checked_next_multiple_of(page)?.max(part.start);
        let end = (range.end / page * page).min(part.end);
        (start < end).then_some(start..end)
    };
    ranges.into_iter().filter_map(cut).collect()
}

fn total(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// Writes zeros to these ranges of whole pages; in a found file only where it reads as zeros (I1).
fn fill(
    file: &File,
    path: &Path,
    ranges: &[Range<u64>],
    found: bool,
    mut progress: Option<&mut Progress>,
) -> Result<(), VolumeError> {
    let memory = HostArena::new(2, FILL_BYTES).ok();
    let blocks = memory.and_then(|arena| Some((arena.read(0).ok()?, arena.write(1).ok()?)));
    let (zeros, mut there) = blocks.ok_or_else(|| no_memory(path))?;
    // Both before any write, or the written bytes would be missing from one of them.
    let (bytes, available) = (total(ranges), available_bytes(file));
    let mut done = 0;
    for range in ranges {
        let mut at = range.start;
        while at < range.end {
            // All lengths are multiples of 4096, whatever the alignment.
            let step = (range.end - at).min(FILL_BYTES as u64);
            let (zeros, there) = (&zeros[..step as usize], &mut there[..step as usize]);
            if found {
                file.read_exact_at(there, at).map_err(os(path, "read the unwritten ranges of the file"))?;
            }
            if !found || *there == *zeros {
                file.write_all_at(zeros, at).map_err(|source| {
                    let no_room = VolumeError::no_room(&source, path, bytes, available);
                    no_room.unwrap_or_else(|| os(path, "write the file through")(source))
                })?;
            }
            at += step;
            done += step;
            if let Some(progress) = progress.as_mut() {
                progress(done, bytes);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::file::System;
    use std::io;

    #[test]
    fn whole_pages_within_a_part_are_written() {
        let ranges = vec![0..9000, 10_000..12_288, 16_384..40_000];
        assert_eq!(within(ranges, &(4096..24_576)), [4096..8192, 16_384..24_576]);
        assert_eq!(within(vec![4097..8191, u64::MAX - 1..u64::MAX], &(0..u64::MAX)), []);
    }

    /// A file system that reports all of a file as unwritten.
    struct AllUnwritten;

    impl System for AllUnwritten {
        fn unwritten(&self, file: &File) -> io::Result<Vec<Range<u64>>> {
            let all = 0..file.metadata()?.len();
            Ok(vec![all])
        }
    }

    #[test]
    fn failed_write_through_is_an_error_for_a_new_file_only() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let shape = Shape::new(8, 4096, 4096).expect("a shape");
        let path = dir.path().join("volume");
        File::create(&path).and_then(|file| file.set_len(shape.file_bytes)).expect("made");
        let read_only = File::open(&path).expect("there");
        let mut options = VolumeOptions::new(&path, 8, 4096).write_through(true);
        options.system = Box::new(AllUnwritten);
        for (fresh, length) in [(true, 0), (false, shape.file_bytes)] {
            let (found, mut notes) = (Found { fresh, length, allocated: true }, Vec::new());
            let done = write_through(&read_only, &mut options, &shape, &found, &mut notes);
            match fresh {
                true => assert!(matches!(done, Err(VolumeError::Os { .. })), "{done:?}"),
                false => {
                    assert_eq!(done.expect("gone on with"), []);
                    assert!(
                        notes.len() == 1 && notes[0].contains("writing them through failed"),
                        "{notes:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn new_file_without_preallocation_is_written_through() {
        let shape = Shape::new(8, 4096, 4096).expect("a shape");
        let between = shape.table_offset..shape.superblock_b();
        for (fresh, length) in [(true, 0), (true, shape.file_bytes), (false, shape.file_bytes)] {
            let file = tempfile::tempfile().expect("a temporary file");
            file.write_all_at(&vec![1; shape.file_bytes as usize], 0).expect("written");
            let mut options = VolumeOptions::new("volume", 8, 4096);
            let (found, mut notes) = (Found { fresh, length, allocated: false }, Vec::new());
            let done = write_through(&file, &mut options, &shape, &found, &mut notes);
            assert_eq!(done.expect("written"), []);
            let mut bytes = vec![2; (between.end - between.start) as usize];
            file.read_exact_at(&mut bytes, between.start).expect("there");
            assert!(bytes.iter().all(|byte| *byte == u8::from(!fresh)), "{fresh}");
            assert_eq!(notes.len(), 1);
            assert_eq!(notes[0].contains("written through instead"), fresh, "{notes:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn full_file_system_error_names_the_bytes_left() {
        let file = File::options().read(true).write(true).open("/dev/full").expect("there is one");
        let path = Path::new("/dev/full");
        let error = fill(&file, path, &[4096..8192, 16_384..20_480], true, None).unwrap_err();
        let VolumeError::NoSpace { needed_bytes, available_bytes: left, .. } = error else {
            panic!("{error}")
        };
        assert_eq!((needed_bytes, left), (8192, available_bytes(&file)));
    }
}
