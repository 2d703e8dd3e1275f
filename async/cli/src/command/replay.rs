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
use kvstrata::disk::AdmissionPolicy;
use kvstrata::movers::CudaMoverError;
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
      The bundled trace over all three tiers, in less than a minute; 4 GiB of disk meanwhile.
  kvstrata replay --requests 1000 --json -
      A short run, as JSON on standard output (the table goes to standard error).
  kvstrata replay --policy lru --host-blocks 0 --disk-blocks 0 --device-blocks 10000 --block-bytes 4K
      The device alone: hits are those of an exact LRU of 10,000 blocks.
  kvstrata replay --trace chat.jsonl.zst --disk /mnt/nvme --disk-blocks 256K --concurrency 4
      Another trace, 16 GiB of an NVMe drive, four requests at a time. Run again, it finds what it left there.
  kvstrata replay --disk-admission second-use --disk-write-budget 64G
      Fewer writes, for the sake of the drive: what they are worth is in the report.
  kvstrata replay --plot run.svg
      When each tier was full, what it hit from then on, and what moved meanwhile, as a picture: over
      the trace's time, however fast the run is; but bandwidth, this machine's, over the run's.

Units: numbers of blocks and bytes take K, M, G and T, powers of 1024 (64K = 65,536).
SIGINT (Ctrl-C) or SIGTERM ends it early: requests that have begun are served, the disk tier is closed in order, and report, JSON and
picture are of what was served. A second signal kills at once; so does the first while a file of --disk is written through.
Exit codes: 0 all well; 1 a wrong byte was found; 2 something asked for is impossible, and the message says what;
130 ended early by SIGINT, 143 by SIGTERM.";

