//! Pageable memory: its ground.

use crate::ground::{BYTES, Faults, Ground, HOST_BLOCKS, SLOTS};
use kvstrata::backend::memory::MemoryTier;
use kvstrata::backend::transfer::{HostMemory, TierPort};
use kvstrata_core::{BlockId, PoolConfig};
use std::sync::Arc;

struct Breaks(Arc<MemoryTier>);

impl Faults for Breaks {
    fn rot(&self, slot: BlockId) {
        self.0.arena().write(slot.index()).expect("idle")[BYTES / 2] ^= 1;
    }

    fn fail_reads(&self, _: bool) {
        unreachable!("memory fails no reads");
    }

    fn lose(&self) {
        unreachable!("memory is not lost");
    }
}

pub fn ground() -> Ground {
    let tier = Arc::new(MemoryTier::new(PoolConfig::new(SLOTS), BYTES, 2).expect("memory and threads"));
    let memory = HostMemory::new(HOST_BLOCKS, &[4096, BYTES - 4096]).expect("memory");
    Ground::new(Arc::clone(&tier) as Arc<dyn TierPort>, memory, Box::new(Breaks(tier)))
}
