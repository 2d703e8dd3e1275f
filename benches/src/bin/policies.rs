//! Eviction policies over a trace: the hits of each, reuse against LRU, and the costs of the core's policies.

use kvstrata_benches::policies::classic::Classic;
use kvstrata_benches::policies::traffic::Trace;
use kvstrata_benches::policies::{made_up, optimum, pool, threads, told};
use kvstrata_benches::rounds::Spread;
use kvstrata_cli::trace::TraceSource;
use kvstrata_core::Policy;
use std::env;
use std::error::Error;
use std::process::ExitCode;

const USAGE: &str = "\
policies COMMAND [--trace FILE] [--capacities N,N,…] [--round N]

  table     hits of policies by their papers, of the core's and of the optimum, in per cent of the trace's blocks, and counted
  never     reuse less LRU, in percentage points, over made-up traces, over others, over the trace in parts, and over tiny pools; how many are below
            LRU, and by how many hits
  held      the same over pools with half of their blocks in use: many requests in flight
  sweep     reuse less LRU on the trace, from 250 to 150,000 blocks
  means     reuse on the trace: the mean of seven capacities within 15 % of each, against the noise of a single one
  names     reuse on the trace by sixteen sets of hashes, which decide what it samples: mean, least and most at each capacity
  told      hits if a caller says which conversations have ended, all of them or every second one; and how far the length of an answer predicts that
  time      nanoseconds an eviction, in a request's batch and one by one, and a touch, and bytes a block more than LRU's, of the core's policies on the
            trace: least and median of seven runs in turns, and the ratio to LRU in the same turn
  fresh     nanoseconds an eviction where every block is new, by requests of 16 and of 128: the same
  threads   hits of LRU and reuse by one thread, two and four at once, and nanoseconds a block of the trace, all calls of a request together: the
            median of seven runs in turns, and the threads' own time; blocks with events that reuse did not get, and how often its guard gave up
  looks     the share of the victims that the core's policies predict, and nanoseconds for each that a look shows

  --trace FILE         requests in the Mooncake format, plain or compressed; the bundled conversation trace unless given
  --capacities N,N,…   blocks of the pool; 1000,3000,10000,30000 unless given (`never`, `held`, `sweep` and `fresh` have their own)
  --round N            other random numbers for the made-up traces of `never` and `held`; 0 unless given";

/// Larger capacities are refused, before they are allocated.
const MOST: usize = 1 << 24;

const SWEEP: [usize; 26] = [
    250, 400, 600, 800, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10_000, 12_000, 14_000,
    17_000, 20_000, 25_000, 30_000, 40_000, 50_000, 70_000, 100_000, 150_000,
];
const PARTS: [usize; 6] = [300, 1000, 3000, 10_000, 30_000, 60_000];
const TINY: [usize; 11] = [1, 2, 3, 7, 16, 40, 64, 100, 128, 150, 200];
/// Capacities over a made-up trace: shares of its distinct blocks.
const SHARES: [f64; 6] = [0.01, 0.03, 0.08, 0.2, 0.4, 0.7];

struct Options {
    command: String,
    source: TraceSource,
    capacities: Option<Vec<usize>>,
    round: u64,
}

impl Options {
    /// Returns none if `--help` was given.
    fn parse() -> Result<Option<Options>, String> {
        let mut options =
            Options { command: String::new(), source: TraceSource::Bundled, capacities: None, round: 0 };
        let mut arguments = env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument}: needs a value; see --help"));
            match argument.as_str() {
                "-h" | "--help" => return Ok(None),
                "--trace" => options.source = TraceSource::File(value()?.into()),
                "--capacities" => {
                    let list = value()?;
                    options.capacities = Some(list.split(',').map(capacity).collect::<Result<_, _>>()?);
                }
                "--round" => {
                    let round = value()?;
                    // Each of so many rounds has seeds of its own.
                    options.round = round
                        .parse::<u32>()
                        .map(u64::from)
                        .map_err(|_| format!("--round {round:?}: a whole number from 0 to {}", u32::MAX))?;
                }
                _ if options.command.is_empty() && !argument.starts_with('-') => options.command = argument,
                _ => return Err(format!("{argument:?}: unknown; see --help")),
            }
        }
        if options.command.is_empty() {
            return Err(
                "a command is missing: table, never, held, sweep, means, names, told, time, fresh, threads or looks; see --help"
                    .into(),
            );
        }
        Ok(Some(options))
    }

    fn capacities(&self, otherwise: &[usize]) -> Vec<usize> {
        self.capacities.clone().unwrap_or_else(|| otherwise.to_vec())
    }
}

