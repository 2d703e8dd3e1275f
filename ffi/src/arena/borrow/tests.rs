//! loom models of I1 and I2: `RUSTFLAGS="--cfg loom" cargo test -p kvstrata-ffi --lib borrow`.
//! A block's bytes are a loom cell, which notices every access that the word does not order.

use super::{BorrowError, BorrowWords};
use crate::arena::HostArena;
use crate::sync::{Arc, UnsafeCell, model, spawn};

struct Rig {
    words: BorrowWords,
    bytes: Vec<UnsafeCell<u64>>,
}

// SAFETY: a cell is touched only under its word. The models check that the words keep writers alone:
// loom's cells report any violation.
unsafe impl Sync for Rig {}
// SAFETY: nothing in it is tied to a thread.
unsafe impl Send for Rig {}

impl Rig {
    fn new(blocks: usize) -> Arc<Rig> {
        let bytes = (0..blocks).map(|_| UnsafeCell::new(0)).collect();
        Arc::new(Rig { words: BorrowWords::new(blocks), bytes })
    }

    fn get(&self, block: usize) -> u64 {
        // SAFETY: the caller holds the word; loom reports a race with a writer.
        self.bytes[block].with(|cell| unsafe { *cell })
    }

    fn set(&self, block: usize, value: u64) {
        self.bytes[block].with_mut(|cell| {
            // SAFETY: the caller holds the word alone; loom reports a race with any other access.
            unsafe { *cell = value }
        });
    }

    /// Adds one to a block's bytes, if it is free.
    fn try_add(&self, block: usize) -> bool {
        let taken = self.words.take_write(block).is_ok();
        if taken {
            self.set(block, self.get(block) + 1);
            self.words.give_write(block);
        }
        taken
    }

    /// Checks that no borrow is left: each block can be taken, once as a reader, once as a writer.
    fn at_rest(&self) {
        for block in 0..self.bytes.len() {
            assert_eq!(self.words.take_read(block), Ok(()), "a writer is left behind");
            assert_eq!(self.words.take_write(block), Err(BorrowError::Reading { block }));
            self.words.give_read(block);
            assert_eq!(self.words.take_write(block), Ok(()), "a reader is left behind");
            self.words.give_write(block);
        }
    }
}

/// I1: two writers are never in one block together, and the second sees what the first wrote.
#[test]
fn writer_is_alone_among_writers() {
    model(|| {
        let rig = Rig::new(1);
        let other = rig.clone();
        let thread = spawn(move || other.try_add(0));
        let mine = rig.try_add(0);
        let theirs = thread.join().expect("no panic");
        assert!(mine || theirs, "each was refused for the other's sake");
        assert_eq!(rig.get(0), u64::from(mine) + u64::from(theirs));
        rig.at_rest();
    });
}

/// I1: a writer and a reader are never in one block together; a later reader sees all that was written.
#[test]
fn writer_is_alone_among_readers() {
    model(|| {
        let rig = Rig::new(1);
        let other = rig.clone();
        let thread = spawn(move || other.try_add(0));
        let read = rig.words.take_read(0).is_ok();
        if read {
            rig.get(0);
            rig.words.give_read(0);
        }
        let written = thread.join().expect("no panic");
        assert!(read || written, "each was refused for the other's sake");
        assert_eq!(rig.get(0), u64::from(written));
        rig.at_rest();
    });
}

/// I2: readers never refuse each other, and each is counted.
#[test]
fn readers_share_a_block() {
    model(|| {
        let rig = Rig::new(1);
        let other = rig.clone();
        let read = |rig: &Rig| {
            rig.words.take_read(0).expect("there is no writer");
            rig.get(0);
            rig.words.give_read(0);
        };
        let thread = spawn(move || read(&other));
        read(&rig);
        thread.join().expect("no panic");
        rig.at_rest();
    });
}

/// I2: a writer comes in after the last of several readers, whichever that is, and after the reads of all
/// of them.
#[test]
fn writer_comes_after_all_readers() {
    model(|| {
        let rig = Rig::new(1);
        let leave = |rig: &Rig| {
            rig.get(0);
            rig.words.give_read(0);
        };
        let readers: Vec<_> = (0..2)
            .map(|_| {
                rig.words.take_read(0).expect("there is no writer");
                let other = rig.clone();
                spawn(move || leave(&other))
            })
            .collect();
        let written = rig.try_add(0);
        for reader in readers {
            reader.join().expect("no panic");
        }
        assert_eq!(rig.get(0), u64::from(written));
        rig.at_rest();
    });
}

/// A writer becomes a reader: another reader sees what it wrote, and no writer gets between.
#[test]
fn writer_becomes_a_reader() {
    model(|| {
        let rig = Rig::new(1);
        rig.words.take_write(0).expect("free");
        let other = rig.clone();
        let thread = spawn(move || {
            if other.words.take_read(0).is_ok() {
                assert_eq!(other.get(0), 1);
                other.words.give_read(0);
            }
            u64::from(other.try_add(0))
        });
        rig.set(0, 1);
        rig.words.write_to_read(0);
        assert_eq!(rig.get(0), 1, "a writer got between");
        rig.words.give_read(0);
        let added = thread.join().expect("no panic");
        assert_eq!(rig.get(0), 1 + added);
        rig.at_rest();
    });
}

/// The guards, over two blocks that two threads want in opposite order: the thread that is refused the
/// second block gives back the first by dropping it, and then both are free.
#[test]
fn guards_of_two_blocks_are_released() {
    model(|| {
        let arena = HostArena::new(2, 8).expect("memory");
        let rig = Rig::new(2);
        let both = |arena: &std::sync::Arc<HostArena>, rig: &Rig, order: [usize; 2]| {
            let Ok(first) = arena.write(order[0]) else { return 0 };
            let Ok(second) = arena.write(order[1]) else { return 0 };
            for block in order {
                rig.set(block, rig.get(block) + 1);
            }
            drop((first.into_read(), second));
            1
        };
        let (other, others) = (std::sync::Arc::clone(&arena), rig.clone());
        let thread = spawn(move || both(&other, &others, [0, 1]));
        let mine = both(&arena, &rig, [1, 0]);
        let theirs = thread.join().expect("no panic");
        assert_eq!([rig.get(0), rig.get(1)], [mine + theirs; 2]);
        for block in 0..2 {
            assert!(arena.write(block).is_ok(), "a guard is left behind");
        }
        assert_eq!(std::sync::Arc::strong_count(&arena), 1);
    });
}
