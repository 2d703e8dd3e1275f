//! Plumbing: the ports below the façade, their implementations, and the parts of a manager.
//!
//! An engine needs none of it, unless it brings a tier or a device of its own. Tests and benchmarks build
//! managers of parts here.
//!
//! | module | contents |
//! |---|---|
//! | [`transfer`] | transfers, and the ports: `TierPort` for tiers, `DeviceMover` for devices |
//! | [`movers`] | device movers: threads over a simulated device, CUDA |
//! | [`disk`] | the disk tier: recovery, admission, write budget |
//! | [`memory`] | a tier in pageable host memory |
//! | [`costs`] | the costs of copies on this machine's devices, as measured and stored |
//!
//! [`KvBlockManager::of_parts`](crate::KvBlockManager::of_parts) makes a manager of [`Parts`].

pub use crate::manager::{Census, Needs, OwnRuntime, Parts, PartsError, StackParts, TierCensus, TierParts};
pub use crate::store::{HostCopier, StoreRuntime};
pub use kvstrata_backends::{costs, disk, memory, movers};
pub use kvstrata_ffi::arena::{BlockRead, BlockWrite, HostArena, Span};
pub use kvstrata_store::{Copier, Copying, Rules as StoreRules, SizeClassParts, StoreParts};
pub use kvstrata_tiers::transfer;
