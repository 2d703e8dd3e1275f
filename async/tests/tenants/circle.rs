//! Requests over several groups, of tenants at their quotas: no two requests wait for each other, and
//! none is charged for blocks that it does not get.

use crate::ground::{build, hashes, rest, settings};
use kvstrata::config::ManagerConfig;
use kvstrata::manager::{AllocateError, KvBlockManager, OnboardOptions, Purge, Tiers};
use kvstrata::tier::Tier;
use kvstrata::transfer::Cause;
use kvstrata_core::SequenceHash;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Long enough that only a request that waits for itself is late.
const PATIENCE: Duration = Duration::from_secs(3);
const SOON: Duration = Duration::from_millis(20);

/// Two groups of four device blocks and so many of the host. A tenant may have two device blocks of each
/// group.
fn two_groups(patience: Duration, host: u32) -> (KvBlockManager, Tiers) {
    let group = |layer| {
        format!(
            "[[group]]\nkind = \"full\"\nlayers = [{layer}]\npage_size = 16\nkv_heads = 1\nhead_size = 64\n"
        )
    };
    let text = format!("{}{}[geometry]\nlayers = 2\n", group(0), group(1));
    let settings = ManagerConfig::builder()
        .toml("groups.toml", text)
        .device_blocks(4)
        .host_blocks(host)
        .watermark_device(1.0)
        .watermark_host(1.0)
        .quota_device(0.5)
        .deadline_allocate(patience)
        .deadline_onboard(patience)
        .deadline_shutdown(SOON);
    let manager = build(settings);
    let tenant = manager.tenant("a").expect("few tenants");
    (manager, tenant)
}

fn look<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// The tenant has its quota of the first group. Requests without a tenant have the rest of that group,
/// and all of the second.
async fn crowded(manager: &Tiers, tenant: &Tiers) -> (impl Sized, impl Sized) {
    let own = tenant.group(0).expect("a group").allocate(2).await.expect("its quota");
    let [first, second] = [
        manager.group(0).expect("a group").allocate(2).await,
        manager.group(1).expect("a group").allocate(4).await,
    ];
    (own, [first.expect("free ones"), second.expect("free ones")])
}

#[tokio::test]
async fn allocation_held_in_one_group_queues_in_no_other() {
    let (manager, tenant) = two_groups(PATIENCE, 16);
    let (own, others) = crowded(&manager, &tenant).await;
    let mut held = pin!(tenant.allocate_groups(&[2, 2]).into_future());
    assert!(look(held.as_mut()).is_pending());
    let mut all = pin!(manager.allocate_groups(&[4, 4]).into_future());
    assert!(look(all.as_mut()).is_pending());
    assert_eq!(manager.census().waiting, 4);
    // All of the second group, and half of the first. The tenant has the other half.
    drop(others);
    assert!(look(held.as_mut()).is_pending() && look(all.as_mut()).is_pending());
    assert_eq!(tenant.usage(Tier::Device).blocks, 2, "nothing of the second group");
    drop(own);
    let all = all.await.expect("who holds half of one group waits for nobody who has the other");
    assert_eq!(all.iter().map(|blocks| blocks.len()).collect::<Vec<_>>(), [4, 4]);
    assert!(look(held.as_mut()).is_pending());
    drop(all);
    let held = held.await.expect("after that");
    assert_eq!(held.iter().map(|blocks| blocks.len()).collect::<Vec<_>>(), [2, 2]);
    drop(held);
    assert_eq!((tenant.usage(Tier::Device).blocks, manager.census().is_idle()), (0, true));
}

