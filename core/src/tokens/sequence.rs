//! [`TokenBlockSequence`] and the views that it lends.

use super::Token;
use crate::hash::{BlockHash, BlockHasher, Hasher, Salt, SequenceHash};
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

/// Tokens copied before they are hashed: as many as stay in the first-level cache (16 KiB).
const PIECE: usize = 4096;

/// Tokens in, blocks and chained hashes out, incrementally.
///
/// # Example
///
/// ```
/// use kvstrata_core::hash::{Hasher, Keyed, Salt};
/// use kvstrata_core::tokens::TokenBlockSequence;
/// let hasher = Hasher::from(Keyed::new(&[7; 32])); // the deployment's: 32 random bytes
/// let mut sequence = TokenBlockSequence::new(4, Salt::default(), hasher)?;
/// assert_eq!(sequence.extend(&[1, 2, 3, 4, 5, 6, 7]), 0..1);
/// assert_eq!(sequence.push(8), Some(1)); // completes block 1
/// assert_eq!(sequence.hashes().len(), 2);
///
/// let mut other = sequence.fork(); // a second answer to the same prompt
/// other.truncate(6);
/// assert_eq!(other.partial(), [5, 6]);
/// assert_eq!(other.extend(&[7, 9]), 1..2);
/// assert_eq!(other.hashes()[0], sequence.hashes()[0]);
/// assert_ne!(other.hashes()[1], sequence.hashes()[1]);
/// # Ok::<(), kvstrata_core::tokens::ZeroBlockSize>(())
/// ```
///
/// # Views
///
/// ```
/// use kvstrata_core::{Hasher, Keyed, Salt, TokenBlockSequence};
/// let mut sequence = TokenBlockSequence::new(2, Salt::default(), Hasher::from(Keyed::new(&[7; 32])))?;
/// sequence.reserve(1000); // until then, no allocation
/// assert!(sequence.is_empty() && sequence.salt() == Salt::default());
/// sequence.extend(&[1, 2, 3, 4, 5]);
/// assert_eq!((sequence.len(), sequence.block_size(), sequence.tokens()), (5, 2, &[1, 2, 3, 4, 5][..]));
/// let second = sequence.block(1).expect("whole");
/// assert_eq!((second.tokens, second.parent), (&[3, 4][..], sequence.hashes()[0]));
/// assert_eq!(sequence.blocks().map(|block| block.hash).collect::<Vec<_>>(), sequence.hashes());
/// assert!(sequence.block_hash(1).is_some() && sequence.block_hash(2).is_none());
/// sequence.clear(); // for the next request with the same salt
/// assert!(sequence.is_empty());
/// # Ok::<(), kvstrata_core::tokens::ZeroBlockSize>(())
/// ```
#[derive(Clone, Debug)]
pub struct TokenBlockSequence<H = Hasher> {
    tokens: Vec<Token>,
    hashes: Vec<SequenceHash>,
    /// In order of their starts, none past another's end.
    marks: Vec<Mark>,
    block_size: usize,
    salt: Salt,
    hasher: H,
}

/// Tokens that stand for something else.
#[derive(Clone, Debug)]
struct Mark {
    tokens: Range<usize>,
    content: u128,
}

impl<H: BlockHasher> TokenBlockSequence<H> {
    /// An empty sequence of blocks of `block_size` tokens. The salt should come from the same hasher
    /// ([`SaltParts::salt`](crate::hash::SaltParts::salt)).
    ///
    /// See the [example](TokenBlockSequence#example).
    ///
    /// # Errors
    ///
    /// [`ZeroBlockSize`].
    pub fn new(block_size: usize, salt: Salt, hasher: H) -> Result<TokenBlockSequence<H>, ZeroBlockSize> {
        if block_size == 0 {
            return Err(ZeroBlockSize);
        }
        let (tokens, hashes, marks) = (Vec::new(), Vec::new(), Vec::new());
        Ok(TokenBlockSequence { tokens, hashes, marks, block_size, salt, hasher })
    }

    /// Makes room for `tokens` more tokens and their blocks: until then nothing is allocated. `tokens` is
    /// the caller's guess, and there may be fewer: if there is no memory for that many, this makes no room.
    ///
    /// See the example of [views](TokenBlockSequence#views).
    pub fn reserve(&mut self, tokens: usize) {
        if self.tokens.try_reserve(tokens).is_ok() {
            let blocks = self.tokens.len().saturating_add(tokens) / self.block_size;
            let _ = self.hashes.try_reserve(blocks - self.hashes.len());
        }
    }

