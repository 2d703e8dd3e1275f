//! The keyed store over real host memory and volumes, from settings.
//!
//!   KVSTRATA_DISK_DIR=/mnt/nvme cargo test -p kvstrata --test store      the volumes are made there
//!
//! | file | contents |
//! |---|---|
//! | `ground.rs` | a folder, settings, memory to lend |
//! | `contract.rs` | each kind of store: host, disk, both, encrypted, pread and pwrite, several sizes |
//! | `restart.rs` | a restart, also with damaged volumes; another fingerprint; a forked child |
//! | `memory.rs` | lent memory: straight and staged, held until the hardware has answered |
//! | `clients.rs` | completions by descriptor, from several threads |
//! | `opening.rs` | refusals, with the setting and the remedy |

mod clients;
mod contract;
mod ground;
mod memory;
mod opening;
mod restart;
