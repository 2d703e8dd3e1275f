//! The pieces of a plan, one by one or as strided families.

use super::CopyPlan;
use super::nest::{Loop, Nest};
use core::iter::FusedIterator;

/// Bytes in one stretch on both sides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Address at the source.
    pub src: u64,
    /// Address at the destination.
    pub dst: u64,
    /// The number of bytes.
    pub bytes: u64,
}

/// Pieces of one size at even distances: a 2-D copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Family {
    /// The first piece.
    pub first: Piece,
    /// The number of pieces.
    pub count: u32,
    /// Bytes from one to the next at the source.
    pub src_stride: u64,
    /// Bytes from one to the next at the destination.
    pub dst_stride: u64,
}

/// The state of a walk over a plan's nests: planes, runs, bases, and the loops that its owner does not turn.
#[derive(Clone, Debug)]
struct Walk<'p> {
    plan: &'p CopyPlan,
    plane: usize,
    run: usize,
    /// The plane's bases, and the number of the next one.
    bases: &'p [[u64; 2]],
    base: usize,
    nest: Nest,
    /// The number of innermost loops, which the owner turns.
    own: usize,
    /// The order of a nest's loops: the longest innermost, or the one of the least destination stride.
    longest: bool,
    /// Bytes from block 0 to the first of the run.
    block: [u64; 2],
    /// The next turn of each loop.
    turns: [u32; 5],
    /// Addresses of the next piece outside the owner's loops.
    at: [u64; 2],
    started: bool,
}

impl<'p> Walk<'p> {
    fn new(plan: &'p CopyPlan, own: usize, longest: bool) -> Walk<'p> {
        Walk {
            plan,
            plane: 0,
            run: 0,
            bases: &[],
            base: 0,
            nest: Nest::new(0),
            own,
            longest,
            block: [0; 2],
            turns: [0; 5],
            at: [0; 2],
            started: false,
        }
    }

    /// One of the owner's loops.
    #[inline]
    fn inner(&self, at: usize) -> Loop {
        self.nest.loops().get(at).copied().unwrap_or(Loop::ONCE)
    }

    /// The addresses of the first piece of the owner's loops, advanced; and whether these loops differ
    /// from the last.
    #[inline]
    fn next(&mut self) -> Option<([u64; 2], bool)> {
        for at in self.own..self.nest.loops().len() {
            let l = self.nest.loops()[at];
            self.turns[at] += 1;
            if self.turns[at] < l.count {
                self.at = [self.at[0].wrapping_add(l.src_stride), self.at[1].wrapping_add(l.dst_stride)];
                return Some((self.at, false));
            }
            self.turns[at] = 0;
            let back = u64::from(l.count - 1);
            self.at = [
                self.at[0].wrapping_sub(back.wrapping_mul(l.src_stride)),
                self.at[1].wrapping_sub(back.wrapping_mul(l.dst_stride)),
            ];
        }
        let again = self.base < self.bases.len();
        if !again {
            self.next_run()?;
        }
        let [src, dst] = self.bases[self.base];
        self.base += 1;
        self.at = [src.wrapping_add(self.block[0]), dst.wrapping_add(self.block[1])];
        Some((self.at, !again))
    }

    /// The other bases of the run, if the owner turns all loops; the walk is then done with them.
    #[inline]
    fn take_bases(&mut self) -> &'p [[u64; 2]] {
        if self.nest.loops().len() > self.own {
            return &[];
        }
        let rest = &self.bases[self.base..];
        self.base = self.bases.len();
        rest
    }

    fn next_run(&mut self) -> Option<()> {
        let runs = &self.plan.runs;
        self.run += usize::from(core::mem::replace(&mut self.started, true));
        if self.run >= runs.len() {
            (self.run, self.plane) = (0, self.plane + 1);
        }
        let plane = self.plan.planes.get(self.plane).and_then(|plane| plane.as_ref());
        let (Some(plane), Some(run)) = (plane, runs.get(self.run)) else {
            // Nothing is left to turn.
            self.nest = Nest::new(0);
            self.plane = self.plan.planes.len();
            return None;
        };
        (self.bases, self.base) = (&plane.bases, 0);
        self.nest = plane.nest_over(run.len);
        if self.longest {
            self.nest.longest_first();
        }
        let [src, dst] = plane.block;
        self.block = [u64::from(run.src).wrapping_mul(src), u64::from(run.dst).wrapping_mul(dst)];
        Some(())
    }
}

/// All pieces. See [`CopyPlan::pieces`].
// In this order: two neighbours that are written one by one and read as one vector would stall each time.
#[repr(C)]
#[derive(Clone, Debug)]
pub struct Pieces<'p> {
    src: u64,
    bytes: u64,
    dst: u64,
    /// Remaining turns of the innermost loop, and of the one around it.
    left: u32,
    rows: u32,
    row_src: u64,
    inner: Loop,
    row_dst: u64,
    outer: Loop,
    /// Pieces behind these two loops.
    behind: u64,
    walk: Walk<'p>,
}

