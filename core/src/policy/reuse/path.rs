//! A release, block by block, tail first: the class of each block, and the records for the learner.
//!
//! A request's blocks come in one batch or in many, or each alone. The chain itself makes them one path:
//! a block whose child was released just before, by a thread of the same lane, continues the child's
//! path. So blocks that are released one by one still form a path, and a block that is released without
//! its neighbours is a path of one block.
//!
//! ```text
//!   lane's path   next: the parent of the block released last │ at 8, much 1, length 2, trunk 1, lists 16
//! ```

use super::journal::{Page, Record};
use super::notes::{GROWTH, GROWTH_ZERO, LENGTH, NEW, Notes, TRUNK as IS_TRUNK};
use crate::slot::NIL;

/// The most blocks that a turn may add and still be a plain turn.
const LITTLE: u32 = 4;

/// The path that is being released.
#[derive(Clone, Copy)]
pub(super) struct Path {
    /// Generation and slot of the block that continues the path.
    next: u64,
    /// Blocks of the path before the current one, counted from its tail.
    pub(super) at: u32,
    /// Its request grew by much.
    pub(super) much: bool,
    /// Length class of its new run.
    pub(super) length: u32,
    /// The path has reached the trunk.
    pub(super) trunk: bool,
    /// Lists in which the path has blocks.
    lists: u32,
}

impl Default for Path {
    /// No path: no block continues it.
    fn default() -> Path {
        let next = u64::from(NIL);
        Path { next, at: 0, much: false, length: 0, trunk: false, lists: 0 }
    }
}

impl Path {
    pub(super) fn of([next, rest]: [u64; 2]) -> Path {
        Path {
            next,
            at: (rest & 0xff) as u32,
            much: rest & 1 << 8 != 0,
            length: (rest >> 9) as u32 & 3,
            trunk: rest & 1 << 11 != 0,
            lists: (rest >> 16) as u32 & 0xffff,
        }
    }

    pub(super) fn words(self) -> [u64; 2] {
        let rest = u64::from(self.at.min(255))
            | u64::from(self.much) << 8
            | u64::from(self.length) << 9
            | u64::from(self.trunk) << 11
            | u64::from(self.lists) << 16;
        [self.next, rest]
    }

    /// Moves to the next released block, whose parent is `parent`; both as generation and slot. Returns
    /// whether a path begins with it.
    pub(super) fn goes_on(&mut self, block: u64, parent: u64, notes: Notes) -> bool {
        let begins = self.next != block;
        if begins {
            let grown = notes.get(GROWTH).saturating_sub(GROWTH_ZERO);
            let new = notes.is(NEW);
            *self = Path { much: new && grown > LITTLE, ..Path::default() };
            self.length = match grown {
                _ if !new => notes.get(LENGTH),
                0..=4 => 0,
                5..=16 => 1,
                17..=64 => 2,
                _ => 3,
            };
        } else {
            self.at += 1;
        }
        self.next = parent;
        self.trunk |= notes.is(IS_TRUNK);
        begins
    }

    /// Returns whether this is the first of the path's blocks in a list: the deepest.
    pub(super) fn enters(&mut self, list: usize) -> bool {
        let first = self.lists & 1 << list == 0;
        self.lists |= 1 << list;
        first
    }
}

/// Blocks that were released consecutively.
#[derive(Clone, Copy, Default)]
struct Run {
    first: u32,
    blocks: u32,
}

impl Run {
    /// Adds a block at either end. If it fits at neither, begins a new run and returns
    /// the record of the last one.
    #[inline]
    fn add(&mut self, stamp: u32) -> Option<Record> {
        if self.blocks > 0 && stamp == self.first.wrapping_add(self.blocks) {
            self.blocks += 1;
            return None;
        }
        if self.blocks > 0 && stamp == self.first.wrapping_sub(1) {
            (self.first, self.blocks) = (stamp, self.blocks + 1);
            return None;
        }
        let before = self.end();
        *self = Run { first: stamp, blocks: 1 };
        before
    }

    /// Ends the run. Its record: LRU has these blocks no more, or at another place.
    #[inline]
    fn end(&mut self) -> Option<Record> {
        let Run { first, blocks } = core::mem::take(self);
        (blocks > 0).then_some(Record::Out { first, blocks })
    }
}

/// The uses and registrations of one call, gathered on its stack from the root down: blocks that were
/// released tail first form one run.
#[derive(Default)]
pub(crate) struct Uses {
    run: Run,
    page: Page,
}

impl Uses {
    /// Adds the use of a block that was released at this stamp. `had`: LRU has the block.
    #[inline]
    pub(super) fn add(&mut self, stamp: u32, had: bool) {
        if !had {
            self.page.left(1);
        } else if let Some(before) = self.run.add(stamp) {
            self.page.add(before);
        }
    }

    #[inline]
    pub(super) fn tell(&mut self, record: Record) {
        self.page.add(record);
    }

