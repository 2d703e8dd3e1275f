//! Device memory for the bases of prepared plans, which kernels read. It is one allocation, since freeing
//! one makes a device wait for all its streams.
//!
//! Invariants
//! - I1: a part belongs to one [`Bases`], from `place` to its drop. The `Bases` lives in each batch whose
//!   kernels read it.

use super::super::batch::{Batch, Held};
use super::super::context::CudaDevice;
use super::super::error::CudaError;
use super::super::memory::{DeviceRange, DeviceStorage};
use super::super::pinned::{PinOptions, PinnedStorage};
use super::super::queue::{QueueOptions, TransferQueue};
use super::super::stream::Purpose;
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes for all bases of a device: some 100 pairs of layouts of 80 layers, with K and V apart.
const TABLE_BYTES: u64 = 256 << 10;
/// Minimum bytes of a part: one line of the device's L2.
const GRAIN_BYTES: u64 = 128;
/// Bytes per upload.
const STAGE_BYTES: usize = 4096;
/// The deadline of an upload.
const DEADLINE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct BasesTable {
    memory: Arc<DeviceStorage>,
    /// Used by one call at a time.
    stage: Mutex<Arc<PinnedStorage>>,
    queue: TransferQueue,
    /// Free parts: the first grain, and the number of grains. Sorted, and no two adjoin.
    free: Mutex<Vec<(u64, u64)>>,
}

impl BasesTable {
    pub(super) fn new(device: &Arc<CudaDevice>) -> Result<Arc<BasesTable>, CudaError> {
        let stage = PinnedStorage::allocate(device, 1, STAGE_BYTES, PinOptions::new(), &mut |_, _| {})?;
        Ok(Arc::new(BasesTable {
            memory: DeviceStorage::allocate(device, TABLE_BYTES)?,
            stage: Mutex::new(stage),
            queue: TransferQueue::new(device, Purpose::Staging, QueueOptions::new())?,
            free: Mutex::new(vec![(0, TABLE_BYTES / GRAIN_BYTES)]),
        }))
    }

    /// Copies these bytes into device memory, and waits for the copy.
    pub(super) fn place(self: &Arc<Self>, bytes: &[u8]) -> Result<Bases, CudaError> {
        let grains = (bytes.len() as u64).div_ceil(GRAIN_BYTES);
        let first = self.take(grains)?;
        let range = self.memory.range(first * GRAIN_BYTES, bytes.len() as u64);
        let put = range.and_then(|range| self.put(bytes, &range).map(|()| range));
        match put {
            Ok(range) => Ok(Bases { table: Arc::clone(self), range, first, grains }),
            Err(error) => {
                // A copy that was given up may still write there.
                if !matches!(error, CudaError::Deadline { .. }) {
                    give(&mut self.free(), first, grains);
                }
                Err(error)
            }
        }
    }

    fn free(&self) -> MutexGuard<'_, Vec<(u64, u64)>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the start of the first free part that is large enough.
    fn take(&self, grains: u64) -> Result<u64, CudaError> {
        let mut free = self.free();
        let found = free.iter().position(|(_, there)| *there >= grains);
        let full = CudaError::Full { what: "bytes for prepared plans", limit: TABLE_BYTES as usize };
        let found = found.ok_or(full)?;
        let (first, there) = free[found];
        if there == grains {
            free.remove(found);
        } else {
            free[found] = (first + grains, there - grains);
        }
        Ok(first)
    }

    /// The error for a stage that is still used by a copy that was given up.
    fn unanswered(&self) -> CudaError {
        let waited_ms = u64::try_from(DEADLINE.as_millis()).unwrap_or(u64::MAX);
        CudaError::Deadline { device: self.memory.device().ordinal(), waited_ms }
    }

    fn put(&self, bytes: &[u8], to: &DeviceRange) -> Result<(), CudaError> {
        let pinned = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at = 0;
        for part in bytes.chunks(STAGE_BYTES) {
            let stage = pinned.arena().write(0);
            let mut stage = stage.map_err(|_| self.unanswered())?;
            stage[..part.len()].copy_from_slice(part);
            let mut batch = Batch::new();
            let from = batch.read(stage.into_read(), &pinned)?;
            let to = batch.device(to.clone());
            batch.copy((from, 0), (to, at), part.len() as u64)?;
            at += part.len() as u64;
            let transfer = self.queue.submit(batch).map_err(|rejected| rejected.error)?;
            let mut batch = transfer.wait_for(DEADLINE)?;
            batch.release().for_each(drop::<Held>);
        }
        Ok(())
    }
}

/// Frees a part.
fn give(free: &mut Vec<(u64, u64)>, first: u64, grains: u64) {
    let at = free.partition_point(|(other, _)| *other < first);
    free.insert(at, (first, grains));
    if at + 1 < free.len() && first + grains == free[at + 1].0 {
        free[at].1 += free.remove(at + 1).1;
    }
    if at > 0 && free[at - 1].0 + free[at - 1].1 == first {
        free[at - 1].1 += free.remove(at).1;
    }
}

/// Bases in device memory.
pub(super) struct Bases {
    table: Arc<BasesTable>,
    range: DeviceRange,
    first: u64,
    grains: u64,
}

impl Bases {
    pub(super) fn address(&self) -> u64 {
        self.range.address()
    }
}

impl Drop for Bases {
    fn drop(&mut self) {
        // The thread that ends the last transfer comes here. The lock is never held during a wait.
        give(&mut self.table.free(), self.first, self.grains);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_parts_join_their_neighbours() {
        let mut free = vec![(10, 2)];
        for (part, wanted) in [
            ((0, 4), vec![(0, 4), (10, 2)]),
            ((6, 4), vec![(0, 4), (6, 6)]),
            ((4, 2), vec![(0, 12)]),
            ((14, 1), vec![(0, 12), (14, 1)]),
            ((12, 2), vec![(0, 15)]),
        ] {
            give(&mut free, part.0, part.1);
            assert_eq!(free, wanted);
        }
    }
}
