//! The model's iterations, as the engine tells of them, and the gates that they open: what touches a block in use waits until the layer or
//! the iteration that uses it is done. Pure: no time, no lock; iterations are counted from 1.
//!
//! ```text
//!             begin              layer_done(l)                end              step
//!   between ─────────► running n ───────────────► l + 1 done ─────────► between ─────────► between
//!    n - 1                         opens Layer{n, 0..=l}       opens      n       opens     n + 1
//!                                                      Layer{n, any}, Iteration(n)   the same of n + 1
//! ```
//!
//! Invariants
//! - I1: a gate that is open stays open: iterations and layers only go forwards.
//! - I2: no call opens a gate before what it waits for is done, as far as the engine has said. So a call that makes no sense changes
//!   nothing: it is an error that names the call, never a guess.
//! - I3: nothing waits for ever for a call that an engine does not make: `end` opens whatever its iteration's layers would have, and
//!   `step` is a whole iteration. A gate of an iteration to come opens when that is over.
//!
//! | the engine | what happens |
//! |---|---|
//! | never calls `layer_done` | gates of layers open at `end` |
//! | calls `layer_done` for some layers | a layer is done with all before it, since a model runs them in order |
//! | calls it twice, backwards, beyond the last, or between iterations | refused |
//! | calls `begin` while one runs | refused: its blocks may still be in use; after an iteration that came to nothing, `end` is due too |
//! | calls `end` without `begin` | refused |
//! | calls `step` alone | each is an iteration |
//! | calls `step` while one runs | refused, as `begin` is |
//! | calls `begin` and `end`, and `step` between iterations | each step is one more iteration: blocks become idle sooner |

use std::cmp::Ordering;

#[cfg(test)]
mod tests;

/// What something waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Gate {
    /// Nothing.
    Open,
    /// That a layer of an iteration is done.
    Layer {
        /// Which iteration.
        iteration: u64,
        /// Which of its layers, from 0. One beyond the last is done when the iteration is.
        layer: u32,
    },
    /// That an iteration is over.
    Iteration(u64),
}

impl Gate {
    /// The one of two that opens last.
    #[must_use]
    pub fn later(self, other: Gate) -> Gate {
        if Due::of(other) > Due::of(self) { other } else { self }
    }
}

/// The engine's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// `begin_iteration`.
    Begin,
    /// `layer_done`, with its layer.
    LayerDone(u32),
    /// The iteration's `end`.
    End,
    /// `step`.
    Step,
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Call::Begin => f.write_str("begin_iteration"),
            Call::LayerDone(layer) => write!(f, "layer_done({layer})"),
            Call::End => f.write_str("end"),
            Call::Step => f.write_str("step"),
        }
    }
}

/// A call that makes no sense now. It has changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {reason}")]
#[non_exhaustive]
pub struct Misuse {
    /// Which call.
    pub call: Call,
    /// What is wrong with it.
    pub reason: Reason,
}

/// Why a call makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// An iteration is running.
    #[error("iteration {0} is running; end it first")]
    Running(u64),
    /// This process was forked from the manager's.
    #[error(
        "the manager was made by the process from which this one was forked; make one in this process, after the fork"
    )]
    Inherited,
    /// None is.
    #[error("no iteration is running, the last one was {0}; call begin_iteration first")]
    NotRunning(u64),
    /// The layer is done already.
    #[error("{done} layers of iteration {iteration} are done already; call it once a layer, in order")]
    DoneAlready {
        /// Which iteration.
        iteration: u64,
        /// Its layers from 0 to this one, without it.
        done: u32,
    },
    /// There is no such layer.
    #[error("the model has {layers} layers, counted from 0")]
    NoSuchLayer {
        /// How many there are.
        layers: u32,
    },
}

/// How far the model is.
#[derive(Debug, Clone)]
pub struct Clock {
    layers: u32,
    /// The iteration that is running, or the last one; 0 before the first.
    iteration: u64,
    /// Of the one that is running: how many layers are done.
    running: Option<u32>,
}

impl Clock {
    /// Before the first iteration of a model of so many layers.
    #[must_use]
    pub const fn new(layers: u32) -> Clock {
        Clock { layers, iteration: 0, running: None }
    }

