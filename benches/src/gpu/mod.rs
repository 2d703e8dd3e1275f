//! Copies on a GPU beside the limits of the machine and beside peers. `benches/gpu/run` calls it;
//! its README explains each figure.
//!
//! ```text
//!   memory ── layouts on a device and in pinned memory ──► streams: transfers in flight, by our queue
//!                                                            │
//!   within   gather, scatter, permutation ◄── kvbm           ├──► contenders' turns, by rounds ──► report
//!   link     device ↔ pinned memory, by each route           │
//!   launch   the host's cost of a submission                 │
//!   offload  the slowdown of a model ◄───────────────────────┘
//! ```
//!
//! | module | concept |
//! |---|---|
//! | [`scale`] | sizes and durations |
//! | [`memory`] | memory of both sides, layouts in it, bytes that are determined by their place |
//! | [`oracle`] | a copy's bytes beside the oracle's, before its time is taken |
//! | [`streams`] | transfers in flight, several at a time |
//! | [`within`] | within a device's memory, and the peer of the same |
//! | [`kvbm`] | the kernels of the crate `kvbm-kernels`, from a library in the bundle |
//! | [`link`](mod@link) | over PCIe |
//! | [`launch`] | the host's part |
//! | [`offload`] | the slowdown of a model |
//! | [`matmul`], [`cublas`] | the loop that stands for a model: our own, NVIDIA's |
//! | [`completion`] | the results of ffi's example |
//! | [`report`] | sections, rows, reaches |
//! | `double` | the test double of libcuda, for tests of this program (feature `double`) |

pub mod completion;
pub mod cublas;
#[cfg(feature = "double")]
pub mod double;
pub mod kvbm;
pub mod launch;
pub mod link;
pub mod matmul;
pub mod memory;
pub mod offload;
pub mod oracle;
pub mod report;
pub mod scale;
pub mod streams;
pub mod within;

use core::time::Duration;
use kvstrata_ffi::cuda::{CopyCosts, CopyOptions, CudaCopy, CudaDevice, CudaError, CudaKernels};
use scale::Scale;
use std::path::PathBuf;
use std::sync::Arc;

/// Any error that ends a section: it is written into the report, and the next section begins.
pub type Failure = Box<dyn std::error::Error>;

/// The maximum time of a transfer.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// The environment of all sections.
pub struct Bench {
    /// The device.
    pub device: Arc<CudaDevice>,
    /// Sizes and durations.
    pub scale: Scale,
    /// The folder with nvcc's output for others' sources and for the matmul.
    pub bundle: Option<PathBuf>,
    /// The loader of the kernels: [`CudaKernels::load`], unless it is the double.
    pub kernels: fn(&Arc<CudaDevice>) -> Result<CudaKernels, CudaError>,
    /// The costs of routes, by which copies are chosen.
    pub costs: CopyCosts,
}

impl Bench {
    /// Returns the preparer of copies, by the [costs](Bench::costs).
    #[must_use]
    pub fn copier(&self, options: CopyOptions) -> CudaCopy {
        CudaCopy::with(&self.device, (self.kernels)(&self.device), options.costs(self.costs.clone()))
    }
}
