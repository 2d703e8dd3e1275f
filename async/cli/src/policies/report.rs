//! The hits of policies by capacity. The names of the fields are the keys of `--json`; they are stable.

use super::{Prompts, hits, optimum};
use crate::fold;
use core::fmt;
use kvstrata::shared::figures::count;
use kvstrata_core::Policy;
use serde::Serialize;

/// The result, printed by `Display` as a table and by serde as JSON.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of kvstrata.
    pub version: &'static str,
    /// Name of the trace, for people.
    pub trace: String,
    /// Warnings of the trace, one for each kind, with the first line.
    pub trace_warnings: Vec<String>,
    /// Number of prompts.
    pub requests: u64,
    /// Blocks of all prompts.
    pub blocks: u64,
    /// Distinct blocks. A cache with this capacity keeps all.
    pub distinct_blocks: u64,
    /// Hits of such a cache: every block except its first occurrence.
    pub repeated_blocks: u64,
    /// Capacities in blocks, ascending.
    pub capacities: Vec<u32>,
    /// A curve for each policy, in the order of the option, each once.
    pub policies: Vec<Curve>,
    /// The most possible hits, with knowledge of the whole trace.
    pub optimum: Curve,
}

/// Hits by capacity.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Curve {
    /// The policy's name, or `optimum`.
    pub name: &'static str,
    /// Hits at each capacity, in blocks of leading runs.
    pub hits: Vec<u64>,
    /// Hits at each capacity as a share of all blocks, from 0 to 1.
    pub hit_ratio: Vec<f64>,
}

impl Report {
    /// Runs each policy, and the optimum, at each capacity. Calls `observe` with the number of
    /// runs done, and of all runs.
    #[must_use]
    pub fn new(
        trace: String,
        prompts: &Prompts,
        policies: &[Policy],
        capacities: &[u32],
        observe: &dyn Fn(usize, usize),
    ) -> Report {
        let mut capacities = capacities.to_vec();
        capacities.sort_unstable();
        capacities.dedup();
        let mut once: Vec<Policy> = Vec::new();
        policies.iter().for_each(|policy| {
            if !once.contains(policy) {
                once.push(*policy);
            }
        });
        let (mut done, all) = (0, (once.len() + 1) * capacities.len());
        let mut curve = |name, hits: &dyn Fn(u32) -> u64| {
            let hits: Vec<u64> = capacities
                .iter()
                .map(|capacity| {
                    let hits = hits(*capacity);
                    done += 1;
                    observe(done, all);
                    hits
                })
                .collect();
            let hit_ratio = hits.iter().map(|hits| *hits as f64 / prompts.blocks().max(1) as f64).collect();
            Curve { name, hits, hit_ratio }
        };
        let policies = once
            .iter()
            .map(|policy| curve(policy.name(), &|capacity| hits(prompts, *policy, capacity)))
            .collect();
        let optimum =
            curve("optimum", &|capacity| optimum(prompts.requests(), prompts.distinct(), capacity as usize));
        let distinct = prompts.distinct() as u64;
        Report {
            version: env!("CARGO_PKG_VERSION"),
            trace,
            trace_warnings: prompts.warnings().iter().map(ToString::to_string).collect(),
            requests: prompts.requests().len() as u64,
            blocks: prompts.blocks(),
            distinct_blocks: distinct,
            repeated_blocks: prompts.blocks() - distinct,
            capacities,
            policies,
            optimum,
        }
    }

    /// The curves of the policies, then that of the optimum.
    pub fn curves(&self) -> impl Iterator<Item = &Curve> {
        self.policies.iter().chain([&self.optimum])
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "trace            {}", self.trace)?;
        let mut warnings = String::new();
        for warning in &self.trace_warnings {
            fold::paragraph(&mut warnings, "warning          ", warning, fold::COLUMNS);
        }
        f.write_str(&warnings)?;
        writeln!(f, "requests         {:>12}", count(self.requests))?;
        writeln!(f, "blocks           {:>12}", count(self.blocks))?;
        writeln!(f, "distinct blocks  {:>12}", count(self.distinct_blocks))?;
        let all = 100.0 * self.repeated_blocks as f64 / self.blocks.max(1) as f64;
        writeln!(f, "room for all     {all:>10.2} % hits, if no block is ever evicted\n")?;
        writeln!(f, "Hits by capacity, % of the blocks; * marks the best policy:")?;
        write!(f, "{:>11}", "blocks")?;
        self.curves().try_for_each(|curve| write!(f, " {:>6} ", curve.name))?;
        for (at, capacity) in self.capacities.iter().enumerate() {
            write!(f, "\n{:>11}", count(u64::from(*capacity)))?;
            let best = self.policies.iter().map(|curve| curve.hits[at]).max();
            for curve in &self.policies {
                let mark = if Some(curve.hits[at]) == best { '*' } else { ' ' };
                write!(f, " {:>6.2}{mark}", 100.0 * curve.hit_ratio[at])?;
            }
            write!(f, " {:>7.2}", 100.0 * self.optimum.hit_ratio[at])?;
        }
        Ok(())
    }
}
