//! The slowdown of a model while its blocks are offloaded at full rate: a [loop of matmuls](super::matmul)
//! alone, and beside an offload by each route, and by the kernel with several SM budgets.

use super::link::Link;
use super::matmul::Matmul;
use super::report::{Reach, Row, Section};
use super::streams::{Lane, Stream};
use super::{Bench, Failure};
use crate::rounds::Spread;
use kvstrata_ffi::cuda::{CopyOptions, Route};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Pieces of an offload.
const PIECE_BYTES: u64 = 32 << 10;
const PIECES: u32 = 1024;
/// Limits of the kernel's CTAs, beside the one that the costs give.
const BUDGETS: [u32; 4] = [8, 16, 32, 64];
/// The maximum slowdown of a model.
const MOST_PERCENT: f64 = 3.0;

/// An endless offload.
struct Offload {
    name: String,
    link: Link,
    lanes: Vec<Lane>,
    route: Option<Route>,
    reach: Option<Reach>,
    /// Milliseconds of the matmuls over those alone, in percent; GB/s meanwhile.
    samples: Vec<(f64, f64)>,
}

impl Offload {
    fn new(
        bench: &Bench,
        name: String,
        route: Option<Route>,
        options: CopyOptions,
    ) -> Result<Option<Offload>, Failure> {
        let link = Link::new(bench, PIECE_BYTES, PIECES, options)?;
        let lanes = link.lanes(0, PIECES.min(pieces(bench)));
        if route.is_some_and(|route| link.copies[0].has(route).is_err()) || lanes.is_empty() {
            return Ok(None);
        }
        Ok(Some(Offload { name, link, lanes, route, reach: None, samples: Vec::new() }))
    }

    /// Returns the loop's time while blocks are offloaded, and the bytes a second.
    fn beside(&self, matmul: &Matmul, bytes: u64) -> Result<(Duration, f64), Failure> {
        let (begun, stop, done) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let offload = scope.spawn(|| -> Result<(), String> {
                let mut stream: Stream<'_> = self.link.stream(0, self.route, &self.lanes);
                let mut act = || -> Result<(), Failure> {
                    // Relaxed: a hint, and a counter.
                    while !stop.load(Ordering::Relaxed) {
                        stream.push()?;
                        done.fetch_add(1, Ordering::Relaxed);
                        // Once the window is full, each submission means that one transfer has ended.
                        if done.load(Ordering::Relaxed) > self.lanes.len() as u64 {
                            begun.store(true, Ordering::Relaxed);
                        }
                    }
                    stream.drain()
                };
                let ended = act().map_err(|error| error.to_string());
                begun.store(true, Ordering::Relaxed);
                ended
            });
            while !begun.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            let (before, from) = (done.load(Ordering::Relaxed), Instant::now());
            let took = matmul.run();
            let (transfers, elapsed) = (done.load(Ordering::Relaxed) - before, from.elapsed());
            stop.store(true, Ordering::Relaxed);
            offload.join().map_err(|_| "the offload panicked")??;
            Ok((took?, transfers as f64 * bytes as f64 / elapsed.as_nanos() as f64))
        })
    }
}

fn pieces(bench: &Bench) -> u32 {
    bench.scale.counts.iter().copied().max().unwrap_or(PIECES)
}

/// Measures this section.
///
/// # Errors
/// An error of a driver.
pub fn measure(bench: &Bench, section: &mut Section) -> Result<(), Failure> {
    let matmul = match Matmul::new(bench, &mut section.skipped) {
        Ok(matmul) => matmul,
        Err(why) => {
            section.skipped.push(format!("matmul: {why}"));
            return Ok(());
        }
    };
    let mut offloads = Vec::new();
    let chosen = Offload::new(bench, "the chosen route".to_owned(), None, CopyOptions::new())?;
    offloads.extend(chosen.map(|chosen| Offload { reach: Some(Reach::Most(MOST_PERCENT)), ..chosen }));
    for route in Route::ALL {
        offloads.extend(Offload::new(bench, route.name().to_owned(), Some(route), CopyOptions::new())?);
    }
    for ctas in BUDGETS {
        let options = CopyOptions::new().most_ctas(ctas);
        let name = format!("{} of at most {ctas} CTAs", Route::Kernel.name());
        offloads.extend(Offload::new(bench, name, Some(Route::Kernel), options)?);
    }
    let bytes = PIECE_BYTES * u64::from(PIECES.min(pieces(bench)));
    let (_, _, rounds) = bench.scale.matmul;
    let mut alone = Vec::new();
    for round in 0..rounds {
        if round > 0 && bench.scale.is_over() {
            section.skipped.push(format!("{} rounds of {rounds}: out of time", rounds - round));
            break;
        }
        let base = matmul.run()?;
        alone.push(base.as_secs_f64() * 1e3);
        for offload in &mut offloads {
            let (took, rate) = offload.beside(&matmul, bytes)?;
            offload.samples.push(((took.as_secs_f64() / base.as_secs_f64() - 1.0) * 100.0, rate));
        }
    }
    let n = f64::from(matmul.n);
    let flops = 2.0 * n * n * n * f64::from(matmul.times);
    let alone = Spread::of(alone);
    let what = format!("{} matmuls of {n} × {n}, {}, alone", matmul.times, matmul.name());
    section.rows.push(Row::new(what, alone, "ms").note(format!("{:.1} TFLOP/s", flops / alone.median / 1e9)));
    for Offload { name, link, lanes, route, reach, samples, .. } in &offloads {
        let slower = Spread::of(samples.iter().map(|(slower, _)| *slower));
        let rate = Spread::of(samples.iter().map(|(_, rate)| *rate)).median;
        let of = match route {
            Some(_) => String::new(),
            None => format!("{}; ", link.copies[0].route(&lanes[0].src, &lanes[0].dst)?.name()),
        };
        let row = Row::new(format!("slower beside an offload by {name}"), slower, "%");
        let row = row.note(format!("{of}{rate:.1} GB/s meanwhile"));
        section.rows.push(match reach {
            Some(reach) => row.reach(*reach),
            None => row,
        });
    }
    Ok(())
}
