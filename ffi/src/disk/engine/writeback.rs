//! Writes the table to the device: changed pages in the background, and all of them at the end.
//!
//! ```text
//!   table in memory ─ dirty pages ─► copies of 128 KiB, a few at a time ─► file
//!   flush:  dirty pages ─► sync ─► answered
//!   end:    all dirty pages ─► sync ─► superblock A, clean ─► sync ─► superblock B, clean ─► sync
//! ```
//!
//! Only [`Volume::flush`](super::super::Volume::flush) and the volume's end wait for this. Pages that a
//! crash keeps from the device are misses later on. Checksums find the ones that it leaves half-written.
//!
//! Invariants
//! - I1: the bytes of a write in flight are copies that do not change.
//! - I2: a page whose write failed is dirty again.
//! - I3: a page is in one write at a time: two could arrive in either order, and leave the older bytes.
//! - I4: the clean mark is written last, and only if everything before it was written.

use super::super::error::FailureCause;
use super::super::format::{RECORDS_A_PAGE, SUPERBLOCK_BYTES, Superblock};
use super::super::request::{Request, Task};
use super::super::table::{Extent, Table};
use crate::arena::{ArenaError, HostArena};
use std::sync::Arc;
use std::time::Duration;

/// Maximum bytes of the table in one write.
const EXTENT_BYTES: usize = 128 << 10;
/// Maximum writes of the table in flight.
const EXTENTS: usize = 8;

/// The stages of a volume's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Serving,
    /// All dirty pages go out.
    Table,
    Sync,
    /// The copy at the file's start, the copy at its end.
    Superblock {
        last: bool,
    },
    /// Between the two copies: a power loss tears at most one.
    MiddleSync,
    LastSync,
    Over,
}

/// A flush that waits until the pages that are dirty now are on the device.
#[derive(Debug)]
struct Flush {
    request: Request,
    /// The number of extents taken when all its pages had been taken; None before that.
    taken: Option<u64>,
    /// Pages taken since it came.
    pages: usize,
}

/// Keeps a volume's file up to date.
#[derive(Debug)]
pub(in crate::disk) struct WriteBack {
    superblock: Superblock,
    /// Time from the first change to its write.
    delay: Duration,
    copies: Arc<HostArena>,
    /// When dirty pages go out. None: there are none, or they are going out.
    due: Option<Duration>,
    /// Dirty pages go out now.
    going: bool,
    /// The number of extents taken so far; and the extents in flight, with their numbers.
    taken: u64,
    in_flight: Vec<(u64, Extent)>,
    flushes: Vec<Flush>,
    /// Flushes that wait for a sync, and those that the sync in flight serves.
    unsynced: Vec<Request>,
    syncing: Option<Vec<Request>>,
    stage: Stage,
    /// A write or a sync of the end is in flight.
    ending: bool,
    failed: bool,
}

impl WriteBack {
    pub(in crate::disk) fn new(superblock: Superblock, delay: Duration) -> Result<WriteBack, ArenaError> {
        Ok(WriteBack {
            superblock,
            delay,
            copies: HostArena::new(EXTENTS, EXTENT_BYTES)?,
            due: None,
            going: false,
            taken: 0,
            in_flight: Vec::with_capacity(EXTENTS),
            flushes: Vec::new(),
            unsynced: Vec::new(),
            syncing: None,
            stage: Stage::Serving,
            ending: false,
            failed: false,
        })
    }

    /// Notes that the table has changed.
    pub(super) fn changed(&mut self, now: Duration) {
        if !self.going && self.due.is_none() {
            self.due = Some(now + self.delay);
        }
    }

    /// Time until waiting dirty pages go out; None if there are none.
    pub(super) fn due_in(&self, now: Duration) -> Option<Duration> {
        self.due.map(|due| due.saturating_sub(now))
    }

    /// Takes a request that ends when all pages that are dirty now are on the device.
    pub(super) fn flush(&mut self, request: Request) {
        self.flushes.push(Flush { request, taken: None, pages: 0 });
        self.go();
    }

    /// Flushes under way.
    pub(super) fn flushes(&self) -> usize {
        self.flushes.len() + self.unsynced.len() + self.syncing.as_ref().map_or(0, Vec::len)
    }