    /// Appends a token. Returns the index of the block that it completes, if any.
    ///
    /// See the [example](TokenBlockSequence#example).
    #[inline]
    pub fn push(&mut self, token: Token) -> Option<usize> {
        self.tokens.push(token);
        let index = self.hashes.len();
        let block = &self.tokens[index * self.block_size..];
        if block.len() < self.block_size {
            return None;
        }
        let hash = match self.mark_of(index) {
            None => self.hasher.sequence_hash(self.parent(index), block),
            Some(mark) => self.hasher.marked_hash(self.parent(index), block, mark),
        };
        self.hashes.push(hash);
        Some(index)
    }

    /// Appends tokens. Returns the indices of the blocks that they complete.
    ///
    /// Blocks with a mark cost an allocation each, other blocks none.
    ///
    /// See the [example](TokenBlockSequence#example).
    pub fn extend(&mut self, tokens: &[Token]) -> Range<usize> {
        let first = self.hashes.len();
        self.reserve(tokens.len());
        for piece in tokens.chunks(PIECE) {
            self.tokens.extend_from_slice(piece);
            self.hash_whole_blocks();
        }
        first..self.hashes.len()
    }

    /// Declares that the tokens of `range` stand for `content`: the pixels behind an image's placeholder
    /// tokens, for example. Each block with such a token gets a hash of its own for this content, and so
    /// does every block behind it. Blocks before it are shared with sequences that show another image.
    ///
    /// Call it before the tokens come. `content` names the thing to all processes that share blocks:
    /// take a hash of its bytes. A block's hash contains the content and how far from the block's
    /// start the range begins and ends.
    ///
    /// ```
    /// use kvstrata_core::hash::{Hasher, Keyed, Salt};
    /// use kvstrata_core::tokens::TokenBlockSequence;
    /// let hasher = Hasher::from(Keyed::new(&[7; 32]));
    /// let ask = |image: &[u8]| {
    ///     let mut prompt = TokenBlockSequence::new(4, Salt::default(), hasher.clone())?;
    ///     prompt.extend(&[1, 2, 3, 4]); // the system prompt
    ///     prompt.mark(4..7, image)?;
    ///     prompt.extend(&[0, 0, 0, 5]); // three placeholders, and a word
    ///     Ok::<_, Box<dyn core::error::Error>>(prompt)
    /// };
    /// let (cat, dog) = (ask(b"sha256 of a cat")?, ask(b"sha256 of a dog")?);
    /// assert_eq!(cat.hashes()[0], dog.hashes()[0]);
    /// assert_ne!(cat.hashes()[1], dog.hashes()[1]);
    /// # Ok::<(), Box<dyn core::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`MarkError`]: the range is empty, begins before tokens that are already there,
    /// or meets an earlier mark.
    pub fn mark(&mut self, range: Range<usize>, content: &[u8]) -> Result<(), MarkError> {
        let free = self.marks.last().map_or(0, |mark| mark.tokens.end).max(self.tokens.len());
        if range.is_empty() || range.start < free {
            return Err(MarkError { range, free });
        }
        let content = self.hasher.bytes(content);
        self.marks.push(Mark { tokens: range, content });
        Ok(())
    }

    /// Forgets all tokens behind the first `tokens`, which may lie inside a block; no effect if there
    /// are no more. Marks of forgotten tokens, or of tokens that have not come yet, go with them; a
    /// mark that is cut keeps the rest.
    ///
    /// See the [example](TokenBlockSequence#example).
    pub fn truncate(&mut self, tokens: usize) {
        if tokens >= self.tokens.len() {
            return;
        }
        self.tokens.truncate(tokens);
        self.hashes.truncate(tokens / self.block_size);
        self.marks.retain_mut(|mark| {
            mark.tokens.end = mark.tokens.end.min(tokens);
            mark.tokens.start < tokens
        });
    }

    /// Forgets all tokens and keeps the memory, for the next request with the same salt.
    ///
    /// See the example of [views](TokenBlockSequence#views).
    pub fn clear(&mut self) {
        self.truncate(0);
        self.marks.clear();
    }

    /// A sequence that starts with the same tokens and shares no state that changes.
    ///
    /// See the [example](TokenBlockSequence#example).
    #[must_use]
    pub fn fork(&self) -> TokenBlockSequence<H>
    where
        H: Clone,
    {
        self.clone()
    }

    /// The number of tokens.
    ///
    /// See the example of [views](TokenBlockSequence#views).
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Returns whether there are no tokens.
    ///
    /// See the example of [views](TokenBlockSequence#views).
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Tokens per block.
    ///
    /// See the example of [views](TokenBlockSequence#views).
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// h(-1).
    ///
    /// See the example of [views](TokenBlockSequence#views).
    pub fn salt(&self) -> Salt {
        self.salt
    }

    /// All tokens.
    ///
    /// See the example of [views](TokenBlockSequence#views).
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// Tokens behind the last whole block, fewer than a block.
    ///
    /// See the [example](TokenBlockSequence#example).
    pub fn partial(&self) -> &[Token] {
        &self.tokens[self.hashes.len() * self.block_size..]
    }

