//! Who moves bytes between tiers: backends of [`DeviceMover`](kvstrata_tiers::transfer::DeviceMover), one a
//! file. All of them run the contract in `async/tests/movers/`.
//!
//! | backend | copies | file |
//! |---|---|---|
//! | [`ThreadsMover`] | between host memory and a simulated device, on threads of its own | `threads.rs` |
//! | [`CudaMover`] | between a CUDA device's tensors and pinned host memory | `cuda.rs`, `cuda/` |
//! | [`PortMover`] | through any device's own port, on threads of its own | `port.rs` |
//!
//! `pool.rs` and `lists.rs` are threads that carry out lists of copies, whatever a copy is; `turns.rs`, which
//! direction goes first.

mod cuda;
mod lists;
mod pool;
mod port;
mod threads;
mod turns;

pub use cuda::{CudaMover, CudaMoverError, CudaMoverOptions, EngineOrder};
pub use port::PortMover;
pub use threads::{ThreadsError, ThreadsMover};
