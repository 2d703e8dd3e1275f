//! A whole replay: workers that take requests from one trace, and what comes of it.

use super::error::ReplayError;
use super::pattern::Pattern;
use super::report::Report;
use super::settings::Settings;
use super::tally::Tally;
use super::tiers::{Tiers, enter_lane};
use super::volume::FillProgress;
use super::worker::Worker;
use crate::trace::{Request, TraceReader};
use kvstrata_core::storage::DevicePort;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a request may wait for room on the device.
const PATIENCE: Duration = Duration::from_secs(120);

/// How far a replay has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Requests taken from the trace.
    pub requests: u64,
    /// Bytes taken from the trace, compressed as it is.
    pub input_bytes: u64,
}

/// A replay whose tiers exist and are empty.
///
/// ```
/// use kvstrata::replay::{Replay, Settings};
/// use kvstrata::trace::{TraceReader, TraceSource};
/// use kvstrata_ffi::device::SimDevice;
///
/// let settings = Settings { requests: Some(50), host_blocks: 256, disk_blocks: 0, block_bytes: 4096, ..Settings::default() };
/// let device = SimDevice::new(settings.device_blocks as usize, settings.block_bytes)?;
/// let replay = Replay::new(settings, device)?;
/// let report = replay.run(TraceReader::open(TraceSource::Bundled)?, &|_| {})?;
/// assert_eq!((report.requests, report.wrong_bytes), (50, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Replay<D> {
    settings: Settings,
    tiers: Tiers<D>,
    setup: Duration,
}

/// The trace as workers share it.
struct Source {
    trace: TraceReader,
    taken: u64,
    limit: u64,
    /// The first error; nothing is taken after it.
    error: Option<ReplayError>,
}

impl<D: DevicePort> Replay<D> {
    /// Makes the tiers: memory, and the disk tier's file. `device` must have `--device-blocks` blocks of `--block-bytes`.
    ///
    /// # Errors
    /// [`ReplayError`]; nothing is left behind.
    pub fn new(settings: Settings, device: D) -> Result<Replay<D>, ReplayError> {
        Replay::with_progress(settings, device, Arc::new(|_, _| {}))
    }

    /// The same; `filled` is told how far writing new files through has come, a file at a time: bytes done, bytes in all.
    ///
    /// # Errors
    /// As [`new`](Replay::new).
    pub fn with_progress(
        settings: Settings,
        device: D,
        filled: FillProgress,
    ) -> Result<Replay<D>, ReplayError> {
        let since = Instant::now();
        let tiers = Tiers::new(&settings, device, &filled)?;
        Ok(Replay { settings, tiers, setup: since.elapsed() })
    }

    /// Serves the trace. `observe` is called by the workers, after each request that they have served.
    ///
    /// A wrong byte is no error but a result: see [`Report::wrong_bytes`].
    ///
    /// # Errors
    /// [`ReplayError`]: the trace cannot be read on, or the machine does not go along.
    pub fn run(self, trace: TraceReader, observe: &(dyn Fn(Progress) + Sync)) -> Result<Report, ReplayError> {
        let since = Instant::now();
        let origin = trace.source().to_string();
        let limit = self.settings.requests.unwrap_or(u64::MAX);
        let source = Mutex::new(Source { trace, taken: 0, limit, error: None });
        let mut tally = Tally::default();
        thread::scope(|scope| {
            let mut workers = Vec::new();
            for number in 0..self.settings.concurrency {
                let named = thread::Builder::new().name(format!("kvstrata-worker-{number}"));
                let (replay, source) = (&self, &source);
                match named.spawn_scoped(scope, move || replay.work(number, source, observe)) {
                    Ok(worker) => workers.push(worker),
                    Err(error) => fail(
                        source,
                        ReplayError::Thread { workers: self.settings.concurrency, source: error },
                    ),
                }
            }
            for worker in workers {
                match worker.join() {
                    Ok(one) => tally.merge(&one),
                    Err(_) => fail(&source, ReplayError::Panic),
                }
            }
        });
        let wall = since.elapsed();
        match source.into_inner().unwrap_or_else(PoisonError::into_inner).error {
            Some(error) => Err(error),
            None => Ok(Report::new(&self.settings, origin, &self.tiers, &tally, self.setup, wall)),
        }
    }

    fn work(&self, number: usize, source: &Mutex<Source>, observe: &(dyn Fn(Progress) + Sync)) -> Tally {
        enter_lane(number);
        let mut worker = Worker::new(&self.tiers, number, Pattern::new(self.settings.seed));
        loop {
            // Under the lock until admitted: requests are admitted in the order of the trace.
            let mut next = source.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(request) = next.take() else { break };
            let line = next.trace.line();
            let progress = Progress { requests: next.taken, input_bytes: next.trace.consumed_bytes() };
            let device_blocks = self.tiers.device.capacity();
            let blocks = request.hash_ids.len().min(device_blocks);
            let Some(_room) = self.tiers.gate.enter(blocks, PATIENCE) else {
                let (workers, seconds) = (self.settings.concurrency, PATIENCE.as_secs());
                next.error.get_or_insert(ReplayError::Stuck { workers, seconds, blocks, device_blocks });
                break;
            };
            drop(next);
            worker.serve(&request, line);
            observe(progress);
        }
        worker.tally
    }
}

impl Source {
    fn take(&mut self) -> Option<Request> {
        if self.error.is_some() || self.taken >= self.limit {
            return None;
        }
        match self.trace.next_request() {
            Ok(request) => {
                self.taken += u64::from(request.is_some());
                request
            }
            Err(error) => {
                self.error = Some(error.into());
                None
            }
        }
    }
}

fn fail(source: &Mutex<Source>, error: ReplayError) {
    source.lock().unwrap_or_else(PoisonError::into_inner).error.get_or_insert(error);
}
