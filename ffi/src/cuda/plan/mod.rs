//! Copy plans on a device: prepared once for a pair of layouts, submitted for one list of blocks after the
//! other.
//!
//! ```text
//!   CopyPlan, places ──► CudaCopy::prepare ──► PreparedCopy      checked: all bytes of all blocks lie in their places
//!                                                   │            kernel chosen, its bases in device memory
//!   blocks, guards ─────────────────────────────────┴─► submit ──► Transfer
//!                                                          │
//!           single copies · one call for many · rows · kernel      the route: what the measured costs say of such fragments
//! ```
//!
//! | file | what |
//! |---|---|
//! | `place.rs` | what a side's memory is, and that a plan stays inside it |
//! | `kernels.rs`, `bases.rs` | images loaded on a device; what kernels look up there |
//! | `prepare.rs`, `prepared.rs` | what is made once, by `CudaCopy`; what the submissions of a plan share |
//! | `submit.rs` | what is done each time: `PreparedCopy`, `SummedCopy` |
//! | `sums.rs` | payloads summed where they are: `CudaSums`, a volume's `DeviceSums` |
//! | `route.rs`, `costs.rs` | the routes, and what they cost |
//! | `tune.rs` | that measured on a device |

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
