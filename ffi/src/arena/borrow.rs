//! Run-time borrows of blocks: one word per block, many readers or one writer.
//!
//! The pool's bookkeeping decides which caller may touch a block. The words are a second line of defence.
//! Even if the bookkeeping is wrong, two owners never alias a block, because each must take the block's
//! word first. A conflict is a typed error that shows the bug; it never waits.
//!
//! ```text
//!   word:  0            free
//!          1 ..= MAX-1  that many readers
//!          MAX          one writer
//! ```
//!
//! Invariants
//! - I1: a word is `WRITER` exactly while one writer holds the block, and then it is the only holder.
//! - I2: a word is n, 0 < n < `WRITER`, exactly while n readers hold the block.
//!
//! # Orderings
//! Taking a word is an Acquire exchange, and giving it back is a Release write to the same word. So
//! everything that a writer did to the block happens before the next borrow, and all reads of a reader
//! happen before the next writer's stores: the Acquire reads the word from the Release, or from a later
//! read-modify-write in its release sequence. The models in `tests.rs` show this.

#[cfg(all(test, loom))]
mod tests;

use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{AtomicU32, site, skipped};

const WRITER: u32 = u32::MAX;

/// Why a block cannot be borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BorrowError {
    /// The block is being written.
    #[error("block {block} is being written")]
    Writing {
        /// The block's index.
        block: usize,
    },
    /// The block is being read, and a writer needs it alone.
    #[error("block {block} is being read")]
    Reading {
        /// The block's index.
        block: usize,
    },
    /// The index is out of range.
    #[error("block {block} is out of range: the arena has {blocks} blocks")]
    OutOfRange {
        /// The requested index.
        block: usize,
        /// The number of blocks.
        blocks: usize,
    },
}

/// The borrow words of a range of blocks.
#[derive(Debug)]
pub(crate) struct BorrowWords {
    words: Box<[AtomicU32]>,
}

impl BorrowWords {
    pub(crate) fn new(blocks: usize) -> BorrowWords {
        BorrowWords { words: (0..blocks).map(|_| AtomicU32::new(0)).collect() }
    }

    pub(crate) fn blocks(&self) -> usize {
        self.words.len()
    }

    fn word(&self, block: usize) -> Result<&AtomicU32, BorrowError> {
        self.words.get(block).ok_or(BorrowError::OutOfRange { block, blocks: self.words.len() })
    }

    /// Takes the block for one more reader.
    pub(crate) fn take_read(&self, block: usize) -> Result<(), BorrowError> {
        let word = self.word(block)?;
        // Relaxed: a guess that the exchange confirms.
        let mut seen = word.load(Relaxed);
        // The word can count at most WRITER - 1 readers.
        while seen < WRITER - 1 {
            let taken = if skipped!("borrow_read_no_exchange") {
                Ok(word.fetch_add(1, Acquire))
            } else {
                // Acquire: pairs with the Release in `give_write` and `write_to_read`. Failure publishes
                // nothing: Relaxed.
                word.compare_exchange_weak(seen, seen + 1, site!("borrow_read_relaxed", Acquire), Relaxed)
            };
            match taken {
                Ok(_) => return Ok(()),
                Err(_) if skipped!("borrow_read_gives_up") => break,
                Err(now) => seen = now,
            }
        }
        Err(BorrowError::Writing { block })
    }

    /// Takes the block for one writer.
    pub(crate) fn take_write(&self, block: usize) -> Result<(), BorrowError> {
        let word = self.word(block)?;
        let taken = if skipped!("borrow_write_no_exchange") {
            Ok(word.swap(WRITER, Acquire))
        } else {
            // Acquire: pairs with the Release in `give_read` and `give_write`. Failure publishes
            // nothing: Relaxed.
            word.compare_exchange(0, WRITER, site!("borrow_write_relaxed", Acquire), Relaxed)
        };
        match taken {
            Ok(_) => Ok(()),
            Err(WRITER) => Err(BorrowError::Writing { block }),
            Err(_) => Err(BorrowError::Reading { block }),
        }
    }

    /// Undoes `take_read`. `block` is in range, since it was taken.
    pub(crate) fn give_read(&self, block: usize) {
        // Release: our reads come before the stores of the next writer; pairs with the Acquire
        // in `take_write`.
        self.words[block].fetch_sub(1, site!("borrow_give_read_relaxed", Release));
    }

    /// Undoes `take_write`. `block` is in range, since it was taken. A plain store is enough: only the
    /// writer writes a word that is `WRITER` (I1).
    pub(crate) fn give_write(&self, block: usize) {
        // Release: publishes the bytes; pairs with the Acquire in `take_read` and `take_write`.
        self.words[block].store(0, site!("borrow_give_write_relaxed", Release));
    }

    /// One writer becomes one reader; no other writer can come in between. A plain store, as in `give_write`.
    pub(crate) fn write_to_read(&self, block: usize) {
        let readers = if skipped!("borrow_downgrade_frees") { 0 } else { 1 };
        // Release: publishes the bytes to other readers, which may come in now; pairs with the
        // Acquire in `take_read`.
        self.words[block].store(readers, site!("borrow_downgrade_relaxed", Release));
    }
}
