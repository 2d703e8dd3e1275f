//! Prepared copies: for all layers when the mover is made, for a range of layers at its first use.
//!
//! Prepared copies are kept: at most one for each direction and each range of layers that the manager
//! uses.

use super::CudaMoverError;
use kvstrata_core::layout::Layout;
use kvstrata_core::plan::{CopyPlan, Slice};
use kvstrata_ffi::cuda::{CudaCopy, CudaError, Place, PreparedCopy};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// The way of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Way {
    Offload,
    Onboard,
    /// A copy of the block of zeros to the device.
    Erase,
}

/// The places of the device's and the host's blocks.
pub(super) type Sides = [(Layout, Place); 2];

/// Makes and keeps prepared copies.
pub(super) struct Plans {
    copy: CudaCopy,
    sides: Sides,
    offload: PreparedCopy,
    onboard: PreparedCopy,
    parts: Mutex<HashMap<(Way, u32, u32), PreparedCopy>>,
}

impl Plans {
    pub(super) fn new(copy: CudaCopy, sides: Sides) -> Result<Plans, CudaMoverError> {
        let whole = |way| prepare(&copy, &sides, way, Slice::All);
        let (offload, onboard) = (whole(Way::Offload)?, whole(Way::Onboard)?);
        Ok(Plans { copy, sides, offload, onboard, parts: Mutex::default() })
    }

    /// Returns the copy of these layers.
    pub(super) fn of(&self, way: Way, layers: &Range<u32>) -> Result<PreparedCopy, CudaError> {
        match *layers == (0..self.sides[0].0.config().num_layers) {
            true => Ok(self.whole(way).clone()),
            false => self.part(&self.sides, way, layers),
        }
    }

    /// Returns the copy of some layers between these sides, which are always the same for one way.
    pub(super) fn part(
        &self,
        sides: &Sides,
        way: Way,
        layers: &Range<u32>,
    ) -> Result<PreparedCopy, CudaError> {
        // Nothing panics under the lock. It is held during preparation, so that no copy is prepared
        // twice.
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (way, layers.start, layers.end);
        if let Some(part) = parts.get(&key) {
            return Ok(part.clone());
        }
        let part = prepare(&self.copy, sides, way, Slice::Same(layers.clone()))?;
        parts.insert(key, part.clone());
        Ok(part)
    }

    pub(super) fn whole(&self, way: Way) -> &PreparedCopy {
        match way {
            Way::Offload => &self.offload,
            Way::Onboard | Way::Erase => &self.onboard,
        }
    }

    /// Prepares a copy of whole blocks between the device's memory and another host memory.
    pub(super) fn between(&self, sides: &Sides, way: Way) -> Result<PreparedCopy, CudaError> {
        prepare(&self.copy, sides, way, Slice::All)
    }

    /// Returns why there are no kernels, if there are none.
    pub(super) fn kernels(&self) -> Result<(), CudaError> {
        self.copy.kernels()
    }
}

fn prepare(copy: &CudaCopy, sides: &Sides, way: Way, layers: Slice) -> Result<PreparedCopy, CudaError> {
    let [device, host] = sides;
    let (from, to) = match way {
        Way::Offload => (device, host),
        Way::Onboard | Way::Erase => (host, device),
    };
    let plan = CopyPlan::new(&from.0, &[], &to.0, &[], layers, ..)?;
    copy.prepare(&plan, from.1.clone(), to.1.clone())
}
