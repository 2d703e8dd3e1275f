//! A whole replay: the requests of one trace, several at a time, and the report.
//!
//! ```text
//!   trace ─► a worker is idle ─► the time has come ─► the device has room ─► a task ─► observed
//!            (--concurrency)     (--speed)            (admission)
//! ```
//!
//! Requests share one device. If each took blocks as it went, two half-served requests could fill the
//! device and wait for each other until a deadline. So a request is admitted when as many blocks as it
//! can come to hold are unreserved. The scheduler of an engine does the same.
//!
//! Invariants
//! - I1: admitted requests hold no more blocks than the device has, shared blocks counted for each
//!   holder. Every block that a request may still ask for is free, or evictable, or about to be released
//!   by a request or transfer that does not wait.
//! - I2: a request that waits for admission holds no block. Requests are admitted in the order of the trace.
//! - I3: after a stop no request begins, whatever the replay waits for. Requests
//!   that have begun end as usual.
//!
//! # Orderings
//! `stop` is read with Acquire, so everything that was stored before it was set, for example the reason,
//! is visible after the replay. Pairs with the store that sets it.

use super::device::Device;
use super::error::ReplayError;
use super::intake::{Arrival, Intake};
use super::pattern::Pattern;
use super::report::Report;
use super::series::{Sample, Series, Served};
use super::settings::Settings;
use super::tally::Tally;
use super::tiers::{PATIENCE, Tiers};
use super::volume::FillProgress;
use super::worker::{Worker, nanoseconds};
use crate::trace::{Request, TraceReader};
use kvstrata::metrics::Requests;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinSet};

/// How often a wait polls `stop`.
const TICK: Duration = Duration::from_millis(100);

/// The progress of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Requests taken from the trace.
    pub requests: u64,
    /// Bytes taken from the (compressed) trace.
    pub input_bytes: u64,
}

/// A replay whose tiers exist. Device and host are empty; the disk tier may have blocks of an earlier run.
///
/// ```
/// use kvstrata_cli::replay::{Device, Replay, Settings};
/// use kvstrata_cli::trace::{TraceReader, TraceSource};
/// use kvstrata_ffi::device::SimDevice;
///
/// let small = Settings { requests: Some(50), block_bytes: 4096, ..Settings::default() };
/// let settings = Settings { host_blocks: 256, disk_blocks: 0, ..small };
/// let device = SimDevice::new(settings.device_blocks as usize, settings.block_bytes)?;
/// let replay = Replay::new(settings, Device::simulated(device))?;
/// let report = replay.run(TraceReader::open(TraceSource::Bundled)?, &|_| {})?;
/// assert_eq!((report.requests, report.wrong_bytes), (50, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Replay {
    settings: Settings,
    tiers: Tiers,
    setup: Duration,
    stop: Arc<AtomicBool>,
}

/// Serves requests: idle and busy workers, and the unreserved blocks of the device.
struct Service<'r> {
    settings: &'r Settings,
    tiers: &'r Arc<Tiers>,
    /// Unreserved blocks of the device.
    room: Arc<Semaphore>,
    idle: Vec<Worker>,
    busy: JoinSet<(Worker, Progress, Served)>,
    /// Requests that wait for admission.
    waiting: u64,
    observe: &'r dyn Fn(Progress),
    stop: &'r AtomicBool,
    /// Samples, if the caller wants them.
    series: Option<Series>,
}

/// How a replay ended, if not by an error.
#[derive(Clone, Copy, PartialEq)]
enum End {
    /// All requests were taken.
    Whole,
    /// `stop` was set.
    Stopped,
}

/// The counts, the samples, and whether they cover the whole trace.
type Counted = (Tally, Option<Series>, End);

/// The arrival of requests: the times of the trace, `speed` times as fast.
struct Pace {
    speed: f64,
    began: Instant,
}

/// Times since the first request of the trace.
#[derive(Default)]
struct Times {
    /// Time of the first request, in milliseconds.
    first: Option<f64>,
}

impl Replay {
    /// Makes the tiers: memory, and the files of the disk tier. `device` must have `--device-blocks`
    /// blocks of `--block-bytes`.
    ///
    /// # Errors
    /// [`ReplayError`]. After an error nothing is left behind.
    pub fn new(settings: Settings, device: Device) -> Result<Replay, ReplayError> {
        Replay::with_progress(settings, device, Arc::new(|_, _| {}))
    }

    /// Like [`new`](Replay::new). `filled` receives the progress of filling each file:
    /// bytes done, bytes in total.
    ///
    /// # Errors
    /// As [`new`](Replay::new).
    pub fn with_progress(
        settings: Settings,
        device: Device,
        filled: FillProgress,
    ) -> Result<Replay, ReplayError> {
        let since = Instant::now();
        let tiers = Tiers::new(&settings, device, &filled)?;
        Ok(Replay { settings, tiers, setup: since.elapsed(), stop: Arc::default() })
    }

