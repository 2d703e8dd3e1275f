//! A release, block by block, tail first: which class each is of, and what the learner is told.
//!
//! A request's blocks come in one batch or in many, or each alone. What makes them one path is the chain
//! itself: a block whose child was released just before, by a thread of the same lane, goes on where that
//! was. So a path is a path also where its blocks are let go of one by one, and what is released alone,
//! without its neighbours, is a path of one block.
//!
//! ```text
//!   lane's path   next: the parent of the block released last │ at 8, much 1, length 2, trunk 1, lists 16
//! ```

use super::journal::{Page, Record};
use super::notes::{GROWTH, GROWTH_ZERO, LENGTH, NEW, Notes, TRUNK as IS_TRUNK};
use crate::slot::NIL;

/// Blocks that a turn may add and still be a plain turn.
const LITTLE: u32 = 4;

/// The path that is being released.
#[derive(Clone, Copy)]
pub(super) struct Path {
    /// Generation and slot of the block that goes on with it.
    next: u64,
    /// Blocks of it so far.
    pub(super) at: u32,
    /// Its request grew by much.
    pub(super) much: bool,
    /// Class of the length of its new run.
    pub(super) length: u32,
    /// It has come to the trunk.
    pub(super) trunk: bool,
    /// Lists that it has blocks in.
    lists: u32,
}

impl Default for Path {
    /// None: no block goes on with it.
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

    /// A block is the next to be released, whose parent is `parent`; both as generation and slot. Whether a path begins with it.
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

    /// Whether this is the first of the path's blocks in a list: the deepest.
    pub(super) fn enters(&mut self, list: usize) -> bool {
        let first = self.lists & 1 << list == 0;
        self.lists |= 1 << list;
        first
    }
}

/// Blocks that were released one after the other.
#[derive(Clone, Copy, Default)]
struct Run {
    first: u32,
    blocks: u32,
}

impl Run {
    /// Adds a block at either end. Where it is at none, a run begins with it, and what is to be told of the one before is returned.
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

    /// LRU has them no more, or at another place.
    #[inline]
    fn end(&mut self) -> Option<Record> {
        let Run { first, blocks } = core::mem::take(self);
        (blocks > 0).then_some(Record::Out { first, blocks })
    }
}

/// What one call has used and registered, gathered on its stack: from the root down, so that what was released tail first is one run.
#[derive(Default)]
pub(crate) struct Uses {
    run: Run,
    page: Page,
}

impl Uses {
    /// A block was used that was released then, and that LRU has, or has lost.
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

    /// Whether the next block may find no room.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        !self.page.has_room()
    }

    /// What is to be told so far, for `write`; the run goes on.
    #[inline]
    pub(super) fn page(&mut self) -> &mut Page {
        &mut self.page
    }

    /// What is to be told of all of them; none: nothing.
    #[inline]
    pub(super) fn end(&mut self) -> Option<&mut Page> {
        self.run.end().into_iter().for_each(|record| self.page.add(record));
        (!self.page.is_empty()).then_some(&mut self.page)
    }
}

/// What a batch of releases tells, gathered on its stack.
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

    /// The first word of a page is for what is known at its end.
    fn begin(&mut self, first: u32) {
        (self.first, self.blocks, self.paths) = (first, 0, 0);
        self.page.add(Record::Won(0));
    }

    /// The stamp of the block that comes now, and which it is since the page began.
    pub(super) fn stamp(&mut self, begins: bool) -> (u32, u32) {
        let nth = self.blocks;
        self.blocks += 1;
        self.paths += u32::from(begins);
        (self.first.wrapping_add(nth), nth)
    }

    /// LRU had a block that was released then, and has it at another place now.
    pub(super) fn out(&mut self, stamp: u32) {
        let before = self.out.add(stamp);
        before.into_iter().for_each(|record| self.page.add(record));
    }

    pub(super) fn won(&mut self) {
        self.won += 1;
    }

    /// Whether the next block may find no room.
    pub(super) fn is_full(&self) -> bool {
        !self.page.has_room()
    }

    /// Completes the page, for `write`, and begins another.
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

    /// Nor with the first block of slot 0, which a word of zeros would name.
    #[test]
    fn no_block_goes_on_with_no_path() {
        let mut path = Path::of(Path::default().words());
        assert!(path.goes_on(0, u64::from(NIL), Notes::default()));
        assert!(path.goes_on(0, 1, Notes::default()), "it was the root of its path");
        let notes = Notes::default();
        assert!(!path.goes_on(1, 2, notes), "its child was the last");
    }

    /// Matched from the root down, what was released tail first is one run; so is what is released in the order of its old places.
    #[test]
    fn runs_grow_at_both_ends() {
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
    fn a_path_is_kept_between_releases() {
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