impl Pieces<'_> {
    /// Makes the next innermost loop ready.
    #[inline]
    fn next_row(&mut self) -> Option<()> {
        if self.rows > 0 {
            self.rows -= 1;
            self.row_src = self.row_src.wrapping_add(self.outer.src_stride);
            self.row_dst = self.row_dst.wrapping_add(self.outer.dst_stride);
        } else {
            let (at, others) = self.walk.next()?;
            [self.row_src, self.row_dst] = at;
            if others {
                (self.inner, self.outer) = (self.walk.inner(0), self.walk.inner(1));
                self.bytes = self.walk.nest.piece_bytes();
            }
            self.rows = self.outer.count - 1;
            self.behind -= u64::from(self.inner.count) * u64::from(self.outer.count);
        }
        (self.src, self.dst, self.left) = (self.row_src, self.row_dst, self.inner.count);
        Some(())
    }

    #[inline(always)]
    fn step(&mut self) -> Piece {
        let piece = Piece { src: self.src, dst: self.dst, bytes: self.bytes };
        self.left -= 1;
        self.src = piece.src.wrapping_add(self.inner.src_stride);
        self.dst = piece.dst.wrapping_add(self.inner.dst_stride);
        piece
    }
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    #[inline]
    fn next(&mut self) -> Option<Piece> {
        if self.left == 0 {
            self.next_row()?;
        }
        Some(self.step())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let loops = u64::from(self.rows) * u64::from(self.inner.count) + u64::from(self.left);
        let left = usize::try_from(self.behind + loops);
        (left.unwrap_or(usize::MAX), left.ok())
    }

    fn count(self) -> usize {
        self.size_hint().0
    }

    fn fold<B, F: FnMut(B, Piece) -> B>(mut self, init: B, mut f: F) -> B {
        let mut folded = init;
        // The part that was begun.
        while self.left > 0 || (self.rows > 0 && self.next_row().is_some()) {
            folded = f(folded, self.step());
        }
        // The rest as plain loops, whose state stays in registers.
        let mut walk = self.walk;
        let (mut inner, mut outer, mut bytes) = (self.inner, self.outer, self.bytes);
        while let Some((at, others)) = walk.next() {
            if others {
                (inner, outer, bytes) = (walk.inner(0), walk.inner(1), walk.nest.piece_bytes());
            }
            let mut both = |mut folded: B, [mut row_src, mut row_dst]: [u64; 2]| {
                for _ in 0..outer.count {
                    let (mut src, mut dst) = (row_src, row_dst);
                    for _ in 0..inner.count {
                        folded = f(folded, Piece { src, dst, bytes });
                        src = src.wrapping_add(inner.src_stride);
                        dst = dst.wrapping_add(inner.dst_stride);
                    }
                    row_src = row_src.wrapping_add(outer.src_stride);
                    row_dst = row_dst.wrapping_add(outer.dst_stride);
                }
                folded
            };
            folded = both(folded, at);
            let [src, dst] = walk.block;
            for base in walk.take_bases() {
                folded = both(folded, [base[0].wrapping_add(src), base[1].wrapping_add(dst)]);
            }
        }
        folded
    }
}

impl FusedIterator for Pieces<'_> {}

/// All pieces as families. See [`CopyPlan::families`].
#[derive(Clone, Debug)]
pub struct Families<'p> {
    walk: Walk<'p>,
}

impl Iterator for Families<'_> {
    type Item = Family;

    #[inline]
    fn next(&mut self) -> Option<Family> {
        let ([src, dst], _) = self.walk.next()?;
        let Loop { count, src_stride, dst_stride } = self.walk.inner(0);
        let first = Piece { src, dst, bytes: self.walk.nest.piece_bytes() };
        Some(Family { first, count, src_stride, dst_stride })
    }
}

impl FusedIterator for Families<'_> {}

impl CopyPlan {
    /// All pieces: run by run, each upwards at the destination as far as the layouts allow.
    ///
    /// See the [example](CopyPlan#example).
    #[must_use]
    pub fn pieces(&self) -> Pieces<'_> {
        Pieces {
            src: 0,
            bytes: 0,
            dst: 0,
            left: 0,
            rows: 0,
            row_src: 0,
            inner: Loop::ONCE,
            row_dst: 0,
            outer: Loop::ONCE,
            behind: self.pieces_count(),
            walk: Walk::new(self, 2, false),
        }
    }

    /// All pieces, as the longest families that a loop of the plan makes: for 2-D
    /// copies and vectored requests.
    ///
    /// See the [example](CopyPlan#example).
    #[must_use]
    pub fn families(&self) -> Families<'_> {
        Families { walk: Walk::new(self, 1, true) }
    }
}