/// Run a request trace through device, host and disk with real bytes, and check every byte that comes back
#[derive(Debug, Args)]
#[command(
    long_about = "Run a request trace through device, host and disk with real bytes, and check every byte that comes back.\n\n\
                  For each request, the longest leading run of its blocks that any tier has is its hit and is brought up to \
                  the device; the others are filled with bytes that their id and the seed determine. Blocks leave the device \
                  for the host, and the host for the disk, when room is needed. Every hit is read back from the device and \
                  compared, byte by byte.\n\nThe trace is JSON lines, plain or compressed with gzip, xz or zstd: \
                  {\"timestamp\": ms, \"input_length\": tokens, \"output_length\": tokens, \"hash_ids\": [ids]}. A block is 512 \
                  tokens, unless --trace-block-tokens says otherwise; an id stands for a block and all before it, and a prompt has it once.",
    after_long_help = EXAMPLES
)]
pub(super) struct ReplayArgs {
    #[command(flatten)]
    trace: TraceArgs,
    /// Stop after this many requests [default: the whole trace]
    #[arg(long, value_name = "N", value_parser = number::scaled)]
    requests: Option<u64>,
    /// Blocks of the device tier (G1), at least 1
    #[arg(long, value_name = "N", value_parser = number::blocks, default_value = "2048")]
    device_blocks: u32,
    /// Blocks of the host tier (G2); 0 leaves it out
    #[arg(long, value_name = "N", value_parser = number::blocks, default_value = "8192")]
    host_blocks: u32,
    /// Blocks of the disk tier (G3); 0 leaves it out
    #[arg(long, value_name = "N", value_parser = number::blocks, default_value = "65536")]
    disk_blocks: u32,
    /// Where the disk tier's file is: a directory, which gets kvstrata.kvs, or a file; several are striped
    ///
    /// The file stays, and the next run with the same --seed, --block-bytes and --disk-blocks finds what this one left in it. It takes
    /// disk-blocks × block-bytes and a little more, and must be on a file system with O_DIRECT (ext4, xfs, most others), or
    /// --disk-backend says otherwise. Paths are separated by commas; disk-blocks is divided among them. Default: a file without a name, which goes with the process, in the
    /// first of the current directory, /var/tmp and the directory for temporary files that will do.
    #[arg(long, value_name = "PATH[,PATH…]", value_delimiter = ',')]
    disk: Vec<PathBuf>,
    /// Start over with the files of --disk, whatever they hold
    #[arg(long, requires = "disk")]
    reinitialize: bool,
    /// When a file of --disk is written through: what was never written is slower to write
    ///
    /// A new file whole, but in the background its slots alone; of one that is there, what was never written, because a run was
    /// killed at that, say. That takes a file system which tells what it is (ext4, xfs, btrfs), and no --trim.
    #[arg(long, value_name = "WHEN", default_value = "first", requires = "disk")]
    disk_fill: DiskFill,
    /// Encrypt the disk tier (AES-256-GCM) with the key in this file: 64 hexadecimal digits or 32 bytes, mode 0600
    #[arg(long, value_name = "FILE", conflicts_with = "disk_key_env")]
    disk_key_file: Option<PathBuf>,
    /// The same with the key in this environment variable, as 64 hexadecimal digits
    #[arg(long, value_name = "NAME")]
    disk_key_env: Option<String>,
    /// How the disk tier moves bytes
    #[arg(long, value_name = "BACKEND", default_value = "auto")]
    disk_backend: DiskBackend,
    /// Give the room of blocks that the disk tier forgets back to the file system
    #[arg(long)]
    trim: bool,
    /// Do not compare what is read from the disk with its checksum: wrong bytes are then served
    #[arg(long)]
    unsafe_skip_verification: bool,
    /// Which blocks are worth a write to the disk tier
    #[arg(long, value_name = "FILTER", default_value = "always", value_parser = admissions())]
    disk_admission: AdmissionPolicy,
    /// Write at most this many bytes a day to the disk tier, ten minutes' worth at once [default: any number]
    ///
    /// The day is the trace's, by its timestamps, so that the counts are the same in every run.
    #[arg(long, value_name = "BYTES", value_parser = number::scaled)]
    disk_write_budget: Option<u64>,
    /// How long a request waits for writes to the disk tier [default: as long as they take]
    ///
    /// Then blocks of the host tier that are not written are dropped for it, and counted. By default no block is dropped, and the counts are the
    /// same in every run, however slow the disk is. With 0s or a few milliseconds a replay shows what an engine has over a slow disk.
    #[arg(long, value_name = "TIME", value_parser = patience)]
    patience: Option<Duration>,
    /// Bytes a block, at least 64
    ///
    /// A block of a real model is larger: 512 tokens of an 8B model with 16-bit KV are 64 MiB. Multiples of 4096 waste
    /// nothing.
    #[arg(long, value_name = "N", value_parser = number::bytes, default_value = "64K")]
    block_bytes: usize,
    /// Which blocks leave the device first
    #[arg(long, value_name = "POLICY", default_value = "reuse", value_parser = policies())]
    policy: Policy,
    /// Which blocks leave host and disk first: any of these policies
    #[arg(long, value_name = "POLICY", default_value = "lru", value_parser = policies(), hide_possible_values = true)]
    policy_below: Policy,
    /// Together with a block's id, determines its bytes
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// The device
    ///
    /// Simulated unless told: a GPU may be somebody's, and the counts are the same. Blocks go between a GPU and the host tier by the
    /// copies that an engine's would, from and to pinned memory; requests fill them, and read them back, through a few pinned blocks.
    #[arg(long, value_name = "DEVICE", default_value = "sim")]
    device: Device,
    /// Requests served at the same time; with 1 the counts are the same in every run, but for a few blocks that are found in the host or on the disk by turns
    #[arg(long, value_name = "N", default_value_t = 1)]
    concurrency: usize,
    /// Let requests come at the trace's own times, so many times as fast; 0: each as soon as it can be served
    ///
    /// Times count from the first request's. How late requests begin is in the report: behind where --concurrency, or the device's room,
    /// does not suffice.
    #[arg(long, value_name = "X", default_value_t = 0.0)]
    speed: f64,
    /// Serve the manager's figures for Prometheus over HTTP meanwhile, at /metrics
    ///
    /// There is no password: an address of this machine's is best, as 127.0.0.1:9400. `kvstrata metrics` lists the figures.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address::place)]
    metrics: Option<SocketAddr>,
    #[command(flatten)]
    outputs: Outputs,
    /// Flip a bit in every Nth copy to the device: shows that wrong bytes are found
    #[arg(long, value_name = "N", default_value_t = 0, hide = true)]
    flip_every: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Device {
    /// Host memory posing as a device, with an address space of its own
    Sim,
    /// The first NVIDIA GPU
    Cuda,
    /// A GPU where this machine has one with room for the blocks, otherwise sim
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
    /// pread and pwrite by threads, with O_DIRECT where there is one
    Threads,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DiskFill {
    /// Before it is used
    First,
    /// While it is used, whenever nobody asks for anything
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
            "Those that two requests had, within a window of 2 to 4 times --disk-blocks blocks"
        }
        AdmissionPolicy::TinyLfu => {
            "While the tier is full, those that were used more often than what has to leave for them"
        }
    })
}

/// What a replay has come to, and the exit code of one that was interrupted.
type Ended = (Report, Vec<Sample>, u8);

pub(super) fn run(arguments: ReplayArgs) -> Result<u8, String> {
    arguments.outputs.check(&files(&arguments))?;
    let (report, samples, of_signal) = replay(&arguments).map_err(|error| error.to_string())?;
    let written = arguments.outputs.write(&report, || plot::flow(&report, &samples));
    if report.wrong_bytes == 0 {
        return written.map(|()| if report.interrupted { of_signal } else { EXIT_OK });
    }
    // Graver than a result that could not be written.
    if let Err(message) = written {
        complain(&message);
    }
    Ok(EXIT_WRONG_BYTE)
}

/// The files that a run reads, or keeps.
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

/// The device that is asked for, with its mover; one that damages bytes is reached through its port alone.
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

/// The first GPU, if it is asked for, or `auto` finds one that has the memory.
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
    // Before there is a volume that a signal would leave open.
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
        // For whoever watches; which port it is, where a free one was asked for.
        let _ = writeln!(std::io::stderr(), "figures at http://{address}/metrics");
    }
    // From here on, so that its estimate is of the replay alone.
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
