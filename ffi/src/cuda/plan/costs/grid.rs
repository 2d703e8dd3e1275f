//! Times of one route in one direction, by piece size and count, and the values between the points.
//!
//! ```text
//!   count   4,096 ┤ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪               times above 256 MiB are not measured:
//!           1,024 ┤ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪           four times the time of a quarter of the pieces
//!             256 ┤ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪
//!               … ┤ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪
//!               1 ┤ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪
//!                 └─┬─────────────┬─────────┬─ size
//!                   512 B       64 KiB    2 MiB
//! ```
//!
//! The points are equally spaced in logarithms. Between them, times are interpolated linearly in size and
//! in count. A route takes about `latency + count × (cost of a piece + size / rate)`, and linear
//! interpolation reproduces that exactly. Interpolation in logarithms would be off by up to 7 %, where
//! latency or a piece's cost gives way to bytes, and that is where routes meet. The remaining errors are
//! at kinks, where one of two concurrent costs becomes the slower one. A sharp kink would be missed by up
//! to 17 % between two sizes, and by 33 % between two counts. That is why each size is twice the one
//! before. Along counts the only kink is a kernel's, from latency to rate.
//!
//! Invariants
//! - I1: every time is finite and above 0.
//! - I2: the value that is filled in for a point is no less than the values at smaller sizes or counts,
//!   and no more than those measured at larger ones. So a grid whose measured times grow with both grows
//!   with both.

/// Bytes per piece.
pub(super) const SIZES: [u64; 13] = {
    let mut sizes = [512; 13];
    let mut at = 1;
    while at < sizes.len() {
        sizes[at] = sizes[at - 1] * 2;
        at += 1;
    }
    sizes
};

/// Numbers of pieces.
pub(super) const COUNTS: [u64; 7] = [1, 4, 16, 64, 256, 1024, 4096];

/// Times in nanoseconds, by size and then by count; `None` where nothing was measured.
pub(super) type Cells = [[Option<u64>; COUNTS.len()]; SIZES.len()];

/// Times as in [`Cells`], without holes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Grid([[f64; COUNTS.len()]; SIZES.len()]);

impl Grid {
    /// Fills the holes. `None` if nothing was measured at all.
    pub(super) fn new(cells: &Cells) -> Option<Grid> {
        let known = |count: usize| (0..SIZES.len()).filter(move |size| cells[*size][count].is_some());
        let first = (0..COUNTS.len()).find(|count| known(*count).next().is_some())?;
        let mut grid = Grid([[0.0; COUNTS.len()]; SIZES.len()]);
        for count in first..COUNTS.len() {
            for size in 0..SIZES.len() {
                let fewer = count.checked_sub(1).filter(|fewer| *fewer >= first);
                let fewer = fewer.map(|fewer| (grid.0[size][fewer], ratio(&COUNTS, fewer, count)));
                let smaller = size.checked_sub(1).map(|smaller| grid.0[smaller][count]);
                let below = known(count).take_while(|below| *below < size).last();
                let above = known(count).find(|above| *above > size);
                let at = |size: usize| cells[size][count].map_or(0.0, |time| time as f64);
                let filled = match (below, above, fewer) {
                    (Some(below), Some(above), _) => {
                        let part = (SIZES[size] - SIZES[below]) as f64 / (SIZES[above] - SIZES[below]) as f64;
                        line(at(below), at(above), part)
                    }
                    (_, _, Some((time, ratio))) => time * ratio,
                    (Some(below), None, None) => at(below) * ratio(&SIZES, below, size),
                    (None, Some(above), None) => at(above),
                    (None, None, None) => 0.0,
                };
                // I2.
                let least = fewer.map_or(0.0, |(time, _)| time).max(smaller.unwrap_or(0.0));
                let larger = cells[size..].iter().flat_map(|row| &row[count..]).flatten();
                let most = larger.min().map_or(f64::INFINITY, |time| *time as f64);
                let filled = filled.min(most).max(least);
                grid.0[size][count] = cells[size][count].map_or(filled, |time| time as f64);
            }
        }
        for row in &mut grid.0 {
            let (before, from) = row.split_at_mut(first);
            before.fill(from[0]);
        }
        Some(grid)
    }

    /// Returns the nanoseconds of `count` pieces of `size` bytes. Sizes below the least count as the
    /// least; above the largest size or count, the time grows with the bytes.
    pub(super) fn time(&self, size: f64, count: f64) -> f64 {
        let ((size, by_size), (count, by_count)) = (place(&SIZES, size), place(&COUNTS, count));
        let at = |count: usize| line(self.0[size.0][count], self.0[size.0 + 1][count], size.1);
        line(at(count.0), at(count.0 + 1), count.1) * by_size * by_count
    }

    /// Returns the time of the least transfer.
    pub(super) fn least(&self) -> f64 {
        self.0[0][0]
    }

    /// Returns the cost of one additional piece of the smallest size.
    pub(super) fn piece(&self) -> f64 {
        let [few, .., many] = self.0[0];
        ((many - few) / (COUNTS[COUNTS.len() - 1] - COUNTS[0]) as f64).max(0.0)
    }
}

fn ratio(of: &[u64], from: usize, to: usize) -> f64 {
    of[to] as f64 / of[from] as f64
}

fn line(from: f64, to: f64, part: f64) -> f64 {
    from + (to - from) * part
}

/// Returns the point at or before `value`, the fraction of the way to the next point, and, beyond the
/// last point, the ratio of `value` to it.
fn place(points: &[u64], value: f64) -> ((usize, f64), f64) {
    let (first, last) = (points[0] as f64, points[points.len() - 1] as f64);
    let inside = value.clamp(first, last);
    let at = points.partition_point(|point| *point as f64 <= inside).clamp(1, points.len() - 1) - 1;
    let (from, to) = (points[at] as f64, points[at + 1] as f64);
    ((at, (inside - from) / (to - from)), (value / last).max(1.0))
}
