//! Other processes' memory that is open on a device, so that each allocation is opened once (`ipc.rs`, I1).
//!
//! The device owns the list, and each memory holds its device. Therefore the list does not name the
//! memory's type.

use core::any::Any;
use std::collections::HashMap;
use std::sync::{Mutex, Weak};

/// Length of the driver's handle of an allocation.
pub(super) const DRIVER_BYTES: usize = 64;

/// Open allocations, by the driver's handle. Each is a [`DeviceStorage`](super::DeviceStorage).
pub(super) type Imports = Mutex<HashMap<[u8; DRIVER_BYTES], Weak<dyn Any + Send + Sync>>>;
