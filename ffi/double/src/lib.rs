//! A test double of libcuda. It is not a CUDA device, and no measurement of it says anything about one.
//!
//! It stands in for NVIDIA's driver in kvstrata's tests, on machines without a GPU: host memory posing as
//! device memory, streams as ordered queues, events, host functions, modules whose kernels are functions
//! of the test, IPC within the process. It is loaded like the real driver, by name and at run time, so
//! the code under test is the code that ships.
//!
//! The double shows things that the real driver cannot show. It counts **misuse**: a call without a
//! context or with another one's; a copy out of bounds, between pieces that overlap, or from memory that
//! is not registered; a free or an unregistration while the memory is in flight; a destroyed stream or
//! event; a bad grid; a driver call from within a host function; a call that breaks a capture; a call
//! that the driver's version does not have. A copy's target is filled with [`POISON`] from its submission
//! until it is executed, so an early reader reads that. And the double can be **held**: then it executes
//! only the steps that a test releases.
//!
//! ```text
//!   test ── Double (client.rs) ── kvdouble_* ──┐
//!                                              ▼
//!   code under test ── libcuda.so: cu* ──► World ◄── one engine thread per device: takes a step of some
//!                                                    stream, chosen by seed, unless the double is held
//!   device addresses:  0x0C01_0000_0000_0000 + device × 1 TiB + …     (no CPU of ours maps them)
//!   imported ones:     0x0E01_0000_0000_0000 + …
//! ```
//!
//! A test's process has two copies of this crate: the shared library, which has the world, and the copy
//! that is linked into the test, which is only used for its [`Double`].
//!
//! | file | contents |
//! |---|---|
//! | `world.rs` | the whole state; the admission of a call |
//! | `memory.rs` | addresses, allocations, registered host memory, in flight or not |
//! | `engine.rs` | operations, and the threads that execute them |
//! | `entries/` | the functions of libcuda |
//! | `control.rs` | `kvdouble_*`: queries and settings of tests |
//! | `client.rs` | [`Double`]: finds, loads and controls the library |

mod client;
mod control;
mod engine;
mod entries;
mod memory;
mod world;

pub use client::{Double, Leftovers};

/// The bytes of a copy's target from its submission until it is executed.
pub const POISON: u8 = 0xDB;

/// The bytes of fresh device memory.
pub const FRESH: u8 = 0xCD;

/// A kernel that a test provides: grid, block, and the copy of its parameter struct.
pub type Kernel = unsafe extern "C" fn(u32, u32, *const core::ffi::c_void);
