//! CUDA kernels that carry out copy plans, and the parameters of their launches.
//!
//! ```text
//!   CopyPlan ──► CopyKernel     once per pair of layouts: vector width, kernel, loops, divisors;
//!                    │          its bases go to device memory
//!                    ▼
//!                 Launch        each time: a name, a grid, and one structure with the blocks' numbers
//!                    │
//!       driver's cuLaunchKernel of nvcc's image     or     the same source on the CPU (feature `cpu`, tests)
//! ```
//!
//! This crate launches nothing, owns no memory and calls no driver; `kvstrata-ffi`, which has the
//! streams, does. A build without nvcc has no images; [`images`] returns the reason.
//!
//! | concept | place |
//! |---|---|
//! | the kernels | `cuda/copy.cu`, `cuda/permute.cu`, `cuda/sum.cu`, `cuda/convert.cu` |
//! | the map from a unit of work to addresses | `cuda/walk.cuh`, `cuda/divide.cuh`; `walk.rs`, `divide.rs` |
//! | parameters, grid | `cuda/args.cuh`; `args.rs`, `launch.rs` |
//! | the choice of a kernel for a plan | `copy.rs`, `permute.rs`, `sum.rs`, `convert.rs` |
//! | images for devices, or the reason why there are none | `image.rs`, `build.rs` |
//! | the same source on the CPU | `cuda/cpu/`, `cpu.rs` |

#![warn(missing_docs)]

mod args;
mod convert;
mod copy;
#[cfg(feature = "cpu")]
pub mod cpu;
mod divide;
mod image;
mod launch;
mod permute;
mod sum;
mod walk;

pub use convert::{CannotConvert, Conversion};
pub use copy::CopyKernel;
pub use image::{Image, images, toolkit};
pub use launch::{Launch, Parameters, THREADS};
pub use sum::{CHUNK_BYTES, CannotSum, SumKernel};
pub use walk::TooLarge;
