//! Helpers of several tests: replays in a temporary directory, and the trace in memory.
#![allow(dead_code, unused_imports, reason = "each test uses some of it")]

#[path = "../../../tests/common/random.rs"]
mod random;
#[path = "../../../tests/common/volume.rs"]
pub mod volume;

use kvstrata_cli::replay::{Device, Progress, Replay, Report, Settings};
use kvstrata_cli::trace::{Request, TraceReader, TraceSource};
use kvstrata_ffi::device::SimDevice;
pub use random::Random;
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
    // The counts must not depend on the load of the machine.
    let patience = settings.patience.or(Some(std::time::Duration::from_secs(100)));
    let replay = Replay::new(Settings { patience, ..settings }, device).expect("possible settings");
    replay.run(trace, observe).expect("a replay")
}

/// A trace with the given ids, in a file in `folder`.
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

/// A plain LRU: a stamp for each id, and the ids in the order of their stamps.
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

    /// Makes an id the most recent one, and adds it if it is new.
    pub fn touch(&mut self, id: u64) {
        self.clock += 1;
        if let Some(old) = self.stamps.insert(id, self.clock) {
            self.order.remove(&old);
        }
        self.order.insert(self.clock, id);
    }

    /// Removes the oldest id that is not pinned.
    pub fn evict(&mut self, pinned: impl Fn(u64) -> bool) -> Option<u64> {
        let (stamp, id) = self.order.iter().find(|(_, id)| !pinned(**id)).map(|(stamp, id)| (*stamp, *id))?;
        self.order.remove(&stamp);
        self.stamps.remove(&id);
        Some(id)
    }
}
