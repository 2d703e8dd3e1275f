//! How a queue learns that the device has answered.
//!
//! One thread a queue waits for the queue's oldest transfer; transfers of one stream end in their order, so
//! it never waits for the wrong one. It alone ends transfers: it wakes who waits, and drops what nobody waits
//! for. No caller's thread blocks or polls, and nothing ticks, unless the driver refuses a wait (a graph's
//! capture): then it asks again. What differs is only how the thread waits:
//!
//! | way | in the stream | the thread | sees an error |
//! |---|---|---|---|
//! | [`Way::Event`] | an event | sleeps in `cuEventSynchronize` | at once, by the call's answer |
//! | [`Way::HostFunction`] | and a function that rings | sleeps until it rings | when it looks: a function is not called after an error |
//! | [`Way::Flag`] | and a value written to host memory | spins on the value for a while, then as `Event` | when it stops to spin |
//!
//! `Event` is the default, by reasoning and not by measurement: it puts nothing into the stream that the
//! device has to wait for, where a host function holds up the work behind it until a thread of the driver's
//! has run it; and it learns of errors by itself. What the other two win, if anything,
//! `examples/cuda_completion.rs` measures on a device; the default follows its figures when there are some.
//!
//! Invariants
//! - I1: a host function calls nothing of the driver's, and frees at most plain memory: it adds to a counter
//!   and rings.
//! - I2: whoever is left to call it has its own share of what it touches.

use super::context::CudaDevice;
use super::error::CudaError;
use super::event::CudaEvent;
use super::pinned::{PinOptions, PinnedStorage};
use super::stream::CudaStream;
use crate::arena::{BlockWrite, HostArena};
use core::ffi::c_void;
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

/// How the thread of a queue waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Way {
    /// For the transfer's event.
    #[default]
    Event,
    /// For a host function, which the driver calls.
    HostFunction,
    /// For a value that the stream writes to host memory.
    Flag,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 3] = [Way::Event, Way::HostFunction, Way::Flag];
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Event => "event",
            Way::HostFunction => "host function",
            Way::Flag => "flag",
        })
    }
}

/// How long the value is spun for: about what a sleeping thread needs to wake, so that no more is lost than that.
const SPIN: Duration = Duration::from_micros(50);

/// What a queue has for its way.
pub(super) enum Signal {
    Event,
    HostFunction { bell: Arc<Bell>, watch: Duration },
    Flag(Flag),
}

/// What a host function rings.
pub(super) struct Bell {
    rung: Mutex<u32>,
    ringing: Condvar,
}

/// A word of registered host memory that the stream writes.
pub(super) struct Flag {
    /// The host's address of it, exposed.
    word: usize,
    /// The device's.
    address: u64,
    _block: BlockWrite,
    _pinned: Arc<PinnedStorage>,
}

/// Whether `count` has reached `number`; both wrap.
fn reached(count: u32, number: u32) -> bool {
    count.wrapping_sub(number).cast_signed() >= 0
}

impl Signal {
    pub(super) fn new(way: Way, stream: &CudaStream, watch: Duration) -> Result<Signal, CudaError> {
        match way {
            Way::Event => Ok(Signal::Event),
            Way::HostFunction => {
                let bell = Arc::new(Bell { rung: Mutex::new(0), ringing: Condvar::new() });
                Ok(Signal::HostFunction { bell, watch })
            }
            Way::Flag => Flag::new(stream).map(Signal::Flag),
        }
    }

    /// Queues what announces transfer `number`, behind its event. Whether that was possible: the event does it too.
    pub(super) fn announce(&self, stream: &CudaStream, number: u32) -> bool {
        let queued = match self {
            Signal::Event => return true,
            Signal::HostFunction { bell, .. } => {
                let share = Arc::into_raw(Arc::clone(bell));
                let queued = stream.device().call("cuLaunchHostFunc", |api| {
                    // SAFETY: `ring` may be called once with this share, from any thread.
                    unsafe { (api.cuLaunchHostFunc)(stream.raw(), Some(ring), share.cast_mut().cast()) }
                });
                if queued.is_err() {
                    // SAFETY: the share from above, which was not taken.
                    drop(unsafe { Arc::from_raw(share) });
                }
                queued
            }
            Signal::Flag(flag) => stream.device().call("cuStreamWriteValue32", |api| {
                // SAFETY: an aligned word of registered memory, which lives until the queue has ended.
                unsafe { (api.cuStreamWriteValue32_v2)(stream.raw(), flag.address, number, 0) }
            }),
        };
        queued.is_ok()
    }

