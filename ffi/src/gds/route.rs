//! Which way bytes take between a volume's file and a device: directly, or through pinned host memory.

use super::driver::{GdsDriver, GdsOptions};
use super::error::GdsError;
use super::file::GdsFile;
use core::fmt;
use std::fs::File;
use std::sync::Arc;

/// Whether payloads are checked before anybody sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verification {
    /// Each payload is compared with its seal. The host cannot do that to bytes which it never has.
    Required,
    /// The volume was opened with `skip_verification_unsafe`: a wrong byte on the drive is served as it is.
    Skipped,
}

/// The way that was chosen.
#[derive(Debug)]
pub enum Route {
    /// cuFile moves the bytes; how, its driver's [description](GdsDriver::describe) says.
    Direct {
        /// The driver, for buffers.
        driver: Arc<GdsDriver>,
        /// The file.
        file: GdsFile,
    },
    /// Drive to pinned host memory, verified there, and from it to the device; the same back.
    Bounce {
        /// Why, in words for a log line or `kvstrata doctor`.
        reason: String,
    },
}

impl Route {
    /// Takes cuFile where it works and is allowed to be used, and the bounce otherwise. Never fails: the bounce always works.
    pub fn choose(file: &Arc<File>, options: GdsOptions, verification: Verification) -> Route {
        Route::choose_with(file, options, verification, || GdsDriver::open(options))
    }

    /// The same with another driver; `open` is called only if its answer matters.
    pub(super) fn choose_with(
        file: &Arc<File>,
        options: GdsOptions,
        verification: Verification,
        open: impl FnOnce() -> Result<Arc<GdsDriver>, GdsError>,
    ) -> Route {
        if verification == Verification::Required {
            let reason =
                "payloads are verified, and the host cannot verify bytes that go straight to the device";
            return Route::Bounce { reason: reason.to_owned() };
        }
        let direct = open().and_then(|driver| {
            let file = GdsFile::register(&driver, Arc::clone(file), options)?;
            Ok(Route::Direct { driver, file })
        });
        direct.unwrap_or_else(|error| Route::Bounce { reason: error.to_string() })
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Route::Direct { driver, .. } => write!(f, "GPUDirect Storage ({})", driver.describe()),
            Route::Bounce { reason } => write!(f, "through pinned host memory: {reason}"),
        }
    }
}
