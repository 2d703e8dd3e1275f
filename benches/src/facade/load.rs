//! 1,000 requests at once over a full device, with offload running: the time of
//! an allocation, and of a release.
//!
//! ```text
//!   each of 1,000 tasks   pause ──► allocate 1–64 ──► hold ──► register, fresh names ──► release ──► pause …
//!                         0.9–2.7 s  timed            125–375 ms                          timed
//!   an engine             step() each 10 ms: the next victims are copied to the host (watermarks 0.90, 0.85)
//! ```
//!
//! The machine can bear this load: all registered blocks have to go down some time, so 16,000 blocks of
//! 64 KiB a second are 1 GB/s of copies, a part of the memory's bandwidth; and half of the device is
//! held at any time. So the waits found here are caused by the manager itself. The same tasks run over
//! more managers, in turns with it. Without a tier below, victims are dropped: this shows the machine's
//! own part. With nothing copied ahead, an allocation waits while its own victims go down: this shows
//! the worth of copying ahead. With a disk below the host, which is full too, each block that comes to
//! the host has another one written to the disk, and an allocation may wait for that.
//!
//! Two workers of a runtime, and two copying threads, the default on a machine of two cores.

use super::ground::{build, settings};
use super::report::{Cell, Table};
use crate::disk::Failure;
use crate::disk::files::Folder;
use crate::inputs::{mix, sequence};
use crate::rounds::Spread;
use kvstrata::manager::{KvBlockManager, Tiers};
use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Poll;
use std::time::{Duration, Instant};

/// Requests at once.
const TASKS: u64 = 1000;
/// Bytes of a block.
const BLOCK_BYTES: usize = 64 << 10;
/// Blocks of the device: twice the average number of held blocks.
const DEVICE: u32 = 8192;
/// Blocks of the host, full too.
const HOST: u32 = 16_384;
/// Blocks of the disk, if there is one: each is written anew after some seconds.
const DISK: u32 = 2 * HOST;
/// Blocks of the host that are kept free for victims if there is a disk.
const HEADROOM: u32 = 16;
/// Maximum blocks of a request.
const MOST: u64 = 64;
/// The mean pause; pauses and holds are drawn from half of their mean to one and a half.
const PAUSE: Duration = Duration::from_millis(1800);
/// The mean time for which a request holds its blocks.
const HOLD: Duration = Duration::from_millis(250);
/// The time between two steps of the engine.
const STEP: Duration = Duration::from_millis(10);
/// The time after the start before anything counts.
const SETTLE: Duration = Duration::from_millis(2500);

/// The length of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// Turns of each manager.
    pub rounds: usize,
    /// The length of a turn.
    pub turn: Duration,
}

/// The events of some turns, times in nanoseconds.
#[derive(Clone, Debug, Default)]
struct Seen {
    allocations: Vec<u64>,
    releases: Vec<u64>,
    waited: usize,
    blocks: usize,
}

impl Seen {
    fn add(&mut self, mut other: Seen) {
        self.allocations.append(&mut other.allocations);
        self.releases.append(&mut other.releases);
        self.waited += other.waited;
        self.blocks += other.blocks;
    }
}

/// Returns the value that one in `above` exceeds.
fn quantile(sorted: &[u64], above: usize) -> f64 {
    let at = sorted.len().saturating_sub(1 + sorted.len() / above);
    sorted.get(at).map_or(f64::NAN, |time| *time as f64)
}

/// One of the requests, again and again.
struct Task {
    manager: Tiers,
    number: u64,
    from: Instant,
    stop: Arc<AtomicBool>,
}