fn capacity(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(blocks) if (1..=MOST).contains(&blocks) => Ok(blocks),
        _ => Err(format!("--capacities: {text:?}: a number of blocks from 1 to {MOST}")),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("policies: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let Some(options) = Options::parse()? else {
        println!("{USAGE}");
        return Ok(());
    };
    let work: fn(&Options, &Trace) = match options.command.as_str() {
        "table" => table,
        "never" => never,
        "held" => held,
        "sweep" => sweep,
        "means" => means,
        "names" => names,
        "told" => told,
        "time" => time,
        "fresh" => fresh,
        "threads" => together,
        "looks" => looks,
        other => return Err(format!("{other:?}: unknown; see --help").into()),
    };
    let trace = Trace::read(options.source.clone())?;
    work(&options, &trace);
    Ok(())
}

/// Number of sets of hashes of `names`.
const SETS: u64 = 16;
const FOUR: [usize; 4] = [1000, 3000, 10_000, 30_000];

fn table(options: &Options, trace: &Trace) {
    let capacities = options.capacities(&FOUR);
    let row = |name: &str, hits: &dyn Fn(usize) -> u64| {
        let hits: Vec<u64> = capacities.iter().map(|blocks| hits(*blocks)).collect();
        let cells: String = hits.iter().map(|hits| format!(" {:.2} |", trace.percent(*hits))).collect();
        println!("| {name} |{cells} {hits:?} |");
    };
    let heads: String = capacities.iter().map(|blocks| format!(" {blocks} |")).collect();
    println!("| policy |{heads} hits |\n|---|{}---|", "---:|".repeat(capacities.len()));
    for (name, classic) in Classic::ALL {
        row(name, &|blocks| classic.hits(trace, blocks));
    }
    for policy in Policy::ALL {
        row(&format!("core: {policy}"), &|blocks| pool::run(trace, policy, blocks, false).hits);
    }
    row("optimum", &|blocks| optimum::optimum(trace, blocks));
}

/// LRU's hits, and reuse's less LRU's, in per cent of the trace's blocks.
fn against_lru(trace: &Trace, blocks: usize) -> (f64, f64) {
    let lru = trace.percent(optimum::lru(trace, blocks));
    (lru, trace.percent(pool::run(trace, Policy::Reuse, blocks, false).hits) - lru)
}

/// The same in a pool with half of its blocks in use, for both policies.
fn against_lru_held(trace: &Trace, blocks: usize) -> (f64, f64) {
    let [lru, reuse] = [Policy::Lru, Policy::Reuse]
        .map(|policy| trace.percent(pool::run_held(trace, policy, blocks, blocks / 2, false).hits));
    (lru, reuse - lru)
}

/// Reuse beside LRU over many cells; a cell is a trace at a capacity.
#[derive(Clone, Copy, Default)]
struct Beside {
    cells: usize,
    below: usize,
    /// Percentage points, all together.
    sum: f64,
    worst: f64,
    /// The largest losses, in hits and in requests of the trace's mean length, independently of each other.
    hits: f64,
    requests: f64,
}

impl Beside {
    fn add(&mut self, trace: &Trace, more: f64) {
        let lost = (-more / 100.0 * trace.blocks as f64).max(0.0);
        let mean_request = trace.blocks as f64 / trace.requests.len().max(1) as f64;
        self.worst = if self.cells == 0 { more } else { self.worst.min(more) };
        (self.cells, self.below, self.sum) =
            (self.cells + 1, self.below + usize::from(more < 0.0), self.sum + more);
        (self.hits, self.requests) = (self.hits.max(lost), self.requests.max(lost / mean_request));
    }

    fn and(self, other: Beside) -> Beside {
        Beside {
            cells: self.cells + other.cells,
            below: self.below + other.below,
            sum: self.sum + other.sum,
            worst: self.worst.min(other.worst),
            hits: self.hits.max(other.hits),
            requests: self.requests.max(other.requests),
        }
    }

    fn say(self, what: &str) {
        let Beside { cells, below, sum, worst, hits, requests } = self;
        println!(
            "worst of {what}: {worst:+.3}; mean {:+.2}; {below} of {cells} below LRU, by {hits:.0} hits at most, and {requests:.1} mean requests\n",
            sum / cells.max(1) as f64
        );
    }
}

/// Prints a line a trace; returns all of them together.
fn compare(
    what: &str,
    traces: &[Trace],
    against_lru: impl Fn(&Trace, usize) -> (f64, f64),
    capacities: impl Fn(&Trace) -> Vec<usize>,
) -> Beside {
    let mut all = Beside::default();
    for trace in traces {
        let mut line = String::new();
        for blocks in capacities(trace) {
            let (lru, more) = against_lru(trace, blocks);
            all.add(trace, more);
            line += &format!(" {blocks}:{lru:.2}{more:+.3}");
        }
        println!("{:16} {:7} blocks {:7} distinct {line}", trace.name, trace.blocks, trace.distinct);
    }
    all.say(what);
    all
}

