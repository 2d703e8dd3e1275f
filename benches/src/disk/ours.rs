//! The loads of our volume: a closed loop, urgent reads beside writes, a cold prefix.

use super::files::cpu_seconds;
use super::target::{Plan, Target};
use super::under_way::UnderWay;
use super::{Cell, Contender, Failure, READS_OF_100, Turn, Way, size};
use crate::inputs::mix;
use crate::rounds::Spread;
use futures_executor::block_on;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Blocks of the cold prefix.
pub const PREFIX: usize = 128;
/// The time between two urgent reads.
pub const BETWEEN: Duration = Duration::from_millis(10);

/// Returns the name of a slot's block in these benches.
#[must_use]
pub fn hash(slot: u32) -> u128 {
    let low = mix(u64::from(slot));
    (u128::from(mix(low)) << 64) | u128::from(low)
}

/// Ours: a volume a block size.
#[derive(Debug)]
pub struct Ours {
    targets: Vec<Target>,
    drawn: u64,
}

impl Ours {
    /// Makes volumes of so many bytes each, every slot written and named.
    ///
    /// # Errors
    /// An error of the volume.
    pub fn new(folder: &Path, blocks_bytes: &[usize], bytes: u64, depth: usize) -> Result<Ours, Failure> {
        let mut targets = Vec::new();
        for block_bytes in blocks_bytes {
            // The prefix has 1 MiB blocks, and the reader beside the writers has a buffer of its own.
            let buffers = if *block_bytes == 1 << 20 { depth.max(PREFIX) + 1 } else { depth };
            let (target, _) = Target::open(&Plan::bench(folder, *block_bytes, bytes, buffers))?;
            eprintln!("ours, {}: {}", size(*block_bytes), target.describe());
            block_on(write_all(&target, depth))?;
            targets.push(target);
        }
        Ok(Ours { targets, drawn: 0 })
    }

    /// Returns the volume of that block size.
    ///
    /// # Errors
    /// There is none.
    pub fn target(&self, block_bytes: usize) -> Result<&Target, Failure> {
        let found = self.targets.iter().find(|target| target.slot_bytes() == block_bytes);
        found.ok_or_else(|| format!("no volume has slots of {block_bytes} bytes").into())
    }
}

impl Contender for Ours {
    fn name(&self) -> &str {
        "ours"
    }

    fn turn(&mut self, cell: Cell, length: Duration) -> Result<Turn, Failure> {
        self.drawn += 1;
        let target = self.target(cell.block_bytes)?;
        let all = 0..target.slots();
        let load = Load { depth: cell.depth, way: cell.way, slots: all, seed: mix(self.drawn) };
        block_on(closed_loop(target, load, Until::Elapsed(length)))
    }
}

/// Writes and names every slot.
async fn write_all(target: &Target, depth: usize) -> Result<(), Failure> {
    let mut under_way = UnderWay::default();
    for slot in 0..target.slots() {
        let block = match slot as usize {
            free if free < depth => free,
            _ => under_way.next().await.ok_or("nothing is under way")??,
        };
        under_way.push(write(target, slot, block));
    }
    while let Some(written) = under_way.next().await {
        written?;
    }
    Ok(())
}

/// Writes a slot; returns the buffer's index, which is free again.
async fn write(target: &Target, slot: u32, block: usize) -> Result<usize, Failure> {
    let buffer = target.arena().read(block)?;
    target.write(slot, hash(slot), buffer).await?;
    Ok(block)
}

async fn read(target: &Target, slot: u32, block: usize, urgent: bool) -> Result<usize, Failure> {
    let buffer = target.arena().write(block)?;
    match target.read(slot, hash(slot), urgent, buffer).await? {
        Some(_) => Ok(block),
        None => Err(format!("slot {slot} was written and is a miss").into()),
    }
}

/// The load of a closed loop.
struct Load {
    depth: usize,
    way: Way,
    slots: std::ops::Range<u32>,
    seed: u64,
}

/// The condition at which a loop begins no more requests.
enum Until<'a> {
    Elapsed(Duration),
    Told(&'a AtomicBool),
}

