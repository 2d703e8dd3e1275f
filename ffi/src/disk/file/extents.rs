//! Finds the parts of a file that were never written: with or without blocks of the file system, they
//! read as zeros.
//!
//! ```text
//!   file      0          4                9        12            length
//!   extents   ├──written─┼───unwritten────┤        ├───written───┤
//!   answer               ├────────────────┴────────┤                   gaps between extents are holes
//! ```
//!
//! This asks FIEMAP, not SEEK_HOLE. SEEK_HOLE takes everything in the page cache for data, including
//! pages that were only read, and it answers "all of it is data" if a file system does not know. ext4,
//! xfs, btrfs and f2fs know FIEMAP; tmpfs, NFS and FUSE refuse it.

use std::fs::File;
use std::io;
use std::ops::Range;

/// The parts of a file that were never written, in order and apart from each other. Data in the page
/// cache is written first, so that none of it is among them.
#[cfg(target_os = "linux")]
pub(super) fn unwritten(file: &File) -> io::Result<Vec<Range<u64>>> {
    let length = file.metadata()?.len();
    let mut found = Found { ranges: Vec::new(), at: 0 };
    let mut asked = fiemap::Asked::new();
    while found.at < length {
        let extents = asked.ask(file, found.at..length)?;
        let before = found.at;
        for extent in extents {
            // The gap before it, then itself. An extent may begin before the requested range, and end
            // beyond the file.
            found.upto(extent.start.min(length), true);
            found.upto(extent.start.saturating_add(extent.length).min(length), extent.is_unwritten());
        }
        if extents.is_empty() || extents.last().is_some_and(fiemap::Extent::is_last) {
            found.upto(length, true);
        } else if found.at == before {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its extents are not in order"));
        }
    }
    Ok(found.ranges)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn unwritten(_file: &File) -> io::Result<Vec<Range<u64>>> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

/// The unwritten ranges found so far, from the file's start to `at`.
#[cfg(target_os = "linux")]
struct Found {
    ranges: Vec<Range<u64>>,
    at: u64,
}

#[cfg(target_os = "linux")]
impl Found {
    /// Extends the known part to `end`, unwritten or written.
    fn upto(&mut self, end: u64, unwritten: bool) {
        if end <= self.at {
            return;
        }
        match self.ranges.last_mut() {
            _ if !unwritten => {}
            Some(last) if last.end == self.at => last.end = end,
            _ => self.ranges.push(self.at..end),
        }
        self.at = end;
    }
}

/// The kernel's `linux/fiemap.h`.
#[cfg(target_os = "linux")]
mod fiemap {
    use std::fs::File;
    use std::io;
    use std::ops::Range;
    use std::os::fd::AsRawFd;

    /// Extents requested by one call.
    const EXTENTS: usize = 256;
    /// FIEMAP_FLAG_SYNC: data in the page cache is written first.
    const SYNC: u32 = 1;
    /// FIEMAP_EXTENT_LAST and FIEMAP_EXTENT_UNWRITTEN.
    const LAST: u32 = 1;
    const UNWRITTEN: u32 = 1 << 11;

    /// `struct fiemap`, without the extents.
    #[repr(C)]
    struct Head {
        start: u64,
        length: u64,
        flags: u32,
        mapped: u32,
        room: u32,
        reserved: u32,
    }

    /// `struct fiemap_extent`.
    #[derive(Clone, Copy, Default)]
    #[repr(C)]
    pub(super) struct Extent {
        pub(super) start: u64,
        physical: u64,
        pub(super) length: u64,
        reserved: [u64; 2],
        flags: u32,
        reserved_too: [u32; 3],
    }

    impl Extent {
        pub(super) fn is_unwritten(&self) -> bool {
            self.flags & UNWRITTEN != 0
        }

        pub(super) fn is_last(&self) -> bool {
            self.flags & LAST != 0
        }
    }

    #[repr(C)]
    pub(super) struct Asked {
        head: Head,
        extents: [Extent; EXTENTS],
    }

    const _: () = assert!(size_of::<Head>() == 32 && size_of::<Extent>() == 56);
    const _: () = assert!(core::mem::offset_of!(Asked, extents) == 32);

    impl Asked {
        pub(super) fn new() -> Box<Asked> {
            let head =
                Head { start: 0, length: 0, flags: SYNC, mapped: 0, room: EXTENTS as u32, reserved: 0 };
            Box::new(Asked { head, extents: [Extent::default(); EXTENTS] })
        }

        /// The first extents in a part of the file.
        pub(super) fn ask(&mut self, file: &File, part: Range<u64>) -> io::Result<&[Extent]> {
            self.head.start = part.start;
            self.head.length = part.end - part.start;
            let request = libc::_IOWR::<Head>(b'f'.into(), 11);
            // SAFETY: the descriptor is open. FS_IOC_FIEMAP takes a `struct fiemap` and room for as
            // many extents as it says. `self` is that: `repr(C)`, the extents right behind the head
            // (asserted above), `room` their number. The kernel writes nothing else, and any bytes are
            // valid in integers.
            match unsafe { libc::ioctl(file.as_raw_fd(), request, core::ptr::from_mut(self)) } {
                0 => Ok(&self.extents[..(self.head.mapped as usize).min(EXTENTS)]),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::super::system::allocate;
    use super::*;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    const KIB: u64 = 1 << 10;

    #[test]
    fn unwritten_extents_are_found_exactly() {
        let file = tempfile::tempfile().expect("a temporary file");
        file.set_len(1 << 20).expect("a hole");
        let all = 0..1 << 20;
        match unwritten(&file) {
            Err(error) => return println!("SKIP FIEMAP: {error}"),
            Ok(ranges) => assert_eq!(ranges, [all]),
        }
        // Still in the page cache, over a hole: 64 KiB pieces, as file systems with large
        // blocks allocate.
        file.write_all_at(&[1; 64 << 10], 256 * KIB).expect("written");
        assert_eq!(unwritten(&file).expect("it told before"), [0..256 * KIB, 320 * KIB..1 << 20]);
        let path = Path::new("a temporary file");
        if !allocate(&file, path, 1 << 20, 1 << 20).expect("room") {
            return println!("SKIP fallocate: the file system cannot");
        }
        // And over allocated blocks, adjacent and not.
        for at in [320, 512, 960] {
            file.write_all_at(&[1; 64 << 10], at * KIB).expect("written");
        }
        let left = [0..256 * KIB, 384 * KIB..512 * KIB, 576 * KIB..960 * KIB];
        assert_eq!(unwritten(&file).expect("it told before"), left);
        file.write_all_at(&[1; 1 << 20], 0).expect("written");
        assert_eq!(unwritten(&file).expect("it told before"), []);
    }

    #[test]
    fn extents_beyond_one_call_are_read_by_the_next() {
        let file = tempfile::tempfile().expect("a temporary file");
        let pieces = 700;
        for piece in 0..pieces {
            file.write_all_at(&[1; 64 << 10], (2 * piece + 1) * 64 * KIB).expect("written");
        }
        match unwritten(&file) {
            Err(error) => println!("SKIP FIEMAP: {error}"),
            Ok(ranges) => {
                let gaps: Vec<_> =
                    (0..pieces).map(|piece| 2 * piece * 64 * KIB..(2 * piece + 1) * 64 * KIB).collect();
                assert_eq!(ranges, gaps);
            }
        }
    }
}
