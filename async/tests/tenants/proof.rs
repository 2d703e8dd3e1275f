//! A purge's proof: it also counts and erases blocks that others have withdrawn, that a handle gives
//! back, or that a mover passes over; and no transfer of the tenant's begins anew.

use crate::gated::Ground;
use crate::ground::{BYTES, bytes_of, compute, rest};
use crate::sequence;
use kvstrata::manager::{OnboardOptions, Purge, Purged, Tiers};
use kvstrata::tier::Tier;
use kvstrata::transfer::Cause;
use kvstrata_core::DevicePort;
use std::time::Duration;
use tokio::task::JoinHandle;

const ZERO: Purge = Purge::new().zero(true).deadline(Duration::from_secs(60));

/// A purge that has begun.
async fn begin(ground: &Ground, tenant: &Tiers) -> JoinHandle<Purged> {
    let tenant = tenant.clone();
    let purge = tokio::spawn(async move { tenant.purge(ZERO).await.expect("open") });
    while ground.manager.census().purges == 0 {
        tokio::task::yield_now().await;
    }
    purge
}

#[tokio::test]
async fn rotten_block_with_a_holder_is_erased_at_its_release() {
    let ground = Ground::new(4, 8);
    let a = ground.manager.tenant("a").expect("few tenants");
    let group = a.default_group();
    let run = sequence(&a, 1, 1);
    drop(compute(&a, &run, None).await);
    drop(ground.manager.default_group().allocate(4).await.expect("evictable"));
    rest(&ground.manager).await;
    for block in 0..8 {
        ground.memory.write(block).expect("nobody has it")[7] ^= 1;
    }
    let mut rotten = bytes_of(run[0]);
    rotten[7] ^= 1;
    let in_host = || (0..8).any(|block| *ground.memory.read(block).expect("nobody writes") == rotten[..]);
    let holds = ground.manager.default_group().match_prefix(&run);
    assert_eq!((holds.in_tier(Tier::Host), in_host()), (1, true));
    let up = group.onboard(group.match_prefix(&run), OnboardOptions::default()).expect("fits").await;
    assert_eq!(up.missed, Some(Cause::Mismatch));
    assert_eq!(group.match_prefix(&run).len(), 0, "withdrawn");
    let purge = begin(&ground, &a).await;
    tokio::task::yield_now().await;
    assert!(!purge.is_finished() && in_host(), "somebody holds it");
    drop(holds);
    let purged = purge.await.expect("no panic");
    assert_eq!((purged.host.found, purged.host.purged, purged.host.busy), (1, 1, 0), "{purged:?}");
    assert_eq!((purged.complete, purged.zeroed_bytes, in_host()), (true, BYTES as u64, false));
    assert_eq!((a.usage(Tier::Host).blocks, ground.manager.census().tiers[0][1].free), (0, 8));
}

#[tokio::test]
async fn blocks_being_filled_are_erased_at_their_drop() {
    let ground = Ground::new(4, 4);
    let a = ground.manager.tenant("a").expect("few tenants");
    let mut filling = a.default_group().allocate(3).await.expect("free");
    let ids = filling.ids().to_vec();
    for block in &ids {
        ground.device.copy_in(block.0, 0, &[7; BYTES]).expect("in range");
    }
    let purge = begin(&ground, &a).await;
    drop(filling.split_to(1));
    assert!(ids[1..].iter().all(|block| !ground.is_zero(*block)), "two are being filled");
    drop(filling);
    let purged = purge.await.expect("no panic");
    assert_eq!((purged.complete, purged.device.found, purged.zeroed_bytes), (true, 0, 3 * BYTES as u64));
    assert!(ids.iter().all(|block| ground.is_zero(*block)));
    assert_eq!((a.usage(Tier::Device).blocks, ground.manager.census().tiers[0][0].free), (0, 4));
}

#[tokio::test]
async fn block_missing_in_the_answer_counts_as_not_erased() {
    let ground = Ground::new(4, 4);
    let a = ground.manager.tenant("a").expect("few tenants");
    let run = sequence(&a, 1, 3);
    let ids: Vec<_> = compute(&a, &run, None).await.ids().collect();
    ground.mover.pass_over(1);
    let purged = a.purge(ZERO).await.expect("open");
    assert_eq!((purged.complete, purged.device.found, purged.device.purged), (true, 3, 3));
    assert_eq!((purged.failed, purged.zeroed_bytes), (1, 2 * BYTES as u64));
    let left: Vec<_> = ids.into_iter().filter(|block| !ground.is_zero(*block)).collect();
    assert_eq!((left.len(), a.usage(Tier::Device).blocks), (1, 0));
    let others = ground.manager.default_group().allocate(3).await.expect("three are left");
    assert!(
        !others.ids().contains(&left[0]) && ground.manager.default_group().try_allocate(1).is_none(),
        "nobody gets it"
    );
}

#[tokio::test]
async fn failed_onboard_of_a_purged_tenant_is_not_retried() {
    let ground = Ground::new(4, 4);
    let a = ground.manager.tenant("a").expect("few tenants");
    let run = sequence(&a, 1, 3);
    drop(compute(&a, &run, None).await);
    drop(ground.manager.default_group().allocate(4).await.expect("evictable"));
    rest(&ground.manager).await;
    ground.mover.close();
    let up = a
        .default_group()
        .onboard(a.default_group().match_prefix(&run), OnboardOptions::default())
        .expect("fits");
    assert_eq!((ground.mover.waiting(), ground.mover.copies_up()), (3, 3));
    let purge = begin(&ground, &a).await;
    ground.mover.fail();
    let purged = purge.await.expect("no panic");
    assert_eq!((purged.complete, purged.in_flight, purged.host.purged), (true, 3, 3), "{purged:?}");
    assert_eq!(ground.mover.copies_up(), 3, "once each");
    assert_eq!(up.await.blocks.len(), 0);
}
