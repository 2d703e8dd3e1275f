//! Copies on a GPU beside the machine's limits and beside peers.
//! `benches/gpu/run` calls it, out of its bundle.

use kvstrata_benches::gpu::report::{Report, Section};
use kvstrata_benches::gpu::scale::Scale;
use kvstrata_benches::gpu::{Bench, Failure, completion, launch, link, offload, within};
use kvstrata_benches::machine;
use kvstrata_ffi::cuda::{CopyCosts, CudaDevice, CudaDriver, CudaError, CudaKernels, tune};
use kvstrata_testing::counting::Counting;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;
use std::{env, fs};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const USAGE: &str = "gpu [--quick | --double] [--shipped-costs] [--minutes M] [--device N] [--only SECTION]… [--bundle DIR] [--torch FILE] \
                     [--completion FILE] [--clocks FILE] [--fact NAME=VALUE]… [--json FILE] [--markdown FILE]";
/// For `--only`: opens the device, and prints its name.
const NOTHING: &str = "nothing";
/// The exit code without a device.
const NO_DEVICE: u8 = 77;

#[derive(Default)]
struct Options {
    quick: bool,
    double: bool,
    shipped: bool,
    minutes: Option<f64>,
    device: u32,
    only: Vec<String>,
    bundle: Option<PathBuf>,
    torch: Option<PathBuf>,
    completion: Option<PathBuf>,
    clocks: Option<PathBuf>,
    facts: Vec<(String, String)>,
    json: Option<PathBuf>,
    markdown: Option<PathBuf>,
}

fn options() -> Result<Options, Failure> {
    let mut options = Options::default();
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value =
            || arguments.next().ok_or_else(|| format!("{argument} needs a value; usage: {USAGE}"));
        match argument.as_str() {
            "--quick" => options.quick = true,
            "--double" => options.double = true,
            "--shipped-costs" => options.shipped = true,
            "--minutes" => options.minutes = Some(value()?.parse()?),
            "--device" => options.device = value()?.parse()?,
            "--only" => options.only.push(value()?),
            "--bundle" => options.bundle = Some(value()?.into()),
            "--torch" => options.torch = Some(value()?.into()),
            "--completion" => options.completion = Some(value()?.into()),
            "--clocks" => options.clocks = Some(value()?.into()),
            "--fact" => {
                let fact = value()?;
                let (name, value) = fact.split_once('=').ok_or("--fact takes NAME=VALUE")?;
                options.facts.push((name.to_owned(), value.to_owned()));
            }
            "--json" => options.json = Some(value()?.into()),
            "--markdown" => options.markdown = Some(value()?.into()),
            _ => return Err(format!("{argument}: unknown; usage: {USAGE}").into()),
        }
    }
    Ok(options)
}

type Kernels = fn(&Arc<CudaDevice>) -> Result<CudaKernels, CudaError>;
/// A device, and the origin of its kernels.
type Opened = (Arc<CudaDevice>, Kernels);

fn open(ordinal: u32) -> Result<Opened, CudaError> {
    Ok((CudaDevice::open(&CudaDriver::load()?, ordinal)?, CudaKernels::load))
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    if options.double {
        return over_the_double(&options);
    }
    match open(options.device) {
        Ok(opened) => run(&options, opened),
        Err(error) => {
            println!("SKIP cuda: {error}");
            ExitCode::from(NO_DEVICE)
        }
    }
}