    /// The sequence hash of each whole block, in order.
    ///
    /// See the [example](TokenBlockSequence#example).
    pub fn hashes(&self) -> &[SequenceHash] {
        &self.hashes
    }

    /// The whole block with this index.
    ///
    /// See the example of [views](TokenBlockSequence#views).
    pub fn block(&self, index: usize) -> Option<TokenBlock<'_>> {
        let hash = *self.hashes.get(index)?;
        let start = index * self.block_size;
        Some(TokenBlock {
            tokens: &self.tokens[start..start + self.block_size],
            hash,
            parent: self.parent(index),
        })
    }

    /// All whole blocks, in order.
    ///
    /// See the example of [views](TokenBlockSequence#views).
    pub fn blocks(&self) -> impl DoubleEndedIterator<Item = TokenBlock<'_>> + ExactSizeIterator {
        let blocks = self.tokens.chunks_exact(self.block_size).zip(&self.hashes).enumerate();
        blocks.map(|(index, (tokens, &hash))| TokenBlock { tokens, hash, parent: self.parent(index) })
    }

    /// The hash of a block's tokens alone, made anew.
    ///
    /// See the example of [views](TokenBlockSequence#views).
    pub fn block_hash(&self, index: usize) -> Option<BlockHash> {
        self.block(index).map(|block| self.hasher.block_hash(block.tokens))
    }

    /// Hashes the blocks that have become whole: runs without marks at once, others one by one (I1, I2).
    fn hash_whole_blocks(&mut self) {
        loop {
            let done = self.hashes.len();
            let fresh = &self.tokens[done * self.block_size..];
            let whole = fresh.len() / self.block_size;
            if whole == 0 {
                return;
            }
            let (parent, size) = (self.parent(done), self.block_size);
            if let Some(mark) = self.mark_of(done) {
                self.hashes.push(self.hasher.marked_hash(parent, &fresh[..size], mark));
                continue;
            }
            let plain = self.unmarked_from(done).min(whole);
            self.hasher.extend_chain(parent, &fresh[..plain * size], size, &mut self.hashes);
        }
    }

    /// The number of consecutive blocks without a mark, from this one on, which has none.
    fn unmarked_from(&self, index: usize) -> usize {
        let start = index * self.block_size;
        let next = self.marks.partition_point(|mark| mark.tokens.start < start);
        self.marks.get(next).map_or(usize::MAX, |mark| mark.tokens.start / self.block_size - index)
    }

    /// The marks' part of the hash of block `index`: H of content, start and end of each, counted
    /// from the block's start, 16 bytes each. An end behind the block counts as the block's end, so
    /// that a later cut does not show.
    fn mark_of(&self, index: usize) -> Option<u128> {
        let start = index * self.block_size;
        let first = self.marks.partition_point(|mark| mark.tokens.end <= start);
        let end = start.saturating_add(self.block_size);
        let inside = self.marks[first..].iter().take_while(|mark| mark.tokens.start < end);
        let mut bytes = Vec::new();
        for Mark { tokens, content } in inside {
            let from_start = |at: usize| (at as i128 - start as i128).to_le_bytes();
            bytes.extend_from_slice(&content.to_le_bytes());
            bytes.extend_from_slice(&from_start(tokens.start));
            bytes.extend_from_slice(&from_start(tokens.end.min(end)));
        }
        (!bytes.is_empty()).then(|| self.hasher.bytes(&bytes))
    }

    /// The hash that block `index` is chained to (I2).
    #[inline]
    fn parent(&self, index: usize) -> SequenceHash {
        match index.checked_sub(1) {
            Some(before) => self.hashes[before],
            None => self.salt.to_hash(),
        }
    }
}

/// A whole block of a sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenBlock<'a> {
    /// Its tokens, a whole block of them.
    pub tokens: &'a [Token],
    /// The hash of this block and all before it.
    pub hash: SequenceHash,
    /// The hash of the block before, or the salt.
    pub parent: SequenceHash,
}

/// The error for a block size of 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZeroBlockSize;

impl fmt::Display for ZeroBlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("block_size = 0: must be at least 1 token")
    }
}

impl core::error::Error for ZeroBlockSize {}

/// The error for a mark that a sequence cannot take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MarkError {
    /// The tokens to be marked.
    pub range: Range<usize>,
    /// The first token that may be marked: behind all present tokens, and behind the last mark.
    pub free: usize,
}

impl fmt::Display for MarkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Range { start, end }, free) = (&self.range, self.free);
        if self.range.is_empty() {
            return write!(f, "mark {start}..{end}: is empty; give the range of the tokens that it marks");
        }
        write!(
            f,
            "mark {start}..{end}: begins before token {free}; mark tokens in order, before they are appended"
        )
    }
}

impl core::error::Error for MarkError {}
