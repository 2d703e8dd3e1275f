//! Measures the delay and the cost of completion: the time from a transfer's end until the queue
//! reports it, for each way of completion. The default of `QueueOptions` is to be chosen by
//! these figures. Needs a device.
//!
//! ```sh
//! cargo run --release -p kvstrata-ffi --example cuda_completion [ROUNDS [DEVICE]]
//! ```
//!
//! For 4 KiB and 2 MiB to the device: `alone` is one transfer at a time, from submission to the waiter's
//! return; `stream` is the time a transfer when 64 are queued at a time, which shows the cost of the
//! work that a way puts between them; `cpu` is the processor time of the whole process for each of
//! those. One line of JSON a row.

use core::time::Duration;
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::cuda::{
    Batch, CudaDevice, CudaDriver, CudaError, DeviceStorage, PinOptions, PinnedStorage, Purpose,
    QueueOptions, Transfer, TransferQueue, Way,
};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

const DEPTH: usize = 64;

struct Bench {
    queue: TransferQueue,
    host: Arc<PinnedStorage>,
    target: Arc<DeviceStorage>,
    bytes: u64,
    /// Batches that came back, so that no round allocates.
    idle: Vec<Batch>,
}

impl Bench {
    fn new(device: &Arc<CudaDevice>, way: Way, bytes: usize) -> Result<Bench, Box<dyn std::error::Error>> {
        let host = HostArena::new(DEPTH, bytes)?;
        Ok(Bench {
            queue: TransferQueue::new(device, Purpose::Onboard, QueueOptions::new().way(way))?,
            host: PinnedStorage::register(device, host, PinOptions::new(), &mut |_, _| {})?,
            target: DeviceStorage::allocate(device, (DEPTH * bytes) as u64)?,
            bytes: bytes as u64,
            idle: (0..DEPTH).map(|_| Batch::new()).collect(),
        })
    }

    fn submit(&mut self, block: usize) -> Result<Transfer, Box<dyn std::error::Error>> {
        let mut batch = self.idle.pop().unwrap_or_default();
        let from = batch.read(self.host.arena().read(block)?, &self.host)?;
        let to = batch.device(self.target.range(block as u64 * self.bytes, self.bytes)?);
        batch.copy((from, 0), (to, 0), self.bytes)?;
        Ok(self.queue.submit(batch).map_err(|rejected| rejected.error)?)
    }

    fn end(&mut self, transfer: Transfer) -> Result<(), CudaError> {
        let mut batch = transfer.wait()?;
        batch.release().for_each(drop);
        self.idle.push(batch);
        Ok(())
    }

    /// Returns the microseconds from submission to the waiter's return, sorted.
    fn alone(&mut self, rounds: usize) -> Result<Vec<f64>, Box<dyn std::error::Error>> {
        let mut times = Vec::with_capacity(rounds);
        for round in 0..rounds {
            let begun = Instant::now();
            let transfer = self.submit(round % DEPTH)?;
            self.end(transfer)?;
            times.push(micros(begun.elapsed()));
        }
        times.sort_by(f64::total_cmp);
        Ok(times)
    }

    /// Returns the microseconds a transfer, of the clock and of processors, when many are queued at a time.
    fn stream(&mut self, rounds: usize) -> Result<(f64, f64), Box<dyn std::error::Error>> {
        let rounds = rounds.div_ceil(DEPTH);
        let mut transfers = Vec::with_capacity(DEPTH);
        let (begun, used) = (Instant::now(), processor_time());
        for _ in 0..rounds {
            for block in 0..DEPTH {
                transfers.push(self.submit(block)?);
            }
            for transfer in transfers.drain(..) {
                self.end(transfer)?;
            }
        }
        let all = (rounds * DEPTH) as f64;
        Ok((micros(begun.elapsed()) / all, micros(processor_time().saturating_sub(used)) / all))
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Returns the processor time of all threads of this process.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

fn run(rounds: usize, device: u32) -> Result<(), Box<dyn std::error::Error>> {
    let driver = CudaDriver::load()?;
    let device = CudaDevice::open(&driver, device)?;
    println!("{{\"driver\":\"{}\",\"device\":\"{}\"}}", driver.describe(), device.describe());
    for bytes in [4 << 10, 2 << 20] {
        for way in Way::ALL {
            let mut bench = Bench::new(&device, way, bytes)?;
            bench.alone(rounds.div_ceil(10))?;
            let times = bench.alone(rounds)?;
            let (clock, processors) = bench.stream(rounds)?;
            let (median, late) = (times[times.len() / 2], times[times.len() * 99 / 100]);
            println!(
                "{{\"bytes\":{bytes},\"way\":\"{way}\",\"alone_p50_us\":{median:.2},\"alone_p99_us\":{late:.2},\
                 \"stream_us\":{clock:.2},\"cpu_us\":{processors:.2}}}"
            );
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let number = |at| std::env::args().nth(at).and_then(|number| number.parse::<u32>().ok());
    let (rounds, device) = (number(1).unwrap_or(10_000).max(1), number(2).unwrap_or(0));
    match run(rounds as usize, device) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
