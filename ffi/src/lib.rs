//! kvstrata's hardware backends: the border between Rust and kernels, drivers and devices.
//!
//! The core defines the ports. Each backend here is one file behind a port, and all backends of a port
//! run the same contract tests. The API is safe throughout, because the crates above forbid `unsafe`.
//!
//! ```
//! # #[cfg(unix)] {
//! use kvstrata_ffi::arena::HostArena;
//! use kvstrata_ffi::device::{DevicePort, SimDevice};
//! let host = HostArena::new(4, 8192)?; // four blocks of 8 KiB
//! host.write(2)?.fill(7); // the guard is the block's bytes
//!
//! let device = SimDevice::new(2, 8192)?; // device memory without a GPU
//! device.copy_in(0, 0, &host.read(2)?)?; // offload …
//! device.copy_out(0, 0, &mut host.write(3)?)?; // … and onboard
//! assert_eq!(*host.read(3)?, [7; 8192]);
//!
//! let reading = host.read(3)?;
//! assert!(host.write(3).is_err()); // a block that is being read is not written
//! # drop(reading); }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The ten types to know first
//!
//! - [`HostArena`](arena::HostArena): the host tier's blocks; [`BlockRead`](arena::BlockRead) and
//!   [`BlockWrite`](arena::BlockWrite): guards of one block's bytes
//! - [`HostCopy`](copy::HostCopy): carries out copy plans on the CPU
//! - [`SimDevice`](device::SimDevice) and [`CudaDeviceTier`](device::CudaDeviceTier): device memory,
//!   simulated or of a GPU, behind [`DevicePort`](device::DevicePort)
//! - [`CudaDevice`](cuda::CudaDevice): one GPU: its memory, streams and copies
//! - [`Volume`](disk::Volume): a disk tier's file; [`VolumeOptions`](disk::VolumeOptions): its settings
//!
//! # Modules
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

#[cfg(target_os = "linux")]
pub use sys::eventfd::EventFd;
