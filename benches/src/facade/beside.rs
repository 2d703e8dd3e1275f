//! Offload in the background: the slowdown of a busy thread, beside its slowdown by a bare memcpy.
//!
//! ```text
//!   core 0    a thread that computes; in turns alone, beside memcpy, beside the façade: units a second
//!   other     every 5 ms 8 blocks of 1 MiB: copied by one bare thread, or registered and offloaded by a
//!             manager with one copying thread
//! ```
//!
//! The data of the computing thread are in its own cache, or stream through it from memory.

use super::ground::{build, settings};
use super::hits::Fresh;
use super::report::{Cell, Table};
use crate::clock::pin_to;
use crate::disk::Failure;
use crate::facade::bare::{Bare, How, Memory};
use crate::facade::ground::Shape;
use crate::inputs::mix;
use crate::rounds::Spread;
use futures_executor::block_on;
use kvstrata::backend::transfer::Path;
use kvstrata::manager::{KvBlockManager, Offload, OffloadOptions};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The copies of one time, and their period: 1.7 GB/s.
const SHAPE: Shape = Shape { block_bytes: 1 << 20, blocks: 8, layers: 1 };
const EVERY: Duration = Duration::from_millis(5);
/// Bytes of the memory that is copied in.
const BYTES: usize = 512 << 20;
/// Bytes of the data of the computation: in a core's own cache, and far beyond all caches.
const DATA: [(&str, usize); 2] = [("in cache (256 KiB)", 256 << 10), ("in memory (256 MiB)", 256 << 20)];
/// Bytes of a unit of work.
const UNIT: usize = 256 << 10;
/// The maximum slowdown, compared with memcpy.
const REACH: f64 = 1.05;

/// The length of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// Turns of each contender.
    pub rounds: usize,
    /// The length of a turn.
    pub turn: Duration,
}

/// The work beside the computing thread.
enum Beside<'m> {
    Nothing,
    Memcpy(Bare<'m>),
    Facade(Box<Offloads>),
}

/// A manager with blocks that are computed and offloaded.
struct Offloads {
    manager: KvBlockManager,
    fresh: Fresh,
    /// The offload that was started the last time.
    under_way: Option<Offload>,
}

impl Offloads {
    fn new() -> Result<Offloads, Failure> {
        // The host has room for more than the device holds, so that an eviction copies nothing: all
        // copies are the offload's.
        let device = (BYTES / 2 / SHAPE.block_bytes) as u32;
        let settings = settings(SHAPE.block_bytes, device, 2 * device).host_copy_threads(Some(1));
        let mut offloads = Offloads { manager: build(settings)?, fresh: Fresh::default(), under_way: None };
        // All of its memory is in use before anything is measured.
        for _ in 0..2 * device / SHAPE.blocks as u32 {
            offloads.once();
        }
        offloads.end();
        Ok(offloads)
    }

    /// Offloads blocks that an engine has just filled, after the previous offload has ended.
    fn once(&mut self) {
        self.end();
        let blocks = block_on(self.manager.default_group().allocate(SHAPE.blocks).into_future())
            .expect("evictable blocks");
        self.fresh.make(1, SHAPE.blocks);
        let blocks = blocks.register(self.fresh.take(SHAPE.blocks), None).expect("fresh names");
        self.under_way = Some(self.manager.default_group().offload(&blocks, OffloadOptions::default()));
    }

    fn end(&mut self) {
        if let Some(offload) = self.under_way.take() {
            assert_eq!(block_on(offload).copied, SHAPE.blocks);
        }
    }

    fn bytes(&self) -> u64 {
        self.manager.stats().path(Path::DeviceToHost).bytes
    }
}

