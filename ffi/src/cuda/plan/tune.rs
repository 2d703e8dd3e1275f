//! Costs of copies, measured on a device in a few seconds.
//!
//! ```text
//!   check    each route, each direction, each width: the oracle's bytes; a wrong byte is an error
//!   CTAs     2, 4, 8, … for a large copy: the fewest within 3 % of the best rate
//!   widths   8, 4, 2, 1 bytes beside 16, at one point
//!   cells    each size and count: all routes in turns, each once to warm up; the median
//! ```
//!
//! Times are from submission to completion by production's queue, including the wake-up of its thread.
//! Cells go from few bytes to many, in all directions at each step. Sizes that are four times each other
//! come first, then the sizes between. If the time limit cuts them off, the missing cells lie between
//! measured ones or above them, and are filled in.
//!
//! | file | contents |
//! |---|---|
//! | `machine.rs` | memory, plans with a given number of pieces of one size, one transfer |
//! | `bytes.rs` | the check that a route moves the right bytes |

mod bytes;
mod machine;
#[cfg(test)]
mod tests;

use super::super::context::CudaDevice;
use super::super::copy::Direction;
use super::super::error::CudaError;
use super::costs::{CopyCosts, DirectionCosts, most_ctas};
use super::kernels::CudaKernels;
use super::prepare::{CopyOptions, CudaCopy};
use super::route::Route;
use core::time::Duration;
use machine::{Machine, SHIFT, Shape};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The limits of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct TuneOptions {
    time_limit: Duration,
    most_bytes: u64,
    deadline: Duration,
}

impl TuneOptions {
    /// At most 8 seconds, with copies of up to 256 MiB. They need that much host memory and three times
    /// as much device memory, or half of the device's free memory. A transfer may take 10 seconds.
    pub fn new() -> TuneOptions {
        TuneOptions {
            time_limit: Duration::from_secs(8),
            most_bytes: 256 << 20,
            deadline: Duration::from_secs(10),
        }
    }

    /// Begins no more cells after this time; a few are measured in any case.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// Sets the maximum bytes of a copy; at least 64 KiB.
    pub fn most_bytes(mut self, bytes: u64) -> Self {
        self.most_bytes = bytes;
        self
    }

    /// Sets the deadline of one transfer; then it is given up.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }
}

impl Default for TuneOptions {
    fn default() -> TuneOptions {
        TuneOptions::new()
    }
}

/// Pieces for the check of bytes: short ones for one kernel, long ones for the other.
const CHECKED: [(u64, u64); 2] = [(512, 64), (4096, 64)];
/// The shape for comparing widths.
const WIDTHS_AT: (u64, u64) = (8 << 10, 1024);
/// The shape for comparing CTAs: so large that its latency is small beside it, even within the
/// device's memory.
const CTAS_AT: (u64, u64) = (64 << 10, 4096);
/// The fewest CTAs that are tried.
const FEWEST_CTAS: u32 = 2;
/// The share of the best rate that counts as the best.
const BEST: f64 = 0.97;

