//! Why bytes did not arrive. A failed transfer is a miss to its requests, is counted by its cause, and
//! never counts as loaded.

use kvstrata_core::DeviceError;
use kvstrata_ffi::cuda::CudaError;
use kvstrata_ffi::disk::{FailureCause, IoFailure};

/// The kinds of failure, as they are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cause {
    /// The bytes are not those that were stored: their sum differs.
    Mismatch,
    /// The device or its driver failed.
    Device,
    /// Another copy was using the block, which the engine's records should have prevented.
    Busy,
    /// The tier below answered with something other than the block.
    Rejected,
    /// The buffer did not fit: it is not as long as the block, longer than a slot, or not aligned as the tier
    /// needs it. Nothing was moved, and the block stays.
    Buffer,
    /// The tier below host memory failed, or the part of it that has the block.
    Tier,
    /// The volume is out of service for good.
    Lost,
    /// The volume takes no writes, does not answer just now, or was short of something. Its blocks stay,
    /// and are served again later.
    Away,
    /// The mover or the tier gave up without an answer.
    Abandoned,
    /// The transfer was called off, for example since no request needed it any more.
    Cancelled,
    /// Not in time: the block did not come, or the gate of an offload did not open.
    Deadline,
    /// The block would exceed its owner's quota of the tier (`quota.*`).
    Quota,
    /// The tier below takes too long: the block was dropped, so that no request waited for its write.
    Slow,
}

impl Cause {
    /// All of them.
    pub const ALL: [Cause; 13] = [
        Cause::Mismatch,
        Cause::Device,
        Cause::Busy,
        Cause::Rejected,
        Cause::Buffer,
        Cause::Tier,
        Cause::Lost,
        Cause::Away,
        Cause::Abandoned,
        Cause::Cancelled,
        Cause::Deadline,
        Cause::Quota,
        Cause::Slow,
    ];

    /// Returns the cause's name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Mismatch => "mismatch",
            Cause::Device => "device",
            Cause::Busy => "busy",
            Cause::Rejected => "rejected",
            Cause::Buffer => "buffer",
            Cause::Tier => "tier",
            Cause::Lost => "lost",
            Cause::Away => "away",
            Cause::Abandoned => "abandoned",
            Cause::Cancelled => "cancelled",
            Cause::Deadline => "deadline",
            Cause::Quota => "quota",
            Cause::Slow => "slow",
        }
    }
}

/// A failed transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}{}", cause.name(), if *retryable { "; a retry may succeed" } else { "" })]
pub struct Failure {
    /// The cause.
    pub cause: Cause,
    /// Whether the same transfer may succeed later.
    pub retryable: bool,
}

impl Failure {
    /// Returns a failure that a retry will not cure.
    #[must_use]
    pub const fn of(cause: Cause) -> Failure {
        Failure { cause, retryable: false }
    }

    /// Returns a failure that a retry may cure.
    #[must_use]
    pub const fn passing(cause: Cause) -> Failure {
        Failure { cause, retryable: true }
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Failure {
        match error {
            DeviceError::OutOfRange { .. } | DeviceError::Layer { .. } => Failure::of(Cause::Device),
            DeviceError::Busy { .. } => Failure::of(Cause::Busy),
            DeviceError::Failed { retryable, .. } => Failure { cause: Cause::Device, retryable },
        }
    }
}

impl From<&CudaError> for Failure {
    fn from(error: &CudaError) -> Failure {
        Failure { cause: Cause::Device, retryable: error.is_passing() }
    }
}

impl From<&IoFailure> for Failure {
    /// The disk tier has retried by itself, so no failure that it reports is retryable here.
    fn from(failure: &IoFailure) -> Failure {
        Failure::of(match failure.cause {
            FailureCause::Rejected(_) => Cause::Rejected,
            cause if cause.is_of_the_buffer() => Cause::Buffer,
            FailureCause::OutOfService => Cause::Lost,
            FailureCause::Away | FailureCause::WritesPaused => Cause::Away,
            _ if failure.is_retryable() => Cause::Away,
            _ => Cause::Tier,
        })
    }
}
