//! Copies on a GPU beside the limits of the machine and beside peers. `benches/gpu/run` calls it; its README says what each figure is.
//!
//! ```text
//!   memory ── layouts on a device and in pinned memory ──► streams: transfers under way, by the queue that ships
//!                                                             │
//!   within   gather, scatter, permutation ◄── kvbm            ├──► turns of all contenders, round by round ──► report
//!   link     device ↔ pinned memory, by each route            │
//!   launch   what a submission costs the host                 │
//!   offload  what it costs a model ◄──────────────────────────┘
//! ```
//!
//! | module | concept |
//! |---|---|
//! | [`scale`] | how large, and how long |
//! | [`memory`] | memory of both sides, layouts in it, bytes that are known by their place |
//! | [`oracle`] | a copy's bytes beside the oracle's, before its time is taken |
//! | [`streams`] | transfers under way, several at a time |
//! | [`within`] | within a device's memory, and the peer of the same |
//! | [`kvbm`] | the kernels of the crate `kvbm-kernels`, out of a library that the bundle has |
//! | [`link`](mod@link) | over PCIe |
//! | [`launch`] | the host's part |
//! | [`offload`] | what a model loses |
//! | [`matmul`], [`cublas`] | the loop that stands for a model: our own, NVIDIA's |
//! | [`completion`] | what the example of ffi has found |
//! | [`report`] | sections, rows, what they are to reach |
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

/// Whatever ends a section: it is written into the report, and the next section begins.
pub type Failure = Box<dyn std::error::Error>;

/// How long a transfer may take.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// What all sections work with.
pub struct Bench {
    /// The device.
    pub device: Arc<CudaDevice>,
    /// How large, and how long.
    pub scale: Scale,
    /// The folder with what nvcc made of others' sources and of the matmul's.
    pub bundle: Option<PathBuf>,
    /// Where the kernels come from: [`CudaKernels::load`], unless it is the double.
    pub kernels: fn(&Arc<CudaDevice>) -> Result<CudaKernels, CudaError>,
    /// What routes cost: what copies are chosen by.
    pub costs: CopyCosts,
}

impl Bench {
    /// Who prepares copies, by the [costs](Bench::costs).
    #[must_use]
    pub fn copier(&self, options: CopyOptions) -> CudaCopy {
        CudaCopy::with(&self.device, (self.kernels)(&self.device), options.costs(self.costs.clone()))
    }
}