/// Keeps `depth` requests in flight on one thread: when one ends, the next begins.
async fn closed_loop(target: &Target, load: Load, until: Until<'_>) -> Result<Turn, Failure> {
    let Load { depth, way, slots, mut seed } = load;
    let mut busy = vec![false; slots.len()];
    let mut under_way = UnderWay::default();
    let begin = |block: usize, seed: &mut u64, busy: &mut [bool]| {
        *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let draw = mix(*seed);
        let mut at = (draw >> 32) as usize % busy.len();
        // Requests are not ordered, so no other request may use a slot that is being written.
        // There are more slots than buffers.
        while busy[at] {
            at = (at + 1) % busy.len();
        }
        busy[at] = true;
        let slot = slots.start + at as u32;
        let reads = match way {
            Way::Read => true,
            Way::Write => false,
            Way::Mix => draw % 100 < READS_OF_100,
        };
        async move {
            let ended = match reads {
                true => read(target, slot, block, false).await,
                false => write(target, slot, block).await,
            };
            ended.map(|block| (at, block))
        }
    };
    if slots.len() < depth {
        return Err(format!("{} slots for a depth of {depth}: raise --footprint", slots.len()).into());
    }
    let (calls, cpu, start) = (target.calls(), cpu_seconds(), Instant::now());
    for block in 0..depth {
        under_way.push(begin(block, &mut seed, &mut busy));
    }
    let mut blocks = 0;
    while let Some(ended) = under_way.next().await {
        let (at, block) = ended?;
        busy[at] = false;
        blocks += 1;
        let more = match until {
            Until::Elapsed(length) => start.elapsed() < length,
            // Relaxed: it only ends a loop.
            Until::Told(stop) => !stop.load(Relaxed),
        };
        if more {
            under_way.push(begin(block, &mut seed, &mut busy));
        }
    }
    Ok(Turn {
        bytes: blocks * target.slot_bytes() as u64,
        seconds: start.elapsed().as_secs_f64(),
        cpu_seconds: cpu_seconds() - cpu,
        calls: Some(target.calls() - calls),
    })
}

/// Urgent reads beside writes.
#[derive(Clone, Debug)]
pub struct Beside {
    /// The time of each read, in milliseconds.
    pub read_ms: Vec<f64>,
    /// The writes meanwhile.
    pub written: Turn,
}

/// Reads single blocks, `between` apart or back to back, beside a closed loop of writes. The first
/// eighth of the slots is read, the rest written.
///
/// # Errors
/// An error of the volume.
pub fn beside_writes(
    target: &Target,
    depth: usize,
    between: Option<Duration>,
    length: Duration,
) -> Result<Beside, Failure> {
    let read_slots = (target.slots() / 8).max(1);
    let own_buffer = target.arena().blocks() - 1;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut read_ms = Vec::new();
            let start = Instant::now();
            let mut due = start;
            let mut failed = None;
            while start.elapsed() < length && failed.is_none() {
                if let Some(between) = between {
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    due = (due + between).max(Instant::now());
                }
                let slot = mix(read_ms.len() as u64) as u32 % read_slots;
                let asked = Instant::now();
                match block_on(read(target, slot, own_buffer, true)) {
                    Ok(_) => read_ms.push(asked.elapsed().as_secs_f64() * 1e3),
                    Err(error) => failed = Some(error.to_string()),
                }
            }
            stop.store(true, Relaxed);
            failed.map_or(Ok(read_ms), Err)
        });
        let load = Load { depth, way: Way::Write, slots: read_slots..target.slots(), seed: 1 };
        let written = block_on(closed_loop(target, load, Until::Told(&stop)));
        let read_ms = reader.join().map_err(|_| "the reader panicked")??;
        Ok(Beside { read_ms, written: written? })
    })
}

/// A prefix on disk, requested at once.
#[derive(Clone, Copy, Debug)]
pub struct Cold {
    /// The time until the first block is usable.
    pub first_ms: f64,
    /// The time until all are.
    pub all_ms: f64,
    /// The time of one block's read alone.
    pub alone_ms: f64,
}

/// Requests [`PREFIX`] blocks at once, after it has read some alone.
///
/// # Errors
/// An error of the volume.
pub fn cold_prefix(target: &Target, round: u64) -> Result<Cold, Failure> {
    let slot = |i: usize| mix((round << 20) | i as u64) as u32 % target.slots();
    let ms = |start: Instant| start.elapsed().as_secs_f64() * 1e3;
    let mut alone = Vec::new();
    for i in 0..16 {
        let start = Instant::now();
        block_on(read(target, slot(PREFIX + i), 0, true))?;
        alone.push(ms(start));
    }
    let buffers = (0..PREFIX).map(|block| target.arena().write(block)).collect::<Result<Vec<_>, _>>()?;
    let start = Instant::now();
    let asked: Vec<_> = buffers
        .into_iter()
        .enumerate()
        .map(|(i, buffer)| target.read(slot(i), hash(slot(i)), true, buffer))
        .collect();
    let mut first_ms = 0.0;
    for (i, one) in asked.into_iter().enumerate() {
        block_on(one)?.ok_or_else(|| format!("slot {} was written and is a miss", slot(i)))?;
        if i == 0 {
            first_ms = ms(start);
        }
    }
    Ok(Cold { first_ms, all_ms: ms(start), alone_ms: Spread::of(alone).median })
}