    /// Ends the replay early once `stop` is true, within about 100 ms, whatever the replay waits for. No
    /// further request begins. Requests that have begun are served to their end, and the report covers
    /// them ([`Report::interrupted`]). The tiers are shut down as usual.
    #[must_use]
    pub fn stopped_by(self, stop: Arc<AtomicBool>) -> Replay {
        Replay { stop, ..self }
    }

    /// The address at which the manager serves its metrics; `None` without `metrics`.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.tiers.manager.metrics_address()
    }

    /// Serves the trace. Calls `observe` after each request served.
    ///
    /// A wrong byte is a result, not an error: see [`Report::wrong_bytes`].
    ///
    /// # Errors
    /// [`ReplayError`], if the trace cannot be read to its end, or a resource of the machine fails.
    pub fn run(self, trace: TraceReader, observe: &dyn Fn(Progress)) -> Result<Report, ReplayError> {
        self.run_and_sample(trace, observe, false).map(|(report, _)| report)
    }

    /// Like [`run`](Replay::run), with samples of the counts and of the fill of the tiers, from the
    /// beginning to the end. There are some thousand samples at most, each taken after a request.
    ///
    /// # Errors
    /// As [`run`](Replay::run).
    pub fn run_sampled(
        self,
        trace: TraceReader,
        observe: &dyn Fn(Progress),
    ) -> Result<(Report, Vec<Sample>), ReplayError> {
        self.run_and_sample(trace, observe, true)
    }

    fn run_and_sample(
        self,
        trace: TraceReader,
        observe: &dyn Fn(Progress),
        sampled: bool,
    ) -> Result<(Report, Vec<Sample>), ReplayError> {
        let since = Instant::now();
        let (origin, warnings) = (trace.source().to_string(), trace.warnings());
        let Replay { settings, tiers, setup, stop } = self;
        let (handle, tiers) = (tiers.runtime.handle().clone(), Arc::new(tiers));
        let service = Service {
            settings: &settings,
            tiers: &tiers,
            room: Arc::new(Semaphore::new(settings.device_blocks as usize)),
            idle: Vec::new(),
            busy: JoinSet::new(),
            waiting: 0,
            observe,
            stop: &stop,
            series: sampled.then(|| Series::new(&tiers)),
        };
        let served = handle.block_on(service.serve(trace));
        let wall = since.elapsed();
        // Transfers in flight end first, so that they are counted.
        handle.block_on(tiers.manager.shutdown());
        let report = served.map(|(tally, series, end)| {
            let samples = series.map_or(Vec::new(), |series| series.end(&tiers));
            let interrupted = end == End::Stopped;
            let trace = (origin, warnings.list());
            (Report::new(&settings, trace, &tiers, &tally, [setup, wall], interrupted), samples)
        });
        if let Some(tiers) = Arc::into_inner(tiers) {
            tiers.close();
        }
        report
    }
}

