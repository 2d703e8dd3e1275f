//! Implementations of the ports of `kvstrata-tiers`: tiers and device movers.
//!
//! | module | contents |
//! |---|---|
//! | [`movers`] | copies between a device and host memory: threads over a simulated device, CUDA |
//! | [`disk`] | the disk tier: recovery after a restart, admission, a write budget |
//! | [`memory`] | a tier in pageable host memory |
//! | [`costs`] | measured and stored copy costs of this machine's devices |
#![forbid(unsafe_code)]

pub mod costs;
pub mod disk;
#[doc(hidden)]
pub mod files;
pub mod memory;
pub mod movers;