#[tokio::test]
async fn onboard_held_in_one_group_queues_in_no_other() {
    let (manager, tenant) = two_groups(PATIENCE, 16);
    let lists = [hashes(1, 2), hashes(1, 2)];
    for (group, list) in lists.iter().enumerate() {
        let blocks = tenant.group(group).expect("a group").allocate(2).await.expect("its quota");
        drop(blocks.register(list, None).expect("registered"));
        drop(manager.group(group).expect("a group").allocate(4).await.expect("all of them"));
    }
    rest(&manager).await;
    let lists: Vec<&[SequenceHash]> = lists.iter().map(Vec::as_slice).collect();
    let (own, others) = crowded(&manager, &tenant).await;
    let found = tenant.match_groups(&lists);
    assert_eq!((found.tokens(), found.is_ready()), (32, false));
    let held = tenant.onboard_groups(found, OnboardOptions::default()).expect("its quota");
    let mut all = pin!(manager.allocate_groups(&[4, 4]).into_future());
    assert!(look(all.as_mut()).is_pending());
    drop(others);
    drop(own);
    let all = all.await.expect("who holds half of one group waits for nobody who has the other");
    drop(all);
    let held = held.await;
    assert_eq!((held.tokens, held.missed), (32, None));
    drop(held);
    rest(&manager).await;
}

/// A run that shares a block with a run held at its quota comes behind that run. It waits for it, and
/// must hold no block that it lacks.
#[tokio::test]
async fn onboard_joining_a_held_run_is_held_behind_it() {
    let settings = settings(8, 32).quota_device(0.5).deadline_allocate(PATIENCE).deadline_onboard(PATIENCE);
    let manager = build(settings);
    let group = manager.default_group();
    let tenant = manager.tenant("a").expect("few tenants");
    let (theirs, others) = (hashes(1, 4), hashes(2, 5));
    let blocks = tenant.default_group().allocate(4).await.expect("its quota");
    drop(blocks.register(&theirs, None).expect("registered"));
    let blocks = group.allocate(5).await.expect("blocks");
    drop(blocks.register(&others, None).expect("registered"));
    drop(group.allocate(8).await.expect("all of them"));
    rest(&manager).await;
    let own = tenant.default_group().allocate(1).await.expect("its quota");
    let rest_of_all = group.allocate(2).await.expect("free ones");
    let first = tenant
        .default_group()
        .onboard(tenant.default_group().match_prefix(&theirs), OnboardOptions::default())
        .expect("its quota");
    let joined = [&theirs[..1], &others[..]].concat();
    let found = group.match_prefix(&joined);
    assert_eq!(found.len(), 6);
    let second = group.onboard(found, OnboardOptions::default()).expect("fits");
    assert_eq!((manager.census().waiting, manager.census().gathered), (2, 0), "there are five for it");
    drop((own, rest_of_all));
    let first = first.await;
    assert_eq!((first.blocks.len(), first.missed), (4, None));
    drop(first);
    let second = second.await;
    assert_eq!((second.blocks.len(), second.missed), (6, None));
    drop(second);
    rest(&manager).await;
}

/// A run of blocks of several tenants, without salts: it gets all of its credits together, too.
#[tokio::test]
async fn run_of_two_tenants_blocks_gets_all_credits_together() {
    let settings = settings(8, 32).quota_device(0.25).deadline_onboard(PATIENCE);
    let manager = build(settings);
    let group = manager.default_group();
    let tenants = ["a", "b"].map(|name| manager.tenant(name).expect("few tenants"));
    let lists = [hashes(1, 2), hashes(2, 2)];
    for (tenant, list) in tenants.iter().zip(&lists) {
        let blocks = tenant.default_group().allocate(2).await.expect("its quota");
        drop(blocks.register(list, None).expect("registered"));
    }
    drop(group.allocate(8).await.expect("all of them"));
    rest(&manager).await;
    // Each run has one block of each tenant, in another order.
    let own = tenants.each_ref().map(|tenant| tenant.default_group().try_allocate(2).expect("its quota"));
    let up = |hashes: [SequenceHash; 2]| {
        group.onboard(group.match_prefix(&hashes), OnboardOptions::default()).expect("fits")
    };
    let (first, second) = (up([lists[0][0], lists[1][0]]), up([lists[1][1], lists[0][1]]));
    let [of_a, of_b] = own;
    drop(of_a);
    let usage = || tenants.each_ref().map(|tenant| tenant.usage(Tier::Device).blocks);
    assert_eq!((usage(), manager.census().waiting), ([0, 2], 4), "none for half of a run");
    drop(of_b);
    for up in [first, second] {
        let up = up.await;
        assert_eq!((up.blocks.len(), up.missed), (2, None));
    }
    rest(&manager).await;
}