/// Capacities over a made-up trace: each pool has room for `whole` of its longest requests.
fn shares(options: &Options, trace: &Trace, whole: usize) -> Vec<usize> {
    let least = trace.longest().max(32) * whole;
    let share = |share| ((trace.distinct as f64 * share) as usize).max(least);
    options.capacities(&SHARES.map(share))
}

fn never(options: &Options, trace: &Trace) {
    let shares = |trace: &Trace| shares(options, trace, 1);
    let mut others = made_up::other(options.round);
    let mut all = compare("made-up traces", &made_up::made_up(options.round), against_lru, shares);
    all = all.and(compare("other kinds", &others, against_lru, shares));
    let parts = |_: &Trace| options.capacities(&PARTS);
    all = all.and(compare("the trace in parts", &made_up::parts(trace), against_lru, parts));
    others.push(trace.clone());
    all.and(compare("tiny pools", &others, against_lru, |_| options.capacities(&TINY))).say("all");
}

fn held(options: &Options, trace: &Trace) {
    let shares = |trace: &Trace| shares(options, trace, 2);
    let all = compare("made-up traces", &made_up::made_up(options.round), against_lru_held, shares);
    let all = all.and(compare("other kinds", &made_up::other(options.round), against_lru_held, shares));
    let whole = std::slice::from_ref(trace);
    all.and(compare("the trace", whole, against_lru_held, |_| options.capacities(&PARTS))).say("all");
}

fn sweep(options: &Options, trace: &Trace) {
    compare("the sweep", std::slice::from_ref(trace), against_lru, |_| options.capacities(&SWEEP));
}

fn means(options: &Options, trace: &Trace) {
    for blocks in options.capacities(&FOUR) {
        let near = [0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15].map(|share| (blocks as f64 * share) as usize);
        let hits =
            near.map(|blocks| trace.percent(pool::run(trace, Policy::Reuse, blocks.max(1), false).hits));
        let least = hits.iter().copied().fold(f64::MAX, f64::min);
        println!("{blocks}: {:.2} % on average, {least:.2} % at least", hits.iter().sum::<f64>() / 7.0);
    }
}

fn names(options: &Options, trace: &Trace) {
    for blocks in options.capacities(&FOUR) {
        let mut hits = (0..SETS).map(|names| {
            let how = pool::How { names, ..pool::How::PLAIN };
            trace.percent(pool::run_so(trace, Policy::Reuse, blocks, how).hits)
        });
        let first = hits.next().unwrap_or_default();
        let (sum, least, most) = hits.fold((first, first, first), |(sum, least, most), hits| {
            (sum + hits, hits.min(least), hits.max(most))
        });
        println!("{blocks}: {:.2} % on average, {least:.2} to {most:.2} %", sum / SETS as f64);
    }
}

fn told(options: &Options, trace: &Trace) {
    let all = told::endings(trace);
    let whole = |at: usize| trace.requests[at].ids.len();
    let half: Vec<usize> = (0..all.len()).map(|at| if at % 2 == 0 { all[at] } else { whole(at) }).collect();
    println!("| policy | blocks | told nothing | every second end | every end |\n|---|---:|---:|---:|---:|");
    for policy in [Policy::Lru, Policy::Reuse] {
        for blocks in options.capacities(&FOUR) {
            let none = pool::run(trace, policy, blocks, false).hits;
            let [half, all] = [&half, &all].map(|of_use| {
                pool::run_so(trace, policy, blocks, pool::How { of_use: Some(of_use), ..pool::How::PLAIN })
                    .hits
            });
            let [none, half, all] = [none, half, all].map(|hits| trace.percent(hits));
            println!("| {policy} | {blocks} | {none:.2} | {half:.2} | {all:.2} |");
        }
    }
    match told::signs(options.source.clone()) {
        Ok(signs) => println!("{signs:.1?}"),
        Err(error) => eprintln!("policies: {error}"),
    }
}

/// Runs of `time` and `fresh`, in turns: a shared machine is as slow for one policy as for the next.
const RUNS: usize = 7;

/// Nanoseconds of each policy in rounds: the least, the median, and the median ratio to LRU's of the
/// same round.
fn beside_lru(rounds: &[[f64; Policy::ALL.len()]], policy: usize) -> String {
    let lru = Policy::ALL.iter().position(|policy| *policy == Policy::Lru).expect("it is one of them");
    let ns = Spread::of(rounds.iter().map(|round| round[policy]));
    let times = Spread::of(rounds.iter().map(|round| round[policy] / round[lru]));
    format!("{:.0} | {:.0} | {:.1} ({:.1}–{:.1})", ns.low, ns.median, times.median, times.low, times.high)
}

