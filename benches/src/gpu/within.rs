//! Gather, scatter and permutation within a device's memory, in turns with one `cuMemcpyDtoDAsync` of
//! the same bytes and with the peer's kernels over the same blocks.

use super::kvbm::{Kvbm, Tables};
use super::memory::{Ferry, Side, ascending, bytes_of, scattered};
use super::oracle::{SOURCE, Wanted};
use super::report::{Reach, Row, Section, gb_per_s};
use super::scale::Shape;
use super::streams::{Contender, Lane, Stream, copies, submit, turns};
use super::{Bench, DEADLINE, Failure};
use kvstrata_core::BlockId;
use kvstrata_core::layout::HeadOrder::{self, Hnd, Nhd};
use kvstrata_core::layout::{Arrangement, Layout};
use kvstrata_core::plan::CopyPlan;
use kvstrata_core::storage::Storage;
use kvstrata_ffi::cuda::{
    Batch, CopyOptions, CudaCopy, Held, PreparedCopy, Purpose, QueueOptions, Route, TransferQueue,
};

/// Copies in flight: one executes while the next waits.
const WINDOW: usize = 4;
/// Blocks with compared bytes; the oracle is slow.
const CHECKED: usize = 2;
/// The contents of a destination before such a copy.
const WIPED: u8 = 0xEE;

/// The engine's memory and the tier's, for a section within the device.
struct Ground<'a> {
    bench: &'a Bench,
    ferry: Ferry,
    queue: TransferQueue,
    copier: CudaCopy,
    engine: Side,
    tier: Side,
    blocks: u32,
    /// The source by scattered numbers, the destination by ascending ones.
    gather: Lane,
}

/// A copy that takes turns.
struct Entry {
    what: String,
    copy: PreparedCopy,
    route: Option<Route>,
    lanes: Vec<Lane>,
    reach: Option<Reach>,
    /// The number of the peer's contender that does the same, from 1 on: the limit is 0.
    peer: Option<usize>,
}

/// The arrangements of an engine's blocks and of the tier's.
#[derive(Clone, Copy)]
struct Ways {
    engine: Arrangement,
    tier: Arrangement,
    tier_heads: HeadOrder,
}

const SAME: Ways =
    Ways { engine: Arrangement::OuterFirst, tier: Arrangement::FullyContiguous, tier_heads: Nhd };
const TURNED: Ways = Ways { tier_heads: Hnd, ..SAME };
/// The arrangement that the peer calls universal.
const UNIVERSAL: Ways = Ways { tier: Arrangement::CrossLayer, tier_heads: Hnd, ..SAME };
const BLOCK_FIRST: Ways = Ways { engine: Arrangement::BlockFirst, ..SAME };

