//! Graph capture: how our calls and an engine's `cudaGraph` leave each other alone.
//!
//! While any thread captures in the mode "global" (the default, torch's too), the driver refuses
//! potentially unsafe calls (code 900) of every thread that is not in the mode "relaxed". Such a call
//! also breaks the capture. Querying or waiting for events, allocating or freeing memory, registering or
//! unregistering host memory are all such calls. None of ours concerns the captured work. So each is made
//! in the mode "relaxed", and afterwards the thread's mode is as it was.
//!
//! The driver accepts relaxed calls, but they may still hold up the capturing thread: allocating, freeing
//! and registering may wait for the device, or for a lock of the driver's. Pools and arenas are best made
//! before an engine warms up, and dropped after.
//!
//! Invariants
//! - I1: the mode belongs to a thread; the outermost [`Relaxed`] of a thread sets it and restores it.

use super::sys::Api;
use core::cell::Cell;

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: u32 = 2;

thread_local! {
    /// Whether the thread has a [`Relaxed`].
    static IS_RELAXED: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, no call of this thread disturbs another thread's capture, or is refused because of it.
pub(super) struct Relaxed<'a> {
    api: &'a Api,
    /// The thread's mode before; `None` if there is no mode to restore.
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

    /// Sets the mode and returns the previous one. `None` if the driver refuses: then calls may be
    /// refused, and are tried again like any other.
    fn exchange(&self, mut mode: u32) -> Option<u32> {
        let exchange = self.api.cuThreadExchangeStreamCaptureMode?;
        // SAFETY: `mode` is ours, and one of the driver's modes; the answer is a plain number here.
        (unsafe { exchange(&mut mode) } == 0).then_some(mode)
    }
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            IS_RELAXED.set(false);
            // The driver accepted this mode before.
            let _ = self.exchange(before);
        }
    }
}