    /// Returns whether the next block may find no room.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        !self.page.has_room()
    }

    /// The records so far, for `write`; the run continues.
    #[inline]
    pub(super) fn page(&mut self) -> &mut Page {
        &mut self.page
    }

    /// Ends the run and returns all records; none: there are none.
    #[inline]
    pub(super) fn end(&mut self) -> Option<&mut Page> {
        self.run.end().into_iter().for_each(|record| self.page.add(record));
        (!self.page.is_empty()).then_some(&mut self.page)
    }
}

/// The records of a batch of releases, gathered on its stack.
pub(crate) struct Batch {
    pub(super) path: Path,
    pub(super) page: Page,
    first: u32,
    blocks: u32,
    paths: u32,
    out: Run,
    won: u32,
}

impl Batch {
    /// `first`: the stamp of its first block.
    pub(super) fn new(path: Path, first: u32) -> Batch {
        let mut batch =
            Batch { path, page: Page::new(), first, blocks: 0, paths: 0, out: Run::default(), won: 0 };
        batch.begin(first);
        batch
    }

    /// Begins a page. Its first word is reserved for the record that is known at its end.
    fn begin(&mut self, first: u32) {
        (self.first, self.blocks, self.paths) = (first, 0, 0);
        self.page.add(Record::Won(0));
    }

    /// The stamp of the next block, and its number within the page.
    pub(super) fn stamp(&mut self, begins: bool) -> (u32, u32) {
        let nth = self.blocks;
        self.blocks += 1;
        self.paths += u32::from(begins);
        (self.first.wrapping_add(nth), nth)
    }

    /// Records that LRU had a block that was released at this stamp, and has it at another place now.
    pub(super) fn out(&mut self, stamp: u32) {
        let before = self.out.add(stamp);
        before.into_iter().for_each(|record| self.page.add(record));
    }

    pub(super) fn won(&mut self) {
        self.won += 1;
    }

    /// Returns whether the next block may find no room.
    pub(super) fn is_full(&self) -> bool {
        !self.page.has_room()
    }

    /// Completes the page, passes it to `write`, and begins another.
    pub(super) fn turn(&mut self, write: impl FnOnce(&mut Page)) {
        let out = self.out.end();
        out.into_iter().for_each(|record| self.page.add(record));
        if self.won > 0 {
            self.page.add(Record::Won(core::mem::take(&mut self.won)));
        }
        if self.blocks > 0 {
            let released = Record::Released { first: self.first, blocks: self.blocks, paths: self.paths };
            self.page.put_first(released);
            write(&mut self.page);
        }
        let next = self.first.wrapping_add(self.blocks);
        self.page = Page::new();
        self.begin(next);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Not even the first block of slot 0 does, which a word of zeros would name.
    #[test]
    fn default_path_is_continued_by_no_block() {
        let mut path = Path::of(Path::default().words());
        assert!(path.goes_on(0, u64::from(NIL), Notes::default()));
        assert!(path.goes_on(0, 1, Notes::default()), "it was the root of its path");
        let notes = Notes::default();
        assert!(!path.goes_on(1, 2, notes), "its child was the last");
    }

    /// Blocks released tail first and matched from the root down are one run; so are blocks that are
    /// released in the order of their old places.
    #[test]
    fn run_of_uses_grows_at_both_ends() {
        let mut uses = Uses::default();
        [9, 8, 7, 10].iter().for_each(|stamp| uses.add(*stamp, true));
        assert!(uses.page.is_empty());
        uses.add(3, false);
        assert!(!uses.page.is_empty(), "LRU had lost it: it waits no more, and that is all");
        uses.add(3, true);
        assert_eq!(uses.run.end(), Some(Record::Out { first: 3, blocks: 1 }), "the run before is told of");
        assert!(uses.end().is_some() && Uses::default().end().is_none());
        let mut uses = Uses::default();
        [0, u32::MAX, 1].iter().for_each(|stamp| uses.add(*stamp, true));
        assert_eq!(uses.run.end(), Some(Record::Out { first: u32::MAX, blocks: 3 }), "stamps go round");
    }

    #[test]
    fn path_is_kept_between_releases() {
        let mut notes = Notes::default();
        notes.set(NEW, 1);
        notes.set(GROWTH, GROWTH_ZERO + 20);
        let mut path = Path::default();
        assert!(path.goes_on(7, 8, notes));
        assert!(path.much && path.length == 2 && path.enters(3) && !path.enters(3));
        let mut path = Path::of(path.words());
        notes.set(NEW, 0);
        assert!(!path.goes_on(8, 9, notes), "its child was the last");
        assert_eq!(
            (path.at, path.much, path.length, path.enters(3), path.enters(4)),
            (1, true, 2, false, true)
        );
        assert!(path.goes_on(8, 9, notes), "another's");
        assert_eq!((path.at, path.much), (0, false));
    }
}
