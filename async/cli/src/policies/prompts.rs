//! The prompts of a trace, with blocks renumbered so that data about blocks fits into arrays.
//!
//! - I1: numbers are below `distinct`, in the order of their first occurrence. No prompt has a number
//!   twice: the reader refuses such a line.
//! - I2: the prompts form a tree: a block has the same predecessor, or none, in every prompt. This
//!   follows from the meaning of an id, which stands for a block *and all blocks before it*. It is also
//!   the reason why only leading runs can hit.

use crate::replay::hash_of;
use crate::trace::{TraceError, TraceReader, TraceSource, TraceWarning};
use kvstrata_core::SequenceHash;
use std::collections::HashMap;

/// The predecessor of a prompt's first block.
const NONE: u32 = u32::MAX;

/// Prompts, in the order of their arrival.
#[derive(Debug, Clone, Default)]
pub struct Prompts {
    /// The blocks of all prompts, concatenated.
    ids: Vec<u32>,
    /// The end of each prompt in `ids`.
    ends: Vec<usize>,
    hashes: Vec<SequenceHash>,
    warnings: Vec<TraceWarning>,
}

/// The fault of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PromptFault {
    /// A block has another predecessor than in an earlier line.
    #[error(
        "hash_ids has {id} {}, but an earlier line has it {}: an id stands for a block and all blocks before it, so it has \
         the same predecessor in all prompts; give one of them another id", behind(.here), behind(.before)
    )]
    TwoParents {
        /// The block.
        id: u64,
        /// Its predecessor in this line; `None` if it is the first.
        here: Option<u64>,
        /// Its predecessor in the earlier line.
        before: Option<u64>,
    },
    /// The trace has more distinct blocks than 32 bits count.
    #[error("more than 4,294,967,294 distinct blocks; stop before this line with --requests")]
    TooMany,
}

fn behind(parent: &Option<u64>) -> String {
    parent.map_or("first".to_owned(), |parent| format!("after {parent}"))
}

/// Why policies cannot be run on a trace.
#[derive(Debug, thiserror::Error)]
pub enum PromptsError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A line has no valid prompt of a prefix cache.
    #[error("--trace {origin}: line {line}: {fault}")]
    Line {
        /// The trace.
        origin: TraceSource,
        /// The line, counted from 1.
        line: u64,
        /// Its fault.
        fault: PromptFault,
    },
    /// The trace has no blocks.
    #[error("--trace {0}: no blocks; is this a trace of requests with hash_ids?")]
    Empty(TraceSource),
    /// The limit is 0 requests.
    #[error("--requests 0: must be at least 1; leave --requests out for the whole trace")]
    NoRequests,
}

impl Prompts {
    /// Reads a trace, or its first `limit` requests. Calls `observe` after each request.
    ///
    /// # Errors
    /// If the trace cannot be read, does not form a tree, or has no blocks, or if `limit` is 0.
    pub fn read(
        mut trace: TraceReader,
        limit: Option<u64>,
        observe: &dyn Fn(&TraceReader),
    ) -> Result<Prompts, PromptsError> {
        if limit == Some(0) {
            return Err(PromptsError::NoRequests);
        }
        let (mut prompts, mut tree) = (Prompts::default(), Tree::default());
        while limit.is_none_or(|limit| (prompts.ends.len() as u64) < limit)
            && let Some(request) = trace.next_request()?
        {
            prompts.add(&mut tree, &request.hash_ids).map_err(|fault| PromptsError::Line {
                origin: trace.source().clone(),
                line: trace.line(),
                fault,
            })?;
            observe(&trace);
        }
        trace.end();
        prompts.warnings = trace.warnings().list();
        if prompts.ids.is_empty() {
            return Err(PromptsError::Empty(trace.source().clone()));
        }
        Ok(prompts)
    }

    fn add(&mut self, tree: &mut Tree, names: &[u64]) -> Result<(), PromptFault> {
        let mut parent = NONE;
        for name in names {
            let next = self.hashes.len() as u32;
            let id = *tree.numbers.entry(*name).or_insert(next);
            if id == next {
                if next == NONE {
                    return Err(PromptFault::TooMany);
                }
                self.hashes.push(hash_of(*name));
                tree.blocks.push(Block { name: *name, parent });
            } else {
                let block = tree.blocks[id as usize];
                if block.parent != parent {
                    let [here, before] = [parent, block.parent].map(|parent| tree.name(parent));
                    return Err(PromptFault::TwoParents { id: *name, here, before });
                }
            }
            self.ids.push(id);
            parent = id;
        }
        self.ends.push(self.ids.len());
        Ok(())
    }

    /// The blocks of each prompt.
    pub fn requests(&self) -> impl DoubleEndedIterator<Item = &[u32]> + ExactSizeIterator + Clone {
        (0..self.ends.len()).map(|number| {
            let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
            &self.ids[start..self.ends[number]]
        })
    }

    /// The warnings of the trace.
    #[must_use]
    pub fn warnings(&self) -> &[TraceWarning] {
        &self.warnings
    }

    /// The number of blocks of all prompts.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.ids.len() as u64
    }

    /// The number of distinct blocks.
    #[must_use]
    pub fn distinct(&self) -> usize {
        self.hashes.len()
    }

    /// The hash of a block. It is that of a replay, so that policies with ghosts, which are found
    /// by hash, behave the same.
    #[must_use]
    pub fn hash(&self, id: u32) -> SequenceHash {
        self.hashes[id as usize]
    }
}

/// The blocks read so far.
#[derive(Default)]
struct Tree {
    numbers: HashMap<u64, u32>,
    blocks: Vec<Block>,
}

#[derive(Clone, Copy)]
struct Block {
    name: u64,
    parent: u32,
}

impl Tree {
    fn name(&self, id: u32) -> Option<u64> {
        self.blocks.get(id as usize).map(|block| block.name)
    }
}
