//! Copy plans on a device: prepared once for a pair of layouts, then submitted for one list of blocks
//! after the other.
//!
//! ```text
//!   CopyPlan, places ──► CudaCopy::prepare ──► PreparedCopy      checked: all bytes lie in their places
//!                                                   │            kernel chosen, its bases in device memory
//!   blocks, guards ─────────────────────────────────┴─► submit ──► Transfer
//!                                                          │
//!           single copies · one call for many · rows · kernel      the route: the cheapest for the fragments
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `place.rs` | a side's memory, and the check that a plan stays inside it |
//! | `kernels.rs`, `bases.rs` | images loaded on a device; the tables that kernels read there |
//! | `prepare.rs`, `prepared.rs` | preparation, by `CudaCopy`; the data that a plan's submissions share |
//! | `submit.rs` | one submission: `PreparedCopy`, `SummedCopy` |
//! | `sums.rs` | payloads summed in device memory: `CudaSums`, a volume's `DeviceSums` |
//! | `route.rs`, `costs.rs` | the routes, and their costs |
//! | `tune.rs` | the costs measured on a device |

mod bases;
mod costs;
mod kernels;
mod place;
mod prepare;
mod prepared;
mod route;
mod submit;
mod sums;
mod tune;

pub use costs::{BadCosts, CopyCosts, CostSource, DirectionCosts};
pub use kernels::CudaKernels;
pub use place::Place;
pub use prepare::{CopyOptions, CudaCopy};
pub use route::{Fragments, Route};
pub use submit::{PreparedCopy, SummedCopy};
pub use sums::{CudaSums, SumOptions};
pub use tune::{TuneOptions, tune};
