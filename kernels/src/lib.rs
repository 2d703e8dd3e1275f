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
//! ```
//! use kvstrata_core::layout::{Layout, LayoutConfig, Region};
//! use kvstrata_core::{BlockId, plan::CopyPlan};
//! use kvstrata_kernels::{CopyKernel, Parameters};
//! let config = LayoutConfig::new().num_blocks(8).page_size(16).heads(4, 64);
//! let layout = |address| Layout::fully_contiguous(config, Region::system(address, 1 << 20));
//! let plan = CopyPlan::new(&layout(1 << 32)?, &[BlockId(3)], &layout(1 << 40)?, &[BlockId(0)], .., ..)?;
//! let kernel = CopyKernel::new(&plan)?; // once per pair of layouts; `kernel.bases()` goes to the device
//! let (mut parameters, mut launched) = (Parameters::default(), 0);
//! kernel.launches(plan.runs(), 0x1000, 132, &mut parameters, |launch| {
//!     launched += 1; // cuLaunchKernel: `launch.kernel`, `grid` CTAs of THREADS threads, `parameters`
//!     assert!(launch.grid <= 132);
//!     Ok::<(), std::convert::Infallible>(())
//! })?;
//! assert_eq!(launched, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The ten items to know first
//!
//! - [`CopyKernel`]: the launches of plans between two layouts
//! - [`SumKernel`]: the same, with checksums of the blocks on the way; [`CHUNK_BYTES`]: bytes per sum
//! - [`Conversion`]: a change of the element type during a copy, such as bfloat16 to FP8
//! - [`Launch`]: a kernel's name, grid and parameters; [`Parameters`]: room for them; [`THREADS`]:
//!   threads per CTA
//! - [`images()`]: the compiled kernels, each file an [`Image`]; [`toolkit()`]: their compiler

// The source files:
//
//   cuda/copy.cu, permute.cu, sum.cu, convert.cu           the kernels
//   cuda/walk.cuh, divide.cuh; walk.rs, divide.rs          the map from a unit of work to addresses
//   cuda/args.cuh; args.rs, launch.rs                      parameters, grid
//   copy.rs, permute.rs, sum.rs, convert.rs                the choice of a kernel for a plan
//   image.rs, build.rs                                     images, or the reason why there are none
//   cuda/cpu/, cpu.rs                                      the same source on the CPU

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
