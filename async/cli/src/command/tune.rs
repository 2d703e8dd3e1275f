//! `kvstrata tune`: measures what each way to copy costs on a device, and stores it for whoever copies.

use super::progress::StepBar;
use super::{EXIT_OK, number};
use clap::Args;
use core::time::Duration;
use kvstrata::costs::{self, CostStore};
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
      Measure the first GPU for some seconds, and store what was found.
  kvstrata tune --device 3 --seconds 20
      Another one, with more time for a busy machine.
  kvstrata tune --show
      What is in force for the first GPU, measured or shipped; measures nothing.
  kvstrata tune --output costs.json --json | jq .chosen
      Leave what is stored as it is.

The table has a line for each size of a piece and a column for each number of pieces: the cheapest route and its rate.
  B batch   the copy engine, one call for all pieces (a driver of CUDA 12.8 or later)
  R rows    the copy engine, a call for 16 pieces at even distances
  S single  the copy engine, a call a piece
  K kernel  a kernel, one launch for all (a build with nvcc)

Costs are stored in $KVSTRATA_CONFIG_DIR, else $XDG_CACHE_HOME/kvstrata, else ~/.cache/kvstrata, a file a device.
Exit codes: 0 all well; 2 something asked for is impossible, and the message says what.";

/// Measure which way to copy is the cheapest on a GPU, and store it
#[derive(Debug, Args)]
#[command(
    long_about = "Measure which way to copy is the cheapest on a GPU, and store it.\n\n\
                  Blocks of a KV cache are many pieces: a layer's keys here, its values there. Whether the copy engine or a kernel \
                  moves them faster depends on their size, their number, the direction, the card and the link. This measures \
                  all ways at points of that grid, a few seconds in all, and stores it. Managers on this machine and `replay --device \
                  cuda` choose by it, and so does an engine that hands it to `CopyOptions::costs`; until then, by figures that are \
                  reasoned from data sheets.\n\n\
                  The GPU and its link should be idle meanwhile: 256 MiB of host memory (--most) are pinned, and three times as \
                  much of the GPU's is used, or less where there is less.",
    after_long_help = EXAMPLES
)]
pub(super) struct TuneArgs {
    /// CUDA's number of the GPU
    #[arg(long, value_name = "N", default_value_t = 0)]
    device: u32,
    /// Stop after this many seconds; what is missing then is filled in from what there is
    #[arg(long, value_name = "S", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Measure copies of up to this many bytes
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = number::scaled)]
    most: u64,
    /// Write the costs to this file, and store nothing
    #[arg(long, value_name = "FILE", conflicts_with = "show")]
    output: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print what is in force, and measure nothing
    #[arg(long, conflicts_with_all = ["seconds", "most"])]
    show: bool,
}

/// What is printed.
#[derive(Serialize)]
struct Shown {
    device: String,
    uuid: String,
    /// Measured or reasoned, in words.
    source: String,
    /// The file, if they were stored just now.
    stored: Option<PathBuf>,
    /// What there is to know about them.
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
    // What was measured is shown even if it cannot be kept.
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
            .map_err(|error| format!("--json: cannot be encoded: {error}"))?;
        super::print(format!("{text}\n").as_bytes())?;
    } else {
        super::print_shown(&table(&shown, device.multiprocessors, costs))?;
    }
    Ok(EXIT_OK)
}

fn fragments(size: u64, count: u64) -> Fragments {
    Fragments { pieces: count, bytes: size * count, families: count.div_ceil(CopyCosts::FAMILY), width: 16 }
}

/// Of the routes whose costs are known, and that this build has.
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

/// A route's letter and rate.
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