impl<'a> Ground<'a> {
    fn new(bench: &'a Bench, shape: &Shape, section: &mut Section) -> Result<Ground<'a>, Failure> {
        let config = shape.config();
        // The engine's memory, twice the tier's, and some for everything else.
        let room = bench.device.memory()?.free_bytes / 10 * 8 / (3 * config.block_bytes()?);
        let blocks = bench.scale.blocks.min(u32::try_from(room).unwrap_or(u32::MAX)).max(1);
        if blocks < bench.scale.blocks {
            let left_out = bench.scale.blocks - blocks;
            section.skipped.push(format!("{left_out} of {} blocks: no memory for them", bench.scale.blocks));
        }
        // The longest of the engine's; the tier's all have one length.
        let engine_bytes = [Arrangement::OuterFirst, Arrangement::BlockFirst]
            .into_iter()
            .map(|arrangement| bytes_of(&config.num_blocks(2 * blocks), arrangement))
            .collect::<Result<Vec<_>, _>>()?;
        let tier_bytes = bytes_of(&config.num_blocks(blocks), Arrangement::FullyContiguous)?;
        Ok(Ground {
            bench,
            ferry: Ferry::new(&bench.device, (tier_bytes as usize).clamp(4096, 64 << 20))?,
            queue: TransferQueue::new(&bench.device, Purpose::Staging, QueueOptions::new())?,
            copier: bench.copier(CopyOptions::new()),
            engine: Side::new(&bench.device, engine_bytes.into_iter().max().unwrap_or(0))?,
            tier: Side::new(&bench.device, tier_bytes)?,
            gather: Lane { src: scattered(0, blocks), dst: ascending(0, blocks) },
            blocks,
        })
    }

    fn layouts(&self, shape: &Shape, ways: Ways) -> Result<[Layout; 2], Failure> {
        let (config, blocks) = (shape.config(), self.blocks);
        Ok([
            self.engine.lay(config.num_blocks(2 * blocks), ways.engine)?,
            self.tier.lay(config.num_blocks(blocks).head_order(ways.tier_heads), ways.tier)?,
        ])
    }

    /// Prepares a copy and checks its bytes against the oracle's, by every route that it has. The source
    /// has been filled.
    fn entry(&self, shape: &Shape, what: &str, ways: Ways, gathers: bool) -> Result<Entry, Failure> {
        let [engine, tier] = self.layouts(shape, ways)?;
        let Lane { src: numbers, dst: places } = self.gather.clone();
        let (src, dst, lane) = match gathers {
            true => ((&engine, &self.engine), (&tier, &self.tier), Lane { src: numbers, dst: places }),
            false => ((&tier, &self.tier), (&engine, &self.engine), Lane { src: places, dst: numbers }),
        };
        let plan = CopyPlan::new(src.0, &lane.src, dst.0, &lane.dst, .., ..)?;
        let copy = self.copier.prepare(&plan, src.1.place()?, dst.1.place()?)?;
        let few = |blocks: &[_]| blocks.iter().take(CHECKED).copied().collect();
        let some = Lane { src: few(&lane.src), dst: few(&lane.dst) };
        let base = src.1.storage.base_address();
        let wanted = Wanted::new((src.0, &some.src), (dst.0, &some.dst), base);
        for route in Route::ALL.into_iter().filter(|route| copy.has(*route).is_ok()) {
            self.wipe(dst.1)?;
            let transfer = submit(&copy, Some(route), &self.queue, &some, Batch::new())?;
            transfer.wait_for(DEADLINE)?.release().for_each(drop::<Held>);
            wanted
                .compare(&self.ferry, dst.1)
                .map_err(|error| format!("{what} by {}: {error}", route.name()))?;
        }
        let what = format!("{}: {what}", shape.name);
        Ok(Entry { what, copy, route: None, lanes: vec![lane; WINDOW], reach: None, peer: None })
    }

    /// Checks the peer's bytes against the oracle's, and returns its stream. The source has been filled.
    fn checked_peer<'s>(
        &self,
        what: &str,
        mut stream: Stream<'s>,
        engine: &Layout,
        tier: &Layout,
        gathers: bool,
    ) -> Result<(String, Stream<'s>), Failure> {
        let what = format!("kvbm-kernels {what}");
        let few = |blocks: &[BlockId]| blocks[..blocks.len().min(CHECKED)].to_vec();
        let (numbers, places) = (few(&self.gather.src), few(&self.gather.dst));
        let (engine, tier) = ((engine, &numbers[..], &self.engine), (tier, &places[..], &self.tier));
        let (src, dst) = if gathers { (engine, tier) } else { (tier, engine) };
        self.wipe(dst.2)?;
        let ran = stream.push().and_then(|()| stream.drain());
        ran.map_err(|error| format!("{what}: {error}"))?;
        Wanted::new((src.0, src.1), (dst.0, dst.1), src.2.storage.base_address())
            .compare(&self.ferry, dst.2)
            .map_err(|error| format!("{what}: {error}"))?;
        Ok((what, stream))
    }

    /// Overwrites a side, so that no check finds the bytes of an earlier one.
    fn wipe(&self, side: &Side) -> Result<(), Failure> {
        let mut batch = Batch::new();
        let bytes = side.storage.size_bytes();
        let all = batch.device(side.storage.range(0, bytes)?);
        let mut work = self.queue.begin(batch).map_err(|rejected| rejected.error)?;
        work.fill((all, 0), bytes, WIPED);
        work.finish().map_err(|rejected| rejected.error)?.wait_for(DEADLINE)?;
        Ok(())
    }

