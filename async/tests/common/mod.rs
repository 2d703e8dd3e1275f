//! What several tests need: replays in a temporary directory, and the trace in memory.
#![allow(dead_code, reason = "each test uses some of it")]

pub mod volume;

use kvstrata::replay::{Device, Progress, Replay, Report, Settings};
use kvstrata::trace::{Request, TraceReader, TraceSource};
use kvstrata_ffi::device::SimDevice;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// The first `requests` requests of the bundled trace.
pub fn bundled(requests: usize) -> Vec<Request> {
    let reader = TraceReader::open(TraceSource::Bundled).expect("the bundled trace");
    reader.take(requests).map(|request| request.expect("good lines")).collect()
}

pub fn sim(settings: &Settings) -> SimDevice {
    SimDevice::new(settings.device_blocks as usize, settings.block_bytes).expect("memory")
}

pub fn device(settings: &Settings) -> Device {
    Device::simulated(sim(settings))
}

/// Serves the bundled trace.
pub fn replay(settings: Settings) -> Report {
    let device = device(&settings);
    replay_on(settings, device, &|_| {})
}

pub fn replay_on(settings: Settings, device: Device, observe: &dyn Fn(Progress)) -> Report {
    let trace = TraceReader::open(TraceSource::Bundled).expect("the bundled trace");
    run(settings, device, trace, observe)
}

pub fn run(settings: Settings, device: Device, trace: TraceReader, observe: &dyn Fn(Progress)) -> Report {
    // What is counted is not to depend on how busy the machine is.
    let patience = settings.patience.or(Some(std::time::Duration::from_secs(100)));
    let replay = Replay::new(Settings { patience, ..settings }, device).expect("possible settings");
    replay.run(trace, observe).expect("a replay")
}

/// A trace of the given ids, in a file of `folder`.
pub fn trace_file(folder: &Path, requests: &[Vec<u64>]) -> TraceReader {
    let lines: String = requests
        .iter()
        .map(|ids| {
            format!("{{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"hash_ids\":{ids:?}}}\n")
        })
        .collect();
    let path = folder.join("trace.jsonl");
    std::fs::write(&path, lines).expect("written");
    TraceReader::open(TraceSource::File(path)).expect("there")
}

/// The plainest LRU: a stamp for each id, and the ids in the order of their stamps.
#[derive(Default)]
pub struct Lru {
    stamps: HashMap<u64, u64>,
    order: BTreeMap<u64, u64>,
    clock: u64,
}

impl Lru {
    pub fn len(&self) -> usize {
        self.stamps.len()
    }

    pub fn contains(&self, id: u64) -> bool {
        self.stamps.contains_key(&id)
    }

    /// Makes an id the most recent one, whether it was there or not.
    pub fn touch(&mut self, id: u64) {
        self.clock += 1;
        if let Some(old) = self.stamps.insert(id, self.clock) {
            self.order.remove(&old);
        }
        self.order.insert(self.clock, id);
    }

    /// Takes the oldest id that is not pinned.
    pub fn evict(&mut self, pinned: impl Fn(u64) -> bool) -> Option<u64> {
        let (stamp, id) = self.order.iter().find(|(_, id)| !pinned(**id)).map(|(stamp, id)| (*stamp, *id))?;
        self.order.remove(&stamp);
        self.stamps.remove(&id);
        Some(id)
    }
}

/// Small numbers from a seed, the same every time: splitmix64.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
