//! Device memory behind the core's [`DevicePort`]: one backend a file.
//!
//! | backend | memory | file |
//! |---|---|---|
//! | [`SimDevice`] | host memory posing as a device, with an address space of its own, a tensor a layer | `sim.rs` |
//! | [`CudaDeviceTier`] | a CUDA device's, by the driver that is found at run time | `cuda.rs` |

mod cuda;
mod sim;

pub use cuda::CudaDeviceTier;
pub use kvstrata_core::storage::{DeviceError, DevicePort};
pub use sim::{SIM_ADDRESS_BASE, SimDevice, SimHold};
