//! What moves bytes behind the ports of `kvstrata-tiers`.
//!
//! | module | what |
//! |---|---|
//! | [`movers`] | copies between a device and host memory: threads over a simulated device, CUDA |
//! | [`disk`] | the disk tier: found again after a restart, with admission and a write budget |
//! | [`memory`] | a tier in pageable host memory |
//! | [`costs`] | what copies cost on this machine's devices, as it was measured and stored |
#![forbid(unsafe_code)]

pub mod costs;
pub mod disk;
#[doc(hidden)]
pub mod files;
pub mod memory;
pub mod movers;
