//! kvstrata's hardware backends: the border between Rust and kernels, drivers and devices.
//!
//! The core defines the ports. Each backend here is one file behind a port, and all backends of a port
//! run the same contract tests. The API is safe throughout, because the crates above forbid `unsafe`.
//!
//! | module | contents |
//! |---|---|
//! | [`arena`] | the host tier's memory: huge-page backed, cut into blocks, borrowed block by block |
//! | [`copy`] | copy plans between host regions, by the CPU |
//! | [`cuda`] | CUDA's driver, found at run time: device and pinned memory, streams, transfers |
//! | [`device`] | device memory behind [`kvstrata_core::storage::DevicePort`]; the simulated device |
//! | [`disk`] | a volume: one preallocated file, one ring thread, `io_uring` with O_DIRECT or a fallback |
//! | [`gds`] | device memory ↔ file without host memory in between: GPUDirect Storage, found at run time |
//! | [`process`] | detection of forked children, which must not use memory and locks that they inherit |
//! | [`probe`] | the features of this machine, as facts for `kvstrata doctor` |
//! | [`shown`] | text from outside, with the characters escaped that a terminal would obey |

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