    /// Blocks until transfer `number`, whose event this is, has ended.
    pub(super) fn wait(&self, number: u32, event: &CudaEvent, announced: bool) -> Result<(), CudaError> {
        match self {
            Signal::HostFunction { bell, watch } if announced => bell.wait(number, event, *watch),
            Signal::Flag(flag) if announced => flag.wait(number, event),
            _ => event.wait(),
        }
    }
}

impl Signal {
    /// Leaves to a dead device what a host function of it would ring: it has a share for each that was not called.
    pub(super) fn keep(&self, device: &CudaDevice) {
        if let Signal::HostFunction { bell, .. } = self {
            device.keep(Box::new(Arc::clone(bell)), 0);
        }
    }
}

/// The host function (I1, I2).
unsafe extern "C" fn ring(bell: *mut c_void) {
    // SAFETY: the share that `announce` made for this call.
    let bell = unsafe { Arc::from_raw(bell.cast_const().cast::<Bell>()) };
    let mut rung = bell.rung.lock().unwrap_or_else(PoisonError::into_inner);
    *rung = rung.wrapping_add(1);
    drop(rung);
    bell.ringing.notify_all();
}

impl Bell {
    /// Looks for an error each time that it has not rung for `watch`.
    fn wait(&self, number: u32, event: &CudaEvent, watch: Duration) -> Result<(), CudaError> {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        while !reached(*rung, number) {
            let waited = self.ringing.wait_timeout(rung, watch).unwrap_or_else(PoisonError::into_inner);
            rung = waited.0;
            if waited.1.timed_out() {
                drop(rung);
                if event.has_happened()? {
                    return Ok(());
                }
                rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
            }
        }
        Ok(())
    }
}

impl Flag {
    fn new(stream: &CudaStream) -> Result<Flag, CudaError> {
        let arena =
            HostArena::new(1, size_of::<u64>()).map_err(|why| CudaError::Arena { why: why.to_string() })?;
        let options = PinOptions::new().threads(1);
        let pinned = PinnedStorage::register(stream.device(), arena, options, &mut |_, _| {})?;
        // The arena is ours alone, hence free.
        let mut block = pinned.arena().write(0).map_err(|why| CudaError::Arena { why: why.to_string() })?;
        let word = block.io_pointer().as_ptr().expose_provenance();
        Ok(Flag { word, address: pinned.kernel_address(word as u64)?, _block: block, _pinned: pinned })
    }

    fn wait(&self, number: u32, event: &CudaEvent) -> Result<(), CudaError> {
        if self.spin(number) {
            return Ok(());
        }
        event.wait()?;
        // The write is what follows: the word must not be unregistered under it.
        while !self.spin(number) {
            event.has_happened()?;
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Whether the value has come within [`SPIN`].
    fn spin(&self, number: u32) -> bool {
        // SAFETY: the block is ours alone, aligned to 4096 bytes, and neither read nor written but as this atomic and by the device.
        let word = unsafe { AtomicU32::from_ptr(core::ptr::with_exposed_provenance_mut(self.word)) };
        let begun = Instant::now();
        // Acquire: pairs with the stream's write, which the driver orders behind all that was queued before.
        while !reached(word.load(Ordering::Acquire), number) {
            if begun.elapsed() > SPIN {
                return false;
            }
            core::hint::spin_loop();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_numbers_wrap_around() {
        assert!(reached(5, 5) && reached(6, 5) && !reached(4, 5));
        assert!(reached(0, u32::MAX) && reached(3, u32::MAX - 2) && !reached(u32::MAX, 0));
    }
}