impl Task {
    async fn run(self) -> Result<Seen, String> {
        let (mut seen, mut draw, mut hashes) = (Seen::default(), self.number << 20, Vec::new());
        let mut drawn = || {
            draw += 1;
            mix(draw)
        };
        // Tasks begin at a random moment of their pause.
        tokio::time::sleep(PAUSE.mul_f64((drawn() % 1000) as f64 / 1000.0)).await;
        // Relaxed: it only ends a loop.
        while !self.stop.load(Relaxed) {
            let blocks = 1 + (drawn() % MOST) as usize;
            let counts = Instant::now() >= self.from;
            let start = Instant::now();
            let (owned, waited) = awaited(self.manager.default_group().allocate(blocks)).await;
            let allocated = start.elapsed();
            let owned = owned.map_err(|error| error.to_string())?;
            tokio::time::sleep(around(HOLD, drawn())).await;
            hashes.clear();
            sequence(drawn() >> 20, blocks, &mut hashes);
            let held = owned.register(&hashes, None).map_err(|error| error.to_string())?;
            let start = Instant::now();
            drop(held);
            let released = start.elapsed();
            if counts {
                seen.allocations.push(allocated.as_nanos() as u64);
                seen.releases.push(released.as_nanos() as u64);
                seen.waited += usize::from(waited);
                seen.blocks += blocks;
            }
            tokio::time::sleep(around(PAUSE, drawn())).await;
        }
        Ok(seen)
    }
}

fn around(mean: Duration, drawn: u64) -> Duration {
    mean.mul_f64(0.5 + (drawn % 1000) as f64 / 1000.0)
}

/// Returns a future's output, and whether it had to wait.
async fn awaited<T>(future: impl IntoFuture<Output = T>) -> (T, bool) {
    let (mut future, mut waited) = (pin!(future.into_future()), false);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready((value, waited)),
        Poll::Pending => {
            waited = true;
            Poll::Pending
        }
    })
    .await
}

/// The managers: name, host blocks, disk blocks, and the device's watermarks.
const MANAGERS: [(&str, u32, u32, [f64; 2]); 4] = [
    ("façade, offload running", HOST, 0, [0.90, 0.85]),
    ("façade, no tier below", 0, 0, [0.90, 0.85]),
    ("façade, nothing copied ahead", HOST, 0, [1.0, 0.85]),
    ("façade, with a disk", HOST, DISK, [0.90, 0.85]),
];

/// Fills the device, and with it the host. Above a disk the host has the default headroom and watermarks.
async fn filled(
    host: u32,
    disk: u32,
    [high, low]: [f64; 2],
    folder: &Folder,
) -> Result<KvBlockManager, Failure> {
    let mut marks = settings(BLOCK_BYTES, DEVICE, host).watermark_device(high).watermark_device_low(low);
    if disk > 0 {
        let volume = vec![folder.file("facade-load")];
        marks = marks.disk_blocks(disk).disk_paths(volume).host_headroom(HEADROOM).watermark_host(0.90);
    }
    let manager = build(marks)?;
    let request = MOST as u32;
    for number in 0..(DEVICE + host) / request {
        let mut hashes = Vec::new();
        sequence((1 << 43) + u64::from(number), request as usize, &mut hashes);
        let blocks = manager.default_group().allocate(request as usize).await?;
        drop(blocks.register(&hashes, None).map_err(|error| error.why)?);
    }
    Ok(manager)
}

/// Runs one turn: all tasks, and an engine's steps beside them.
async fn turn(manager: &Tiers, round: usize, length: Duration) -> Result<(Seen, f64), Failure> {
    let (from, stop) = (Instant::now() + SETTLE, Arc::new(AtomicBool::new(false)));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let number = (round as u64 + 1) * TASKS + task;
            let task = Task { manager: manager.clone(), number, from, stop: Arc::clone(&stop) };
            tokio::spawn(task.run())
        })
        .collect();
    let engine = tokio::spawn({
        let (manager, stop) = (manager.clone(), Arc::clone(&stop));
        async move {
            let mut steps = tokio::time::interval(STEP);
            while !stop.load(Relaxed) {
                steps.tick().await;
                // No iteration runs.
                let _ = manager.step();
            }
        }
    });
    tokio::time::sleep(SETTLE).await;
    let (before, start) = (manager.stats().offloaded[0], Instant::now());
    tokio::time::sleep(length).await;
    let offloaded = (manager.stats().offloaded[0] - before) as f64 / start.elapsed().as_secs_f64();
    stop.store(true, Relaxed);
    let mut seen = Seen::default();
    for task in tasks {
        seen.add(task.await??);
    }
    engine.await?;
    Ok((seen, offloaded * BLOCK_BYTES as f64 / 1e9))
}

