//! The host's cost of a submission: the time from the call of `submit` to its return, and its
//! allocations. The device's part is waited for, and not counted.

use super::link::Link;
use super::report::{Reach, Row, Section};
use super::streams::{guard, submit};
use super::{Bench, DEADLINE, Failure};
use crate::rounds::Spread;
use kvstrata_ffi::cuda::{Batch, CopyOptions, Held, Route};
use kvstrata_testing::counting::counted;
use std::time::Instant;

/// Bytes of a piece.
const PIECE_BYTES: u64 = 4096;
/// Submissions before the first one that counts.
const WARM_UP: usize = 3;

/// Measures this section.
///
/// # Errors
/// An error of the driver.
pub fn measure(bench: &Bench, section: &mut Section) -> Result<(), Failure> {
    let (pieces, times) = bench.scale.launch;
    let link = Link::new(bench, PIECE_BYTES, pieces, CopyOptions::new())?;
    for (direction, name) in ["device to host", "host to device"].into_iter().enumerate() {
        let lanes = link.lanes(direction, pieces);
        let Some(lane) = lanes.first() else { return Err("no room for one submission".into()) };
        let chosen = link.copies[direction].route(&lane.src, &lane.dst)?;
        let routes = [(None, format!("chosen: {}", chosen.name()))].into_iter();
        let routes =
            routes.chain(link.routes().into_iter().map(|route| (Some(route), route.name().to_owned())));
        for (route, note) in routes {
            let what = format!("{name}, {pieces} pieces, {note}");
            if bench.scale.is_over() {
                section.skipped.push(format!("{what}: out of time"));
                continue;
            }
            let (mut submits, mut guards, mut allocations) = (Vec::new(), Vec::new(), 0);
            let mut batch = Batch::new();
            for time in 0..WARM_UP + times {
                let begun = Instant::now();
                guard(&mut batch, Some((&link.host, direction == 0)), lane)?;
                let guarded = Instant::now();
                let (submitted, allocated) =
                    counted(|| submit(&link.copies[direction], route, &link.queues[direction], lane, batch));
                let done = Instant::now();
                batch = submitted?.wait_for(DEADLINE)?;
                batch.release().for_each(drop::<Held>);
                if time >= WARM_UP {
                    submits.push((done - guarded).as_nanos() as f64 / 1e3);
                    guards.push((guarded - begun).as_nanos() as f64 / 1e3);
                    allocations = allocations.max(allocated);
                }
            }
            let guards = Spread::of(guards).median;
            let row = Row::new(what.clone(), Spread::of(submits), "µs");
            let row = row.note(format!("{guards:.1} µs more to borrow the host's blocks"));
            section.rows.push(if has_target(route) { row.reach(Reach::Most(50.0)) } else { row });
            let most = allocations as f64;
            let most = Spread { low: most, median: most, high: most };
            section
                .rows
                .push(Row::new(what, most, "allocations").reach(Reach::Most(0.0)).note("the most of all"));
        }
    }
    Ok(())
}

/// With a call for each piece the target cannot be met, and no caller would choose such a route for so
/// many pieces.
fn has_target(route: Option<Route>) -> bool {
    !matches!(route, Some(Route::Single | Route::Rows))
}
