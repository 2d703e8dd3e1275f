//! How a queue learns that the device has answered.
//!
//! Each queue has one thread, which waits for the queue's oldest transfer. Transfers of one stream end in
//! order, so it never waits for the wrong one. Only this thread ends transfers: it wakes their waiters,
//! and drops transfers without waiters. No caller's thread blocks or polls, and nothing ticks, except if
//! the driver refuses a wait (a graph's capture): then the thread asks again. The ways differ only in how
//! the thread waits:
//!
//! | way | in the stream | the thread | sees an error |
//! |---|---|---|---|
//! | [`Way::Event`] | an event | sleeps in `cuEventSynchronize` | at once, by the call's answer |
//! | [`Way::HostFunction`] | and a function that rings | sleeps until it rings | when it looks |
//! | [`Way::Flag`] | and a value written to host memory | spins, then as `Event` | when it stops spinning |
//!
//! The driver calls no host function after an error, so that way must look for errors.
//!
//! `Event` is the default, by reasoning and not by measurement. It puts nothing into the stream that the
//! device must wait for, while a host function holds up the work after it until a driver's thread has run
//! it. It also learns of errors by itself. `examples/cuda_completion.rs` measures on a device whether the
//! other two gain anything; the default will follow its figures.
//!
//! Invariants
//! - I1: a host function makes no driver call, and frees at most plain memory: it adds to a counter
//!   and rings.
//! - I2: each host function that is still to be called has its own share of the memory that it touches.

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

/// How a queue's thread waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Way {
    /// Waits for the transfer's event.
    #[default]
    Event,
    /// Waits for a host function that the driver calls.
    HostFunction,
    /// Waits for a value that the stream writes to host memory.
    Flag,
}

impl Way {
    /// All ways.
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

/// The time that the value is spun for: about the time that a sleeping thread needs to wake, so no more
/// than that is lost.
const SPIN: Duration = Duration::from_micros(50);

/// The resources of a queue's way.
pub(super) enum Signal {
    Event,
    HostFunction { bell: Arc<Bell>, watch: Duration },
    Flag(Flag),
}

/// The bell that a host function rings.
pub(super) struct Bell {
    rung: Mutex<u32>,
    ringing: Condvar,
}

/// A word of registered host memory that the stream writes.
pub(super) struct Flag {
    /// The host's address of the word, exposed.
    word: usize,
    /// The device's address of the word.
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

    /// Queues the announcement of transfer `number`, behind its event. Returns whether that succeeded; if
    /// not, the event alone announces it.
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
                    // SAFETY: the share from above; the driver has not taken it.
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

    /// Blocks until transfer `number` has ended; `event` is the transfer's.
    pub(super) fn wait(&self, number: u32, event: &CudaEvent, announced: bool) -> Result<(), CudaError> {
        match self {
            Signal::HostFunction { bell, watch } if announced => bell.wait(number, event, *watch),
            Signal::Flag(flag) if announced => flag.wait(number, event),
            _ => event.wait(),
        }
    }
}

impl Signal {
    /// Keeps the bell for ever after the device has died. Each host function that was not called has a
    /// share of it.
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
    /// Waits for the ring of transfer `number`. After each `watch` without a ring, it looks for an error.
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
        // The arena is new and ours, hence free.
        let mut block = pinned.arena().write(0).map_err(|why| CudaError::Arena { why: why.to_string() })?;
        let word = block.io_pointer().as_ptr().expose_provenance();
        Ok(Flag { word, address: pinned.kernel_address(word as u64)?, _block: block, _pinned: pinned })
    }

    fn wait(&self, number: u32, event: &CudaEvent) -> Result<(), CudaError> {
        if self.spin(number) {
            return Ok(());
        }
        event.wait()?;
        // The write follows the event: the word must not be unregistered while the write is pending.
        while !self.spin(number) {
            event.has_happened()?;
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Whether the value has arrived within [`SPIN`].
    fn spin(&self, number: u32) -> bool {
        // SAFETY: the block is ours alone and aligned to 4096 bytes; only this atomic and the device read
        // or write it.
        let word = unsafe { AtomicU32::from_ptr(core::ptr::with_exposed_provenance_mut(self.word)) };
        let begun = Instant::now();
        // Acquire: pairs with the stream's write, which the driver orders behind all work that was
        // queued before.
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
