//! Times of one route in one direction, by piece size and count, and what lies between the points.
//!
//! ```text
//!   count   4,096 ┤ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪               what is above 256 MiB is not measured:
//!           1,024 ┤ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪           four times what a quarter of the pieces takes
//!             256 ┤ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪
//!               … ┤ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪
//!               1 ┤ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪
//!                 └─┬─────────────┬─────────┬─ size
//!                   512 B       64 KiB    2 MiB
//! ```
//!
//! The points lie evenly in logarithms; between them times go linearly, in size and in count. A route takes
//! about `latency + count × (cost of a piece + size / rate)`, which is met exactly so; linearly in logarithms
//! it would be missed by up to 7 %, where latency or a piece's cost gives way to bytes, and that is where
//! routes meet. What is left are kinks, where one of two things that go on side by side becomes the slower
//! one: a sharp one would be missed by up to 17 % between two sizes, by 33 % between two counts. That is why
//! sizes are twice each other; along counts there is no kink but a kernel's, from latency to rate.
//!
//! Invariants
//! - I1: every time is finite and above 0.
//! - I2: what is filled in for a point is no less than what there is at a smaller size or count, and no more
//!   than what was measured at a larger one, so that a grid whose measured times grow with both grows with
//!   both.

/// Bytes a piece.
pub(super) const SIZES: [u64; 13] = {
    let mut sizes = [512; 13];
    let mut at = 1;
    while at < sizes.len() {
        sizes[at] = sizes[at - 1] * 2;
        at += 1;
    }
    sizes
};

/// Pieces.
pub(super) const COUNTS: [u64; 7] = [1, 4, 16, 64, 256, 1024, 4096];

/// Times in nanoseconds, by size and then by count; none where nothing was measured.
pub(super) type Cells = [[Option<u64>; COUNTS.len()]; SIZES.len()];

/// The same without a hole.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Grid([[f64; COUNTS.len()]; SIZES.len()]);

impl Grid {
    /// None if nothing was measured at all.
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

    /// What so many pieces of so many bytes take, in nanoseconds. Below the least size as that; above the largest size or count it grows
    /// with the bytes.
    pub(super) fn time(&self, size: f64, count: f64) -> f64 {
        let ((size, by_size), (count, by_count)) = (place(&SIZES, size), place(&COUNTS, count));
        let at = |count: usize| line(self.0[size.0][count], self.0[size.0 + 1][count], size.1);
        line(at(count.0), at(count.0 + 1), count.1) * by_size * by_count
    }

    /// What the least of all takes.
    pub(super) fn least(&self) -> f64 {
        self.0[0][0]
    }

    /// What a piece more costs, of the smallest.
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

/// The point at or before `value`, the part of the way to the next one, and how often the last one goes into it if it is beyond.
fn place(points: &[u64], value: f64) -> ((usize, f64), f64) {
    let (first, last) = (points[0] as f64, points[points.len() - 1] as f64);
    let inside = value.clamp(first, last);
    let at = points.partition_point(|point| *point as f64 <= inside).clamp(1, points.len() - 1) - 1;
    let (from, to) = (points[at] as f64, points[at + 1] as f64);
    ((at, (inside - from) / (to - from)), (value / last).max(1.0))
}
