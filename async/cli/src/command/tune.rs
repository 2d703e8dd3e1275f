//! `kvstrata tune`: measures the cost of each copy route on a device, and stores the costs for later copies.

use super::progress::StepBar;
use super::{EXIT_OK, number};
use clap::Args;
use core::time::Duration;
use kvstrata::backend::costs::{self, CostStore};
use kvstrata::shared::Grids;
use kvstrata::shared::files;
use kvstrata_ffi::cuda::{
    CopyCosts, CudaDevice, CudaDriver, CudaKernels, DeviceDescription, Direction, Fragments, Route,
    TuneOptions,
};
use kvstrata_ffi::shown::shown_path;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  kvstrata tune
      Measures the first GPU for some seconds and stores the costs.
  kvstrata tune --device 3 --seconds 20
      Another GPU, with more time for a busy machine.
  kvstrata tune --show
      Prints the costs in use for the first GPU, measured or built in. Measures nothing.
  kvstrata tune --output costs.json --json | jq .chosen
      Writes the costs to a file. Stored costs stay as they are.

How to read the table:
  A row is a size of a piece, a column is a number of pieces. A cell has the cheapest route and its rate.
  B batch   the copy engine, one call for all pieces (needs a driver of CUDA 12.8 or later)
  R rows    the copy engine, one call for 16 evenly spaced pieces
  S single  the copy engine, one call for each piece
  K kernel  a kernel, one launch for all pieces (needs a build with nvcc)

Files:
  Costs are stored in $KVSTRATA_CONFIG_DIR, else in $XDG_CACHE_HOME/kvstrata, else in ~/.cache/kvstrata; one file for each device.

Exit codes:
  0  success
  2  the request cannot be carried out; the message names the option, its value and the remedy";

/// Measure which copy route is cheapest on a GPU, and store the costs
///
/// A block of a KV cache consists of many pieces: the keys and the values of a layer lie apart. Whether
/// the copy engine or a kernel moves them faster depends on their size, their number, the direction, the
/// card and the link. This command measures all routes at points of that grid, which takes a few seconds,
/// and stores the costs. Managers on this machine, `replay --device cuda`, and engines that pass the
/// costs to `CopyOptions::costs` choose routes by them. Without measured costs, routes are chosen by
/// estimates from data sheets.
///
/// The GPU and its link should be idle during the measurement. It pins 256 MiB of host memory (--most)
/// and uses three times as much GPU memory, or less if less is free.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct TuneArgs {
    /// The GPU's ordinal in CUDA
    #[arg(long, value_name = "N", default_value_t = 0)]
    device: u32,
    /// Stop after this many seconds; points not measured by then are estimated from the others
    #[arg(long, value_name = "S", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Measure copies of up to this many bytes
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = number::scaled)]
    most: u64,
    /// Write the costs to this file instead of storing them
    #[arg(long, value_name = "FILE", conflicts_with = "show")]
    output: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print the costs in use, and measure nothing
    #[arg(long, conflicts_with_all = ["seconds", "most"])]
    show: bool,
}

/// The JSON of the command.
#[derive(Serialize)]
struct Shown {
    device: String,
    uuid: String,
    /// Whether the costs are measured or estimated, in words.
    source: String,
    /// The file, if this run stored the costs.
    stored: Option<PathBuf>,
    /// A remark on the costs.
    note: Option<String>,
    costs: Grids,
    /// The cheapest routes by direction, then by size and count.
    chosen: BTreeMap<&'static str, Vec<Vec<&'static str>>>,
}

pub(super) fn run(arguments: &TuneArgs) -> Result<u8, String> {
    if let Some(path) = &arguments.output {
        files::check("--output", path)?;
    }
    let refused = |error: kvstrata_ffi::cuda::CudaError| format!("--device {}: {error}", arguments.device);
    let driver = CudaDriver::load().map_err(refused)?;
    let described = driver.describe_device(arguments.device).map_err(refused)?;
    if arguments.show {
        let (costs, note) = costs::costs_for(&described, driver.describe().version);
        let note = note.map(|note| note.to_string());
        return print(arguments, &described, &costs, note, None);
    }
    let device = CudaDevice::open(&driver, arguments.device).map_err(refused)?;
    let kernels = CudaKernels::load(&device);
    let note = kernels.as_ref().err().map(ToString::to_string);
    let options =
        TuneOptions::new().time_limit(Duration::from_secs(arguments.seconds)).most_bytes(arguments.most);
    let bar = StepBar::new("points");
    let tuned = kvstrata_ffi::cuda::tune(&device, kernels, &mut |done, of| bar.show(done, of), options);
    bar.finish();
    let costs = tuned.map_err(refused)?;
    let stored = match &arguments.output {
        Some(path) => costs::write(path, &described, &costs).map(|()| path.clone()),
        None => CostStore::from_environment().and_then(|store| store.save(&described, &costs)),
    };
    // The costs are shown even if they could not be stored.
    let path = stored.as_ref().ok().cloned();
    let code = print(arguments, &described, &costs, note, path)?;
    stored.map(|_| code).map_err(|error| error.to_string())
}

