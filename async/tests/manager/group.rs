//! The calls for one group of layers: each group has blocks, tiers and bytes of its own.

use super::ground::{BYTES, bytes_of, hashes, rest};
use super::groups::{hybrid, sequence};
use kvstrata::OriginalNames;
use kvstrata::manager::{AllocateError, Blocks, Group, OnboardError, OnboardOptions};
use kvstrata::tier::Tier;
use kvstrata_core::{BlockId, SequenceHash};

/// As [`super::ground::compute`], for a group.
async fn compute(group: &Group, hashes: &[SequenceHash]) -> Blocks {
    let blocks = group.allocate(hashes.len()).await.expect("blocks");
    let port = group.device_port().expect("a simulated device");
    for (block, hash) in blocks.ids().iter().zip(hashes) {
        port.copy_in(block.0, 0, &bytes_of(*hash)).expect("in range");
    }
    blocks.register(hashes, None).expect("registered")
}

fn check(group: &Group, blocks: &Blocks, hashes: &[SequenceHash]) {
    assert_eq!(blocks.len(), hashes.len());
    let mut bytes = vec![0; BYTES];
    for (BlockId(block), hash) in blocks.ids().zip(hashes) {
        group.device_port().expect("a simulated device").copy_out(block, 0, &mut bytes).expect("in range");
        assert!(bytes == bytes_of(*hash), "{}: block {block} is not {hash:?}", group.name());
    }
}

/// The hashes of a sequence, different in each group, and so are the bytes.
fn apart(number: u64) -> [Vec<SequenceHash>; 3] {
    [0, 1, 2].map(|group| sequence(10 * number + group as u64)[group].clone())
}

#[tokio::test]
async fn hybrid_prefix_comes_back_with_the_bytes_of_each_group() {
    let manager = hybrid("disk.blocks = 64\n");
    let of = apart(1);
    let groups: Vec<Group> = (0..3).map(|group| manager.group(group).expect("three")).collect();
    for (group, hashes) in groups.iter().zip(&of) {
        drop(compute(group, hashes).await);
    }
    // Other sequences need the room of the device and of the host.
    for others in 2..7 {
        for (index, group) in groups.iter().enumerate() {
            drop(compute(group, &hashes(10 * others + index as u64, 40)).await);
            rest(&manager).await;
        }
    }
    let lists: Vec<&[SequenceHash]> = of.iter().map(Vec::as_slice).collect();
    let found = manager.match_groups(&lists);
    assert_eq!(found.tokens(), 256);
    assert!(found.groups().iter().all(|group| group.found.in_tier(Tier::Device) == 0), "{found:?}");
    let up = manager.onboard_groups(found, OnboardOptions::default()).expect("fits").await;
    assert_eq!((up.tokens, up.missed), (256, None));
    for ((group, hashes), (first, blocks)) in groups.iter().zip(&of).zip(&up.groups) {
        check(group, blocks, &hashes[*first..]);
    }
}

#[tokio::test]
async fn group_has_all_calls_of_the_manager() {
    let manager = hybrid("disk.blocks = 64\nprefetch.blocks = 16\n");
    assert!(manager.group(3).is_none() && manager.group(usize::MAX).is_none());
    let names: Vec<String> =
        (0..3).map(|group| manager.group(group).expect("three").name().to_owned()).collect();
    assert_eq!(names, ["full", "window", "state"]);
    for number in 0..3 {
        let group = manager.group(number).expect("three");
        let all = hashes(number as u64 + 1, 8);
        assert_eq!(
            (group.number(), group.capacity(Tier::Device), group.capacity(Tier::Host)),
            (number, 64, 128)
        );
        assert_eq!((group.available(Tier::Device), group.available(Tier::Host)), (64, 128));
        let error = group.allocate(65).await.expect_err("more than there are");
        assert_eq!(error, AllocateError::TooMany { requested: 65, capacity: 64 });
        drop(compute(&group, &all).await);
        assert_eq!(group.pool_stats(Tier::Device).stored, 8);
        assert!(group.touch(all[0]) && !group.touch(hashes(9, 1)[0]));
        check(&group, &group.match_device(&all), &all);
        let down = group.persist(&all).await;
        assert_eq!((down.copied, down.failed, down.refused), (8, 0, 0), "{down:?}");
        assert_eq!(group.pool_stats(Tier::DISK).stored, 8);
        let evict = async || {
            drop(group.allocate(64).await.expect("all of them"));
            rest(&manager).await;
            assert_eq!(group.match_prefix(&all).in_tier(Tier::Device), 0);
        };
        evict().await;
        let up = group.restore_to_gpu(&all).await.expect("fits");
        check(&group, &up.blocks, &all);
        drop(up);
        evict().await;
        group.prefetch(&all).detach();
        rest(&manager).await;
        let found = group.match_prefix(&all);
        assert_eq!(found.in_tier(Tier::Device), 8);
        check(&group, found.device(), &all);
        drop(found);
        let one = group.allocate(1).await.expect("a block");
        assert_eq!((one.group(), group.try_allocate(64).is_none()), (number, true));
        drop(one);
        assert_eq!(group.try_allocate(64).expect("all of them").len(), 64);
    }
    // No other group has them.
    let window = manager.group(1).expect("three");
    assert!(window.match_prefix(&hashes(1, 8)).is_empty());
    let found = window.match_prefix(&hashes(2, 8));
    let other = hybrid("");
    let error =
        other.group(1).expect("three").onboard(found, OnboardOptions::default()).expect_err("foreign");
    assert_eq!(error, OnboardError::Foreign);
}

#[tokio::test]
async fn group_of_a_tenant_has_the_tenants_quota() {
    let manager = hybrid("quota.device = 0.25\n");
    let tenant = manager.tenant("a").expect("few tenants");
    let window = tenant.group(1).expect("three");
    let error = window.allocate(17).await.expect_err("more than its quota");
    assert_eq!(error, AllocateError::Quota { requested: 17, quota: 16, capacity: 64 });
    let held = compute(&window, &hashes(1, 16)).await;
    assert_eq!(tenant.usage(Tier::Device).blocks, 16);
    assert_eq!(manager.group(1).expect("three").allocate(40).await.expect("nobody's quota").len(), 40);
    drop(held);
}
