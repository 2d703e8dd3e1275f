//! Lists that run through a slab's entries. To append, to take out and to step forward is O(1), and
//! allocates nothing.

use slab::Slab;

const NONE: u32 = u32::MAX;

/// An entry's neighbours in one list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Links {
    before: u32,
    after: u32,
}

impl Links {
    /// The links of an entry in no list.
    pub(super) const NONE: Links = Links { before: NONE, after: NONE };
}

/// An entry that can be in a list of the kind `KIND`: in at most one of them at a time.
pub(super) trait Linked<const KIND: usize> {
    fn links(&mut self) -> &mut Links;
}

/// A list of entries, by their keys.
#[derive(Debug)]
pub(super) struct List<const KIND: usize> {
    first: u32,
    last: u32,
    length: u32,
}

impl<const KIND: usize> List<KIND> {
    pub(super) const EMPTY: List<KIND> = List { first: NONE, last: NONE, length: 0 };

    pub(super) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    pub(super) fn length(&self) -> u32 {
        self.length
    }

    pub(super) fn push_last(&mut self, entries: &mut Slab<impl Linked<KIND>>, key: u32) {
        *entries[key as usize].links() = Links { before: self.last, after: NONE };
        match self.last {
            NONE => self.first = key,
            last => entries[last as usize].links().after = key,
        }
        self.last = key;
        self.length += 1;
    }

    /// Takes out `key`, which is in this list.
    pub(super) fn remove(&mut self, entries: &mut Slab<impl Linked<KIND>>, key: u32) {
        let Links { before, after } = std::mem::replace(entries[key as usize].links(), Links::NONE);
        match before {
            NONE => self.first = after,
            before => entries[before as usize].links().after = after,
        }
        match after {
            NONE => self.last = before,
            after => entries[after as usize].links().before = before,
        }
        self.length -= 1;
    }

    /// Makes `key`, which is in this list, the last one.
    pub(super) fn make_last(&mut self, entries: &mut Slab<impl Linked<KIND>>, key: u32) {
        self.remove(entries, key);
        self.push_last(entries, key);
    }

    /// Returns the entry behind `key`, which is in this list.
    pub(super) fn after(&self, entries: &mut Slab<impl Linked<KIND>>, key: u32) -> Option<u32> {
        let after = entries[key as usize].links().after;
        (after != NONE).then_some(after)
    }
}
