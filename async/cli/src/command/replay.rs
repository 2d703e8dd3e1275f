//! `kvstrata replay`.

use super::choice::{choice, policies};
use super::interrupt::Interrupt;
use super::outputs::Outputs;
use super::plot;
use super::progress::{Bar, FillBar};
use super::trace::TraceArgs;
use super::{EXIT_OK, EXIT_WRONG_BYTE, complain, number};
use crate::replay::{
    Device as ReplayDevice, FlippingPort, Replay, ReplayError, Report, Sample, Settings, file_in,
};
use crate::trace::{BUNDLED_REQUESTS, TraceReader, TraceSource};
use clap::builder::TypedValueParser;
use clap::{Args, ValueEnum};
use kvstrata::backend::disk::AdmissionPolicy;
use kvstrata::backend::movers::CudaMoverError;
use kvstrata::shared::address;
use kvstrata_core::Policy;
use kvstrata_ffi::cuda::{CudaDevice, CudaDriver};
use kvstrata_ffi::device::{CudaDeviceTier, SimDevice};
use kvstrata_ffi::disk::{Backend, Key, KeyError};
use std::error::Error;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  kvstrata replay
      The bundled trace over all three tiers. Takes some 15 seconds and, while it runs, 4 GiB of disk.
  kvstrata replay --requests 1000 --json -
      A short run. JSON goes to standard output, the table to standard error.
  kvstrata replay --policy lru --host-blocks 0 --disk-blocks 0
      The device alone: the hits of an exact LRU of 2,048 blocks.
  kvstrata replay --trace chat.jsonl.zst --disk /mnt/nvme --disk-blocks 256K
      Another trace, with 16 GiB of an NVMe drive. A second run finds the blocks of the first.
  kvstrata replay --disk-admission second-use --disk-write-budget 64G
      Fewer writes, to spare the drive. The report shows the effect on hits.
  kvstrata replay --plot run.svg
      A picture of fill, hits and bandwidth of each tier. Fill and hits are over the trace's time, which does not depend on this \
      machine; bandwidth is over the time of the run.

Units:
  Numbers of blocks and bytes take K, M, G and T, powers of 1024: 64K is 65,536.

Signals:
  The first SIGINT (Ctrl-C) or SIGTERM ends the replay early. Requests that have begun are served, the disk tier is closed in order, \
  and report, JSON and picture cover the requests served.
  A second signal kills the process at once. So does the first one while a file of --disk is being filled.

Exit codes:
  0    success
  1    a wrong byte was found
  2    the request cannot be carried out; the message names the option, its value and the remedy
  130  ended early by SIGINT
  143  ended early by SIGTERM";