    /// Returns one copy of so many bytes, engine to tier.
    fn limit(&self, bytes: u64) -> Stream<'_> {
        let act = move |_, mut batch: Batch| {
            let from = batch.device(self.engine.storage.range(0, bytes)?);
            let to = batch.device(self.tier.storage.range(0, bytes)?);
            batch.copy((from, 0), (to, 0), bytes)?;
            Ok(self.queue.submit(batch).map_err(|rejected| rejected.error)?)
        };
        Stream::new(WINDOW, Box::new(act))
    }

    /// Measures all entries in turns with the limit and with the peer's contenders, which come behind
    /// the limit.
    fn measure(
        &self,
        section: &mut Section,
        bytes: u64,
        entries: &[Entry],
        peers: Vec<(String, Stream<'_>)>,
    ) -> Result<(), Failure> {
        let (names, streams): (Vec<_>, Vec<_>) = peers.into_iter().unzip();
        let mut contenders = vec![Contender::new(vec![self.limit(bytes)])];
        contenders.extend(streams.into_iter().map(|stream| Contender::new(vec![stream])));
        let first = contenders.len();
        contenders.extend(entries.iter().map(|entry| {
            Contender::new(vec![copies(&entry.copy, entry.route, &self.queue, None, &entry.lanes)])
        }));
        let samples = turns(self.bench.scale.effort, &mut contenders, self.bench.scale.ends)?;
        let row = |what: &str, who| Row::new(what, gb_per_s(bytes, samples.time(who)), "GB/s");
        section.rows.push(row(&format!("one cuMemcpyDtoDAsync of {bytes} bytes"), 0).note("the limit"));
        for (name, who) in names.iter().zip(1..) {
            section.rows.push(row(name, who).beside("the limit", samples.times(0, who), None).note("peer"));
        }
        for (entry, who) in entries.iter().zip(first..) {
            let mut row = row(&entry.what, who).beside("the limit", samples.times(0, who), entry.reach);
            if let Some(peer) = entry.peer {
                let whom = names[peer - 1].as_str();
                row = row.beside(whom, samples.times(peer, who), Some(Reach::Least(5.0)));
            }
            let route = match entry.route {
                Some(route) => route.name().to_owned(),
                None => {
                    let lane = &entry.lanes[0];
                    format!("chosen: {}", entry.copy.route(&lane.src, &lane.dst)?.name())
                }
            };
            section.rows.push(row.note(route));
        }
        Ok(())
    }
}

