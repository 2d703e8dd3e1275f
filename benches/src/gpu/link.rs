//! Between a device and pinned memory: pieces of many sizes and counts, each direction and both at once,
//! by each route and by the chosen one; beside the best of all routes, and beside one large copy each way.
//!
//! ```text
//!   device   layer 0  │k0│  │k1│  …   │v0│  │v1│  …   layer 1 … 8 layers: 16 pieces a block, none adjacent
//!   host     │ block 0: 16 pieces │ block 1 │ …                  first half: offloads, second half: onboards
//! ```

use super::memory::{Ferry, Side, ascending, byte_at, bytes_of, pinned, scattered, tier};
use super::oracle::{SOURCE, Wanted};
use super::report::{Reach, Row, Section, gb_per_s};
use super::scale::PIECES_A_BLOCK;
use super::streams::{Contender, Lane, Stream, copies, guard, submit, turns};
use super::{Bench, DEADLINE, Failure};
use crate::rounds::Spread;
use kvstrata_core::layout::{Arrangement, DType, Layout, LayoutConfig};
use kvstrata_core::plan::CopyPlan;
use kvstrata_core::storage::Storage;
use kvstrata_ffi::cuda::{
    Batch, CopyOptions, CudaDevice, Held, PinnedStorage, Place, PreparedCopy, Purpose, QueueOptions, Route,
    TransferQueue,
};
use std::sync::Arc;

/// Transfers in flight in a stream.
const WINDOW: u32 = 4;
/// Pieces from this size on are to reach PCIe's peak.
const PEAK_FROM: u64 = 32 << 10;
/// The maximum size of a block with compared bytes: the oracle is slow.
const CHECKED_BYTES: u64 = 4 << 20;

/// Both sides' memory for pieces of one size, and the copies between them.
pub(super) struct Link {
    pub(super) host: Arc<PinnedStorage>,
    /// Device to host, host to device.
    pub(super) copies: [PreparedCopy; 2],
    pub(super) queues: [TransferQueue; 2],
    layouts: [Layout; 2],
    engine: Side,
    /// Blocks of the host for one direction.
    half: u32,
}

impl Link {
    /// Prepares transfers of at most `count` pieces of `size` bytes; several fit if the cap of memory
    /// allows it.
    ///
    /// # Errors
    /// An error of the driver.
    pub(super) fn new(bench: &Bench, size: u64, count: u32, options: CopyOptions) -> Result<Link, Failure> {
        let (device, cap_bytes) = (&bench.device, bench.scale.cap_bytes);
        // 16 tokens of 128 elements of 2 bytes are 4 KiB a head.
        let config = LayoutConfig::new()
            .num_layers(8)
            .outer_dim(2)
            .page_size(16)
            .heads((size >> 12) as u32, 128)
            .dtype(DType::BF16)
            .alignment(256);
        let block_bytes = config.block_bytes()?;
        let most =
            cap_bytes.min(device.memory()?.free_bytes / 4).min(free_host_bytes() / 4) / block_bytes / 2;
        let half = u64::from(count / PIECES_A_BLOCK * WINDOW).min(most).max(1) as u32;
        let host = pinned(device, 2 * half as usize, block_bytes as usize)?;
        let engine_config = config.num_blocks(4 * half);
        let engine = Side::new(device, bytes_of(&engine_config, Arrangement::OuterFirst)?)?;
        let layouts = [engine.lay(engine_config, Arrangement::OuterFirst)?, tier(&host, config)?];
        let copier = bench.copier(options);
        let prepare = |from: usize, to: usize| -> Result<PreparedCopy, Failure> {
            let plan = CopyPlan::new(&layouts[from], &[], &layouts[to], &[], .., ..)?;
            let place = |side: usize| match side {
                0 => engine.place(),
                _ => Ok(Place::Host(Arc::clone(&host))),
            };
            Ok(copier.prepare(&plan, place(from)?, place(to)?)?)
        };
        let queue = |purpose| TransferQueue::new(device, purpose, QueueOptions::new());
        Ok(Link {
            copies: [prepare(0, 1)?, prepare(1, 0)?],
            queues: [queue(Purpose::Offload)?, queue(Purpose::Onboard)?],
            host,
            layouts,
            engine,
            half,
        })
    }

    /// Returns lanes of `count` pieces each of a direction; none if not even one fits.
    pub(super) fn lanes(&self, direction: usize, count: u32) -> Vec<Lane> {
        let blocks = count / PIECES_A_BLOCK;
        let lanes = (self.half / blocks).min(WINDOW);
        let first = direction as u32 * self.half;
        let lane = |n: u32| {
            let at = first + n * blocks;
            let (device, host) = (scattered(2 * at, blocks), ascending(at, blocks));
            if direction == 0 { Lane { src: device, dst: host } } else { Lane { src: host, dst: device } }
        };
        (0..lanes).map(lane).collect()
    }

