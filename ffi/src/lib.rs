//! kvstrata's hardware backends: where Rust ends and kernels, drivers and devices begin.
//!
//! The core defines the ports; each backend here is one file behind a port, and all backends of a port
//! run the same contract tests. The API is safe throughout, because the crates above forbid `unsafe`.
//!
//! | module | what it is |
//! |---|---|
//! | [`arena`] | the host tier's memory: huge-page backed, cut into blocks, borrowed block by block |
//! | [`copy`] | copy plans between host regions, by the CPU |
//! | [`cuda`] | CUDA's driver, found at run time: device and pinned memory, streams, transfers |
//! | [`device`] | device memory behind [`kvstrata_core::storage::DevicePort`]; the simulated one |
//! | [`disk`] | a volume: one preallocated file, one ring thread, `io_uring` with O_DIRECT or what works |
//! | [`gds`] | device memory ↔ file without host memory between: GPUDirect Storage, found at run time |
//! | [`process`] | in which process something was made: what a forked child inherits and is not to use |
//! | [`probe`] | what this machine offers, as facts for `kvstrata doctor` |
//! | [`shown`] | text from outside, with what a terminal would obey escaped |

#[cfg(unix)]
pub mod arena;
pub mod copy;
#[cfg(unix)]
pub mod cuda;
#[cfg(unix)]
pub mod device;
#[cfg(unix)]
pub mod disk;
#[cfg(unix)]
pub mod gds;
#[cfg(unix)]
pub mod probe;
#[cfg(unix)]
pub mod process;
pub mod shown;

#[cfg(unix)]
mod sync;
mod sys;
