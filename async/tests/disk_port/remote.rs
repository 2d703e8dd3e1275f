//! The remote store that only tests have: its ground.

use crate::ground::{BYTES, Faults, Ground, HOST_BLOCKS, SLOTS};
use crate::sim::{Remote, Weather};
use kvstrata::backend::transfer::{HostMemory, TierPort};
use kvstrata_core::BlockId;
use std::sync::Arc;

struct Breaks(Arc<Remote>);

impl Faults for Breaks {
    fn rot(&self, slot: BlockId) {
        self.0.rot(slot);
    }

    fn fail_reads(&self, _: bool) {
        unreachable!("its weather is fair");
    }

    fn lose(&self) {
        unreachable!("it is always there");
    }
}

pub fn ground() -> Ground {
    let store = Arc::new(Remote::new(SLOTS, BYTES, Weather::fair(1)));
    let memory = HostMemory::new(HOST_BLOCKS, &[4096, BYTES - 4096]).expect("memory");
    Ground::new(Arc::clone(&store) as Arc<dyn TierPort>, memory, Box::new(Breaks(store)))
}
