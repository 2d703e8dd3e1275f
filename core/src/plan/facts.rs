//! A plan's facts about its pieces before it runs: the choice of a copy path needs them.

use super::{CopyPlan, Nest, Run};

/// Sums over all pieces.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Facts {
    bytes: u64,
    pieces: u64,
    smallest: u64,
    largest: u64,
    /// All addresses, strides and sizes, or'ed: its trailing zeros are their common alignment.
    bits: u64,
}

/// The highest result of [`CopyPlan::alignment`]: the widest vector load.
const WIDEST: u64 = 16;

impl Facts {
    pub(super) fn of(plan: &CopyPlan) -> Facts {
        let mut facts = Facts { smallest: u64::MAX, ..Facts::default() };
        let Some(first) = plan.runs.first() else { return Facts::default() };
        for plane in plan.planes() {
            let bases = plane.bases.len() as u64;
            let start = |run: &Run| {
                [
                    u64::from(run.src).wrapping_mul(plane.block[0]),
                    u64::from(run.dst).wrapping_mul(plane.block[1]),
                ]
            };
            // Addresses are aligned alike if one is, and all differences are.
            let (base, block) = (plane.bases[0], start(first));
            facts.bits |= (base[0].wrapping_add(block[0])) | (base[1].wrapping_add(block[1]));
            facts.bits |= plane.bases.iter().fold(0, |bits, at| bits | differ(*at, base));
            // Blocks whose pieces are those of a single one.
            let mut alone = 0;
            for run in &plan.runs {
                facts.bits |= differ(start(run), block);
                if run.len == 1 || !plane.grows {
                    alone += u64::from(run.len);
                } else {
                    facts.count(&plane.nest_over(run.len), bases);
                }
                if run.len > 1 && !plane.grows {
                    facts.bits |= plane.block[0] | plane.block[1];
                }
            }
            if alone > 0 {
                facts.count(&plane.single, alone * bases);
            }
        }
        facts.bytes = plan.blocks() * plan.block_bytes();
        facts
    }

    /// Counts a nest `times` times.
    fn count(&mut self, nest: &Nest, times: u64) {
        let bytes = nest.piece_bytes();
        self.pieces += times * nest.pieces();
        self.smallest = self.smallest.min(bytes);
        self.largest = self.largest.max(bytes);
        self.bits |= nest.loops().iter().fold(bytes, |bits, l| bits | l.src_stride | l.dst_stride);
    }
}

/// The bits in which either address differs.
fn differ(a: [u64; 2], b: [u64; 2]) -> u64 {
    a[0].wrapping_sub(b[0]) | a[1].wrapping_sub(b[1])
}

impl CopyPlan {
    /// The number of bytes.
    ///
    /// See the [example](CopyPlan#example).
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.facts.bytes
    }

    /// The number of pieces: the fewest possible by loops.
    ///
    /// See the [example](CopyPlan#example).
    #[must_use]
    pub fn pieces_count(&self) -> u64 {
        self.facts.pieces
    }

    /// The number of [families](CopyPlan::families). Computed on each call from all runs.
    ///
    /// See the [example](CopyPlan#example).
    #[must_use]
    pub fn families_count(&self) -> u64 {
        let of_plane = |plane: &super::PlaneCopy| {
            let of_run = |run: &Run| {
                let nest = plane.nest_over(run.len);
                nest.pieces() / nest.loops().iter().map(|l| u64::from(l.count)).max().unwrap_or(1)
            };
            plane.bases.len() as u64 * self.runs.iter().map(of_run).sum::<u64>()
        };
        self.planes().map(of_plane).sum()
    }

    /// Bytes of the smallest piece; 0 if there is none.
    ///
    /// See the [example](CopyPlan#example).
    #[must_use]
    pub fn smallest_piece(&self) -> u64 {
        self.facts.smallest
    }

    /// Bytes of the largest piece; 0 if there is none.
    ///
    /// See the [example](CopyPlan#example).
    #[must_use]
    pub fn largest_piece(&self) -> u64 {
        self.facts.largest
    }

    /// The common alignment of all addresses and sizes of all pieces: 16, 8, 4, 2 or 1 bytes.
    ///
    /// See the [example](CopyPlan#example).
    #[must_use]
    pub fn alignment(&self) -> u64 {
        WIDEST.min(1 << (self.facts.bits | WIDEST).trailing_zeros())
    }

    /// Bytes of one block of the selection.
    ///
    /// See the [example](CopyPlan#example).
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.planes().map(|plane| plane.block_bytes()).sum()
    }
}