fn print(
    arguments: &TuneArgs,
    device: &DeviceDescription,
    costs: &CopyCosts,
    note: Option<String>,
    stored: Option<PathBuf>,
) -> Result<u8, String> {
    let chosen = |direction| {
        let row =
            |size| CopyCosts::COUNTS.map(|count| cheapest(costs, direction, size, count).name()).to_vec();
        (Direction::name(direction), CopyCosts::SIZES.map(row).to_vec())
    };
    let shown = Shown {
        device: device.to_string(),
        uuid: costs::uuid(device),
        source: costs.source().to_string(),
        stored,
        note,
        costs: Grids::of(costs),
        chosen: Direction::ALL.into_iter().map(chosen).collect(),
    };
    if arguments.json {
        let text = serde_json::to_string_pretty(&shown)
            .map_err(|error| format!("--json: the result cannot be encoded: {error}; please report this"))?;
        super::print(format!("{text}\n").as_bytes())?;
    } else {
        super::print_shown(&table(&shown, device.multiprocessors, costs))?;
    }
    Ok(EXIT_OK)
}

fn fragments(size: u64, count: u64) -> Fragments {
    Fragments { pieces: count, bytes: size * count, families: count.div_ceil(CopyCosts::FAMILY), width: 16 }
}

/// The cheapest of the routes that this build has and whose costs are known.
fn cheapest(costs: &CopyCosts, direction: Direction, size: u64, count: u64) -> Route {
    let fragments = fragments(size, count);
    let built = CudaKernels::built().is_ok();
    let there =
        |route| costs.estimate(direction, route, fragments).is_some() && (built || route != Route::Kernel);
    costs.choose(direction, fragments, there)
}

fn table(shown: &Shown, multiprocessors: u32, costs: &CopyCosts) -> String {
    let mut text = String::new();
    let ctas = Direction::ALL.map(|direction| costs.ctas(direction, multiprocessors));
    let _ = writeln!(text, "device   {}\n         {}", shown.device, shown.uuid);
    let _ = writeln!(text, "costs    {}", shown.source);
    let _ = match CudaKernels::built() {
        Ok(_) => {
            writeln!(
                text,
                "kernels  at most {}, {} and {} CTAs (up, down, within)",
                ctas[0], ctas[1], ctas[2]
            )
        }
        Err(why) => writeln!(text, "kernels  none in this build: {why}"),
    };
    if let Some(note) = &shown.note {
        let _ = writeln!(text, "note     {note}");
    }
    if let Some(path) = &shown.stored {
        let _ = writeln!(text, "stored   {}", shown_path(path));
    }
    for direction in Direction::ALL {
        let _ = write!(text, "\n{}, GB/s\n{:>8}", direction.name(), "pieces");
        for count in CopyCosts::COUNTS {
            let _ = write!(text, "{count:>10}");
        }
        text.push('\n');
        for size in CopyCosts::SIZES {
            let _ = write!(text, "{:>8}", bytes(size));
            for count in CopyCosts::COUNTS {
                let _ = write!(text, "{:>10}", cell(costs, direction, size, count));
            }
            text.push('\n');
        }
    }
    text += "\nB batch, R rows, S single, K kernel; from submission to completion\n";
    text
}

fn bytes(size: u64) -> String {
    match size {
        0..1024 => format!("{size} B"),
        1024..1_048_576 => format!("{} KiB", size >> 10),
        _ => format!("{} MiB", size >> 20),
    }
}

/// The letter and the rate of the cheapest route.
fn cell(costs: &CopyCosts, direction: Direction, size: u64, count: u64) -> String {
    let route = cheapest(costs, direction, size, count);
    let Some(time) = costs.estimate(direction, route, fragments(size, count)) else { return "-".to_owned() };
    let rate = (size * count) as f64 / time.as_secs_f64() / 1e9;
    let digits = match rate {
        ..1.0 => 3,
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    let letter = match route {
        Route::Single => 'S',
        Route::Batch => 'B',
        Route::Rows => 'R',
        Route::Kernel => 'K',
    };
    format!("{letter} {rate:>5.digits$}")
}
