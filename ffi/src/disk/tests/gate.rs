//! A ring that keeps pieces in flight until a test releases them.

use super::{name, pattern};
use crate::arena::HostArena;
use crate::disk::choice::{Built, build};
use crate::disk::ring::{Action, Bell, Buffer, Completion, Op, Ring, Wait};
use crate::disk::volume::Volume;
use crate::disk::{VolumeError, VolumeOptions};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

#[derive(Default)]
pub(super) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    open: bool,
    /// Every piece that was pushed, in order.
    pushed: Vec<(Action, u64, usize)>,
    bell: Option<Bell>,
}

impl Gate {
    /// Blocks until `pieces` pieces have come to the gate.
    pub(super) fn wait_for(&self, pieces: usize) {
        let state = self.state.lock().expect("no panic");
        drop(self.changed.wait_while(state, |state| state.pushed.len() < pieces).expect("no panic"));
    }

    /// Every piece that the engine has given to the ring so far, in order, by its place in the file.
    pub(super) fn pushed(&self) -> Vec<(Action, u64)> {
        self.state.lock().expect("no panic").pushed.iter().map(|(action, at, _)| (*action, *at)).collect()
    }

    /// Bytes of all pieces of this kind.
    pub(super) fn bytes(&self, kind: Action) -> usize {
        let state = self.state.lock().expect("no panic");
        state.pushed.iter().filter(|(action, ..)| *action == kind).map(|(.., bytes)| bytes).sum()
    }

    /// Lets no piece through from now on, and forgets the earlier ones.
    pub(super) fn shut(&self) {
        let mut state = self.state.lock().expect("no panic");
        state.open = false;
        state.pushed.clear();
    }

    /// Lets all pieces through from now on.
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
    held: Vec<Held>,
}

/// An [`Op`] at the gate.
struct Held {
    token: u32,
    action: Action,
    file_offset: u64,
    bytes: usize,
    buffers: *const [Buffer],
}

impl Ring for GateRing {
    fn depth(&self) -> usize {
        self.inner.depth()
    }

    fn bell(&self) -> Bell {
        self.inner.bell()
    }

    fn now(&self) -> Duration {
        self.inner.now()
    }

    unsafe fn push(&mut self, token: u32, op: &Op<'_>) {
        let Op { action, file_offset, bytes, buffers, .. } = *op;
        self.held.push(Held { token, action, file_offset, bytes, buffers });
        let mut state = self.gate.state.lock().expect("no panic");
        state.pushed.push((action, file_offset, bytes));
        self.gate.changed.notify_all();
    }

    fn turn(&mut self, done: &mut Vec<Completion>, wait: Wait) -> Result<u32, i32> {
        let open = self.gate.state.lock().expect("no panic").open;
        if open {
            for Held { token, action, file_offset, bytes, buffers } in self.held.drain(..) {
                // SAFETY: the list stays where it is until its completion, as the caller of our
                // `push` promised.
                let op = Op { action, file_offset, bytes, buffers: unsafe { &*buffers }, device: None };
                // SAFETY: the same promise.
                unsafe { self.inner.push(token, &op) };
            }
        }
        self.inner.turn(done, wait)
    }
}

/// A volume behind a gate that is open, or shut.
pub(super) fn behind_gate(options: VolumeOptions, open: bool) -> Result<(Volume, Arc<Gate>), VolumeError> {
    behind_gate_with(options, open, |ring| ring)
}

/// [`behind_gate`] with another ring between gate and ring.
fn behind_gate_with(
    options: VolumeOptions,
    open: bool,
    wrap: impl FnOnce(Box<dyn Ring>) -> Box<dyn Ring> + Send + 'static,
) -> Result<(Volume, Arc<Gate>), VolumeError> {
    let gate = Arc::new(Gate::default());
    let shared = Arc::clone(&gate);
    if open {
        gate.open();
    }
    let (volume, _) = Volume::open_with(options, move |parts| {
        let built = build(parts)?;
        shared.state.lock().expect("no panic").bell = Some(built.ring.bell());
        let ring = GateRing { inner: wrap(built.ring), gate: shared, held: Vec::new() };
        Ok(Built { ring: Box::new(ring), ..built })
    })?;
    Ok((volume, gate))
}

/// A volume with the block of round 0 in every slot, behind a gate that has just been shut.
pub(super) fn gated(options: VolumeOptions) -> Result<(Volume, Arc<Gate>), VolumeError> {
    gated_with(options, |ring| ring)
}

/// [`gated`] with another ring between gate and ring.
pub(super) fn gated_with(
    options: VolumeOptions,
    wrap: impl FnOnce(Box<dyn Ring>) -> Box<dyn Ring> + Send + 'static,
) -> Result<(Volume, Arc<Gate>), VolumeError> {
    let (volume, gate) = behind_gate_with(options, true, wrap)?;
    let arena = HostArena::new(1, volume.slot_bytes()).expect("arena");
    for slot in 0..volume.slots() {
        let mut buffer = arena.write(0).expect("free");
        pattern(slot, 0, &mut buffer);
        drop(volume.write(slot, name(slot, 0), buffer.into_read()).wait().expect("written"));
    }
    gate.shut();
    Ok((volume, gate))
}