    /// An iteration begins. Its number.
    pub fn begin(&mut self) -> Result<u64, Misuse> {
        self.between(Call::Begin)?;
        self.iteration += 1;
        self.running = Some(0);
        Ok(self.iteration)
    }

    /// A layer of the running iteration, and all before it, no longer use their parts of blocks. How many are done now.
    pub fn layer_done(&mut self, layer: u32) -> Result<u32, Misuse> {
        let call = Call::LayerDone(layer);
        let misuse = |reason| Err(Misuse { call, reason });
        let (iteration, layers) = (self.iteration, self.layers);
        match self.running {
            None => misuse(Reason::NotRunning(iteration)),
            Some(_) if layer >= layers => misuse(Reason::NoSuchLayer { layers }),
            Some(done) if layer < done => misuse(Reason::DoneAlready { iteration, done }),
            Some(_) => {
                self.running = Some(layer + 1);
                Ok(layer + 1)
            }
        }
    }

    /// The running iteration is over, with all of its layers. Its number.
    pub fn end(&mut self) -> Result<u64, Misuse> {
        match self.running.take() {
            Some(_) => Ok(self.iteration),
            None => Err(Misuse { call: Call::End, reason: Reason::NotRunning(self.iteration) }),
        }
    }

    /// A whole iteration, of an engine that does not tell when its iterations begin and end. Its number.
    pub fn step(&mut self) -> Result<u64, Misuse> {
        self.between(Call::Step)?;
        self.iteration += 1;
        Ok(self.iteration)
    }

    /// The iteration that is running, or the last one: the logical time by which blocks age.
    #[must_use]
    pub const fn iteration(&self) -> u64 {
        self.iteration
    }

    /// Whether one is running.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// What waits for the running iteration, if there is one: for one of its layers, or for the whole.
    #[must_use]
    pub const fn gate(&self, layer: Option<u32>) -> Gate {
        match (self.running, layer) {
            (None, _) => Gate::Open,
            (Some(_), Some(layer)) => Gate::Layer { iteration: self.iteration, layer },
            (Some(_), None) => Gate::Iteration(self.iteration),
        }
    }

    /// The gate of something that takes all layers of what a gate is for: no layer of it alone is enough.
    #[must_use]
    pub const fn of_all_layers(&self, gate: Gate) -> Gate {
        match gate {
            Gate::Layer { iteration, .. } => Gate::Layer { iteration, layer: self.layers.saturating_sub(1) },
            gate => gate,
        }
    }

    /// The layers of the model.
    #[must_use]
    pub const fn layers(&self) -> u32 {
        self.layers
    }

    /// How many layers of an iteration are done: none of one to come, and all of one that is over, however many the engine has told of.
    #[must_use]
    pub fn layers_done(&self, iteration: u64) -> u32 {
        let due = self.due();
        match due.iteration.cmp(&iteration) {
            Ordering::Less => 0,
            Ordering::Equal => due.layers.min(self.layers),
            Ordering::Greater => self.layers,
        }
    }

    /// Whether a gate is open.
    #[must_use]
    pub fn passed(&self, gate: Gate) -> bool {
        Due::of(gate) <= self.due()
    }

    /// What is open: all that is due by then.
    pub(super) fn due(&self) -> Due {
        match self.running {
            // A layer's gate is due at its number and one: so many are done.
            Some(done) => Due { iteration: self.iteration, layers: done },
            None => Due { iteration: self.iteration, layers: u32::MAX },
        }
    }

    fn between(&self, call: Call) -> Result<(), Misuse> {
        match self.running {
            None => Ok(()),
            Some(_) => Err(Misuse { call, reason: Reason::Running(self.iteration) }),
        }
    }
}

/// When a gate opens, in the order in which the clock goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due {
    iteration: u64,
    /// Of that iteration: how many layers are done; `u32::MAX` when it is over.
    layers: u32,
}

impl Due {
    pub(super) fn of(gate: Gate) -> Due {
        match gate {
            Gate::Open => Due { iteration: 0, layers: 0 },
            Gate::Layer { iteration, layer } => Due { iteration, layers: layer.saturating_add(1) },
            Gate::Iteration(iteration) => Due { iteration, layers: u32::MAX },
        }
    }
}
