//! The parts of the façade that only the `kvstrata` command uses. They may change with any version.

pub use crate::config::time;
pub use crate::costs::Grids;
pub use crate::manager::memory::Need;
pub use crate::manager::{hash_key, volume_files, volumes};
pub use kvstrata_backends::files;
pub use kvstrata_config::{address, number};
pub use kvstrata_tiers::figures;
