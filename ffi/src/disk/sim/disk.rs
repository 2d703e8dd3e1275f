//! The disk of a simulation: a real file, so that opening a volume runs the code that ships; beside it,
//! the state of a device that a file does not show.
//!
//! ```text
//!   sector   0    1    2    3    4    5    6 …     512 bytes each: a sector arrives wholly or not at all
//!   file     a    b'   c    d'   e    ?    g       as reads find it
//!   before        b         d                      as it was at the last sync: a power cut may bring it back
//!   tainted                           x            differs from the reported writes, or was damaged later
//! ```
//!
//! Invariants
//! - I1: a sector that is not in `tainted` holds the bytes of the last write to it that was
//!   reported as done.
//! - I2: `before` has each sector written since the last true sync, with the bytes from before
//!   its first write.

use super::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The unit that arrives wholly or not at all.
pub(in crate::disk) const SECTOR_BYTES: u64 = 512;
const SECTOR: usize = SECTOR_BYTES as usize;

pub(in crate::disk) struct Disk {
    file: File,
    before: BTreeMap<u64, Before>,
    tainted: BTreeSet<u64>,
    /// Writes so far.
    writes: u64,
}

struct Before {
    bytes: [u8; SECTOR],
    /// Whether these bytes differed from the reported writes.
    tainted: bool,
    /// The number of the first write since the sync.
    since: u64,
}

/// The sectors that a stretch touches.
fn sectors(range: &Range<u64>) -> Range<u64> {
    range.start / SECTOR_BYTES..range.end.div_ceil(SECTOR_BYTES)
}

impl Disk {
    /// Over a file that exists.
    pub(in crate::disk) fn open(path: &Path) -> io::Result<Disk> {
        let file = File::options().read(true).write(true).open(path)?;
        Ok(Disk { file, before: BTreeMap::new(), tainted: BTreeSet::new(), writes: 0 })
    }

    pub(in crate::disk) fn bytes(&self) -> u64 {
        self.file.metadata().map_or(0, |metadata| metadata.len())
    }

    /// Reads the file; zeros after its end.
    pub(in crate::disk) fn read(&self, offset: u64, into: &mut [u8]) {
        let mut done = 0;
        while let Ok(more @ 1..) = self.file.read_at(&mut into[done..], offset + done as u64) {
            done += more;
        }
        into[done..].fill(0);
    }

    pub(in crate::disk) fn read_vec(&self, range: &Range<u64>) -> Vec<u8> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.read(range.start, &mut bytes);
        bytes
    }

    /// Reads the bytes as of the last sync.
    pub(in crate::disk) fn read_stale(&self, range: &Range<u64>) -> Vec<u8> {
        let mut bytes = self.read_vec(range);
        for (sector, before) in self.before.range(sectors(range)) {
            let at = sector * SECTOR_BYTES;
            for (n, byte) in (at..).zip(before.bytes) {
                if range.contains(&n) {
                    bytes[(n - range.start) as usize] = byte;
                }
            }
        }
        bytes
    }

    /// Writes bytes. They count as reported to the writer only after [`heal`](Disk::heal).
    pub(in crate::disk) fn write(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.remember(offset..offset + bytes.len() as u64);
        self.put(offset, bytes);
    }

    /// Writes the sectors of `bytes` that chance lets through.
    pub(in crate::disk) fn write_torn(&mut self, offset: u64, bytes: &[u8], random: &mut Random) {
        let pieces = bytes.len().div_ceil(SECTOR);
        if random.once_in(2) {
            let arrived = random.within(0, pieces as u64) as usize * SECTOR;
            return self.write(offset, &bytes[..arrived.min(bytes.len())]);
        }
        for (n, sector) in bytes.chunks(SECTOR).enumerate() {
            if random.once_in(2) {
                self.write(offset + (n * SECTOR) as u64, sector);
            }
        }
    }

    fn remember(&mut self, range: Range<u64>) {
        self.writes += 1;
        let touched = sectors(&range);
        let missing = touched.clone().filter(|sector| !self.before.contains_key(sector)).count();
        if missing > 0 {
            let old = self.read_vec(&(touched.start * SECTOR_BYTES..touched.end * SECTOR_BYTES));
            for (sector, bytes) in touched.zip(old.as_chunks().0) {
                self.keep(sector, *bytes);
            }
        }
    }

    fn keep(&mut self, sector: u64, bytes: [u8; SECTOR]) {
        let (tainted, since) = (self.tainted.contains(&sector), self.writes);
        self.before.entry(sector).or_insert(Before { bytes, tainted, since });
    }

    /// Undoes a write that went past this disk: `old` are the former bytes.
    pub(in crate::disk) fn undo(&mut self, offset: u64, old: &[u8]) {
        self.put(offset, old);
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) {
        // The file is in memory, or nearly so. A refused write is found when its bytes are missed.
        let _ = self.file.write_all_at(bytes, offset);
    }

    /// Damages bytes without a write, so no sync affects the damage.
    pub(in crate::disk) fn damage(&mut self, offset: u64, change: impl FnOnce(&mut [u8]), bytes: usize) {
        let range = offset..offset + bytes as u64;
        let mut there = self.read_vec(&range);
        change(&mut there);
        self.put(offset, &there);
        self.taint(range);
    }

    pub(in crate::disk) fn taint(&mut self, range: Range<u64>) {
        self.tainted.extend(sectors(&range));
    }

    /// Marks sectors as equal to the reported writes. Sectors that the range covers in part
    /// keep their marks.
    pub(in crate::disk) fn heal(&mut self, range: Range<u64>) {
        let whole = range.start.div_ceil(SECTOR_BYTES)..range.end / SECTOR_BYTES;
        self.tainted.retain(|sector| !whole.contains(sector));
    }

    pub(in crate::disk) fn is_tainted(&self, range: Range<u64>) -> bool {
        self.tainted.range(sectors(&range)).next().is_some()
    }

    /// The number of the last write, for [`sync`](Disk::sync).
    pub(in crate::disk) fn writes(&self) -> u64 {
        self.writes
    }

    /// Makes all writes up to number `upto` survive a power cut.
    pub(in crate::disk) fn sync(&mut self, upto: u64) {
        self.before.retain(|_, before| before.since > upto);
    }

    /// Puts back some of the sectors written since the last sync.
    pub(in crate::disk) fn cut_power(&mut self, random: &mut Random) {
        let kept = random.pick(&[0, 0x4000, 0x8000, 0xF000]);
        for (sector, before) in core::mem::take(&mut self.before) {
            if !random.chance(kept) {
                self.put(sector * SECTOR_BYTES, &before.bytes);
                if before.tainted {
                    self.tainted.insert(sector);
                }
            }
        }
    }
}
