//! What comes back where nothing was submitted.

use super::batch::Batch;
use super::error::CudaError;

/// A batch that was not submitted, and why.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Rejected {
    /// Why.
    #[source]
    pub error: CudaError,
    /// The batch, as it was.
    pub batch: Batch,
}
