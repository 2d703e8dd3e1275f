//! The model's iterations, as the engine tells of them, and the gates that they open. A transfer that
//! touches a block in use waits at a gate until the layer or the iteration that uses the block is done.
//! Pure: no time, no lock. Iterations are counted from 1.
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
//! - I2: no call opens a gate before its layer or iteration is done, as far as the engine has told. So a
//!   call out of order changes nothing: it is an error that names the call, never a guess.
//! - I3: no waiter depends on a call that an engine may not make: `end` opens the gates of all
//!   layers of its iteration, and `step` is a whole iteration. A gate of an iteration to come opens when
//!   that is over.
//!
//! | the engine | effect |
//! |---|---|
//! | never calls `layer_done` | gates of layers open at `end` |
//! | calls `layer_done` for some layers | a layer is done with all before it: a model runs them in order |
//! | calls it twice, backwards, beyond the last, or between iterations | refused |
//! | calls `begin` while one runs | refused: its blocks may be in use; a failed one needs an `end` too |
//! | calls `end` without `begin` | refused |
//! | calls `step` alone | each is an iteration |
//! | calls `step` while one runs | refused, as `begin` is |
//! | calls `step` between other iterations | each step is one more iteration: blocks become idle sooner |

use std::cmp::Ordering;

#[cfg(test)]
mod tests;

/// The event that a waiter waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Gate {
    /// None: the gate is open.
    Open,
    /// A layer of an iteration is done.
    Layer {
        /// The iteration.
        iteration: u64,
        /// The layer of that iteration, from 0. One beyond the last is done when the iteration is.
        layer: u32,
    },
    /// An iteration is over.
    Iteration(u64),
}

impl Gate {
    /// Returns the gate of the two that opens last.
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

/// A call out of order. It has changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {reason}")]
#[non_exhaustive]
pub struct Misuse {
    /// The call.
    pub call: Call,
    /// Why it is refused.
    pub reason: Reason,
}

/// Why a call is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// An iteration is running.
    #[error("iteration {0} is running; end it first")]
    Running(u64),
    /// This process was forked from the manager's.
    #[error("this process was forked from the manager's; build a manager in this process, after the fork")]
    Inherited,
    /// No iteration is running.
    #[error("no iteration is running (the last was {0}); call begin_iteration first")]
    NotRunning(u64),
    /// The layer is done already.
    #[error("layers of iteration {iteration} done already: {done}; call it once per layer, in order")]
    DoneAlready {
        /// The iteration.
        iteration: u64,
        /// The number of its layers that are done.
        done: u32,
    },
    /// There is no such layer.
    #[error("no such layer; layers of the model: {layers}, numbered from 0")]
    NoSuchLayer {
        /// Layers of the model.
        layers: u32,
    },
}

/// The progress of the model.
#[derive(Debug, Clone)]
pub struct Clock {
    layers: u32,
    /// The iteration that is running, or the last one; 0 before the first.
    iteration: u64,
    /// Layers of the running iteration that are done; none: no iteration is running.
    running: Option<u32>,
}

impl Clock {
    /// Returns a clock before the first iteration of a model of so many layers.
    #[must_use]
    pub const fn new(layers: u32) -> Clock {
        Clock { layers, iteration: 0, running: None }
    }

    /// Begins an iteration. Returns its number.
    pub fn begin(&mut self) -> Result<u64, Misuse> {
        self.between(Call::Begin)?;
        self.iteration += 1;
        self.running = Some(0);
        Ok(self.iteration)
    }

    /// Records that a layer of the running iteration, and all before it, no longer use their parts of
    /// blocks. Returns how many layers are done now.
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

    /// Ends the running iteration, with all of its layers. Returns its number.
    pub fn end(&mut self) -> Result<u64, Misuse> {
        match self.running.take() {
            Some(_) => Ok(self.iteration),
            None => Err(Misuse { call: Call::End, reason: Reason::NotRunning(self.iteration) }),
        }
    }

    /// Counts a whole iteration, for an engine that does not tell when its iterations begin and end.
    /// Returns its number.
    pub fn step(&mut self) -> Result<u64, Misuse> {
        self.between(Call::Step)?;
        self.iteration += 1;
        Ok(self.iteration)
    }

    /// Returns the running iteration, or the last one: the logical time by which blocks age.
    #[must_use]
    pub const fn iteration(&self) -> u64 {
        self.iteration
    }

    /// Returns whether an iteration is running.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Returns the gate of the running iteration: of one of its layers, or of the whole. Open if
    /// none is running.
    #[must_use]
    pub const fn gate(&self, layer: Option<u32>) -> Gate {
        match (self.running, layer) {
            (None, _) => Gate::Open,
            (Some(_), Some(layer)) => Gate::Layer { iteration: self.iteration, layer },
            (Some(_), None) => Gate::Iteration(self.iteration),
        }
    }

    /// Returns the gate of work that needs all layers: a layer's gate becomes that of the last layer.
    #[must_use]
    pub const fn of_all_layers(&self, gate: Gate) -> Gate {
        match gate {
            Gate::Layer { iteration, .. } => Gate::Layer { iteration, layer: self.layers.saturating_sub(1) },
            gate => gate,
        }
    }

    /// Returns the number of the model's layers.
    #[must_use]
    pub const fn layers(&self) -> u32 {
        self.layers
    }

    /// Returns how many layers of an iteration are done: none of a future one, and all of one that is
    /// over, however many the engine has told of.
    #[must_use]
    pub fn layers_done(&self, iteration: u64) -> u32 {
        let due = self.due();
        match due.iteration.cmp(&iteration) {
            Ordering::Less => 0,
            Ordering::Equal => due.layers.min(self.layers),
            Ordering::Greater => self.layers,
        }
    }

    /// Returns whether a gate is open.
    #[must_use]
    pub fn passed(&self, gate: Gate) -> bool {
        Due::of(gate) <= self.due()
    }

    /// Returns the current time: gates due up to it are open.
    pub(super) fn due(&self) -> Due {
        match self.running {
            // A layer's gate is due at its number plus one: so many layers are done then.
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

/// The time at which a gate opens, in the order of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due {
    iteration: u64,
    /// How many layers of that iteration are done; `u32::MAX` when it is over.
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
