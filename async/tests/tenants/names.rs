//! Names and numbers: as many tenants at once as the settings say, and any number over a manager's life.

use crate::gated::Ground;
use crate::ground::{build, compute, hashes, rest, settings};
use crate::sequence;
use kvstrata::config::{ManagerConfigBuilder, TenantSettings};
use kvstrata::manager::{KvBlockManager, Purge, TenantError, Tiers};
use kvstrata::tier::Tier;
use std::time::Duration;

#[tokio::test]
async fn name_has_one_number_up_to_the_limit() {
    let manager = build(settings(4, 0));
    let first = manager.tenant("a").expect("few tenants");
    assert_eq!(manager.tenant("a").expect("known").tenant_id(), first.tenant_id());
    assert_ne!(manager.tenant("b").expect("few tenants").tenant_id(), first.tenant_id());
    assert_eq!(manager.tenant("").expect_err("no name"), TenantError::Empty);
    let others: Vec<Tiers> = (1..4095)
        .map(|number| manager.tenant(&number.to_string()).expect("as many as there may be"))
        .collect();
    let error = manager.tenant("one more").expect_err("too many");
    assert_eq!(
        error.to_string(),
        "tenant \"one more\": all quota.tenants = 4095 are in use; purge one and drop its handles, or raise quota.tenants"
    );
    assert_eq!(manager.tenant("a").expect("known").tenant_id(), first.tenant_id());
    drop(others);
    assert_ne!(manager.tenant("one more").expect("the others are gone").tenant_id(), first.tenant_id());
}

/// More names than there are numbers, one after another; each leaves nothing, and the next finds nothing.
#[tokio::test]
async fn names_beyond_the_limit_come_and_go() {
    let manager = build(settings(16, 16).quota_tenants(3).quota_device(0.25));
    let stays = manager.tenant("stays").expect("room");
    let its = sequence(&stays, 1, 3);
    let held = compute(&stays, &its, None).await;
    for number in 0..500 {
        let tenant = manager.tenant(&format!("tenant {number}")).expect("the last ones are gone");
        assert_ne!(tenant.tenant_id(), stays.tenant_id());
        assert_eq!(Tier::OF_SETTINGS.map(|tier| tenant.usage(tier).blocks), [0; 3], "{number}");
        let run = sequence(&tenant, 1, 4);
        assert_eq!(tenant.default_group().match_prefix(&run).len(), 0, "{number}");
        drop(compute(&tenant, &run, None).await);
        assert_eq!(tenant.usage(Tier::Device).blocks, 4, "its quota is whole");
        assert!(tenant.purge(Purge::default()).await.expect("open").complete);
    }
    assert_eq!((stays.usage(Tier::Device).blocks, held.len()), (3, 3));
    drop(held);
    assert_eq!(stays.default_group().match_prefix(&its).len(), 3);
}

/// Fills all numbers but one with tenants that have handles.
fn with_one_number_left(settings: ManagerConfigBuilder) -> (KvBlockManager, Tiers) {
    let manager = build(settings.quota_tenants(2));
    let stays = manager.tenant("stays").expect("room");
    (manager, stays)
}

/// Whether a new name gets a number.
fn has_room(manager: &Tiers) -> bool {
    manager.tenant("new").is_ok()
}

#[tokio::test]
async fn name_with_blocks_in_any_tier_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let tiers =
        settings(4, 4).disk_blocks(64).disk_paths(vec![folder.path().join("volume")]).host_headroom(0);
    let (manager, _stays) = with_one_number_left(tiers);
    let tenant = manager.tenant("tenant").expect("room");
    let run = sequence(&tenant, 1, 4);
    drop(compute(&tenant, &run, None).await);
    drop(tenant);
    let fill = async |count| {
        drop(manager.default_group().allocate(count).await.expect("evictable"));
        rest(&manager).await;
    };
    assert!(!has_room(&manager), "blocks of the device");
    fill(4).await;
    assert!(!has_room(&manager), "blocks of the host");
    // Others' blocks drive them to the disk.
    for number in 1..3 {
        drop(compute(&manager, &hashes(number, 4), None).await);
        fill(4).await;
    }
    let again = manager.tenant("tenant").expect("known");
    assert_eq!(Tier::OF_SETTINGS.map(|tier| again.usage(tier).blocks), [0, 0, 4]);
    drop(again);
    assert!(!has_room(&manager), "blocks of the disk");
    let again = manager.tenant("tenant").expect("known");
    assert_eq!(again.default_group().match_prefix(&run).in_tier(Tier::DISK), 4, "the same tenant's");
    assert!(again.purge(Purge::default()).await.expect("open").complete);
    drop(again);
    assert!(has_room(&manager));
}