/// Measures the costs of routes on a device, with these kernels or with the copy engine alone. `progress`
/// receives the steps done and the steps in all. The device and its link should have no other work.
///
/// # Errors
/// [`CudaError::WrongBytes`] if a route copies wrong bytes; [`CudaError::Deadline`]; no memory; or the
/// driver refuses.
pub fn tune(
    device: &Arc<CudaDevice>,
    kernels: Result<CudaKernels, CudaError>,
    progress: &mut dyn FnMut(usize, usize),
    options: TuneOptions,
) -> Result<CopyCosts, CudaError> {
    let begun = Instant::now();
    let copy = CudaCopy::with(device, kernels, CopyOptions::new());
    let mut machine = Machine::new(device, copy, options.most_bytes, options.deadline)?;
    let cells = cells(machine.most_bytes);
    let steps = Direction::ALL.len() + cells.len();
    let mut costs = [(); 3].map(|()| DirectionCosts::default());
    progress(0, steps);
    for (at, direction) in Direction::ALL.into_iter().enumerate() {
        for (size, count) in CHECKED {
            machine.check(direction, machine.to_check(size, count))?;
        }
        machine.kernels(direction, device.describe().multiprocessors, &mut costs[at])?;
        progress(at + 1, steps);
    }
    for (done, (size, count)) in cells.iter().enumerate() {
        if done > 0 && begun.elapsed() >= options.time_limit {
            break;
        }
        for (direction, costs) in Direction::ALL.into_iter().zip(&mut costs) {
            machine.copy.limit_ctas(costs.ctas);
            machine.cell(direction, (*size, *count), costs)?;
        }
        progress(Direction::ALL.len() + done + 1, steps);
    }
    if !device.batches() {
        // The driver refused on the way: those were single copies.
        costs.iter_mut().for_each(|costs| costs.cells[Route::Batch as usize] = Default::default());
    }
    progress(steps, steps);
    let card = device.describe();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    CopyCosts::measured(&card.name, device.driver().describe().version, &utc(now.as_secs()), costs)
        .map_err(|_| CudaError::NoRoute { why: "tuning measured an impossible time; tune again" })
}

/// Returns the points of the grid to measure, as indices, in the order of measurement.
fn cells(most_bytes: u64) -> Vec<(usize, usize)> {
    let all = (0..CopyCosts::SIZES.len())
        .flat_map(|size| (0..CopyCosts::COUNTS.len()).map(move |count| (size, count)));
    let bytes = |(size, count): (usize, usize)| CopyCosts::SIZES[size] * CopyCosts::COUNTS[count];
    let mut cells: Vec<_> = all.filter(|cell| bytes(*cell) <= most_bytes).collect();
    cells.sort_by_key(|cell| (cell.0 % 2, bytes(*cell)));
    cells
}

/// Returns the largest of the grid's counts up to `most` that fits; 1 if none does.
fn largest(most: u64, fits: impl Fn(&u64) -> bool) -> u64 {
    CopyCosts::COUNTS.into_iter().rev().filter(|count| *count <= most).find(fits).unwrap_or(1)
}

/// Returns how often a copy is timed, by its first time: a long copy is disturbed less, and all copies
/// share a time limit.
fn repetitions(first: Duration) -> usize {
    match first.as_micros() {
        0..300 => 9,
        300..1_500 => 5,
        _ => 3,
    }
}

/// Returns the median; of an even number the lower of the two.
fn median(times: &mut [Duration]) -> Option<Duration> {
    times.sort_unstable();
    times.get(times.len().saturating_sub(1) / 2).copied()
}

/// Returns the fewest CTAs whose time is near the best.
fn fewest(times: &[(u32, Duration)]) -> Option<u32> {
    let best = times.iter().map(|(_, time)| *time).min()?;
    times
        .iter()
        .filter(|(_, time)| best.as_secs_f64() >= BEST * time.as_secs_f64())
        .map(|(ctas, _)| *ctas)
        .min()
}

/// Returns the factor by which a kernel's time, above the time of the least copy, exceeds that with
/// vectors of 16 bytes.
fn factor(narrow: Duration, wide: Duration, least: Duration) -> f64 {
    let above = |time: Duration| time.saturating_sub(least).as_secs_f64();
    match above(wide) > 0.0 {
        true => (above(narrow) / above(wide)).clamp(1.0, 1000.0),
        false => 1.0,
    }
}

impl Machine {
    /// Returns as many pieces of a size as there is room for, at most `count`.
    fn within(&self, size: u64, count: u64) -> Shape {
        let fits = |count: &u64| Shape::new(size, *count).bytes() <= self.most_bytes;
        Shape::new(size, largest(count, fits))
    }

    /// Returns as many pieces as the arena's block can carry up and down.
    fn to_check(&self, size: u64, count: u64) -> Shape {
        let fits = |count: &u64| Shape::new(size, *count).strewn_bytes() + SHIFT <= self.most_bytes;
        Shape::new(size, largest(count, fits))
    }