#[tokio::test]
async fn request_held_in_one_group_evicts_in_no_other() {
    let (manager, tenant) = two_groups(PATIENCE, 0);
    let kept = hashes(1, 2);
    let blocks = tenant.group(0).expect("a group").allocate(2).await.expect("its quota");
    drop(blocks.register(&kept, None).expect("registered"));
    let own = tenant.group(1).expect("a group").allocate(2).await.expect("its quota");
    let mut held = pin!(tenant.allocate_groups(&[2, 1]).into_future());
    assert!(look(held.as_mut()).is_pending());
    let there = || tenant.group(0).expect("two").match_prefix(&kept).in_tier(Tier::Device);
    assert_eq!(there(), 2);
    // A later request of the same tenant comes later in each of its groups; others pass.
    let first = tenant.group(0).expect("two");
    let mut behind = pin!(first.allocate(1).into_future());
    assert!(look(behind.as_mut()).is_pending());
    assert_eq!(manager.allocate_groups(&[2, 2]).await.expect("free ones").len(), 2);
    assert_eq!(there(), 2);
    drop(own);
    assert_eq!(held.await.expect("in time").len(), 2);
    assert_eq!(there(), 0);
    assert_eq!(behind.await.expect("what the first has given back").len(), 1);
}

/// Late, dropped, purged or shut down: the request has one answer, and leaves nothing in any group.
#[tokio::test]
async fn request_held_for_several_groups_ends_and_leaves_nothing() {
    let left =
        |manager: &Tiers, tenant: &Tiers| (manager.census().waiting, tenant.usage(Tier::Device).blocks);
    for which in 0..4 {
        let (manager, tenant) = two_groups(if which == 0 { SOON } else { PATIENCE }, 16);
        let (own, _others) = crowded(&manager, &tenant).await;
        let mut held = Box::pin(tenant.allocate_groups(&[2, 2]).into_future());
        assert!(look(held.as_mut()).is_pending());
        assert_eq!(left(&manager, &tenant), (2, 2));
        match which {
            0 => {
                let late = held.await.expect_err("nothing was given back");
                let AllocateError::Deadline { requested: 2, ahead: 0, .. } = late else { panic!("{late}") };
                assert_eq!(manager.stats().late, 1);
            }
            1 => drop(held),
            2 => {
                let _purge = tenant.purge(Purge::default());
                let answer = held.await;
                assert!(matches!(answer, Err(AllocateError::Purging)), "{answer:?}");
            }
            _ => {
                manager.shutdown().await;
                let answer = held.await;
                assert!(matches!(answer, Err(AllocateError::Closed)), "{answer:?}");
            }
        }
        assert_eq!(left(&manager, &tenant), (0, 2), "{which}");
        drop(own);
        assert_eq!(left(&manager, &tenant), (0, 0), "{which}");
    }
    // The same for an onboarding.
    let (manager, tenant) = two_groups(PATIENCE, 16);
    let list = hashes(1, 2);
    for group in 0..2 {
        let blocks = tenant.group(group).expect("a group").allocate(2).await.expect("its quota");
        drop(blocks.register(&list, None).expect("registered"));
        drop(manager.group(group).expect("a group").allocate(4).await.expect("all of them"));
    }
    rest(&manager).await;
    let (own, _others) = crowded(&manager, &tenant).await;
    let up = || {
        let found = tenant.match_groups(&[&list[..], &list[..]]);
        let options = OnboardOptions::default().deadline(Duration::from_millis(10));
        tenant.onboard_groups(found, options).expect("its quota")
    };
    let late = up().await;
    assert_eq!((late.tokens, late.missed), (0, Some(Cause::Deadline)));
    drop(up());
    assert_eq!(left(&manager, &tenant), (0, 2));
    drop(own);
    rest(&manager).await;
}
