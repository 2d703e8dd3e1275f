//! Offload of the blocks that a pass of the model writes: the time after its end until all of them are
//! in the host, gated by the pass and gated by its layers.
//!
//! ```text
//!   the model   │ layer 0 │ layer 1 │ … │ layer 31 │ end
//!   whole       │                                  ├── 128 blocks, all layers ──► there
//!   by layers   │     4 layers of all of them  ─ ─ ├── the last four ──► there
//!                                                  └ the clock
//! ```
//!
//! The model computes on another device: meanwhile this machine's cores are free, and each layer takes
//! the set time.

use super::ground::{Shape, build};
use super::hits::Fresh;
use super::report::{Cell, Table};
use crate::disk::{Failure, size};
use crate::rounds::Spread;
use futures_executor::block_on;
use kvstrata::manager::{KvBlockManager, OffloadOptions};
use kvstrata::scheduler::Gate;
use std::time::{Duration, Instant};

/// The blocks that a pass writes.
const SHAPE: Shape = Shape { block_bytes: 1 << 20, blocks: 128, layers: 32 };
/// The time of a layer: a prefill of 2,048 tokens takes about as long.
const LAYER: Duration = Duration::from_millis(2);
/// Layers a step, beside whole blocks.
const STEPS: [u32; 2] = [4, 1];

/// A manager that offloads the blocks of passes.
struct Passes {
    manager: KvBlockManager,
    fresh: Fresh,
}

impl Passes {
    fn new() -> Result<Passes, Failure> {
        // The host has room for more than the device holds, so that an eviction copies nothing: all
        // copies are the offload's.
        let device = 2 * SHAPE.blocks as u32;
        let settings = SHAPE.settings(device, 2 * device).host_copy_threads(Some(2));
        let mut passes = Passes { manager: build(settings)?, fresh: Fresh::default() };
        // All of its memory is in use before anything is measured.
        for _ in 0..4 {
            passes.one(None)?;
        }
        Ok(passes)
    }

    /// Runs one pass. Its blocks are offloaded behind its layers, so many a step, or behind its end.
    /// Returns the time from the end of the pass until they are in the host.
    fn one(&mut self, step: Option<u32>) -> Result<Duration, Failure> {
        let blocks = block_on(self.manager.default_group().allocate(SHAPE.blocks).into_future())?;
        self.fresh.make(1, SHAPE.blocks);
        let pass = self.manager.begin_iteration()?;
        let iteration = pass.number();
        let blocks = blocks.register(self.fresh.take(SHAPE.blocks), None).map_err(|error| error.why)?;
        let gate = match step {
            Some(step) => Gate::Layer { iteration, layer: step - 1 },
            None => Gate::Iteration(iteration),
        };
        let offload = self.manager.default_group().offload(&blocks, OffloadOptions::default().gate(gate));
        let began = Instant::now();
        for layer in 0..SHAPE.layers - 1 {
            std::thread::sleep((LAYER * (layer + 1)).saturating_sub(began.elapsed()));
            pass.layer_done(layer)?;
        }
        std::thread::sleep((LAYER * SHAPE.layers).saturating_sub(began.elapsed()));
        let end = Instant::now();
        pass.layer_done(SHAPE.layers - 1)?;
        pass.end()?;
        let copied = block_on(offload).copied;
        let took = end.elapsed();
        match copied == SHAPE.blocks {
            true => Ok(took),
            false => Err(format!("{copied} of {} blocks of a pass were offloaded", SHAPE.blocks).into()),
        }
    }
}

/// Measures this part.
///
/// # Errors
/// A manager that cannot be made, or blocks that are not offloaded.
pub fn measure(rounds: usize) -> Result<Vec<Table>, Failure> {
    let mut passes = Passes::new()?;
    let who = [None, Some(STEPS[0]), Some(STEPS[1])];
    let mut took: [Vec<f64>; 3] = Default::default();
    for round in 0..rounds {
        for turn in 0..who.len() {
            let at = (turn + round) % who.len();
            took[at].push(passes.one(who[at])?.as_nanos() as f64);
        }
    }
    let mut table = Table::new(
        "Offload of the blocks that a pass writes, simulated device: from the end of the pass until all of them are in the host",
        &["blocks", "gate", "ms after the end", "to the whole blocks'"],
    );
    for (at, step) in who.iter().enumerate() {
        let ratio = Spread::of(took[at].iter().zip(&took[0]).map(|(one, whole)| one / whole));
        table.rows.push(vec![
            Cell::word(format!("{} × {}, {} layers", SHAPE.blocks, size(SHAPE.block_bytes), SHAPE.layers)),
            Cell::word(match step {
                None => "the end of the pass: whole blocks".to_owned(),
                Some(1) => "each layer".to_owned(),
                Some(step) => format!("{step} layers a step"),
            }),
            Cell::figure(Spread::of(took[at].iter().copied()).per(1e6), 2),
            if at == 0 { Cell::none() } else { Cell::ratio(ratio) },
        ]);
    }
    table.notes.push(format!(
        "A layer takes {LAYER:?}, while this machine's cores have nothing else to do: a pass of {:?}; two copying threads; {rounds} passes of each, in turns.",
        LAYER * SHAPE.layers
    ));
    Ok(vec![table])
}
