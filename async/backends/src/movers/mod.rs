//! Backends of [`DeviceMover`](kvstrata_tiers::transfer::DeviceMover), one per file: they copy bytes
//! between device and host. All of them pass the contract in `async/tests/movers/`.
//!
//! `pool.rs` and `lists.rs` run lists of copies on threads, for any kind of copy. `turns.rs` decides
//! which direction goes first.

// | backend | copies | file |
// |---|---|---|
// | `ThreadsMover` | between host memory and a simulated device, on its own threads | `threads.rs` |
// | `CudaMover` | between a CUDA device's tensors and pinned host memory | `cuda.rs`, `cuda/` |
// | `PortMover` | through any device's own port, on its own threads | `port.rs` |

mod cuda;
mod lists;
mod pool;
mod port;
mod threads;
mod turns;

pub use cuda::{CudaMover, CudaMoverError, CudaMoverOptions, EngineOrder};
pub use port::PortMover;
pub use threads::{ThreadsError, ThreadsMover};