    /// Returns a stream of a direction by a route, or by the chosen one.
    pub(super) fn stream<'a>(
        &'a self,
        direction: usize,
        route: Option<Route>,
        lanes: &'a [Lane],
    ) -> Stream<'a> {
        let writes = direction == 0;
        copies(&self.copies[direction], route, &self.queues[direction], Some((&self.host, writes)), lanes)
    }

    /// Returns the routes of both directions.
    pub(super) fn routes(&self) -> Vec<Route> {
        let there = |route: &Route| self.copies.iter().all(|copy| copy.has(*route).is_ok());
        Route::ALL.into_iter().filter(there).collect()
    }

    /// Compares a block's bytes with the oracle's, both ways, by each route.
    fn check(&self, ferry: &Ferry) -> Result<(), Failure> {
        let [engine, host] = &self.layouts;
        let few = |direction: usize| self.lanes(direction, PIECES_A_BLOCK).swap_remove(0);
        let (off, on) = (few(0), few(1));
        let base = self.host.base_address();
        ferry.fill_pages(&self.engine, engine, &off.src, SOURCE)?;
        let at = |block: u32| u64::from(block) * self.host.arena().stride() as u64;
        let offset = at(on.src[0].0);
        let mut block = self.host.arena().write(on.src[0].0 as usize)?;
        for (byte, n) in block.iter_mut().zip(offset..) {
            *byte = byte_at(SOURCE, n);
        }
        drop(block);
        let device_base = self.engine.storage.base_address();
        let wanted = Wanted::new((engine, &off.src), (host, &off.dst), device_base);
        let wanted_back = Wanted::new((host, &on.src), (engine, &on.dst), base);
        for route in self.routes() {
            self.host.arena().write(off.dst[0].0 as usize)?.fill(0xEE);
            self.once(0, route, &off)?;
            let get = |address: u64, bytes: u64| {
                let from = (address - base - at(off.dst[0].0)) as usize;
                Ok(self.host.arena().read(off.dst[0].0 as usize)?[from..from + bytes as usize].to_vec())
            };
            wanted.compare_by(get).map_err(|error| format!("device to host by {}: {error}", route.name()))?;
            ferry.fill_pages(&self.engine, engine, &on.dst, SOURCE + 1)?;
            self.once(1, route, &on)?;
            wanted_back
                .compare(ferry, &self.engine)
                .map_err(|error| format!("host to device by {}: {error}", route.name()))?;
        }
        Ok(())
    }

    fn once(&self, direction: usize, route: Route, lane: &Lane) -> Result<(), Failure> {
        let mut batch = Batch::new();
        guard(&mut batch, Some((&self.host, direction == 0)), lane)?;
        let transfer = submit(&self.copies[direction], Some(route), &self.queues[direction], lane, batch)?;
        transfer.wait_for(DEADLINE)?.release().for_each(drop::<Held>);
        Ok(())
    }
}

/// One large copy each way.
struct Peak {
    host: Arc<PinnedStorage>,
    side: Side,
    queues: [TransferQueue; 2],
    bytes: u64,
}

impl Peak {
    fn new(device: &Arc<CudaDevice>, bytes: u64) -> Result<Peak, Failure> {
        let queue = |purpose| TransferQueue::new(device, purpose, QueueOptions::new());
        Ok(Peak {
            host: pinned(device, 4, bytes as usize)?,
            side: Side::new(device, 2 * bytes)?,
            queues: [queue(Purpose::Offload)?, queue(Purpose::Onboard)?],
            bytes,
        })
    }

    fn stream(&self, direction: usize) -> Stream<'_> {
        let act = move |lane: usize, mut batch: Batch| {
            let device = self.side.storage.range(direction as u64 * self.bytes, self.bytes)?;
            let (arena, block) = (self.host.arena(), 2 * direction + lane);
            if direction == 0 {
                let (from, to) = (batch.device(device), batch.write(arena.write(block)?, &self.host)?);
                batch.copy((from, 0), (to, 0), self.bytes)?;
            } else {
                let (from, to) = (batch.read(arena.read(block)?, &self.host)?, batch.device(device));
                batch.copy((from, 0), (to, 0), self.bytes)?;
            }
            Ok(self.queues[direction].submit(batch).map_err(|rejected| rejected.error)?)
        };
        Stream::new(2, Box::new(act))
    }
}

/// Directions of copies at the same time.
const TRAFFIC: [(&str, &[usize]); 3] =
    [("device to host", &[0]), ("host to device", &[1]), ("both ways at once", &[0, 1])];

