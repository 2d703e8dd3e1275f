//! One process after another over one disk: written blocks are there, and still their owners'. Slots may
//! be given back while the disk has no room to forget their blocks.

use crate::content;
use crate::directed::play;
use crate::drops::{believe, compute, grounds, sequence};
use crate::patience::pass;
use crate::settings::Settings;
use crate::sim::ALWAYS;
use crate::world::World;
use kvstrata_core::storage::DevicePort;
use kvstrata_core::{BlockId, SequenceHash};
use kvstrata_tiers::Tier;
use kvstrata_tiers::transfer::TierPort;
use kvstrata_tiers::{OnboardOptions, Purge, Tiers};
use std::rc::Rc;
use std::time::Duration;

/// Over a disk of two volumes, without a host.
fn ground() -> Settings {
    let mut settings = grounds().nth(1).expect("over a disk alone");
    settings.volumes = 2;
    settings
}

async fn persisted(world: &Rc<World>, tenant: &Tiers, which: u64, blocks: usize) -> Vec<SequenceHash> {
    let hashes = sequence(which, blocks);
    drop(compute(world, tenant, &hashes).await);
    assert_eq!(tenant.default_group().persist(&hashes).await.copied, blocks);
    world.books.borrow_mut().registered(which, &hashes);
    hashes
}

#[test]
fn restart_finds_written_blocks_and_their_owners() {
    play(ground(), |world, manager| async move {
        let [a, b] = [1, 2].map(|number| world.tenant(number));
        let (of_a, of_b) = (persisted(&world, &a, 1, 3).await, persisted(&world, &b, 2, 2).await);
        assert!(world.shut_down_now().await);
        drop((manager, a, b));
        let next = world.restarted().expect("over a disk");
        let [b, a] = [2, 1].map(|number| next.tenant(number));
        assert_eq!([&a, &b].map(|tenant| tenant.usage(Tier::DISK).blocks), [3, 2]);
        let up = a
            .default_group()
            .onboard(a.default_group().match_prefix(&of_a), OnboardOptions::default())
            .expect("fits")
            .await;
        assert_eq!(up.blocks.len(), 3);
        believe(&next, up.blocks.ids(), &of_a, next.settings.block_bytes());
        drop(up);
        let purged = a.purge(Purge::default()).await.expect("open");
        assert_eq!((purged.of(Tier::DISK).purged, purged.failed, purged.complete), (3, 0, true));
        let disk = next.disk.as_ref().expect("over a disk");
        assert_eq!(disk.left(), of_b.iter().map(|hash| hash.to_u128()).collect(), "by a third one");
        next.rest().await;
        assert_eq!(next.books.borrow().violations, [""; 0]);
    });
}

#[test]
fn unforgotten_slots_are_unowned_and_a_purge_forgets_them() {
    play(ground(), |world, _| async move {
        let a = world.tenant(1);
        let disk = world.disk.as_ref().expect("over a disk");
        disk.change(|plan| {
            (plan.full, plan.latency) = (ALWAYS, Duration::from_secs(5)..Duration::from_secs(6))
        });
        let none = compute(&world, &a, &[]).await;
        let (partial, of) = (a.default_group().allocate(1).await.expect("free"), sequence(7, 1)[0]);
        world.partial(of);
        let bytes = content::bytes_of(of, world.settings.block_bytes());
        world.device.copy_in(partial.ids()[0].0, 0, &bytes).expect("in range");
        let mut preempted = a.default_group().preempt(none, partial, 1).expect("one manager");
        assert_eq!(preempted.settled().await.copied, 1);
        let free = disk.pool().free();
        drop(preempted);
        while disk.unforgotten().0 == 0 {
            pass(Duration::from_millis(1)).await;
        }
        assert_eq!((disk.unforgotten(), disk.pool().free(), disk.left().len()), ((1, true), free, 1));
        assert_eq!(a.usage(Tier::DISK).blocks, 0, "nor its tenant's");
        let purged = a.purge(Purge::default()).await.expect("open");
        assert_eq!((purged.complete, purged.failed), (true, 0));
        assert_eq!((disk.unforgotten(), disk.pool().free(), disk.left().len()), ((0, false), free + 1, 0));
    });
}

/// The other volume goes on.
#[test]
fn write_to_a_lost_volume_goes_to_another() {
    play(ground(), |world, manager| async move {
        let disk = world.disk.as_ref().expect("over a disk");
        let hashes = sequence(1, 2);
        let held = compute(&world, &manager, &hashes).await;
        disk.gate().hold();
        let persisted = kvstrata_testing::virtual_time::spawn_local({
            let (manager, hashes) = (manager.clone(), hashes.clone());
            async move { manager.default_group().persist(&hashes).await }
        });
        while disk.pool().census().owned < 2 || world.manager().census().moving < 2 {
            pass(Duration::from_millis(1)).await;
        }
        disk.lose_volume_of(BlockId(0));
        disk.gate().open();
        assert_eq!(persisted.await.expect("no panic").copied, 2);
        assert!(hashes.iter().all(|hash| disk.has(*hash)));
        drop(held);
    });
}