#[cfg(feature = "double")]
fn over_the_double(options: &Options) -> ExitCode {
    use kvstrata_benches::gpu::double;
    let double = double::install();
    let ended = match open(options.device) {
        Ok((device, _)) => run(options, (device, double::kernels)),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let (misuse, first) = double.misuse();
    if misuse > 0 {
        eprintln!("the double was misused {misuse} times: {first}");
        return ExitCode::FAILURE;
    }
    ended
}

#[cfg(not(feature = "double"))]
fn over_the_double(_: &Options) -> ExitCode {
    eprintln!("--double: this program was built without the feature `double`");
    ExitCode::from(2)
}

fn run(options: &Options, (device, kernels): Opened) -> ExitCode {
    let minutes = options.minutes.unwrap_or(if options.quick { 2.0 } else { 7.0 });
    let scale = match (options.double, options.quick) {
        (true, _) => Scale::tiny(minutes),
        (false, true) => Scale::quick(minutes),
        (false, false) => Scale::full(minutes),
    };
    let ends = scale.ends;
    let (costs, note) = costs(options, &device, kernels, &scale);
    let mut bench = Bench { device, scale, bundle: options.bundle.clone(), kernels, costs };
    let mut report = Report { machine: facts(options, &bench, note), sections: Vec::new() };
    for (word, name, about, share, measure) in SECTIONS {
        if !options.only.is_empty() && !options.only.iter().any(|only| only == word) {
            continue;
        }
        eprintln!("{name} …");
        // So that a slow section does not take the time of later ones.
        bench.scale.ends = Instant::now() + ends.saturating_duration_since(Instant::now()).mul_f64(*share);
        let mut section = Section::new(name, *about);
        let measured = match bench.device.fault() {
            Some(fault) => Err(format!("the device is quarantined: {fault}").into()),
            None => measure(&bench, &mut section, options),
        };
        section.failed = measured.err().map(|error| error.to_string());
        report.sections.push(section);
        report.machine.retain(|(name, _)| name != CLOCKS);
        report
            .machine
            .extend(options.clocks.as_deref().and_then(clocks).map(|clocks| (CLOCKS.to_owned(), clocks)));
        // Writes the results so far, in case a later section never ends.
        if let Err(error) = write(options, &report) {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    println!("{}", report.markdown());
    if report.is_whole() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn write(options: &Options, report: &Report) -> Result<(), Failure> {
    if let Some(path) = &options.json {
        fs::write(path, format!("{:#}\n", report.json()))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if let Some(path) = &options.markdown {
        fs::write(path, report.markdown()).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// Measures the costs that `kvstrata tune` would find here and now; or takes the
/// shipped ones, with the reason.
fn costs(
    options: &Options,
    device: &Arc<CudaDevice>,
    kernels: Kernels,
    scale: &Scale,
) -> (CopyCosts, String) {
    let shipped = CopyCosts::reasoned(&device.describe().name);
    if options.shipped || options.only.iter().all(|only| only == NOTHING) && !options.only.is_empty() {
        let note = shipped.source().to_string();
        return (shipped, note);
    }
    eprintln!("Tuning …");
    match tune(device, kernels(device), &mut |_, _| {}, scale.tune) {
        Ok(costs) => {
            let note = costs.source().to_string();
            (costs, note)
        }
        Err(error) => {
            let note = format!("{}, since they cannot be measured: {error}", shipped.source());
            (shipped, note)
        }
    }
}

fn facts(options: &Options, bench: &Bench, costs: String) -> Vec<(String, String)> {
    let mut facts: Vec<(String, String)> = Vec::new();
    let mut fact = |name: &str, value: String| facts.push((name.to_owned(), value));
    if options.double {
        fact(
            "NOT A MEASUREMENT",
            "a test double of libcuda, in host memory; figures mean nothing".to_owned(),
        );
    }
    fact("card", bench.device.describe().to_string());
    fact("driver", bench.device.driver().describe().to_string());
    fact("kernels", kvstrata_kernels::toolkit().to_owned());
    fact("costs that routes are chosen by", costs);
    fact("host", machine::describe());
    fact("date", machine::today());
    facts.extend(options.facts.iter().cloned());
    facts
}

const CLOCKS: &str = "SM clock meanwhile";

/// Returns the lowest and the highest clock in a file of lines with a clock in the first
/// column, as nvidia-smi writes it.
fn clocks(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let first = |line: &str| line.split([' ', ',']).next()?.parse::<u32>().ok();
    let found: Vec<u32> = text.lines().filter_map(first).collect();
    Some(format!("{} to {} MHz, of {} samples", found.iter().min()?, found.iter().max()?, found.len()))
}

type Measure = fn(&Bench, &mut Section, &Options) -> Result<(), Failure>;

/// Sections: their words for `--only`, names, contents, and shares of the remaining time.
const SECTIONS: &[(&str, &str, &str, f64, Measure)] = &[
    (
        "within",
        "Within device memory",
        "256 blocks of Llama 70B's shape (80 layers, keys and values, 16 tokens, 8 heads of 128, bf16), an engine's scattered blocks of \
         layers that lie anywhere, to blocks in one piece and back; GB/s of payload. Limit: one `cuMemcpyDtoDAsync` of the same bytes.",
        0.4,
        |bench, section, options| {
            within::measure(bench, section)?;
            match &options.torch {
                Some(path) => {
                    within::beside_torch(section, &serde_json::from_str(&fs::read_to_string(path)?)?)
                }
                None => {
                    section
                        .skipped
                        .push("torch: not given; benches/gpu/run calls it where python3 has it".into());
                    Ok(())
                }
            }
        },
    ),
    (
        "link",
        "Between the device and pinned memory",
        "Pieces of a layer-separated layout with layers anywhere, no two adjacent. `alone`: one transfer at a time, from submission to \
         completion; `in a stream`: up to 4 in flight. Limits: the best of all routes at each point; one large copy each way.",
        0.6,
        |bench, section, _| link::measure(bench, section),
    ),
    (
        "launch",
        "Cost on the host of a submission",
        "From the call of `submit` to its return, by the wall; the device's part is not in it. Allocations: of all threads meanwhile.",
        0.3,
        |bench, section, _| launch::measure(bench, section),
    ),
    (
        "offload",
        "Slowdown of a model by an offload at full rate",
        "A loop of bf16 matmuls on tensor cores, and the same beside an offload of pieces of 32 KiB to pinned memory that does not end. \
         Limit: the loop alone.",
        1.0,
        |bench, section, _| offload::measure(bench, section),
    ),
    (
        "completion",
        "Completion",
        "`ffi/examples/cuda_completion`: `alone` is one transfer at a time until its waiter returns, `stream` a transfer of 64 that are queued \
         at a time, `cpu` the processor time of the whole process for each.",
        1.0,
        |_, section, options| completion::measure(section, options.completion.as_deref()),
    ),
];
