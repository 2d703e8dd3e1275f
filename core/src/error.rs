//! Errors, one small type per operation. A refusal hands the block back: nothing is lost.

use crate::id::BlockId;
use crate::slot::State;
use core::fmt;

/// Too few blocks are free or evictable. The call's documentation tells whether blocks were evicted in vain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfBlocks {
    /// The number of requested blocks.
    pub requested: usize,
    /// The number of blocks that were free or evictable.
    pub available: usize,
}

impl fmt::Display for OutOfBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OutOfBlocks { requested, available } = self;
        write!(
            f,
            "{requested} blocks requested, {available} free or evictable: release blocks, or ask for fewer"
        )
    }
}

/// Why a transition was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The table of states allows no such transition from the block's state; it needs another state.
    Needs(State),
    /// More tokens than the page has room for.
    PageOverflow {
        /// Tokens in the page.
        filled: u32,
        /// Tokens to be added.
        added: u32,
        /// Tokens that fit into a page.
        page_size: u32,
    },
    /// `commit()` of a page that is not full.
    PageNotFull {
        /// Tokens in the page.
        filled: u32,
        /// Tokens that fit into a page.
        page_size: u32,
    },
    /// The block is referenced, by a sequence or by a transfer.
    Referenced {
        /// The number of references.
        references: u32,
    },
    /// A copy reads its bytes.
    Leased {
        /// The number of leases.
        leases: u32,
    },
    /// The pool has no such block.
    OutOfRange {
        /// The number of the pool's blocks.
        capacity: usize,
    },
    /// A request has reserved it.
    Reserved,
    /// The block was recycled since the reference was made.
    Recycled,
    /// One call names it twice.
    Repeated,
    /// The list of blocks and the list of their hashes differ in length.
    Unpaired {
        /// Blocks given.
        blocks: usize,
        /// Hashes given.
        hashes: usize,
    },
}

/// A refused transition: the block, its state, and the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransitionError {
    /// The block.
    pub block: BlockId,
    /// Its state, unchanged.
    pub state: State,
    /// The reason.
    pub reason: Reason,
}

impl fmt::Display for TransitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TransitionError { block, state, reason } = self;
        write!(f, "{block} is {state}: ")?;
        match reason {
            Reason::Needs(needed) => write!(f, "this needs a block that is {needed}"),
            Reason::PageOverflow { filled, added, page_size } => {
                write!(
                    f,
                    "{added} tokens do not fit behind {filled} of {page_size}; \
                     fill the page, then start the next block"
                )
            }
            Reason::PageNotFull { filled, page_size } => {
                write!(f, "{filled} of {page_size} tokens are filled; fill the page before commit()")
            }
            Reason::Referenced { references } => {
                write!(f, "{references} references hold it; release them first")
            }
            Reason::Leased { leases } => write!(f, "{leases} leases are on it; wait for the copies to end"),
            Reason::OutOfRange { capacity } => write!(f, "the pool has {capacity} blocks, numbered from 0"),
            Reason::Reserved => f.write_str("a request has reserved it; detach or release the request"),
            Reason::Recycled => {
                f.write_str("it was recycled since the reference was made; look its hash up again")
            }
            Reason::Repeated => f.write_str("one call names it twice; name each block once"),
            Reason::Unpaired { blocks, hashes } => {
                write!(f, "{blocks} blocks were given with {hashes} hashes; give each block its hash")
            }
        }
    }
}

/// A refusal that hands the block back.
pub struct Refused<B> {
    /// The block, as it was.
    pub block: B,
    /// The reason.
    pub error: TransitionError,
}

impl<B> fmt::Debug for Refused<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<B> fmt::Display for Refused<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

/// A setting with which no pool can be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// The setting.
    pub field: &'static str,
    /// Its value.
    pub value: u64,
    /// The allowed values.
    pub allowed: &'static str,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}: must be {}", self.field, self.value, self.allowed)
    }
}

impl core::error::Error for OutOfBlocks {}
impl core::error::Error for TransitionError {}
impl<B> core::error::Error for Refused<B> {}
impl core::error::Error for ConfigError {}
