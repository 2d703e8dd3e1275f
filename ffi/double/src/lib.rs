//! A test double of libcuda. Not a CUDA device, and no measurement of it says anything about one.
//!
//! It stands in for NVIDIA's driver in kvstrata's tests, on machines without a GPU: host memory posing as device memory, streams
//! as ordered queues, events, host functions, modules whose kernels are functions of the test, IPC within the process. It is
//! loaded as the real one is, by name and at run time, so that the code under test is the code that ships.
//!
//! What it is for is what the real one cannot show. It counts **misuse**: a call with no context or another one's; a copy out of
//! bounds, between pieces that overlap, or from memory that is not registered; a free or an unregistration while the memory is
//! in flight; a destroyed stream or event; a bad grid; a call of the driver from within a host function; one that breaks a capture; one
//! that the driver's version does not have. A copy's target is filled with [`POISON`] from its submission until it is executed, so that whoever reads too early reads that. And it can be **held**: nothing
//! is executed then but what a test lets go step by step.
//!
//! ```text
//!   test ── Double (client.rs) ── kvdouble_* ──┐
//!                                              ▼
//!   code under test ── libcuda.so: cu* ──► World ◄── one engine thread a device: takes a step of some
//!                                                    stream, chosen by seed, as long as it is not held
//!   device addresses:  0x0C01_0000_0000_0000 + device × 1 TiB + …     (no CPU of ours maps them)
//!   imported ones:     0x0E01_0000_0000_0000 + …
//! ```
//!
//! Two copies of this crate are in a test's process: the shared library, which has the world, and the one that is linked into
//! the test, of which only [`Double`] is used.
//!
//! | file | what |
//! |---|---|
//! | `world.rs` | everything that there is; how a call is let in |
//! | `memory.rs` | addresses, allocations, registered host memory, in flight or not |
//! | `engine.rs` | operations, and the threads that execute them |
//! | `entries/` | the functions of libcuda |
//! | `control.rs` | `kvdouble_*`: what tests ask and set |
//! | `client.rs` | [`Double`]: finds, loads and steers the library |

mod client;
mod control;
mod engine;
mod entries;
mod memory;
mod world;

pub use client::{Double, Leftovers};

/// What a copy's target holds from its submission until it is executed.
pub const POISON: u8 = 0xDB;

/// What fresh device memory holds.
pub const FRESH: u8 = 0xCD;

/// A kernel as a test provides it: grid, block, and the copy of its parameter struct.
pub type Kernel = unsafe extern "C" fn(u32, u32, *const core::ffi::c_void);