fn time(options: &Options, trace: &Trace) {
    println!(
        "| blocks | policy | eviction, ns: least | median | to LRU | by one: least | median | to LRU | touch: least | median | to LRU | bytes a block more |\n|---:|---|{}",
        "---:|".repeat(10)
    );
    for blocks in options.capacities(&FOUR) {
        let of_lru = pool::pool(Policy::Lru, blocks).memory_bytes();
        let [mut evict, mut one, mut touch] = [const { Vec::new() }; 3];
        for _ in 0..RUNS {
            let runs = Policy::ALL.map(|policy| pool::run(trace, policy, blocks, true));
            evict.push(runs.each_ref().map(eviction));
            touch.push(runs.map(|run| run.touch_ns as f64 / trace.blocks as f64));
            let by_ones = pool::How { timed: true, most: 1, ..pool::How::PLAIN };
            one.push(Policy::ALL.map(|policy| eviction(&pool::run_so(trace, policy, blocks, by_ones))));
        }
        for (nth, policy) in Policy::ALL.into_iter().enumerate() {
            let more =
                pool::pool(policy, blocks).memory_bytes().saturating_sub(of_lru) as f64 / blocks as f64;
            let [evict, one, touch] = [&evict, &one, &touch].map(|rounds| beside_lru(rounds, nth));
            println!("| {blocks} | {policy} | {evict} | {one} | {touch} | {more:.1} |");
        }
    }
}

/// Nanoseconds an eviction.
fn eviction(run: &pool::Outcome) -> f64 {
    run.evict_ns as f64 / run.evictions_timed.max(1) as f64
}

fn fresh(options: &Options, _: &Trace) {
    println!(
        "| blocks | requests of | policy | eviction, ns: least | median | to LRU |\n|---:|---:|---|---:|---:|---:|"
    );
    for blocks in options.capacities(&[10_000, 65_536]) {
        for length in [16, 128] {
            let trace = made_up::fresh(length, 6 * blocks);
            let round = || Policy::ALL.map(|policy| eviction(&pool::run(&trace, policy, blocks, true)));
            let rounds: Vec<_> = (0..RUNS).map(|_| round()).collect();
            for (nth, policy) in Policy::ALL.into_iter().enumerate() {
                println!("| {blocks} | {length} | {policy} | {} |", beside_lru(&rounds, nth));
            }
        }
    }
}

fn together(options: &Options, trace: &Trace) {
    println!(
        "| blocks | threads | policy | hits, % | ns a block | reuse to LRU | not heard of, ‰ | setbacks |\n|---:|---:|---|---:|---:|---:|---:|---:|"
    );
    for blocks in options.capacities(&FOUR[1..]) {
        for n in [1, 2, 4] {
            if blocks < n * trace.longest() {
                eprintln!(
                    "{blocks} blocks have no room for {n} requests of {} at once: left out",
                    trace.longest()
                );
                continue;
            }
            let policies = [Policy::Lru, Policy::Reuse];
            let rounds: Vec<[threads::Together; 2]> =
                (0..7).map(|_| policies.map(|policy| threads::run(trace, policy, blocks, n))).collect();
            let ratio = Spread::of(rounds.iter().map(|[lru, reuse]| reuse.own_ns / lru.own_ns));
            for (at, policy) in policies.iter().enumerate() {
                let of = |what: fn(&threads::Together) -> f64| {
                    Spread::of(rounds.iter().map(|round| what(&round[at])))
                };
                let hits = of(|run| run.hits as f64);
                let (unheard, setbacks) = (of(|run| run.unheard as f64), of(|run| f64::from(run.setbacks)));
                let ours = if at == 1 {
                    let of_trace = 1000.0 / trace.blocks as f64;
                    format!(
                        "{:.2} ({:.2}–{:.2}) | {:.1} ({:.1}–{:.1}) | {}",
                        ratio.median,
                        ratio.low,
                        ratio.high,
                        unheard.median * of_trace,
                        unheard.low * of_trace,
                        unheard.high * of_trace,
                        setbacks.median,
                    )
                } else {
                    " | | ".into()
                };
                println!(
                    "| {blocks} | {n} | {policy} | {:.2} ({:.2}–{:.2}) | {:.0} | {ours} |",
                    trace.percent(hits.median as u64),
                    trace.percent(hits.low as u64),
                    trace.percent(hits.high as u64),
                    of(|run| run.own_ns).median,
                );
            }
        }
    }
}

fn looks(options: &Options, trace: &Trace) {
    for blocks in options.capacities(&FOUR) {
        for policy in Policy::ALL {
            for look in [64, 1024] {
                let out = pool::run_so(trace, policy, blocks, pool::How { look, ..pool::How::PLAIN });
                let (share, ns) = (
                    100.0 * out.foreseen as f64 / out.evictions.max(1) as f64,
                    out.look_ns / out.shown.max(1),
                );
                println!(
                    "{blocks} {policy}: {look} shown before each eviction: {share:.1} % of the victims, {ns} ns each"
                );
            }
        }
    }
}