    /// Returns the median of some copies by one route.
    fn median(&mut self, direction: Direction, shape: Shape, route: Route) -> Result<Duration, CudaError> {
        let prepared = self.prepare(direction, shape)?;
        prepared.has(route)?;
        let first = self.time(&prepared, route)?;
        let times = (0..repetitions(first)).map(|_| self.time(&prepared, route));
        let mut times = times.collect::<Result<Vec<_>, _>>()?;
        Ok(median(&mut times).unwrap_or(first))
    }

    /// If there are kernels, finds their CTAs and the cost of narrow vectors.
    fn kernels(
        &mut self,
        direction: Direction,
        multiprocessors: u32,
        costs: &mut DirectionCosts,
    ) -> Result<(), CudaError> {
        self.copy.limit_ctas(None);
        let (at, least) = (self.within(CTAS_AT.0, CTAS_AT.1), self.within(CopyCosts::SIZES[0], 1));
        if self.prepare(direction, at)?.has(Route::Kernel).is_err() {
            return Ok(());
        }
        let most = most_ctas(multiprocessors);
        let tried = core::iter::successors(Some(FEWEST_CTAS), |ctas| ctas.checked_mul(2));
        let tried = tried.take_while(|ctas| *ctas < most).chain([most]);
        let mut times = Vec::new();
        for ctas in tried {
            self.copy.limit_ctas(Some(ctas));
            times.push((ctas, self.median(direction, at, Route::Kernel)?));
        }
        costs.ctas = fewest(&times);
        self.copy.limit_ctas(costs.ctas);
        let least = self.median(direction, least, Route::Kernel)?;
        let shape = self.within(WIDTHS_AT.0, WIDTHS_AT.1);
        let wide = self.median(direction, shape, Route::Kernel)?;
        for (cost, width) in costs.narrow.iter_mut().zip(CopyCosts::NARROW) {
            let (size, count) = CHECKED[0];
            self.check(direction, Shape { shift: width, ..self.to_check(size, count) })?;
            let narrow = self.median(direction, Shape { shift: width, ..shape }, Route::Kernel)?;
            *cost = factor(narrow, wide, least);
        }
        Ok(())
    }

    /// Times all routes of one cell, in turns.
    fn cell(
        &mut self,
        direction: Direction,
        (size, count): (usize, usize),
        costs: &mut DirectionCosts,
    ) -> Result<(), CudaError> {
        let prepared =
            self.prepare(direction, Shape::new(CopyCosts::SIZES[size], CopyCosts::COUNTS[count]))?;
        let routes = Route::ALL.into_iter().filter(|route| prepared.has(*route).is_ok());
        let mut routes: Vec<_> = routes.map(|route| (route, Vec::new())).collect();
        // The device may refuse a route in the meantime.
        let mut once = |route| match prepared.has(route) {
            Ok(()) => self.time(&prepared, route).map(Some),
            Err(_) => Ok(None),
        };
        let mut slowest = Duration::ZERO;
        for (route, _) in &routes {
            slowest = slowest.max(once(*route)?.unwrap_or_default());
        }
        for round in 0..repetitions(slowest) {
            for turn in 0..routes.len() {
                let at = (round + turn) % routes.len();
                let (route, times) = &mut routes[at];
                times.extend(once(*route)?);
            }
        }
        for (route, mut times) in routes {
            let time = median(&mut times).map(|time| time.as_nanos().max(1));
            costs.cells[route as usize][size][count] = time.and_then(|time| u64::try_from(time).ok());
        }
        Ok(())
    }
}

/// Formats seconds since 1970 as a date and time in UTC.
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years start in March, so that leap days come last; 400 years have 146,097 days. There are 719,468
    // days between the 1st of March of year 0 and 1970.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = match month {
        ..10 => (era * 400 + year, month + 3),
        _ => (era * 400 + year + 1, month - 9),
    };
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}
