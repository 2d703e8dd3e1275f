//! GPUDirect Storage: bytes move between a drive and device memory without a copy in host memory, by
//! NVIDIA's cuFile.
//!
//! ```text
//!   Volume::read_device / write_device ─► engine ─► GdsRing ─┬─► cuFileRead/Write ─► device memory (range)
//!                                                            │       drive ══════════ bus ═══════► device
//!                                                            └─► DeviceSums ───────► its sum
//!   refused, with the reason ─► the caller:  drive ─► pinned host memory ─► device (Volume::read, a copy)
//! ```
//!
//! A [volume](crate::disk) moves such bytes with the same table, order, caps and retries as those of host
//! memory. This module is cuFile itself, found at run time: a machine without it, without a device or
//! without the nvidia-fs module gets a volume that says why it takes no device memory. `kvstrata doctor`
//! reports the installed software, `benches/gpu/gds` checks and measures it.
//!
//! # Verification
//!
//! A volume serves no byte that it has not compared with the payload's seal, a checksum over the payload.
//! Bytes that go straight to the device never pass the CPU, so they are summed on the device, by
//! [`DeviceSums`]. If the build has kernels, [`CudaSums`](crate::cuda::CudaSums) implements it. Without
//! an implementation, nothing is written from device memory, and only volumes that skip verification read
//! to device memory; the option's name calls that unsafe. cuFile's own bounce, its compatibility mode, is
//! off unless [`allow_compat`](GdsOptions::allow_compat) is set.
//!
//! # Limits
//!
//! Written against the headers and libraries of cuFile 1.14 and 1.19. Tested with a stand-in for cuFile.
//! The calls of cuFile were also tested by hand, before volumes made them, with those two libraries in
//! compatibility mode over a stand-in for CUDA's driver. Not yet run on a device.

// | file | contents |
// |---|---|
// | `sys.rs` | cuFile's and CUDA's types and entries, found at run time |
// | `error.rs` | cuFile's codes; `GdsError`, `OutOfRange` |
// | `driver.rs` | `GdsDriver`: cuFile, opened, and the device's context |
// | `memory.rs` | `DeviceMemory`, `GdsBuffer`, `DeviceRange`: owners of memory that cuFile writes |
// | `sums.rs` | `DeviceSums`: the port for sums made on the device |
// | `file.rs` | a registered file |
// | `pool.rs` | the threads that wait for cuFile; `disk/ring/gds.rs` has them |

mod driver;
mod error;
mod file;
mod memory;
mod pool;
mod sums;
mod sys;
#[cfg(all(test, target_os = "linux"))]
pub(crate) mod tests;

/// Returns the version of the installed cuFile, in words. Loads it, and opens nothing.
pub(crate) fn installed() -> Result<String, GdsError> {
    Ok(driver::dotted(sys::CuFileApi::load()?.version()))
}

pub(crate) use file::GdsFile;
pub(crate) use pool::{Answer, Job, PANICKED, Pool, Task};

pub use driver::{GdsDescription, GdsDriver, GdsOptions, Mode};
pub use error::{CuFileCode, GdsError, OutOfRange};
pub use memory::{DeviceMemory, DeviceRange, GdsBuffer};
pub use sums::DeviceSums;
