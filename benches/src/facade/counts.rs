//! Allocations a block and a request in steady state, all threads counted.
//!
//! ```text
//!   allocations of a request = a + b × blocks   two request sizes give both; b, a block's part, is to be 0
//! ```
//!
//! A program of its own counts (`facade_counts`), because counting would slow down the operations that
//! others time.

use super::ground::{Ground, Shape, build, now, settings};
use super::hits::{Fresh, full};
use super::report::{Cell, Table};
use crate::disk::Failure;
use crate::inputs::sequence;
use crate::{CAPACITY, PREFIX};
use futures_executor::block_on;
use kvstrata::manager::{OnboardOptions, Tiers};
use kvstrata::tier::Tier;
use kvstrata_testing::counting::counted;
use serde_json::{Value, json};
use std::process::Command;

/// Blocks of a request: a small one and a large one.
const SIZES: [usize; 2] = [16, 128];
/// Requests before it counts: by then all memory that is kept has been allocated.
const WARM: usize = 256;
/// Requests that are counted.
const REQUESTS: usize = 256;
/// Bytes of a block that is copied.
const BLOCK_BYTES: usize = 4096;
/// A block's part that counts as none: memory that grows now and then, and is kept.
const NONE: f64 = 0.01;

/// Returns the allocations a request, for one size after the other.
fn each(mut one: impl FnMut(usize) -> Box<dyn FnMut()>) -> [f64; 2] {
    SIZES.map(|blocks| {
        let mut act = one(blocks);
        (0..WARM).for_each(|_| act());
        let ((), count) = counted(|| (0..REQUESTS).for_each(|_| act()));
        count as f64 / REQUESTS as f64
    })
}

/// Allocates blocks, registers them under fresh names and releases them, again and again; waits if it must.
fn cycle(manager: &Tiers, blocks: usize) -> Box<dyn FnMut()> {
    let (manager, mut fresh) = (manager.clone(), Fresh::default());
    fresh.start_at(blocks as u64);
    fresh.make((WARM + REQUESTS) as u64, blocks);
    Box::new(move || {
        let owned =
            block_on(manager.default_group().allocate(blocks).into_future()).expect("evictable blocks");
        drop(owned.register(fresh.take(blocks), None).expect("fresh names"));
    })
}

/// Makes prefixes of a shape, below a device.
type Below = fn(Shape) -> Result<Ground, Failure>;

fn on_host(shape: Shape) -> Result<Ground, Failure> {
    Ground::host(shape, 8 * shape.bytes(), 2)
}

/// Makes four prefixes, below a device of one: each replaces one that the disk has.
fn on_disk(shape: Shape) -> Result<Ground, Failure> {
    let device = shape.blocks as u32;
    Ground::filled(build(shape.settings(device, 0).disk_blocks(4 * device))?, shape, Tier::DISK, 4)
}

/// Counts: the operations, and how often a request allocates.
///
/// # Errors
/// A manager that cannot be made.
pub fn count() -> Result<Value, Failure> {
    let mut rows = Vec::new();
    let mut row = |what: &str, counts: [f64; 2]| rows.push(json!({ "what": what, "counts": counts }));
    let inactive = full(1024)?;
    let mut prefix = Vec::new();
    sequence(0, PREFIX, &mut prefix);
    row(
        "device hit: match and release",
        each(|blocks| {
            let (manager, hashes) = (inactive.clone(), prefix[..blocks].to_vec());
            Box::new(move || assert_eq!(manager.default_group().match_prefix(&hashes).len(), blocks))
        }),
    );
    let free = build(settings(64, CAPACITY, 1024))?;
    row(
        "allocate free blocks, release",
        each(|blocks| {
            let manager = free.clone();
            Box::new(move || drop(now(manager.default_group().allocate(blocks)).expect("free blocks")))
        }),
    );
    let alone = full(0)?;
    row("allocate by eviction, register, release; no tier below", each(|blocks| cycle(&alone, blocks)));
    let mut failed = None;
    let each_brought = [
        ("onboard from host, whole", 1, None, on_host as Below),
        ("onboard from host, 4 layers one by one", 4, Some(1), on_host),
        ("onboard from disk, cold", 1, None, on_disk),
    ];
    for (what, layers, step, below) in each_brought {
        let counts = each(|blocks| match below(Shape { block_bytes: BLOCK_BYTES, blocks, layers }) {
            Ok(ground) => {
                let options = OnboardOptions::default().layers(step);
                Box::new(move || drop(ground.bring(options)))
            }
            Err(error) => {
                failed = Some(error);
                Box::new(|| {})
            }
        });
        row(what, counts);
    }
    if let Some(error) = failed {
        return Err(error);
    }
    // The host is full as well: each copy down evicts a block there.
    let full_below = build(settings(BLOCK_BYTES, 512, 1024))?;
    row(
        "allocate by eviction with offload, register, release; the host full too",
        each(|blocks| cycle(&full_below, blocks)),
    );
    // The disk is full as well: each block that goes there takes the slot of another.
    let full_disk = build(settings(BLOCK_BYTES, 512, 0).disk_blocks(1024))?;
    row(
        "allocate by eviction with a write to the disk, register, release; the disk full too",
        each(|blocks| cycle(&full_disk, blocks)),
    );
    Ok(Value::Array(rows))
}

/// Measures this part, by the program beside this one.
///
/// # Errors
/// The program cannot be run, or has failed.
pub fn measure() -> Result<Vec<Table>, Failure> {
    let program = std::env::current_exe()?.with_file_name("facade_counts");
    let output =
        Command::new(&program).output().map_err(|error| format!("{}: {error}", program.display()))?;
    if !output.status.success() {
        return Err(format!("{}: {}", program.display(), String::from_utf8_lossy(&output.stderr)).into());
    }
    let rows: Value = serde_json::from_slice(&output.stdout)?;
    let mut table = Table::new(
        "Allocations in steady state, all threads",
        &["operation", "a request of 16", "a request of 128", "a block", "reach", "a request's own"],
    );
    for row in rows.as_array().into_iter().flatten() {
        let count = |at: usize| row["counts"][at].as_f64().unwrap_or(f64::NAN);
        let (a_block, own) = parts([count(0), count(1)]);
        table.rows.push(vec![
            Cell::word(row["what"].as_str().unwrap_or("?")),
            Cell::number(count(0), 1),
            Cell::number(count(1), 1),
            Cell::number(a_block, 2),
            Cell::reach("0", a_block.abs() <= NONE),
            Cell::number(own, 1),
        ]);
    }
    table.notes.push(format!("Of {REQUESTS} requests, after {WARM} of the same."));
    Ok(vec![table])
}

/// Returns a block's part, and the rest, which is the request's.
fn parts(counts: [f64; 2]) -> (f64, f64) {
    let a_block = (counts[1] - counts[0]) / (SIZES[1] - SIZES[0]) as f64;
    (a_block, counts[0] - a_block * SIZES[0] as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_split_into_a_request_and_its_blocks() {
        let counts = SIZES.map(|blocks| 7.0 + 3.0 * blocks as f64);
        assert_eq!(parts(counts), (3.0, 7.0));
    }
}
