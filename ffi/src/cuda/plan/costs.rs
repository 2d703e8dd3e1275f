//! The cost of each route, and the choice of the cheapest.
//!
//! ```text
//!   per direction ┬ single   size × count ──► time     from submission to completion, in families of 16
//!                 ├ batch    size × count ──► time
//!                 ├ rows     size × count ──► time     + one call of single's for each additional family
//!                 ├ kernel   size × count ──► time     above its least × a factor for narrow vectors
//!                 └ CTAs: as many as the kernel had
//! ```
//!
//! The model assumes that a plan's pieces have about one size, the mean; that nothing else uses the link;
//! that the device's addresses do not matter; that both directions at once behave like each alone; and
//! that a kernel has the CTAs with which it was measured. `plan/tune.rs` measures the costs on a device.
//! The shipped costs are [reasoned](CostSource::Reasoned), not measured: they come from data sheets and
//! the formulas in `reasoned.rs`. [Decision 011](../../../../docs/decisions/011-costs-of-copies.md) has
//! the reasons.
//!
//! Invariants
//! - I1: times are finite, whatever the fragments.

mod grid;
mod reasoned;
#[cfg(test)]
mod tests;

use super::super::copy::Direction;
use super::route::{Fragments, Route};
use crate::shown::shown;
use core::fmt;
use core::time::Duration;
use grid::Grid;
use grid::{COUNTS, Cells, SIZES};
use std::sync::Arc;

/// See [`CopyCosts::NARROW`].
const NARROW: [u64; 4] = [8, 4, 2, 1];

/// Maximum CTAs per multiprocessor: 2,048 threads.
const CTAS: u32 = 8;
/// CTAs that fill a link to the host, by reasoning: 8 of 256 threads with 64 bytes each in flight are 128
/// KiB, and a link of 60 GB/s has 120 KB in flight in 2 µs. More CTAs would take multiprocessors from the
/// model: a CTA of a matrix product may need one for itself.
const LINK_CTAS: u32 = 8;

/// Returns the CTAs that run on this many multiprocessors at once.
pub(super) fn most_ctas(multiprocessors: u32) -> u32 {
    multiprocessors.saturating_mul(CTAS).max(1)
}

/// The origin of costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CostSource {
    /// Measured on this device.
    Measured {
        /// The device's name.
        card: String,
        /// The driver's CUDA, major and minor.
        cuda: (u32, u32),
        /// The time of the measurement, in UTC: `2026-01-31T23:59:59Z`.
        when: String,
    },
    /// Derived from data sheets and formulas, not measured.
    Reasoned {
        /// The card of the data sheet.
        card: &'static str,
    },
}

/// The measurements of one direction.
#[derive(Debug, Clone, PartialEq)]
pub struct DirectionCosts {
    /// For each route, in the order of [`Route::ALL`]: the nanoseconds of [`CopyCosts::COUNTS`] pieces of
    /// [`CopyCosts::SIZES`] bytes, by size and then by count; `None` where nothing was measured.
    pub cells: [Cells; 4],
    /// CTAs of the kernels; `None` if there were no kernels.
    pub ctas: Option<u32>,
    /// The factor, at least 1, on a kernel's time above its least time, for vectors of
    /// [`CopyCosts::NARROW`] bytes.
    pub narrow: [f64; 4],
}

/// Impossible costs.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{} of copies {direction} is {value}; it must be {rule}", .what)]
pub struct BadCosts {
    /// The wrong figure.
    pub what: &'static str,
    /// Its direction.
    pub direction: &'static str,
    /// The value.
    pub value: f64,
    /// The rule that the value breaks.
    pub rule: &'static str,
}

/// The costs of routes on a device. Cheap to clone.
#[derive(Clone, PartialEq)]
pub struct CopyCosts(Arc<Tables>);

#[derive(PartialEq)]
struct Tables {
    source: CostSource,
    directions: [DirectionCosts; 3],
    grids: [[Option<Grid>; 4]; 3],
}

/// The order of routes with equal or unknown costs: the copy engine leaves the multiprocessors to the
/// model, and one call costs the host less than many.
const PREFERENCE: [Route; 4] = [Route::Batch, Route::Kernel, Route::Rows, Route::Single];

impl Default for DirectionCosts {
    /// Nothing is measured.
    fn default() -> DirectionCosts {
        DirectionCosts {
            cells: [[[None; COUNTS.len()]; SIZES.len()]; 4],
            ctas: None,
            narrow: [1.0; NARROW.len()],
        }
    }
}

impl Default for CopyCosts {
    /// Reasoned costs, for an unknown device.
    fn default() -> CopyCosts {
        CopyCosts::reasoned("")
    }
}

impl CopyCosts {
    /// Piece sizes, in bytes, of the measured times.
    pub const SIZES: [u64; 13] = SIZES;
    /// Numbers of pieces of the measured times.
    pub const COUNTS: [u64; 7] = COUNTS;
    /// Pieces per family in the measured times: a page of 16 tokens of some of its heads.
    pub const FAMILY: u64 = 16;
    /// Vector widths, in bytes, of a kernel whose alignment is below 16 bytes.
    pub const NARROW: [u64; 4] = NARROW;