#[tokio::test]
async fn name_with_a_handle_of_any_kind_stays() {
    let (manager, _stays) = with_one_number_left(settings(8, 8));
    let tenant = manager.tenant("tenant").expect("room");
    let clone = tenant.clone();
    drop(tenant);
    assert!(!has_room(&manager), "a clone");
    let group = clone.group(0).expect("the only one");
    drop(clone);
    assert!(!has_room(&manager), "a group");
    let blocks = group.try_allocate(1).expect("free");
    let found = group.match_prefix(&[]);
    drop(group);
    assert!(!has_room(&manager), "blocks in hand, and a match");
    drop(blocks);
    assert!(!has_room(&manager), "a match, which may be brought up for the tenant yet");
    drop(found);
    assert!(has_room(&manager));
}

#[tokio::test]
async fn name_with_a_kept_hint_stays() {
    let (manager, _stays) = with_one_number_left(settings(4, 4));
    // Blocks that are not the tenant's, and cannot come up while the device has no room.
    let run = hashes(1, 2);
    drop(compute(&manager, &run, None).await);
    let full = manager.default_group().allocate(4).await.expect("evictable");
    rest(&manager).await;
    let tenant = manager.tenant("tenant").expect("room");
    let hint = tenant.default_group().prefetch(&run);
    drop(tenant);
    assert!(!has_room(&manager));
    drop((hint, full));
}

#[tokio::test]
async fn name_under_purge_stays() {
    let ground = Ground::of(settings(4, 4).quota_tenants(2), 4, 4);
    let _stays = ground.manager.tenant("stays").expect("room");
    let tenant = ground.manager.tenant("tenant").expect("room");
    let run = sequence(&tenant, 1, 2);
    drop(compute(&tenant, &run, None).await);
    ground.mover.close();
    let zero = Purge::default().zero(true).deadline(Duration::ZERO);
    assert!(!tenant.purge(zero).await.expect("open").complete, "its zeros wait for the mover");
    drop(tenant);
    assert!(!has_room(&ground.manager));
    ground.mover.open();
    while ground.manager.census().purges > 0 {
        tokio::task::yield_now().await;
    }
    assert!(has_room(&ground.manager));
}

#[tokio::test]
async fn names_of_the_settings_keep_their_numbers() {
    let named =
        |name: &str| TenantSettings { name: name.to_owned(), device: Some(0.5), ..TenantSettings::default() };
    let manager = build(settings(8, 0).quota_tenants(2).tenants([named("a"), named("b")]));
    assert!(manager.tenant("c").is_err(), "theirs are the only ones");
    assert_eq!(manager.tenant("b").expect("named").usage(Tier::Device).quota, Some(4));
}

/// Blocks found by a restart have a number without a name, which comes back like any other.
#[tokio::test]
async fn number_found_on_the_disk_comes_back_after_its_blocks() {
    let folder = tempfile::tempdir().expect("a folder");
    let of = || {
        build(
            settings(4, 4)
                .disk_blocks(16)
                .disk_paths(vec![folder.path().join("volume")])
                .host_headroom(0)
                .quota_tenants(3),
        )
    };
    let first = of();
    let tenant = first.tenant("found").expect("room");
    let run = sequence(&tenant, 1, 2);
    drop(compute(&tenant, &run, None).await);
    assert_eq!(tenant.default_group().persist(&run).await.copied, 2);
    drop(tenant);
    assert!(first.shutdown().await);
    drop(first);
    let second = of();
    let [_a, _b] = ["a", "b"].map(|name| second.tenant(name).expect("room"));
    assert!(!has_room(&second), "the third number is of what was found");
    let found = second.tenant("found").expect("its number");
    assert_eq!(found.usage(Tier::DISK).blocks, 2);
    assert!(found.purge(Purge::default()).await.expect("open").complete);
    drop(found);
    assert!(has_room(&second));
}