/// Measures this part.
///
/// # Errors
/// There is no room in the folder, a manager cannot be made, or an allocation failed.
pub fn measure(length: Length, parent: &Path) -> Result<Vec<Table>, Failure> {
    let folder = Folder::new(parent, u64::from(DISK) * BLOCK_BYTES as u64 + (256 << 20))?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_time().build()?;
    runtime.block_on(async {
        let mut managers = Vec::new();
        for (_, host, disk, marks) in MANAGERS {
            managers.push(filled(host, disk, marks, &folder).await?);
        }
        let mut turns: [Vec<(Seen, f64)>; MANAGERS.len()] = Default::default();
        for round in 0..length.rounds {
            for who in 0..MANAGERS.len() {
                let who = (who + round) % MANAGERS.len();
                turns[who].push(turn(&managers[who], round, length.turn).await?);
            }
        }
        Ok(vec![table(&turns, length)])
    })
}

fn table(turns: &[Vec<(Seen, f64)>; MANAGERS.len()], length: Length) -> Table {
    let mut table = Table::new(
        format!("{TASKS} requests at once over a full device, simulated device; microseconds"),
        &[
            "call",
            "contender",
            "p50",
            "p99",
            "p99 of turns",
            "reach, p99",
            "p99.9",
            "max",
            "requests a second",
            "waited for a copy",
            "copied down, GB/s",
        ],
    );
    for (what, reach, words) in [("allocate", 1000.0, "< 1,000"), ("release", 500.0, "< 500")] {
        for (turns, (who, ..)) in turns.iter().zip(MANAGERS) {
            let times = |seen: &Seen| match what {
                "allocate" => seen.allocations.clone(),
                _ => seen.releases.clone(),
            };
            let sorted = |mut times: Vec<u64>| {
                times.sort_unstable();
                times
            };
            let mut all = Seen::default();
            turns.iter().for_each(|(seen, _)| all.add(seen.clone()));
            let requests = all.allocations.len();
            let pooled = sorted(times(&all));
            let us = |nanoseconds: f64| Cell::number(nanoseconds / 1e3, 1);
            let each = Spread::of(turns.iter().map(|(seen, _)| quantile(&sorted(times(seen)), 100)));
            let p99 = quantile(&pooled, 100);
            // A turn's requests are those that began in it; the turn ends a hold later.
            let seconds = length.turn.as_secs_f64() * turns.len() as f64;
            let copied = Spread::of(turns.iter().map(|(_, rate)| *rate));
            table.rows.push(vec![
                Cell::word(what),
                Cell::word(who),
                us(quantile(&pooled, 2)),
                us(p99),
                Cell::range(each.per(1e3), 1),
                if who == MANAGERS[0].0 { Cell::reach(words, p99 < reach * 1e3) } else { Cell::none() },
                us(quantile(&pooled, 1000)),
                us(pooled.last().map_or(f64::NAN, |time| *time as f64)),
                Cell::number(requests as f64 / seconds, 0),
                match what {
                    "allocate" => Cell::word(format!("{:.2} %", 100.0 * all.waited as f64 / requests as f64)),
                    _ => Cell::none(),
                },
                Cell::figure(copied, 2),
            ]);
        }
    }
    table.notes.push(format!(
        "{DEVICE} blocks of 64 KiB, a request has 1 to {MOST}, held for {HOLD:?} and asked for again after {PAUSE:?} on average; \
         {} turns of {:?} each, 2 workers.",
        length.rounds, length.turn
    ));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waited_allocation_is_counted() {
        let (told, heard) = tokio::sync::oneshot::channel();
        let mut one = pin!(awaited(heard));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(one.as_mut().poll(&mut context).is_pending());
        told.send(7).expect("it is heard");
        assert_eq!(one.as_mut().poll(&mut context), Poll::Ready((Ok(7), true)));
        assert_eq!(futures_executor::block_on(awaited(std::future::ready(7))), (7, false));
    }

    #[test]
    fn quantiles_are_of_the_samples() {
        let sorted: Vec<u64> = (1..=1000).collect();
        assert_eq!([2, 100, 1000].map(|above| quantile(&sorted, above)), [500.0, 990.0, 999.0]);
        assert!(quantile(&[], 100).is_nan());
    }
}
