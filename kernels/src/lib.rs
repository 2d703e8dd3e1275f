//! CUDA kernels that carry out copy plans, and what a launch of them is told.
//!
//! ```text
//!   CopyPlan ──► CopyKernel     once for a pair of layouts: vector width, kernel, loops, divisors; its bases go to device memory
//!                    │
//!                    ▼
//!                 Launch        each time: a name, a grid, and one structure of parameters that has the blocks' numbers
//!                    │
//!       driver's cuLaunchKernel, of an image that nvcc made        or        the same source on the CPU (feature `cpu`, for tests)
//! ```
//!
//! This crate launches nothing, owns no memory and calls no driver: whoever has streams does
//! (`kvstrata-ffi`). It has no image if it was built without nvcc; [`images`] says so.
//!
//! | concept | place |
//! |---|---|
//! | the kernels | `cuda/copy.cu`, `cuda/permute.cu`, `cuda/sum.cu`, `cuda/convert.cu` |
//! | from a unit of work to addresses | `cuda/walk.cuh`, `cuda/divide.cuh`; `walk.rs`, `divide.rs` |
//! | parameters, grid | `cuda/args.cuh`; `args.rs`, `launch.rs` |
//! | which kernel for which plan | `copy.rs`, `permute.rs`, `sum.rs`, `convert.rs` |
//! | images for devices, and why there are none | `image.rs`, `build.rs` |
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