/// Replay a request trace with real bytes over all tiers, and check every byte
///
/// For each request, the replay finds the longest leading run of blocks that any tier holds. These blocks
/// are hits, and they are brought up to the device. The other blocks of the request are filled with bytes
/// that their id and the seed determine. A block moves from the device to the host, and from the host to
/// the disk, when its room is needed. Every hit is read back from the device and compared byte by byte.
///
/// The trace is JSON lines, plain or compressed with gzip, xz or zstd: {"timestamp": ms,
/// "input_length": tokens, "output_length": tokens, "hash_ids": [ids]}. A block is 512 tokens,
/// unless --trace-block-tokens says otherwise. An id stands for a block and all blocks before it; a
/// prompt has an id at most once.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct ReplayArgs {
    #[command(flatten)]
    trace: TraceArgs,
    /// Stop after this many requests [default: the whole trace]
    #[arg(long, value_name = "N", value_parser = number::scaled)]
    requests: Option<u64>,
    /// Blocks of the device tier (G1), at least 1
    #[arg(long, value_name = "N", value_parser = number::blocks, default_value = "2048")]
    device_blocks: u32,
    /// Blocks of the host tier (G2); 0 leaves the tier out
    #[arg(long, value_name = "N", value_parser = number::blocks, default_value = "8192")]
    host_blocks: u32,
    /// Blocks of the disk tier (G3); 0 leaves the tier out
    #[arg(long, value_name = "N", value_parser = number::blocks, default_value = "65536")]
    disk_blocks: u32,
    /// Files of the disk tier, or directories for them (the file is then kvstrata.kvs); several are striped
    ///
    /// The files stay: the next run with the same --seed, --block-bytes and --disk-blocks finds their
    /// blocks. Together they take a little more than disk-blocks × block-bytes, and --disk-blocks is
    /// divided among them. They must be on a file system with O_DIRECT (ext4, xfs, most others), unless
    /// --disk-backend says otherwise. Separate paths by commas.
    ///
    /// Default: an unnamed file that vanishes with the process, in the first usable one of the current
    /// directory, /var/tmp and the directory for temporary files.
    #[arg(long, value_name = "PATH[,PATH…]", value_delimiter = ',')]
    disk: Vec<PathBuf>,
    /// Discard the contents of the files of --disk and start over
    #[arg(long, requires = "disk")]
    reinitialize: bool,
    /// When to write the files of --disk once in advance: a first write to unwritten space is slower than
    /// a rewrite
    ///
    /// A new file is filled whole; in the background, only the places of blocks. In an existing file, only
    /// space that was never written is filled, for example after a run was killed while filling. Finding
    /// that space needs a file system that reports it (ext4, xfs, btrfs), and no --trim.
    #[arg(long, value_name = "WHEN", default_value = "first", requires = "disk")]
    disk_fill: DiskFill,
    /// Encrypt the disk tier (AES-256-GCM) with the key in this file: 64 hexadecimal
    /// digits or 32 bytes, mode 0600
    #[arg(long, value_name = "FILE", conflicts_with = "disk_key_env")]
    disk_key_file: Option<PathBuf>,
    /// Encrypt the disk tier with the key in this environment variable: 64 hexadecimal digits
    #[arg(long, value_name = "NAME")]
    disk_key_env: Option<String>,
    /// How the disk tier reads and writes
    #[arg(long, value_name = "BACKEND", default_value = "auto")]
    disk_backend: DiskBackend,
    /// Return the space of blocks that the disk tier no longer holds to the file system
    #[arg(long)]
    trim: bool,
    /// Skip the checksums of blocks read from disk: damaged blocks are then served
    #[arg(long)]
    unsafe_skip_verification: bool,
    /// Which blocks to write to the disk tier
    #[arg(long, value_name = "FILTER", default_value = "always", value_parser = admissions())]
    disk_admission: AdmissionPolicy,
    /// Maximum bytes a day written to the disk tier; at once, at most the share of ten minutes
    /// [default: unlimited]
    ///
    /// Days are counted by the trace's timestamps, so the counts are the same in every run.
    #[arg(long, value_name = "BYTES", value_parser = number::scaled)]
    disk_write_budget: Option<u64>,
    /// How long a request waits for writes to the disk tier [default: as long as they take]
    ///
    /// After that time, blocks of the host tier that are not yet written are dropped to make room, and
    /// counted. By default no block is dropped, and the counts are the same in every run, however slow
    /// the disk is. 0s or a few milliseconds show the hits of an engine with a slow disk.
    #[arg(long, value_name = "TIME", value_parser = patience)]
    patience: Option<Duration>,
    /// Bytes of a block, at least 64
    ///
    /// Blocks of real models are larger: 512 tokens of an 8B model with 16-bit KV are 64 MiB.
    /// Multiples of 4096 waste no memory.
    #[arg(long, value_name = "N", value_parser = number::bytes, default_value = "64K")]
    block_bytes: usize,
    /// Eviction policy of the device: which block leaves first
    #[arg(long, value_name = "POLICY", default_value = "reuse", value_parser = policies())]
    policy: Policy,
    /// Eviction policy of host and disk: one of those of --policy
    #[arg(long, value_name = "POLICY", default_value = "lru", value_parser = policies(), hide_possible_values = true)]
    policy_below: Policy,
    /// Seed of the blocks' bytes, which depend on the seed and on the block's id
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Kind of the device tier
    ///
    /// By default the device is simulated: the counts are those of a GPU, and no GPU is taken from its users.
    /// Between a GPU and the host tier, blocks are copied as an engine's would be, from and to pinned
    /// memory. Requests fill blocks and read them back through a few pinned blocks.
    #[arg(long, value_name = "DEVICE", default_value = "sim")]
    device: Device,
    /// Requests served at the same time
    ///
    /// With 1, the counts are the same in every run, except that a few blocks are found in the host in one
    /// run and on the disk in another.
    #[arg(long, value_name = "N", default_value_t = 1)]
    concurrency: usize,
    /// Speed of the trace's clock: 1 its own times, 100 a hundred times as fast, 0 each request as soon
    /// as it can be served
    ///
    /// Times count from the first request. The report shows how late requests begin. They are late when
    /// --concurrency or the device's blocks do not suffice.
    #[arg(long, value_name = "X", default_value_t = 0.0)]
    speed: f64,
    /// Serve the manager's metrics for Prometheus over HTTP during the replay, at /metrics
    ///
    /// Access needs no password, so choose an address of this machine, for example 127.0.0.1:9400.
    /// `kvstrata metrics` lists the metrics.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address::place)]
    metrics: Option<SocketAddr>,
    #[command(flatten)]
    outputs: Outputs,
    /// Flip a bit in every Nth copy to the device, to show that wrong bytes are found
    #[arg(long, value_name = "N", default_value_t = 0, hide = true)]
    flip_every: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Device {
    /// Host memory that stands in for a device, with an address space of its own
    Sim,
    /// The first NVIDIA GPU
    Cuda,
    /// The first NVIDIA GPU if it has room for the blocks, otherwise sim
    Auto,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DiskBackend {
    /// io_uring with O_DIRECT, or threads with O_DIRECT where io_uring is forbidden
    Auto,
    /// io_uring with O_DIRECT
    Uring,
    /// io_uring through the page cache
    UringBuffered,
    /// pread and pwrite by threads, with O_DIRECT where the file system has it
    Threads,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DiskFill {
    /// Before the first request
    First,
    /// During the replay, whenever the disk tier is idle
    Background,
    /// Never
    No,
}

impl From<DiskFill> for kvstrata::config::DiskFill {
    fn from(fill: DiskFill) -> kvstrata::config::DiskFill {
        match fill {
            DiskFill::First => kvstrata::config::DiskFill::First,
            DiskFill::Background => kvstrata::config::DiskFill::Background,
            DiskFill::No => kvstrata::config::DiskFill::No,
        }
    }
}

impl From<DiskBackend> for Backend {
    fn from(backend: DiskBackend) -> Backend {
        match backend {
            DiskBackend::Auto => Backend::Auto,
            DiskBackend::Uring => Backend::UringDirect,
            DiskBackend::UringBuffered => Backend::UringBuffered,
            DiskBackend::Threads => Backend::Blocking,
        }
    }
}

fn patience(text: &str) -> Result<Duration, String> {
    kvstrata::shared::time(text, Duration::ZERO, Duration::from_secs(86_400))
}

fn admissions() -> impl TypedValueParser<Value = AdmissionPolicy> {
    choice(&AdmissionPolicy::ALL, AdmissionPolicy::name, |policy| match policy {
        AdmissionPolicy::Always => "Every block that leaves the tier above",
        AdmissionPolicy::SecondUse => {
            "Blocks used by two requests within a window of 2 to 4 times --disk-blocks blocks"
        }
        AdmissionPolicy::TinyLfu => {
            "While the tier is full, blocks used more often than the block that they would evict"
        }
    })
}

/// The report and the samples of a replay, and its exit code if it was interrupted.
type Ended = (Report, Vec<Sample>, u8);

pub(super) fn run(arguments: ReplayArgs) -> Result<u8, String> {
    arguments.outputs.check(&files(&arguments))?;
    let (report, samples, of_signal) = replay(&arguments).map_err(|error| error.to_string())?;
    let written = arguments.outputs.write(&report, || plot::flow(&report, &samples));
    if report.wrong_bytes == 0 {
        return written.map(|()| if report.interrupted { of_signal } else { EXIT_OK });
    }
    // A wrong byte is graver than a result that could not be written, so it decides the exit code.
    if let Err(message) = written {
        complain(&message);
    }
    Ok(EXIT_WRONG_BYTE)
}

/// The files that a replay reads, and the files of its disk tier, each with its option.
fn files(arguments: &ReplayArgs) -> Vec<(&'static str, PathBuf)> {
    let trace = arguments.trace.file();
    let key = arguments.disk_key_file.clone().map(|path| ("--disk-key-file", path));
    let disk = arguments.disk.iter().map(|place| ("--disk", file_in(place)));
    trace.into_iter().chain(key).chain(disk).collect()
}

fn disk_key(arguments: &ReplayArgs) -> Result<Option<Key>, ReplayError> {
    let refused = |option, value: String| {
        move |error: KeyError| ReplayError::Setting { option, value, why: error.to_string() }
    };
    match (&arguments.disk_key_file, &arguments.disk_key_env) {
        (Some(file), _) => {
            Key::from_file(file).map(Some).map_err(refused("--disk-key-file", file.display().to_string()))
        }
        (None, Some(name)) => {
            Key::from_variable(name).map(Some).map_err(refused("--disk-key-env", name.clone()))
        }
        (None, None) => Ok(None),
    }
}

fn replay(arguments: &ReplayArgs) -> Result<Ended, Box<dyn Error>> {
    let settings = Settings {
        requests: arguments.requests,
        device_blocks: arguments.device_blocks,
        host_blocks: arguments.host_blocks,
        disk_blocks: arguments.disk_blocks,
        disk: arguments.disk.clone(),
        reinitialize: arguments.reinitialize,
        disk_key: disk_key(arguments)?,
        disk_fill: arguments.disk_fill.into(),
        disk_backend: arguments.disk_backend.into(),
        trim: arguments.trim,
        skip_verification: arguments.unsafe_skip_verification,
        disk_admission: arguments.disk_admission,
        disk_write_budget: arguments.disk_write_budget,
        patience: arguments.patience,
        block_bytes: arguments.block_bytes,
        policy: arguments.policy,
        policy_below: arguments.policy_below,
        seed: arguments.seed,
        concurrency: arguments.concurrency,
        speed: arguments.speed,
        metrics: arguments.metrics,
        histograms: true,
    };
    settings.check()?;
    let trace = arguments.trace.open()?;
    let bundled = (*trace.source() == TraceSource::Bundled).then_some(BUNDLED_REQUESTS);
    let requests = match (arguments.requests, bundled) {
        (Some(asked), Some(there)) => Some(asked.min(there)),
        (asked, there) => asked.or(there),
    };
    let device = device(arguments, &settings)?;
    drive(settings, device, trace, requests, arguments.outputs.draws())
}

/// The device of `--device`, with its mover. A device that damages bytes (`--flip-every`) is
/// copied through its port only.
fn device(arguments: &ReplayArgs, settings: &Settings) -> Result<ReplayDevice, ReplayError> {
    let every = arguments.flip_every;
    if let Some(device) = cuda(arguments.device, settings)? {
        return Ok(match every {
            0 => ReplayDevice::cuda(device),
            _ => ReplayDevice::of_port("cuda", FlippingPort::new(device, every)),
        });
    }
    let blocks = settings.device_blocks as usize;
    let memory = |source| ReplayError::Memory { option: "--device-blocks", blocks: blocks as u64, source };
    let device = SimDevice::new(blocks, settings.block_bytes).map_err(memory)?;
    Ok(match every {
        0 => ReplayDevice::simulated(device),
        _ => ReplayDevice::of_port("sim", FlippingPort::new(device, every)),
    })
}

/// The first GPU for `cuda`, and for `auto` if it has the memory.
fn cuda(asked: Device, settings: &Settings) -> Result<Option<CudaDeviceTier>, ReplayError> {
    let open = || -> Result<CudaDeviceTier, CudaMoverError> {
        let device = CudaDevice::open(&CudaDriver::load()?, 0)?;
        Ok(CudaDeviceTier::new(&device, settings.device_blocks as usize, settings.block_bytes)?)
    };
    match asked {
        Device::Sim => Ok(None),
        Device::Auto => Ok(open().ok()),
        Device::Cuda => Ok(Some(open()?)),
    }
}

fn drive(
    settings: Settings,
    device: ReplayDevice,
    trace: TraceReader,
    requests: Option<u64>,
    sampled: bool,
) -> Result<Ended, Box<dyn Error>> {
    // Before a volume is opened, which a signal would leave open.
    let interrupt = Interrupt::listen()?;
    let filling = Arc::new(FillBar::new());
    let (shown, kills) = (Arc::clone(&filling), interrupt.filling());
    let fill = move |done, bytes| {
        kills.store(done < bytes, Relaxed);
        shown.show(done, bytes);
    };
    let replay = Replay::with_progress(settings, device, Arc::new(fill))?.stopped_by(interrupt.stop());
    interrupt.filling().store(false, Relaxed);
    filling.finish();
    if let Some(address) = replay.metrics_address() {
        // Names the port, which port 0 leaves to the system.
        let _ = writeln!(std::io::stderr(), "metrics at http://{address}/metrics");
    }
    // Created only now, so that its estimate covers the replay alone.
    let bar = interrupt.beside(Bar::new(requests, trace.input_bytes()));
    let observe = |progress| bar.show(progress);
    let result = match sampled {
        true => replay.run_sampled(trace, &observe),
        false => replay.run(trace, &observe).map(|report| (report, Vec::new())),
    };
    bar.finish();
    let (report, samples) = result?;
    Ok((report, samples, interrupt.exit_code()))
}