/// Measures this section.
///
/// # Errors
/// An error of a driver, or wrong bytes.
pub fn measure(bench: &Bench, section: &mut Section) -> Result<(), Failure> {
    let [llama, mla] = bench.scale.shapes;
    let ground = Ground::new(bench, &llama, section)?;
    if let Err(why) = ground.copier.kernels() {
        section.skipped.push(format!("kernels: {why}; the copy engine alone is measured"));
    }
    let bytes = llama.config().block_bytes()? * u64::from(ground.blocks);
    let kvbm = bench.bundle.as_deref().ok_or_else(|| "no bundle".into()).and_then(Kvbm::open);
    let peer = match &kvbm {
        Ok(kvbm) => Some(kvbm),
        Err(why) => {
            section.skipped.push(format!("kvbm-kernels: {why}"));
            None
        }
    };

    // Towards the tier.
    ground.ferry.fill(&ground.engine, SOURCE)?;
    let [least, least_turned] = [0.9, 0.8].map(|least| Some(Reach::Least(least)));
    let mut gathers = vec![
        Entry { reach: least, ..ground.entry(&llama, "gather", SAME, true)? },
        Entry { reach: least_turned, ..ground.entry(&llama, "gather, NHD to HND", TURNED, true)? },
        ground.entry(&llama, "gather, NHD to HND across layers", UNIVERSAL, true)?,
        ground.entry(&llama, "gather, [blocks][2]", BLOCK_FIRST, true)?,
    ];
    by_each_route(&mut gathers);
    let [engine, tier] = ground.layouts(&llama, SAME)?;
    let universal = &ground.layouts(&llama, UNIVERSAL)?[1];
    let tables = match peer {
        None => None,
        Some(_) => {
            Some(Tables::new(&ground.ferry, &bench.device, [&engine, &tier, universal], &ground.gather)?)
        }
    };
    let mut peers = Vec::new();
    if let (Some(kvbm), Some(tables)) = (peer, &tables) {
        for (what, permutes, layout, at) in
            [("vectorized_copy", false, &tier, 0), ("universal_from_block", true, universal, 2)]
        {
            let stream = kvbm.gather(&ground.queue, tables, permutes);
            match ground.checked_peer(what, stream, &engine, layout, true) {
                Ok(peer) => {
                    peers.push(peer);
                    gathers[at].peer = Some(peers.len());
                }
                Err(why) => section.skipped.push(why.to_string()),
            }
        }
    }
    ground.measure(section, bytes, &gathers, peers)?;
    drop(gathers);

    // And back.
    ground.ferry.fill(&ground.tier, SOURCE)?;
    let mut scatters = vec![
        Entry { reach: least, ..ground.entry(&llama, "scatter", SAME, false)? },
        Entry { reach: least_turned, ..ground.entry(&llama, "scatter, HND to NHD", TURNED, false)? },
        ground.entry(&llama, "scatter, HND across layers to NHD", UNIVERSAL, false)?,
        ground.entry(&llama, "scatter, [blocks][2]", BLOCK_FIRST, false)?,
    ];
    by_each_route(&mut scatters);
    let mut peers = Vec::new();
    if let (Some(kvbm), Some(tables)) = (peer, &tables) {
        for (what, permutes, layout, at) in
            [("vectorized_copy, back", false, &tier, 0), ("block_from_universal", true, universal, 2)]
        {
            let stream = kvbm.scatter(&ground.queue, tables, permutes);
            match ground.checked_peer(what, stream, &engine, layout, false) {
                Ok(peer) => {
                    peers.push(peer);
                    scatters[at].peer = Some(peers.len());
                }
                Err(why) => section.skipped.push(why.to_string()),
            }
        }
    }
    ground.measure(section, bytes, &scatters, peers)?;
    drop((scatters, tables, ground));

    // For information.
    let ground = Ground::new(bench, &mla, section)?;
    let bytes = mla.config().block_bytes()? * u64::from(ground.blocks);
    for (what, gathers) in [("gather", true), ("scatter", false)] {
        ground.ferry.fill(if gathers { &ground.engine } else { &ground.tier }, SOURCE)?;
        let entry = ground.entry(&mla, what, BLOCK_FIRST, gathers)?;
        ground.measure(section, bytes, &[entry], Vec::new())?;
    }
    Ok(())
}

/// Adds the first of them by each route as well.
fn by_each_route(entries: &mut Vec<Entry>) {
    let routes = Route::ALL.into_iter().filter(|route| entries[0].copy.has(*route).is_ok());
    let first = &entries[0];
    let more = routes.map(|route| Entry {
        what: format!("{}, by {}", first.what, route.name()),
        copy: first.copy.clone(),
        route: Some(route),
        lanes: first.lanes.clone(),
        reach: None,
        peer: None,
    });
    let more: Vec<Entry> = more.collect();
    entries.extend(more);
}

/// Puts torch's figures, of the same shape in a process of its own, beside ours.
///
/// # Errors
/// They are not the output of `torch_peer.py`.
pub fn beside_torch(section: &mut Section, torch: &serde_json::Value) -> Result<(), Failure> {
    let rows = torch["rows"].as_array().ok_or("torch: no rows")?;
    for theirs in rows {
        let what = theirs["what"].as_str().ok_or("torch: a row without a name")?;
        let quartile = |name: &str| theirs["gb_per_s"][name].as_f64().ok_or("torch: a row without a figure");
        let (low, median, high) = (quartile("q1")?, quartile("median")?, quartile("q3")?);
        let spread = crate::rounds::Spread { low, median, high };
        let note = torch["who"].as_str().unwrap_or("torch").to_owned();
        section.rows.push(Row::new(format!("torch: {what}"), spread, "GB/s").note(format!("peer; {note}")));
        let ours = section
            .rows
            .iter_mut()
            .find(|row| row.what.ends_with(&format!(": {what}")) && !row.note.starts_with("peer"));
        if let Some(ours) = ours {
            let value = ours.value;
            let ratio = crate::rounds::Spread {
                low: value.low / high,
                median: value.median / median,
                high: value.high / low,
            };
            let beside = super::report::Beside {
                whom: "torch, in turns of its own".to_owned(),
                ratio,
                reach: Some(Reach::Least(3.0)),
            };
            ours.beside.push(beside);
        }
    }
    Ok(())
}
