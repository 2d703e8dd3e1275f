//! The answer to a submission that queued nothing.

use super::batch::Batch;
use super::error::CudaError;

/// A batch that was not submitted, and the reason.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Rejected {
    /// The reason.
    #[source]
    pub error: CudaError,
    /// The batch, as it was.
    pub batch: Batch,
}
