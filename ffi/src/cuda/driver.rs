//! CUDA's driver, found and initialised at run time, or the reason why there is none.
//!
//! Loading takes no device memory and makes no context; [`CudaDevice::open`](super::CudaDevice::open) does.
//! Only the library itself is kept between loads, so a driver that was not ready can be asked again.

use super::code::CudaCode;
use super::description::{self, DeviceDescription};
use super::error::{CudaError, Fault, LEAST, check};
use super::sys::{Api, BatchFailing, BatchPlain};
use core::fmt;
use std::sync::Arc;

/// The driver, initialised.
pub struct CudaDriver {
    api: Api,
    description: DriverDescription,
    batch: Option<BatchCall>,
}

/// The driver's call for many copies.
#[derive(Clone, Copy)]
pub(super) enum BatchCall {
    /// For 12.8 and 12.9: it reports the index that failed.
    Failing(BatchFailing),
    /// From 13.0 on.
    Plain(BatchPlain),
}

/// The properties of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriverDescription {
    /// The latest CUDA that the driver supports, major and minor.
    pub version: (u32, u32),
    /// Devices that the driver shows this process.
    pub devices: u32,
    /// Whether one call takes many copies (`cuMemcpyBatchAsync`, from 12.8 on).
    pub batch_copies: bool,
}

impl fmt::Display for DriverDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DriverDescription { version: (major, minor), devices, batch_copies } = self;
        let copies = if *batch_copies { "batch copies" } else { "single copies" };
        write!(f, "CUDA {major}.{minor}, devices: {devices}, {copies}")
    }
}

impl CudaDriver {
    /// Loads and initialises the driver.
    ///
    /// # Errors
    /// [`CudaError`]: there is no library, it lacks an entry or is too old, there is no device, or the
    /// driver refuses.
    pub fn load() -> Result<Arc<CudaDriver>, CudaError> {
        let api = Api::load()?;
        let mut number = 0;
        // SAFETY: allowed before cuInit; `number` is ours.
        check("cuDriverGetVersion", unsafe { (api.cuDriverGetVersion)(&mut number) })
            .map_err(|fault| CudaError::NoDevice { fault })?;
        let number = u32::try_from(number).unwrap_or(0);
        let version = (number / 1000, number % 1000 / 10);
        if version < LEAST {
            return Err(CudaError::DriverTooOld { found: version });
        }
        // SAFETY: the flags must be 0, and they are.
        check("cuInit", unsafe { (api.cuInit)(0) }).map_err(|fault| CudaError::NoDevice { fault })?;
        let mut devices = 0;
        // SAFETY: initialised; `devices` is ours.
        check("cuDeviceGetCount", unsafe { (api.cuDeviceGetCount)(&mut devices) })
            .map_err(|fault| CudaError::NoDevice { fault })?;
        let Some(devices) = u32::try_from(devices).ok().filter(|devices| *devices > 0) else {
            let fault = Fault { operation: "cuDeviceGetCount", code: CudaCode::NO_DEVICE };
            return Err(CudaError::NoDevice { fault });
        };
        // The version decides. A driver may show an entry of a later CUDA than it supports. From 13.0 on,
        // the name without a number may have 12.8's declaration or be absent.
        let batch = match version {
            (13.., _) => api.cuMemcpyBatchAsync_v2.map(BatchCall::Plain),
            (12, 8..) => api.cuMemcpyBatchAsync.map(BatchCall::Failing),
            _ => None,
        };
        let batch_copies = batch.is_some();
        let description = DriverDescription { version, devices, batch_copies };
        Ok(Arc::new(CudaDriver { api, description, batch }))
    }

    /// Returns the properties of the driver.
    #[must_use]
    pub fn describe(&self) -> &DriverDescription {
        &self.description
    }

    /// Returns the properties of the device of this ordinal. Makes no context, and so takes no device memory.
    ///
    /// # Errors
    /// [`CudaError`]: there is no such device, or the driver refuses.
    pub fn describe_device(&self, ordinal: u32) -> Result<DeviceDescription, CudaError> {
        description::describe(&self.api, self.description.devices, ordinal)
            .map(|(_, description)| description)
    }

    pub(super) fn api(&self) -> &Api {
        &self.api
    }

    pub(super) fn batch(&self) -> Option<BatchCall> {
        self.batch
    }
}

impl fmt::Debug for CudaDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CudaDriver").field(&self.description).finish()
    }
}
