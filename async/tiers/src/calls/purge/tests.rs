use super::*;
use crate::Tiers;
use crate::ground::Ground;
use crate::state::FEW;
use crate::state::GroupId;
use kvstrata_testing::virtual_time::{JoinHandle, run, spawn_local, yield_now};

const BYTES: usize = 4096;

/// Tiers with so many blocks in the device, and a tenant.
fn manager(blocks: u32) -> (Tiers, Tiers) {
    let manager = Ground { block_bytes: BYTES, ..Ground::new(blocks) }.tiers();
    let tenant = manager.tenant("a").expect("few tenants");
    (manager, tenant)
}

fn hashes(blocks: u32) -> Vec<SequenceHash> {
    (1..=blocks).map(|hash| SequenceHash::from_u128(hash.into())).collect()
}

/// A purge that has begun.
async fn begin(manager: &Tiers, tenant: &Tiers, options: Purge) -> JoinHandle<Purged> {
    let tenant = tenant.clone();
    let purge = spawn_local(async move { tenant.purge(options).await.expect("open") });
    while manager.inner().look().purges.is_empty() {
        yield_now().await;
    }
    purge
}

#[test]
fn waiting_purge_examines_few_blocks_per_change() {
    run(async {
        const BLOCKS: u32 = 1000;
        const CHANGES: usize = 1000;
        let (manager, a) = manager(BLOCKS + 1);
        let b = manager.tenant("b").expect("few tenants");
        let filled = a.default_group().allocate(BLOCKS as usize).await.expect("free");
        let held = filled.register(&hashes(BLOCKS), None).expect("registered");
        let purge = begin(&manager, &a, Purge::default()).await;
        let seen = || manager.inner().look().purges.looks();
        for _ in 0..CHANGES {
            let of_b = b.default_group().allocate(1).await.expect("one is free");
            drop(of_b.register(&[SequenceHash::from_u128(1 << 64)], None).expect("registered"));
            yield_now().await;
        }
        let (scans, looks) = seen().expect("it waits");
        assert_eq!(scans, 1, "at its beginning");
        // Each is told of when it begins to wait, and when it has ended, and so are an allocation and a
        // release.
        let most = BLOCKS as usize + FEW * (4 * CHANGES + 2);
        assert!(looks <= most && most < BLOCKS as usize * CHANGES / 3, "{looks} looks");
        drop(held);
        let purged = purge.await.expect("no panic");
        let all = BLOCKS as usize;
        assert_eq!((purged.complete, purged.device.found, purged.device.purged), (true, all, all));
    });
}

#[test]
fn purge_notices_an_untold_release() {
    run(async {
        let (manager, a) = manager(300);
        let filled = a.default_group().allocate(300).await.expect("free");
        let held = filled.register(&hashes(300), None).expect("registered");
        let pool = &manager.inner().group(GroupId::FIRST).device.pool();
        let others = [held.refs()[0], held.refs()[299]].map(|block| pool.hold_again(block).expect("held"));
        let purge = begin(&manager, &a, Purge::default()).await;
        drop(held);
        for _ in 0..100 {
            manager.check_watermark();
            yield_now().await;
        }
        assert!(!purge.is_finished(), "two are held");
        // The tags are scanned once more: a held block is not found twice.
        manager.inner().with(|traffic| traffic.look_again(a.tenant_id()));
        yield_now().await;
        for other in others {
            assert_eq!(pool.release_refs([other]), 0);
        }
        for _ in 0..100 {
            manager.check_watermark();
            yield_now().await;
        }
        assert!(purge.is_finished());
        let purged = purge.await.expect("no panic");
        assert_eq!((purged.device.found, purged.device.purged), (300, 300));
    });
}

/// The name of a preempted request's partial block is forgotten while another holder has the block.
#[test]
fn withdrawn_block_is_erased_at_its_last_release() {
    run(async {
        let (manager, a) = manager(4);
        let full = a
            .default_group()
            .allocate(1)
            .await
            .expect("free")
            .register(&hashes(1), None)
            .expect("registered");
        let partial = a.default_group().allocate(1).await.expect("free");
        let id = partial.ids()[0];
        let port = manager.default_group().device_port().expect("a simulated device");
        port.copy_in(id.0, 0, &[7; BYTES]).expect("in range");
        let preempted = a.default_group().preempt(full, partial, 1).expect("one manager");
        let device = &manager.inner().group(GroupId::FIRST).device;
        let (there, _) = device.pool().registered(id).expect("under a name of its own");
        let held = device.pool().upgrade(there).expect("registered").into_ref();
        drop(preempted);
        assert_eq!(device.pool().registered(id), None, "withdrawn");
        let purge = begin(&manager, &a, Purge { zero: true, ..Purge::default() }).await;
        manager.check_watermark();
        yield_now().await;
        assert!(!purge.is_finished(), "somebody reads it");
        // Another caller waits for the whole device.
        let all = spawn_local({
            let manager = manager.clone();
            async move { manager.default_group().allocate(4).await.map(|blocks| blocks.len()) }
        });
        yield_now().await;
        device.release(held, 0);
        manager.inner().released();
        let purged = purge.await.expect("no panic");
        assert!(purged.complete, "{purged:?}");
        assert_eq!(
            (purged.device.found, purged.device.purged, purged.zeroed_bytes),
            (2, 2, 2 * BYTES as u64)
        );
        assert_eq!(all.await.expect("no panic").expect("free again"), 4);
        let mut bytes = [1; BYTES];
        port.copy_out(id.0, 0, &mut bytes).expect("in range");
        assert_eq!(bytes, [0; BYTES]);
        assert_eq!(a.usage(Tier::Device).blocks, 0);
    });
}
