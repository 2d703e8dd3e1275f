//! A ring whose pieces stay in flight until a test lets them go.

use crate::disk::error::Direction;
use crate::disk::inbox::Bell;
use crate::disk::ring::{Completion, Op, Ring};
use crate::disk::volume::{Built, Volume, build};
use crate::disk::{VolumeError, VolumeOptions};
use std::sync::{Arc, Condvar, Mutex};

#[derive(Default)]
pub(super) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    open: bool,
    /// Every piece that was pushed, in order.
    pushed: Vec<(Direction, u64)>,
    bell: Option<Bell>,
}

impl Gate {
    /// Blocks until `pieces` pieces have come to the gate.
    pub(super) fn wait_for(&self, pieces: usize) {
        let state = self.state.lock().expect("no panic");
        drop(self.changed.wait_while(state, |state| state.pushed.len() < pieces).expect("no panic"));
    }

    /// Every piece that the engine has given to the ring so far, in order, by where it lies in the file.
    pub(super) fn pushed(&self) -> Vec<(Direction, u64)> {
        self.state.lock().expect("no panic").pushed.clone()
    }

    /// Lets everything through from now on.
    pub(super) fn open(&self) {
        let mut state = self.state.lock().expect("no panic");
        state.open = true;
        if let Some(bell) = &state.bell {
            bell();
        }
    }
}

/// Opens its gate when dropped, so that a failed assertion ends the test instead of hanging it.
pub(super) struct Opener(pub(super) Arc<Gate>);

impl core::ops::Deref for Opener {
    type Target = Gate;

    fn deref(&self) -> &Gate {
        &self.0
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        self.0.open();
    }
}

struct GateRing {
    inner: Box<dyn Ring>,
    gate: Arc<Gate>,
    held: Vec<(u32, Op)>,
}

impl Ring for GateRing {
    fn depth(&self) -> usize {
        self.inner.depth()
    }

    fn bell(&self) -> Bell {
        self.inner.bell()
    }

    unsafe fn push(&mut self, token: u32, op: &Op) {
        self.held.push((token, *op));
        let mut state = self.gate.state.lock().expect("no panic");
        state.pushed.push((op.direction, op.file_offset));
        self.gate.changed.notify_all();
    }

    fn turn(&mut self, done: &mut Vec<Completion>) -> Result<(), i32> {
        let open = self.gate.state.lock().expect("no panic").open;
        if open {
            for (token, op) in self.held.drain(..) {
                // SAFETY: the promise that came with it to `push`.
                unsafe { self.inner.push(token, &op) };
            }
        }
        self.inner.turn(done)
    }
}

pub(super) fn gated(options: VolumeOptions) -> Result<(Volume, Arc<Gate>), VolumeError> {
    let gate = Arc::new(Gate::default());
    let shared = Arc::clone(&gate);
    let volume = Volume::create_with(options, move |parts| {
        let built = build(parts)?;
        shared.state.lock().expect("no panic").bell = Some(built.ring.bell());
        let ring = GateRing { inner: built.ring, gate: shared, held: Vec::new() };
        Ok(Built { ring: Box::new(ring), ..built })
    })?;
    Ok((volume, gate))
}
