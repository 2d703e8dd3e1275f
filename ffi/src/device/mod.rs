//! Device memory behind the core's [`DevicePort`]: one backend per file.
//!
//! | backend | memory | file |
//! |---|---|---|
//! | [`SimDevice`] | host memory posing as a device: its own address space, one tensor per layer | `sim.rs` |
//! | [`CudaDeviceTier`] | a CUDA device's memory, by the driver found at run time | `cuda.rs` |

mod cuda;
mod sim;

pub use cuda::CudaDeviceTier;
pub use kvstrata_core::storage::{DeviceError, DevicePort};
pub use sim::{SIM_ADDRESS_BASE, SimDevice, SimHold};
