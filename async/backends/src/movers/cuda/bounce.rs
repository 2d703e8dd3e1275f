//! Synchronous copies of single blocks through one pinned block: for tests, and for engines without CUDA
//! code.

use super::CudaMoverError;
use super::ends::Ends;
use super::plans::Way;
use super::zeros::one_block;
use kvstrata_core::BlockId;
use kvstrata_core::layout::Layout;
use kvstrata_ffi::arena::BlockWrite;
use kvstrata_ffi::cuda::{Batch, CudaDevice, CudaError, Held, PinnedStorage, Place, PreparedCopy};
use std::sync::{Arc, Mutex, PoisonError};

/// Makes its pinned block at the first call.
pub(super) struct Bounce {
    device: (Layout, Place),
    of: Arc<CudaDevice>,
    made: Mutex<Option<Made>>,
}

struct Made {
    pinned: Arc<PinnedStorage>,
    offload: PreparedCopy,
    onboard: PreparedCopy,
}

impl Bounce {
    pub(super) fn new(device: (Layout, Place), of: &Arc<CudaDevice>) -> Bounce {
        Bounce { device, of: Arc::clone(of), made: Mutex::default() }
    }

    pub(super) fn read(&self, ends: &Ends, block: BlockId) -> Result<Vec<u8>, CudaMoverError> {
        self.with(ends, |made| {
            let held = made.copy(ends, Way::Offload, block, made.block()?)?;
            Ok(held.to_vec())
        })
    }

    pub(super) fn write(&self, ends: &Ends, block: BlockId, bytes: &[u8]) -> Result<(), CudaMoverError> {
        self.with(ends, |made| {
            let mut held = made.block()?;
            if held.len() != bytes.len() {
                return Err(CudaMoverError::Bytes { found: bytes.len(), wanted: held.len() });
            }
            held.copy_from_slice(bytes);
            made.copy(ends, Way::Onboard, block, held).map(drop)
        })
    }

    fn with<R>(
        &self,
        ends: &Ends,
        act: impl FnOnce(&Made) -> Result<R, CudaMoverError>,
    ) -> Result<R, CudaMoverError> {
        // Held for the whole copy: there is one block.
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        match &*made {
            Some(made) => act(made),
            None => act(made.insert(self.make(ends)?)),
        }
    }

    fn make(&self, ends: &Ends) -> Result<Made, CudaMoverError> {
        let bytes = ends.memory().arena().block_bytes();
        let (pinned, sides) = one_block(&self.device, &self.of, bytes)?;
        let prepare = |way| ends.plans.between(&sides, way);
        Ok(Made { offload: prepare(Way::Offload)?, onboard: prepare(Way::Onboard)?, pinned })
    }
}

impl Made {
    fn block(&self) -> Result<BlockWrite, CudaError> {
        // Refused while a dead device keeps the block.
        let busy = |_| CudaError::Full { what: "bounce buffers", limit: 1 };
        self.pinned.arena().write(0).map_err(busy)
    }

    fn copy(
        &self,
        ends: &Ends,
        way: Way,
        block: BlockId,
        held: BlockWrite,
    ) -> Result<BlockWrite, CudaMoverError> {
        let mut batch = Batch::new();
        batch.write(held, &self.pinned)?;
        let (prepared, from, to) = match way {
            Way::Offload => (&self.offload, block, BlockId(0)),
            Way::Onboard | Way::Erase => (&self.onboard, BlockId(0), block),
        };
        let queued = prepared.submit(ends.queue(way), &[from], &[to], batch);
        let mut batch = queued.map_err(|rejected| rejected.error)?.wait()?;
        let mut guards = batch.release().filter_map(|held| match held {
            Held::Write(held, _) => Some(held),
            _ => None,
        });
        Ok(guards.next().ok_or(CudaError::NotRegistered { what: "bounce buffer" })?)
    }
}