    /// Creates measured costs, one for each of [`Direction::ALL`].
    ///
    /// # Errors
    /// [`BadCosts`]: a time is 0 or above an hour, a factor is below 1 or above 1000, or CTAs are 0.
    pub fn measured(
        card: &str,
        cuda: (u32, u32),
        when: &str,
        directions: [DirectionCosts; 3],
    ) -> Result<CopyCosts, BadCosts> {
        directions.iter().zip(Direction::ALL).try_for_each(|(costs, direction)| costs.check(direction))?;
        let source = CostSource::Measured { card: card.to_owned(), cuda, when: when.to_owned() };
        Ok(CopyCosts::of(source, directions))
    }

    /// Returns the shipped costs for a card of this name: H100 and H200 are known. Reasoned, not measured.
    #[must_use]
    pub fn reasoned(name: &str) -> CopyCosts {
        let (card, directions) = reasoned::costs(name);
        CopyCosts::of(CostSource::Reasoned { card }, directions)
    }

    fn of(source: CostSource, directions: [DirectionCosts; 3]) -> CopyCosts {
        let grids = directions.each_ref().map(|costs| costs.cells.each_ref().map(Grid::new));
        CopyCosts(Arc::new(Tables { source, directions, grids }))
    }

    /// Returns the origin of the costs: measured, and on which device, or reasoned.
    #[must_use]
    pub fn source(&self) -> &CostSource {
        &self.0.source
    }

    /// Returns the measured or reasoned costs for each of [`Direction::ALL`].
    #[must_use]
    pub fn directions(&self) -> &[DirectionCosts; 3] {
        &self.0.directions
    }

    /// Returns the CTAs of a kernel: the fewest within 3 % of the best rate.
    #[must_use]
    pub fn ctas(&self, direction: Direction, multiprocessors: u32) -> u32 {
        let most = most_ctas(multiprocessors);
        let known = self.0.directions[direction as usize].ctas;
        let unknown = if direction == Direction::DeviceToDevice { most } else { LINK_CTAS };
        known.unwrap_or(unknown).clamp(1, most)
    }

    /// Estimates the time of a transfer by a route, from submission to completion; `None` if the route
    /// was never measured. Zero pieces count as one.
    #[must_use]
    pub fn estimate(&self, direction: Direction, route: Route, fragments: Fragments) -> Option<Duration> {
        let time = self.time(direction, route, fragments)?;
        Some(Duration::try_from_secs_f64(time / 1e9).unwrap_or(Duration::MAX))
    }

    /// Estimates as `estimate` does, in nanoseconds.
    fn time(&self, direction: Direction, route: Route, fragments: Fragments) -> Option<f64> {
        let Fragments { pieces, bytes, families, width } = fragments;
        let pieces = pieces.max(1);
        let direction = direction as usize;
        let grids = &self.0.grids[direction];
        let grid = grids[route as usize].as_ref()?;
        let time = grid.time(bytes as f64 / pieces as f64, pieces as f64);
        Some(match route {
            Route::Single | Route::Batch => time,
            Route::Rows => {
                let more = families.saturating_sub(pieces.div_ceil(CopyCosts::FAMILY));
                let call = grids[Route::Single as usize].as_ref().map_or(0.0, Grid::piece);
                time + more as f64 * call
            }
            Route::Kernel => {
                let mut narrow = NARROW.iter().zip(self.0.directions[direction].narrow).rev();
                let factor = narrow.find(|(of, _)| width.max(1) <= **of).map_or(1.0, |(_, factor)| factor);
                time + (factor - 1.0) * (time - grid.least()).max(0.0)
            }
        })
    }

    /// Returns the cheapest available route. Routes of equal cost are taken in this order: batch, kernel,
    /// rows, single. Routes that were never measured come behind all others, in the same order.
    #[must_use]
    pub fn choose(&self, direction: Direction, fragments: Fragments, there: impl Fn(Route) -> bool) -> Route {
        let mut best: Option<(f64, Route)> = None;
        for route in PREFERENCE.into_iter().filter(|route| there(*route)) {
            let time = self.time(direction, route, fragments).unwrap_or(f64::INFINITY);
            if best.is_none_or(|(least, _)| time < least) {
                best = Some((time, route));
            }
        }
        best.map_or(Route::Single, |(_, route)| route)
    }
}

impl DirectionCosts {
    fn check(&self, direction: Direction) -> Result<(), BadCosts> {
        const HOUR: u64 = 3_600_000_000_000;
        let bad = |what, value, rule| Err(BadCosts { what, direction: direction.name(), value, rule });
        let mut times = self.cells.iter().flatten().flatten().flatten();
        if let Some(time) = times.find(|time| !(1..=HOUR).contains(*time)) {
            return bad("a time", *time as f64, "from 1 to 3.6e12 nanoseconds");
        }
        if let Some(factor) = self.narrow.iter().find(|factor| !(1.0..=1000.0).contains(*factor)) {
            return bad("a factor for narrow vectors", *factor, "from 1 to 1000");
        }
        match self.ctas {
            Some(0) => bad("the number of CTAs", 0.0, "at least 1"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for CostSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CostSource::Measured { card, cuda: (major, minor), when } => {
                write!(f, "measured on {} with CUDA {major}.{minor}, {}", shown(card), shown(when))
            }
            CostSource::Reasoned { card } => write!(f, "reasoned for {}, not measured", shown(card)),
        }
    }
}

impl fmt::Debug for CopyCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CopyCosts({})", self.0.source)
    }
}