/// Measures this section.
///
/// # Errors
/// An error of a driver, or wrong bytes.
pub fn measure(bench: &Bench, section: &mut Section) -> Result<(), Failure> {
    let scale = &bench.scale;
    let peak = Peak::new(&bench.device, scale.peak_bytes)?;
    let ferry = Ferry::new(&bench.device, 4 << 20)?;
    for (name, directions) in TRAFFIC {
        let streams = directions.iter().map(|direction| peak.stream(*direction)).collect();
        let samples = turns(scale.effort, &mut [Contender::new(streams)], scale.ends)?;
        let bytes = scale.peak_bytes * directions.len() as u64;
        let what = format!("{name}, one copy of {} each way", size_of_pieces(scale.peak_bytes));
        section
            .rows
            .push(Row::new(what, gb_per_s(bytes, samples.time(0)), "GB/s").note("PCIe's measured peak"));
    }
    for size in &scale.sizes {
        let most = scale.counts.iter().copied().max().unwrap_or(PIECES_A_BLOCK);
        let link = Link::new(bench, *size, most, CopyOptions::new())?;
        if size * u64::from(PIECES_A_BLOCK) <= CHECKED_BYTES {
            link.check(&ferry)?;
        }
        for count in &scale.counts {
            for (name, directions) in TRAFFIC {
                let what = format!("{name}, {} × {count}", size_of_pieces(*size));
                if scale.is_over() {
                    section.skipped.push(format!("{what}: out of time"));
                } else if link.lanes(0, *count).is_empty() {
                    section.skipped.push(format!("{what}: above the cap of memory"));
                } else {
                    point(bench, section, &link, &peak, (*size, *count), (&what, directions))?;
                }
            }
        }
    }
    Ok(())
}

fn point(
    bench: &Bench,
    section: &mut Section,
    link: &Link,
    peak: &Peak,
    (size, count): (u64, u32),
    (what, directions): (&str, &[usize]),
) -> Result<(), Failure> {
    let lanes = [link.lanes(0, count), link.lanes(1, count)];
    let routes = link.routes();
    let bytes = size * u64::from(count) * directions.len() as u64;
    let chosen = directions.iter().map(|direction| {
        let Lane { src, dst } = &lanes[*direction][0];
        Ok(link.copies[*direction].route(src, dst)?.name())
    });
    let chosen = chosen.collect::<Result<Vec<_>, Failure>>()?.join(" and ");
    for (mode, window) in [("alone", 1), ("in a stream", lanes[0].len())] {
        let streams = |route: Option<Route>| {
            let of = |direction: &usize| link.stream(*direction, route, &lanes[*direction][..window]);
            Contender::new(directions.iter().map(of).collect())
        };
        let mut contenders: Vec<Contender<'_>> = vec![streams(None)];
        contenders.extend(routes.iter().map(|route| streams(Some(*route))));
        let beside_peak = window > 1 && size >= PEAK_FROM;
        if beside_peak {
            contenders
                .push(Contender::new(directions.iter().map(|direction| peak.stream(*direction)).collect()));
        }
        let samples = turns(bench.scale.link_effort, &mut contenders, bench.scale.ends)?;
        let time = |who: &usize| samples.time(*who).median;
        let best = (1..=routes.len()).min_by(|one, other| time(one).total_cmp(&time(other)));
        let each = routes
            .iter()
            .zip(1..)
            .map(|(route, who)| format!("{} {:.2}", route.name(), gb_per_s(bytes, samples.time(who)).median));
        let note = format!("chosen: {chosen}; GB/s: {}", each.collect::<Vec<_>>().join(", "));
        let mut row =
            Row::new(format!("{what}, {mode}"), gb_per_s(bytes, samples.time(0)), "GB/s").note(note);
        if let Some(best) = best {
            let whom = format!("the best ({})", routes[best - 1].name());
            row = row.beside(whom, samples.times(best, 0), Some(Reach::Least(0.97)));
        }
        if beside_peak {
            let share = (size * u64::from(count)) as f64 / bench.scale.peak_bytes as f64;
            let Spread { low, median, high } = samples.times(routes.len() + 1, 0);
            let ratio = Spread { low: low * share, median: median * share, high: high * share };
            row = row.beside("PCIe's peak", ratio, Some(Reach::Least(0.95)));
        }
        section.rows.push(row);
        if lanes[0].len() == 1 {
            section.skipped.push(format!("{what}, in a stream: above the cap of memory"));
            break;
        }
    }
    Ok(())
}

fn size_of_pieces(bytes: u64) -> String {
    if bytes >= 1 << 20 { format!("{} MiB", bytes >> 20) } else { format!("{} KiB", bytes >> 10) }
}

/// Returns the memory that the host can spare.
fn free_host_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib << 10)
}