impl Service<'_> {
    /// Serves all requests and returns the counts. After an error no request begins, and those
    /// that have begun end first.
    async fn serve(mut self, trace: TraceReader) -> Result<Counted, ReplayError> {
        let served = self.serve_all(trace).await;
        // A request that waited at the stop waits no more.
        self.waiting = 0;
        self.tell();
        let ended = loop {
            match self.join().await {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        let end = served?;
        ended?;
        let mut tally = Tally::default();
        self.idle.iter().for_each(|worker| tally.merge(&worker.tally));
        Ok((tally, self.series, end))
    }

    async fn serve_all(&mut self, trace: TraceReader) -> Result<End, ReplayError> {
        let pace = Pace { speed: self.settings.speed, began: Instant::now() };
        let mut times = Times::default();
        let workers = self.settings.concurrency;
        let trace = Intake::new(trace, self.settings.requests.unwrap_or(u64::MAX));
        let mut trace = trace.map_err(|source| ReplayError::Runtime { workers, source })?;
        for requests in 1.. {
            while self.busy.len() >= workers {
                self.join().await?;
            }
            let Some(arrival) = self.unless_stopped(trace.next()).await? else { return Ok(End::Stopped) };
            let Some(Arrival { request, line, input_bytes }) = arrival? else { break };
            let time = times.of(&request);
            let due = pace.due(time);
            if let Some(due) = due
                && self.unless_stopped(tokio::time::sleep_until(due.into())).await?.is_none()
            {
                return Ok(End::Stopped);
            }
            self.waiting = 1;
            self.tell();
            let room = self.admit(&request).await?;
            let Some(room) = room.filter(|_| !self.stop.load(Acquire)) else { return Ok(End::Stopped) };
            self.waiting = 0;
            self.begin(request, (line, time, due), room, Progress { requests, input_bytes });
            self.tell();
        }
        Ok(End::Whole)
    }

    /// Updates the figures that a router reads from a worker.
    fn tell(&self) {
        self.tiers.manager.tell_requests(Requests {
            active_slots: self.busy.len() as u64,
            total_slots: self.settings.concurrency as u64,
            waiting: self.waiting,
        });
    }

    /// Waits for `what`. Requests that end in the meantime are collected, and the figures are updated.
    async fn meanwhile<T>(&mut self, what: impl Future<Output = T>) -> Result<T, ReplayError> {
        let mut what = pin!(what);
        loop {
            let ended = poll_fn(|context| match what.as_mut().poll(context) {
                Poll::Ready(value) => Poll::Ready(Err(value)),
                Poll::Pending => match self.busy.poll_join_next(context) {
                    Poll::Ready(Some(ended)) => Poll::Ready(Ok(ended)),
                    Poll::Ready(None) | Poll::Pending => Poll::Pending,
                },
            });
            match ended.await {
                Err(value) => return Ok(value),
                Ok(ended) => self.joined(ended)?,
            }
        }
    }

    /// Like [`meanwhile`](Service::meanwhile); `None` if `stop` is set first.
    async fn unless_stopped<T>(&mut self, what: impl Future<Output = T>) -> Result<Option<T>, ReplayError> {
        let (stop, mut what) = (self.stop, pin!(what));
        let what = async {
            loop {
                match tokio::time::timeout(TICK, what.as_mut()).await {
                    Ok(value) => return Some(value),
                    Err(_) if stop.load(Acquire) => return None,
                    Err(_) => {}
                }
            }
        };
        self.meanwhile(what).await
    }

    /// Waits until the device has room for all blocks of the request; `None` if `stop` is set. By I1 this
    /// takes long only if a transfer does not end.
    async fn admit(&mut self, request: &Request) -> Result<Option<OwnedSemaphorePermit>, ReplayError> {
        let device_blocks = self.settings.device_blocks as usize;
        let blocks = request.hash_ids.len().min(device_blocks);
        let room = Arc::clone(&self.room).acquire_many_owned(blocks as u32);
        match self.unless_stopped(tokio::time::timeout(PATIENCE, room)).await? {
            None => Ok(None),
            Some(Ok(Ok(room))) => Ok(Some(room)),
            Some(_) => {
                let (workers, seconds) = (self.settings.concurrency, PATIENCE.as_secs());
                Err(ReplayError::Stuck { workers, seconds, blocks, device_blocks })
            }
        }
    }

    fn begin(
        &mut self,
        request: Request,
        (line, time, due): (u64, Duration, Option<Instant>),
        room: OwnedSemaphorePermit,
        progress: Progress,
    ) {
        let pattern = Pattern::new(self.settings.seed);
        let new = || Worker::new(Arc::clone(self.tiers), pattern, self.settings.block_bytes);
        let mut worker = self.idle.pop().unwrap_or_else(new);
        if let Some(due) = due {
            worker.tally.lateness.record(nanoseconds(due));
        }
        let served = async move {
            let served = Served::begin(time, &worker.tally);
            worker.serve(&request, line).await;
            drop(room);
            let served = served.end(&worker.tally);
            (worker, progress, served)
        };
        self.busy.spawn_on(served, self.tiers.runtime.handle());
    }

    /// Waits for a request to end. Returns false if none is in progress.
    async fn join(&mut self) -> Result<bool, ReplayError> {
        match self.busy.join_next().await {
            None => Ok(false),
            Some(ended) => self.joined(ended).map(|()| true),
        }
    }

    /// Collects a request that has ended.
    fn joined(&mut self, ended: Result<(Worker, Progress, Served), JoinError>) -> Result<(), ReplayError> {
        let (worker, progress, served) = ended.map_err(|_| ReplayError::Panic)?;
        self.tell();
        self.idle.push(worker);
        if let Some(series) = &mut self.series {
            series.add(&served, self.tiers);
        }
        (self.observe)(progress);
        Ok(())
    }
}

impl Pace {
    /// When a request should begin; `None` without `--speed`.
    fn due(&self, time: Duration) -> Option<Instant> {
        if self.speed <= 0.0 {
            return None;
        }
        let after = Duration::try_from_secs_f64(time.as_secs_f64() / self.speed);
        Some(self.began.checked_add(after.unwrap_or_default()).unwrap_or(self.began))
    }
}

impl Times {
    /// The time of a request since the first request of the trace.
    fn of(&mut self, request: &Request) -> Duration {
        let first = *self.first.get_or_insert(request.timestamp);
        // A time that is not a number, or before the first, becomes 0.
        Duration::try_from_secs_f64((request.timestamp - first) / 1000.0).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_the_first_request() {
        let mut times = Times::default();
        let of = |timestamp| Request { timestamp, ..Request::default() };
        let seconds = [2000.0, 5000.0, 1000.0, f64::NAN, 2500.0].map(|at| times.of(&of(at)).as_secs_f64());
        assert_eq!(seconds, [0.0, 3.0, 0.0, 0.0, 0.5]);
        let pace = |speed| Pace { speed, began: Instant::now() };
        assert_eq!(pace(0.0).due(Duration::from_secs(3)), None);
        let twice = pace(2.0);
        assert_eq!(twice.due(Duration::from_secs(3)), Some(twice.began + Duration::from_millis(1500)));
    }
}
