//! Tags beside a pool, and sweeps of the pool by them: a tenant's blocks, and its purge. A tag is a plain
//! atomic. It is written before its block is registered, Relaxed, and read by a thread that has seen the
//! registration or has ended it: the pool's transitions order it. A sweeper enters a `Waiting` before its
//! sweep, and a registering thread asks it afterwards: so the sweep finds the block, or is told of it.
#![cfg(loom)]

mod loom;

use ::loom::sync::Arc;
use ::loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use kvstrata_core::{BlockId, BlockRef, Policy, Waiting};
use loom::{Rig, hash, model_within, spawn};

const BLOCK: BlockId = BlockId(0);

/// One block, its tenant, and the sweeps.
struct Tagged {
    rig: Arc<Rig>,
    tag: AtomicU32,
    sweeps: Waiting,
}

impl Tagged {
    fn new() -> Arc<Tagged> {
        let (rig, tag) = (Rig::new(1, Policy::Lru), AtomicU32::new(0));
        Arc::new(Tagged { rig, tag, sweeps: Waiting::new() })
    }

    /// The block, if it is free: registered and held.
    fn register(&self, tenant: u32) -> Option<BlockRef> {
        let (mut ids, mut refs) = (Vec::with_capacity(1), Vec::with_capacity(1));
        self.rig.pool.allocate_free_ids(1, &mut ids).ok()?;
        self.tag.store(tenant, Relaxed);
        self.rig.write(BLOCK, u64::from(tenant));
        assert_eq!(self.rig.pool.register_ids(&ids, &[hash(u64::from(tenant))], None, &mut refs), Ok(0));
        refs.pop()
    }

    /// Takes the block out, or withdraws it with a reference of its own. None: it is not registered. Its
    /// tag is that of the registration seen.
    fn sweep(&self, tenant: u32) -> Option<Option<BlockRef>> {
        let (block, _) = self.rig.pool.registered(BLOCK)?;
        assert_eq!(self.tag.load(Relaxed), tenant, "the tag is the registration's");
        if let Ok(taken) = self.rig.pool.take_out(block) {
            self.rig.write(BLOCK, 0);
            drop(taken.into_mutable());
            return Some(None);
        }
        // No other thread ends it.
        let held = self.rig.pool.upgrade(block).expect("registered").into_ref();
        assert!(self.rig.pool.withdraw_held(held));
        Some(Some(held))
    }

    /// The withdrawing thread is the only holder of the withdrawn block.
    fn take(&self, held: BlockRef) {
        let taken = self.rig.pool.take_withdrawn(held).expect("released by all others");
        self.rig.write(BLOCK, 0);
        drop(taken.into_mutable());
    }
}

/// A block is registered while a sweep begins.
#[test]
fn sweep_finds_a_new_block_or_is_told() {
    model_within(2, || {
        let tagged = Tagged::new();
        let other = tagged.clone();
        let thread = spawn(move || {
            let block = other.register(7).expect("it is free");
            let told = other.sweeps.anyone();
            assert_eq!(other.rig.pool.release_refs([block]), 0);
            told
        });
        tagged.sweeps.enter();
        let found = tagged.sweep(7);
        let told = thread.join().expect("no panic");
        assert!(found.is_some() || told, "neither has seen the other");
        if let Some(held) = found.unwrap_or_else(|| tagged.sweep(7).expect("told of it")) {
            tagged.take(held);
        }
        tagged.sweeps.leave();
        assert_eq!(tagged.rig.pool.free(), 1);
        tagged.rig.at_rest();
    });
}

/// A block is evicted, and registered for another tenant.
#[test]
fn registration_end_reads_its_own_tag() {
    model_within(2, || {
        let tagged = Tagged::new();
        let other = tagged.clone();
        let thread = spawn(move || {
            let block = other.register(7).expect("it is free");
            assert_eq!(other.rig.pool.release_refs([block]), 0);
        });
        let mut victims = Vec::with_capacity(1);
        if tagged.rig.pool.evict_ids(1, &mut victims) > 0 {
            assert_eq!((tagged.tag.load(Relaxed), victims[0].1), (7, hash(7)));
            assert_eq!(tagged.rig.pool.give_back_ids([BLOCK]), 0);
            let block = tagged.register(9).expect("nobody else wants one");
            assert_eq!(tagged.rig.pool.release_refs([block]), 0);
        }
        thread.join().expect("no panic");
        tagged.rig.at_rest();
    });
}
