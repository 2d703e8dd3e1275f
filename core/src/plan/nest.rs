//! The loops over the pieces of one run of blocks, merged to the fewest pieces.
//!
//! Every dimension that has a stride on both sides is a loop `count × (source stride, destination
//! stride)` around a piece of some bytes. A loop with both strides equal to the piece's size makes one
//! longer piece. Two loops, the second starting where the first ends, are one loop. The remaining loops
//! are sorted by destination stride, so that the destination is written upwards.
//!
//! ```text
//!   FullyContiguous → FullyContiguous, whole blocks   row │ heads │ tokens │ outer │ layers  → one piece
//!   OuterFirst → FullyContiguous, NHD                 row │ heads │ tokens             → pieces of a page,
//!                                                     outer: (blocks × page, page)       in one loop of 2
//!   NHD → HND                                         row                              → pieces of a row,
//!                                                     tokens: (heads × row, row), heads: (row, tokens × row)
//! ```

/// A loop: a number of turns at even distances.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Loop {
    /// The number of turns.
    pub count: u32,
    /// Bytes from one to the next at the source.
    pub src_stride: u64,
    /// Bytes from one to the next at the destination.
    pub dst_stride: u64,
}

impl Loop {
    /// A loop of one turn.
    pub(super) const ONCE: Loop = Loop { count: 1, src_stride: 0, dst_stride: 0 };
}

/// The most loops: block, layer, outer, token, head.
const MOST: usize = 5;

/// Loops around a piece, the innermost first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nest {
    piece_bytes: u64,
    loops: [Loop; MOST],
    depth: usize,
}

impl Nest {
    /// One piece, no loops.
    pub(super) const fn new(piece_bytes: u64) -> Nest {
        Nest { piece_bytes, loops: [Loop::ONCE; MOST], depth: 0 }
    }

    /// Bytes of each piece.
    #[must_use]
    pub const fn piece_bytes(&self) -> u64 {
        self.piece_bytes
    }

    /// The loops around a piece, the innermost first.
    #[must_use]
    pub fn loops(&self) -> &[Loop] {
        &self.loops[..self.depth]
    }

    /// The number of pieces.
    #[must_use]
    pub fn pieces(&self) -> u64 {
        self.loops().iter().map(|l| u64::from(l.count)).product()
    }

    /// Adds a loop; [`merged`](Nest::merged) puts it in its place.
    pub(super) fn around(mut self, count: u32, src_stride: u64, dst_stride: u64) -> Nest {
        if count != 1 {
            self.loops[self.depth] = Loop { count, src_stride, dst_stride };
            self.depth += 1;
        }
        self
    }

    /// Returns whether a loop of these strides would make pieces longer, at some stage of merging.
    pub(super) fn would_merge(mut self, src_stride: u64, dst_stride: u64) -> bool {
        loop {
            if src_stride == self.piece_bytes && dst_stride == self.piece_bytes {
                return true;
            }
            if !self.lengthen() {
                return false;
            }
        }
    }

    /// The same bytes in the fewest pieces.
    pub(super) fn merged(mut self) -> Nest {
        while self.lengthen() {}
        self.loops[..self.depth].sort_unstable_by_key(|l| (l.dst_stride, l.src_stride));
        let mut at = 0;
        while at + 1 < self.depth {
            let (inner, outer) = (self.loops[at], self.loops[at + 1]);
            let ends = |stride: u64| stride.wrapping_mul(u64::from(inner.count));
            // The product of counts exceeds 32 bits only if a dimension does.
            match inner.count.checked_mul(outer.count) {
                Some(count)
                    if outer.src_stride == ends(inner.src_stride)
                        && outer.dst_stride == ends(inner.dst_stride) =>
                {
                    self.loops[at].count = count;
                    self.remove(at + 1);
                }
                _ => at += 1,
            }
        }
        self
    }

    /// Makes one loop part of the piece, if one can be. Returns whether it did.
    fn lengthen(&mut self) -> bool {
        let piece = self.piece_bytes;
        let fits = |l: &Loop| l.src_stride == piece && l.dst_stride == piece;
        match self.loops().iter().position(fits) {
            Some(at) => {
                self.piece_bytes = piece * u64::from(self.loops[at].count);
                self.remove(at);
                true
            }
            None => false,
        }
    }

    fn remove(&mut self, at: usize) {
        self.loops.copy_within(at + 1..self.depth, at);
        self.depth -= 1;
        self.loops[self.depth] = Loop::ONCE;
    }
}

impl Nest {
    /// Puts the longest loop innermost.
    pub(super) fn longest_first(&mut self) {
        if let Some(at) = (0..self.depth).max_by_key(|at| (self.loops[*at].count, self.depth - at)) {
            self.loops[..=at].rotate_right(1);
        }
    }
}
