//! GPUDirect Storage: bytes between a file and device memory with no copy in host memory, by NVIDIA's cuFile.
//!
//! ```text
//!   Route::choose ─┬─► Direct: GdsFile ── cuFileRead/Write ──► device memory (GdsBuffer)
//!                  │               drive ═══════ bus ═══════► device
//!                  └─► Bounce:     drive ─► pinned host memory, verified ─► device      (a volume, and copies)
//! ```
//!
//! The library is found at run time; a machine without it, without a device or without the nvidia-fs module gets
//! [`Route::Bounce`] and a reason. `kvstrata doctor` says what is installed, `benches/gpu/gds` checks and measures it.
//!
//! # Verification
//!
//! A volume serves no byte that it has not compared with the payload's seal, a checksum over the payload. Bytes that go straight to
//! the device never pass the CPU, so here nothing can be compared on a read and no seal computed on a write. Until a kernel does
//! that on the device, direct transfers are refused ([`Route::choose`] answers with the bounce) unless the volume was opened
//! with verification skipped, which its name calls unsafe. cuFile's own bounce, its compatibility mode, does not
//! verify either and is off unless [`allow_compat`](GdsOptions::allow_compat).
//!
//! # Limits
//!
//! Written against the headers and libraries of cuFile 1.14 and 1.19. Tested with a stand-in for cuFile, and by hand with those two
//! libraries in compatibility mode over a stand-in for CUDA's driver; not yet run on a device.
//!
//! | file | what |
//! |---|---|
//! | `sys.rs` | cuFile's and CUDA's types and entries, found at run time |
//! | `error.rs` | cuFile's codes; [`GdsError`], [`TransferError`] |
//! | `driver.rs` | [`GdsDriver`]: cuFile, opened, and the device's context |
//! | `memory.rs` | [`DeviceMemory`], [`GdsBuffer`], [`DeviceRange`]: who owns what cuFile writes |
//! | `file.rs` | [`GdsFile`]: a registered file and its threads |
//! | `route.rs` | [`Route`]: direct, or the bounce and why |

mod driver;
mod error;
mod file;
mod memory;
mod route;
mod sys;
#[cfg(all(test, target_os = "linux"))]
mod tests;

/// Version of the cuFile that is installed, in words; loads it, and opens nothing.
pub(crate) fn installed() -> Result<String, GdsError> {
    Ok(driver::dotted(sys::CuFileApi::load()?.version()))
}

pub use driver::{GdsDescription, GdsDriver, GdsOptions, Mode};
pub use error::{CuFileCode, GdsError, TransferError};
pub use file::GdsFile;
pub use memory::{DeviceMemory, DeviceRange, GdsBuffer};
pub use route::{Route, Verification};
