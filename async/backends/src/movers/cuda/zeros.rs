//! A pinned block of zeros of the mover: blocks of the device are overwritten by copying it. So
//! overwriting has the routes, the order and the owners of any other copy, for any layout of the
//! engine's tensors, and nothing here fills memory by address.
//!
//! It costs the link's rate instead of the device's, for blocks that no request waits for.

use super::host_config;
use super::plans::{Plans, Sides, Way};
use kvstrata_core::layout::{Layout, Region};
use kvstrata_ffi::cuda::{Batch, CudaDevice, CudaError, PinOptions, PinnedStorage, Place, PreparedCopy};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Makes its block at first use.
pub(super) struct Zeros {
    device: (Layout, Place),
    of: Arc<CudaDevice>,
    block_bytes: usize,
    made: Mutex<Option<Made>>,
}

struct Made {
    pinned: Arc<PinnedStorage>,
    sides: Sides,
    whole: PreparedCopy,
}

/// Allocates one pinned block, with its layout beside the device's.
pub(super) fn one_block(
    device: &(Layout, Place),
    of: &Arc<CudaDevice>,
    block_bytes: usize,
) -> Result<(Arc<PinnedStorage>, Sides), CudaError> {
    let pinned = PinnedStorage::allocate(of, 1, block_bytes, PinOptions::new(), &mut |_, _| {})?;
    let host = Layout::fully_contiguous(host_config(device.0.config(), &pinned), Region::of(&*pinned))?;
    let sides = [device.clone(), (host, Place::Host(Arc::clone(&pinned)))];
    Ok((pinned, sides))
}

impl Zeros {
    pub(super) fn new(device: (Layout, Place), of: &Arc<CudaDevice>, block_bytes: usize) -> Zeros {
        Zeros { device, of: Arc::clone(of), block_bytes, made: Mutex::default() }
    }

    /// Returns a copy of these layers of the zeros; the batch gets the guard.
    pub(super) fn copy(
        &self,
        plans: &Plans,
        layers: &Range<u32>,
        batch: &mut Batch,
    ) -> Result<PreparedCopy, CudaError> {
        // Nothing panics under the lock.
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let made = match &*made {
            Some(made) => made,
            None => made.insert(self.make(plans)?),
        };
        let busy = |_| CudaError::Full { what: "readers of the zero block", limit: 1 };
        let prepared = match *layers == (0..self.device.0.config().num_layers) {
            true => made.whole.clone(),
            false => plans.part(&made.sides, Way::Erase, layers)?,
        };
        batch.read(made.pinned.arena().read(0).map_err(busy)?, &made.pinned)?;
        Ok(prepared)
    }

    fn make(&self, plans: &Plans) -> Result<Made, CudaError> {
        // Fresh memory is zeros, and is never written.
        let (pinned, sides) = one_block(&self.device, &self.of, self.block_bytes)?;
        let whole = plans.between(&sides, Way::Erase)?;
        Ok(Made { pinned, sides, whole })
    }
}
