//! Tiers for the tests of this crate: simulated hardware in virtual time.

use crate::common::Random;
use crate::sim::{Plan, SimDisk, SimMover};
use crate::transfer::{HostMemory, TierPort};
use crate::virtual_runtime::VirtualRuntime;
use crate::{Hashing, Needs, Rules, StackParts, TierParts, Tiers, TiersParts};
use kvstrata_core::hash::{Hasher, Keyed};
use kvstrata_core::{Policy, PoolConfig};
use kvstrata_ffi::device::SimDevice;
use std::sync::Arc;

/// Parts of tiers: the blocks of each tier, and bytes a block. Nothing is copied ahead of need.
pub(crate) struct Ground {
    pub(crate) device: u32,
    pub(crate) host: u32,
    pub(crate) disk: u32,
    pub(crate) block_bytes: usize,
    pub(crate) policy: Policy,
    pub(crate) rules: Rules,
}

impl Ground {
    pub(crate) fn new(device: u32) -> Ground {
        let mut rules = Rules { host_headroom: 0, ..Rules::default() };
        for ahead in [&mut rules.device_ahead, &mut rules.host_ahead] {
            (ahead.high, ahead.idle_after) = (1.0, None);
        }
        Ground { device, host: 0, disk: 0, block_bytes: 64, policy: Policy::Lru, rules }
    }

    pub(crate) fn tiers(self) -> Tiers {
        let Ground { device: blocks, host, disk, block_bytes, policy, mut rules } = self;
        rules.host_headroom = rules.host_headroom.min(host / 8);
        let layers = [block_bytes];
        let device = Arc::new(SimDevice::with_layers(0, blocks as usize, &layers).expect("memory"));
        let staging = if disk > 0 { 64 } else { 0 };
        let memory = HostMemory::new((host + staging).max(1) as usize, &layers).expect("memory");
        let plan = Plan::calm(Random(1).next());
        let mover = SimMover::new(Arc::clone(&device), Arc::clone(&memory), plan.clone());
        let pool = |blocks| PoolConfig::new(blocks).policy(policy).seed(1);
        let disk =
            (disk > 0).then(|| -> Arc<dyn TierPort> { Arc::new(SimDisk::new(disk, block_bytes, plan)) });
        let stack = StackParts {
            name: "all".to_owned(),
            device: pool(blocks),
            port: Some(device),
            mover: Arc::new(mover),
            memory: (host + staging > 0).then_some(memory),
            host: (host > 0).then(|| pool(host)),
            below: disk.map(|disk| TierParts::new("disk", disk)).into_iter().collect(),
            block_bytes: block_bytes as u64,
            layers: 1,
            needs: Needs::All { page: 16 },
            linked: [policy != Policy::Lru; 2],
            ahead_first: [policy == Policy::Reuse; 2],
        };
        let runtime = VirtualRuntime::new();
        let hasher: Hasher = Keyed::new(&[1; 32]).into();
        let hashing = Hashing { hasher, origin: "the test's".to_owned(), lasts: true, seed: 1 };
        let parts = TiersParts {
            stacks: vec![stack],
            notes: Vec::new(),
            names: Some(0),
            hashing,
            rules,
            runtime: Arc::<VirtualRuntime>::clone(&runtime),
        };
        let (tiers, attendant) = Tiers::of_parts(parts).expect("parts that fit");
        runtime.attend(attendant);
        tiers
    }
}
