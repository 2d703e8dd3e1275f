//! Graph capture: how our calls and an engine's `cudaGraph` leave each other alone.
//!
//! While any thread captures in the mode "global" (the default, torch's too), the driver refuses potentially
//! unsafe calls (code 900) of every thread that is not in the mode "relaxed", and breaks the capture over
//! them. Events asked for or waited for, memory allocated or freed, host memory registered or unregistered:
//! all of them are such calls. None of ours has to do with what is captured, so that each is made in the mode
//! "relaxed", and the thread finds its mode as it was.
//!
//! Relaxed calls are let through, and may still hold up the capturing thread: allocating, freeing and
//! registering may wait for the device, or for a lock of the driver's. Pools and arenas are best made before
//! an engine warms up, and dropped after.
//!
//! Invariants
//! - I1: the mode is a thread's; the outermost [`Relaxed`] of a thread sets it and sets it back.

use super::sys::Api;
use core::cell::Cell;

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: u32 = 2;

thread_local! {
    /// The thread has a [`Relaxed`].
    static IS_RELAXED: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, nothing that the thread calls disturbs a capture of another thread's, or is refused for it.
pub(super) struct Relaxed<'a> {
    api: &'a Api,
    /// The thread's mode before; none where there is nothing to set back.
    before: Option<u32>,
}

impl<'a> Relaxed<'a> {
    pub(super) fn new(api: &'a Api) -> Relaxed<'a> {
        let mut relaxed = Relaxed { api, before: None };
        if !IS_RELAXED.get()
            && relaxed.exchange(RELAXED).map(|before| relaxed.before = Some(before)).is_some()
        {
            IS_RELAXED.set(true);
        }
        relaxed
    }

    /// None where the driver refuses: calls may be refused then, and are tried again as any other.
    fn exchange(&self, mut mode: u32) -> Option<u32> {
        let exchange = self.api.cuThreadExchangeStreamCaptureMode?;
        // SAFETY: `mode` is ours, and one of the driver's modes; what it answers is a number here.
        (unsafe { exchange(&mut mode) } == 0).then_some(mode)
    }
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            IS_RELAXED.set(false);
            // It was taken when it was set.
            let _ = self.exchange(before);
        }
    }
}