impl Beside<'_> {
    /// Copies at its rate until told; returns the bytes.
    fn run(&mut self, stop: &AtomicBool) -> u64 {
        let (start, mut times) = (Instant::now(), 0_u32);
        let before = if let Beside::Facade(offloads) = &self { offloads.bytes() } else { 0 };
        // Relaxed: it only ends a loop.
        while !stop.load(Relaxed) {
            match self {
                Beside::Nothing => {}
                Beside::Memcpy(bare) => bare.once(),
                Beside::Facade(offloads) => offloads.once(),
            }
            times += 1;
            std::thread::sleep((EVERY * times).saturating_sub(start.elapsed()));
        }
        match self {
            Beside::Nothing => 0,
            Beside::Memcpy(_) => u64::from(times) * SHAPE.bytes() as u64,
            Beside::Facade(offloads) => {
                offloads.end();
                offloads.bytes() - before
            }
        }
    }
}

/// Works for so long; returns nanoseconds a unit.
fn compute(data: &mut [u64], length: Duration) -> f64 {
    let (start, mut units) = (Instant::now(), 0_u32);
    loop {
        for part in data.chunks_mut(UNIT / 8) {
            part.iter_mut().for_each(|word| *word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7));
            black_box(&mut *part);
            units += 1;
            let took = start.elapsed();
            if took >= length {
                return took.as_nanos() as f64 / f64::from(units);
            }
        }
    }
}

/// Runs one turn: returns nanoseconds a unit, and GB/s copied beside it.
fn turn(data: &mut [u64], beside: &mut Beside<'_>, length: Duration) -> (f64, f64) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let computing = scope.spawn(|| {
            pin_to(0);
            let a_unit = compute(data, length);
            stop.store(true, Relaxed);
            a_unit
        });
        let start = Instant::now();
        let bytes = beside.run(&stop);
        let rate = bytes as f64 / start.elapsed().as_nanos() as f64;
        (computing.join().expect("it only computes"), rate)
    })
}

/// Measures this part.
///
/// # Errors
/// A manager that cannot be made.
pub fn measure(length: Length) -> Result<Vec<Table>, Failure> {
    let mut table = Table::new(
        "Offload in the background of a busy thread, simulated device",
        &[
            "the thread's data",
            "beside",
            "copied, GB/s",
            "µs a unit",
            "to alone",
            "to beside memcpy",
            "reach",
        ],
    );
    let memory = Memory::new(SHAPE, BYTES);
    let mut who = [
        ("nothing", Beside::Nothing),
        ("one memcpy thread", Beside::Memcpy(Bare::new(&memory, How::Memcpy, false))),
        ("the façade's offload, one copying thread", Beside::Facade(Box::new(Offloads::new()?))),
    ];
    for (name, bytes) in DATA {
        let mut data: Vec<u64> = (0..bytes as u64 / 8).map(mix).collect();
        let mut turns: [Vec<(f64, f64)>; 3] = Default::default();
        for round in 0..length.rounds {
            for at in 0..who.len() {
                let at = (at + round) % who.len();
                turns[at].push(turn(&mut data, &mut who[at].1, length.turn));
            }
        }
        let ratio = |at: usize, to: usize| {
            Spread::of(turns[at].iter().zip(&turns[to]).map(|(one, other)| one.0 / other.0))
        };
        for (at, (beside, _)) in who.iter().enumerate() {
            let to_memcpy = ratio(at, 1);
            table.rows.push(vec![
                Cell::word(name),
                Cell::word(*beside),
                Cell::figure(Spread::of(turns[at].iter().map(|turn| turn.1)), 2),
                Cell::figure(Spread::of(turns[at].iter().map(|turn| turn.0)).per(1e3), 1),
                if at == 0 { Cell::none() } else { Cell::ratio(ratio(at, 0)) },
                if at == 2 { Cell::ratio(to_memcpy) } else { Cell::none() },
                if at == 2 { Cell::reach("≤ 1.05×", to_memcpy.median <= REACH) } else { Cell::none() },
            ]);
        }
    }
    table.notes.push(format!(
        "A unit is {} KiB read, changed and written; {} MiB are copied every {EVERY:?}; {} turns of {:?}. \"To\": how many times as long a unit takes.",
        UNIT >> 10,
        SHAPE.bytes() >> 20,
        length.rounds,
        length.turn
    ));
    Ok(vec![table])
}