    fn go(&mut self) {
        self.going = true;
        self.due = None;
    }

    /// Begins the end: no more requests will come. Call again until [`is_over`](WriteBack::is_over).
    pub(super) fn end(&mut self) {
        if self.stage == Stage::Serving {
            self.stage = Stage::Table;
            self.go();
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.stage == Stage::Over && !self.ending
    }

    /// The next thing to write, if something is to be written now.
    pub(super) fn next(&mut self, table: &mut Table, now: Duration) -> Option<Request> {
        if self.due.is_some_and(|due| due <= now) {
            self.go();
        }
        if self.going
            && let Some(request) = self.next_extent(table)
        {
            return Some(request);
        }
        self.settle_flushes();
        if self.syncing.is_none() && !self.unsynced.is_empty() {
            self.syncing = Some(core::mem::take(&mut self.unsynced));
            return Some(Request::sync());
        }
        self.next_of_the_end(table)
    }

    fn next_extent(&mut self, table: &mut Table) -> Option<Request> {
        if table.dirty_pages() > 0 {
            // None if all copies are in flight; one will come back.
            let mut copy = (0..EXTENTS).find_map(|block| self.copies.write(block).ok())?;
            if let Some(extent) = table.take_extent(&mut copy) {
                if self.in_flight.iter().any(|(_, other)| other.overlaps(&extent)) {
                    // I3: retried when the other write has ended. The next search starts behind it.
                    table.redirty(extent);
                    return None;
                }
                self.in_flight.push((self.taken, extent));
                self.taken += 1;
                self.flushes.iter_mut().for_each(|flush| flush.pages += extent.pages);
                let offset = self.superblock.shape.table_offset + extent.offset_bytes();
                let number = self.taken - 1;
                return Some(Request::own(
                    copy.into_read(),
                    Task::Table { extent, number },
                    offset,
                    extent.bytes(),
                ));
            }
        }
        self.going = false;
        for flush in &mut self.flushes {
            flush.taken.get_or_insert(self.taken);
        }
        None
    }

    /// Pages are taken in turns: after twice the table's pages, all that were dirty at first
    /// have been taken.
    fn settle_flushes(&mut self) {
        let (oldest, pages) = (self.in_flight.iter().map(|(number, _)| *number).min(), self.pages());
        for flush in &mut self.flushes {
            if flush.pages > 2 * pages {
                flush.taken.get_or_insert(self.taken);
            }
        }
        let settled =
            |flush: &mut Flush| flush.taken.is_some_and(|taken| oldest.is_none_or(|oldest| oldest >= taken));
        self.unsynced.extend(self.flushes.extract_if(.., settled).map(|flush| flush.request));
    }

    fn pages(&self) -> usize {
        (self.superblock.shape.slots as usize).div_ceil(RECORDS_A_PAGE)
    }

    fn next_of_the_end(&mut self, table: &Table) -> Option<Request> {
        let waiting = !self.flushes.is_empty() || self.syncing.is_some() || !self.in_flight.is_empty();
        if self.ending || waiting {
            return None;
        }
        if self.failed && !matches!(self.stage, Stage::Serving) {
            // I4: no clean mark.
            self.stage = Stage::Over;
        }
        match self.stage {
            Stage::Table if table.dirty_pages() == 0 => self.stage = Stage::Sync,
            Stage::Serving | Stage::Table | Stage::Over => return None,
            Stage::Sync | Stage::Superblock { .. } | Stage::MiddleSync | Stage::LastSync => {}
        }
        let Stage::Superblock { last } = self.stage else {
            self.ending = true;
            return Some(Request::sync());
        };
        let mut copy = self.copies.write(0).ok()?;
        self.ending = true;
        copy[..SUPERBLOCK_BYTES].copy_from_slice(&self.superblock.to_bytes());
        let offset = if last { self.superblock.shape.file_bytes - SUPERBLOCK_BYTES as u64 } else { 0 };
        Some(Request::own(copy.into_read(), Task::Superblock, offset, SUPERBLOCK_BYTES))
    }

    pub(super) fn extent_ended(
        &mut self,
        table: &mut Table,
        extent: Extent,
        number: u64,
        failure: Option<FailureCause>,
        now: Duration,
    ) {
        self.in_flight.retain(|(other, _)| *other != number);
        if let Some(cause) = failure {
            // I2. Not retried at once: the cause of the failure needs a while to pass.
            table.redirty(extent);
            self.going = false;
            self.changed(now);
            self.failed |= self.stage != Stage::Serving;
            for flush in &mut self.flushes {
                flush.request.failure.get_or_insert(cause);
                flush.taken.get_or_insert(self.taken);
            }
        }
    }

    pub(super) fn superblock_ended(&mut self, failure: Option<FailureCause>) {
        self.ending = false;
        self.failed |= failure.is_some();
        self.stage = match self.stage {
            Stage::Superblock { last: false } => Stage::MiddleSync,
            _ => Stage::LastSync,
        };
    }

    /// Takes the end of a sync. Returns the flushes that it was for.
    pub(super) fn sync_ended(&mut self, failure: Option<FailureCause>) -> Vec<Request> {
        if let Some(mut flushes) = self.syncing.take() {
            for request in &mut flushes {
                request.failure = request.failure.or(failure);
            }
            return flushes;
        }
        self.ending = false;
        self.failed |= failure.is_some();
        self.stage = match self.stage {
            Stage::Sync => {
                self.superblock.clean = true;
                self.superblock.writes = self.superblock.writes.saturating_add(1);
                Stage::Superblock { last: false }
            }
            Stage::MiddleSync => Stage::Superblock { last: true },
            _ => Stage::Over,
        };
        Vec::new()
    }

    /// The device is away: returns the flushes that wait for a write. The caller answers them.
    pub(super) fn fail_waiting(&mut self) -> Vec<Request> {
        let mut waiting = core::mem::take(&mut self.unsynced);
        waiting.extend(self.flushes.drain(..).map(|flush| flush.request));
        waiting
    }

    /// The ring is lost: returns all waiting flushes. The caller answers them.
    pub(super) fn give_up(&mut self) -> Vec<Request> {
        let mut waiting = core::mem::take(&mut self.unsynced);
        waiting.extend(self.syncing.take().unwrap_or_default());
        waiting.extend(self.flushes.drain(..).map(|flush| flush.request));
        waiting
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::format::{Record, Shape};
    use super::super::super::recovery::Label;
    use super::*;
    use kvstrata_core::SequenceHash;

    #[test]
    fn table_page_changed_during_its_write_waits_for_it() {
        let superblock = Superblock::plain(1, Shape::new(1000, 4096, 4096).expect("a shape"));
        let mut table = Table::new(1, 1000, None).expect("memory");
        let mut write_back = WriteBack::new(superblock, Duration::ZERO).expect("memory");
        let change = |table: &mut Table, write_back: &mut WriteBack, slot, sequence: u64| {
            let label = Label { hash: SequenceHash::from_u128(sequence.into()), ..Label::default() };
            table.set(slot, &Record { label, sequence, seal: [0; 16], payload_bytes: 1 });
            write_back.changed(Duration::ZERO);
        };
        change(&mut table, &mut write_back, 0, 1);
        let first = write_back.next(&mut table, Duration::ZERO).expect("a page to write");
        let Task::Table { extent, number } = first.task else { panic!("{first:?}") };
        change(&mut table, &mut write_back, 1, 2);
        // Another page may go meanwhile.
        change(&mut table, &mut write_back, 999, 3);
        let others: Vec<_> = (0..4)
            .filter_map(|_| write_back.next(&mut table, Duration::ZERO))
            .map(|other| other.task)
            .collect();
        assert!(
            matches!(others[..], [Task::Table { extent: Extent { first_page: 15, pages: 1 }, .. }]),
            "{others:?}"
        );
        write_back.extent_ended(&mut table, extent, number, None, Duration::ZERO);
        let again = write_back.next(&mut table, Duration::ZERO).expect("it has waited");
        assert!(
            matches!(again.task, Task::Table { extent: Extent { first_page: 0, pages: 1 }, .. }),
            "{again:?}"
        );
    }
}
