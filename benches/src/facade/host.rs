//! Blocks brought up from host memory, whole and layer by layer, beside the same
//! bytes copied without a manager.
//!
//! By the wall, since several threads work on it: from the call that finds the run until all of it
//! was held and has been given back.

use super::bare::{Bare, How, Memory};
use super::ground::{Ground, Shape};
use super::report::{Cell, Table};
use crate::disk::{Failure, size};
use crate::rounds::{Effort, Samples, Spread};
use crate::work::Timed;
use futures_executor::block_on;
use kvstrata::manager::OnboardOptions;
use kvstrata_ffi::copy::HostCopy;
use std::time::{Duration, Instant};

/// Bytes of the host tier: sixteen last-level caches of the machine on which this was written. The
/// device has half.
const BYTES: usize = 512 << 20;
/// Layers, in rows with several.
const LAYERS: u32 = 32;
/// The runs: block size and number.
const SHAPES: [(usize, usize); 4] = [(64 << 10, 128), (256 << 10, 128), (1 << 20, 128), (5 << 20, 32)];

/// The moment at which the clock stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Until {
    All,
    FirstLayer,
}

/// Brings runs up.
struct Up<'g> {
    ground: &'g Ground,
    /// Layers a transfer; none for whole blocks.
    layers: Option<u32>,
    until: Until,
}

impl Timed for Up<'_> {
    fn items(&self) -> u64 {
        self.ground.shape.bytes() as u64
    }

    fn time(&mut self, runs: u64) -> Duration {
        let options = OnboardOptions::default().layers(self.layers);
        let mut took = Duration::ZERO;
        for _ in 0..runs {
            let start = Instant::now();
            if self.until == Until::All {
                drop(self.ground.bring(options));
                took += start.elapsed();
                continue;
            }
            let found = self.ground.manager.default_group().match_prefix(self.ground.next());
            let up = self.ground.manager.default_group().onboard(found, options).expect("it fits");
            block_on(up.layer_ready(0)).expect("nothing fails here");
            took += start.elapsed();
            assert_eq!(block_on(up).missed, None);
        }
        took
    }
}

/// Measures this part.
///
/// # Errors
/// A manager that cannot be made, or bytes that are wrong.
pub fn measure(effort: Effort) -> Result<Vec<Table>, Failure> {
    let mut whole = Table::new(
        "Onboard from host, simulated device: runs of cold blocks, whole, each with its checksum compared on the way",
        &[
            "run",
            "contender",
            "GB/s",
            "ms a run",
            "to memcpy, 1 thread",
            "reach",
            "to memcpy, 2 threads",
            "to HostCopy without checksum, 2 threads",
        ],
    );
    let mut layers = Table::new(
        format!("The same in blocks of {LAYERS} layers, simulated device: whole, and layer by layer"),
        &["run", "contender", "ms", "to all of it whole"],
    );
    for (block_bytes, blocks) in SHAPES {
        let shape = Shape { block_bytes, blocks, layers: 1 };
        whole_blocks(effort, shape, &mut whole)?;
        by_layers(effort, Shape { layers: LAYERS, ..shape }, &mut layers)?;
    }
    whole.notes.push(format!(
        "A host tier of {} MiB below a device of half of it, prefixes in turns, so that nothing is in a cache; by the wall. The reach is of 1 MiB blocks.",
        BYTES >> 20
    ));
    Ok(vec![whole, layers])
}

fn name(shape: Shape) -> String {
    format!("{} × {}", shape.blocks, size(shape.block_bytes))
}

fn whole_blocks(effort: Effort, shape: Shape, table: &mut Table) -> Result<(), Failure> {
    let (two, one) = (Ground::host(shape, BYTES, 2)?, Ground::host(shape, BYTES, 1)?);
    eprintln!("{}: both managers are filled", name(shape));
    let memory = Memory::new(shape, BYTES);
    let past = How::Past(HostCopy::new());
    let up = |ground| Up { ground, layers: None, until: Until::All };
    let names = [
        "memcpy, 1 thread",
        "memcpy, 2 threads",
        "HostCopy without checksum, 1 thread",
        "HostCopy without checksum, 2 threads",
        "façade, 1 copying thread",
        "façade, 2 copying threads",
    ];
    let bare = |how, two| Bare::new(&memory, how, two);
    let samples = Samples::take(
        effort,
        &mut [
            &mut bare(How::Memcpy, false),
            &mut bare(How::Memcpy, true),
            &mut bare(past, false),
            &mut bare(past, true),
            &mut up(&one),
            &mut up(&two),
        ],
    );
    for (who, contender) in names.iter().enumerate() {
        let (ours, judged) = (who >= 4, who == 5 && shape.block_bytes == 1 << 20);
        let faster = |than| if ours { Cell::ratio(samples.times(than, who)) } else { Cell::none() };
        let reached = samples.times(0, who).median >= 1.3;
        table.rows.push(vec![
            Cell::word(name(shape)),
            Cell::word(*contender),
            Cell::figure(samples.time(who).rate(shape.bytes() as f64), 2),
            Cell::figure(samples.time(who).per(1e6), 3),
            faster(0),
            if judged { Cell::reach("≥ 1.3×", reached) } else { Cell::none() },
            faster(1),
            faster(3),
        ]);
    }
    one.check()?;
    two.check()
}

fn by_layers(effort: Effort, shape: Shape, table: &mut Table) -> Result<(), Failure> {
    let ground = Ground::host(shape, BYTES, 2)?;
    let up = |layers, until| Up { ground: &ground, layers, until };
    let names = [
        "whole blocks, all of it",
        "layer by layer, layer 0 ready",
        "layer by layer, all of it",
        "4 layers a transfer, layer 0 ready",
        "4 layers a transfer, all of it",
    ];
    let samples = Samples::take(
        effort,
        &mut [
            &mut up(None, Until::All),
            &mut up(Some(1), Until::FirstLayer),
            &mut up(Some(1), Until::All),
            &mut up(Some(4), Until::FirstLayer),
            &mut up(Some(4), Until::All),
        ],
    );
    for (who, contender) in names.iter().enumerate() {
        let share: Spread = samples.times(who, 0);
        table.rows.push(vec![
            Cell::word(name(shape)),
            Cell::word(*contender),
            Cell::figure(samples.time(who).per(1e6), 3),
            if who == 0 { Cell::none() } else { Cell::ratio(share) },
        ]);
    }
    ground.check()
}
