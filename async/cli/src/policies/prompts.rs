//! A trace's prompts as policies are run over them: blocks renumbered, so that what is kept of each lies in
//! arrays.
//!
//! I1. Numbers are below `distinct`, in order of their first occurrence. No prompt has one twice: the reader
//! refuses such a line. I2. The prompts are a tree: a block has the same block before it wherever it occurs,
//! or none. That is what an id means that stands
//!     for a block *and all before it*, and what makes a leading run the only thing that can be hit.

use crate::replay::hash_of;
use crate::trace::{TraceError, TraceReader, TraceSource, TraceWarning};
use kvstrata_core::SequenceHash;
use std::collections::HashMap;

/// Before a prompt's first block.
const NONE: u32 = u32::MAX;

/// Prompts, in the order of their arrival.
#[derive(Debug, Clone, Default)]
pub struct Prompts {
    /// The blocks of all prompts, one behind the other, and where each ends.
    ids: Vec<u32>,
    ends: Vec<usize>,
    hashes: Vec<SequenceHash>,
    warnings: Vec<TraceWarning>,
}

/// What is wrong with a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PromptFault {
    /// A block follows another one here than before.
    #[error(
        "hash_ids has {id} {}, and an earlier line has it {}: an id stands for a block and all before it, so its place is the \
         same in all prompts; give one of them another id", behind(.here), behind(.before)
    )]
    TwoParents {
        /// The block.
        id: u64,
        /// The one before it in this line; none, if it is the first.
        here: Option<u64>,
        /// The one before it in the earlier lines.
        before: Option<u64>,
    },
    /// More different blocks than are counted in 32 bits.
    #[error("more than 4,294,967,294 different blocks; stop before this line with --requests")]
    TooMany,
}

fn behind(parent: &Option<u64>) -> String {
    parent.map_or("first".to_owned(), |parent| format!("behind {parent}"))
}

/// Why a trace cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum PromptsError {
    /// It cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A line is no prompt that a cache of prefixes can have.
    #[error("--trace {origin}: line {line}: {fault}")]
    Line {
        /// The trace.
        origin: TraceSource,
        /// The line, counted from 1.
        line: u64,
        /// What is wrong with it.
        fault: PromptFault,
    },
    /// There is nothing to hit.
    #[error("--trace {0}: no blocks; is this a trace of requests with hash_ids?")]
    Empty(TraceSource),
    /// None of its requests is wanted, whatever is in it.
    #[error(
        "--requests 0: nothing to compare policies on; give at least 1, or leave it out for the whole trace"
    )]
    NoRequests,
}

impl Prompts {
    /// Reads a trace, or its first `limit` requests; `observe` is told after each.
    ///
    /// # Errors
    /// It cannot be read, is no tree, or has no blocks; or `limit` is 0.
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

    /// What of the trace contradicts what was taken for granted of it.
    #[must_use]
    pub fn warnings(&self) -> &[TraceWarning] {
        &self.warnings
    }

    /// Blocks of all prompts.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.ids.len() as u64
    }

    /// How many different ones there are.
    #[must_use]
    pub fn distinct(&self) -> usize {
        self.hashes.len()
    }

    /// A block's hash: as a replay has it, so that policies whose ghosts go by it are the same.
    #[must_use]
    pub fn hash(&self, id: u32) -> SequenceHash {
        self.hashes[id as usize]
    }
}

/// What is known of the blocks while they are read.
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
