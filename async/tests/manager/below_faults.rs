//! Several tiers below host memory, where one fails, is away or is slow: the blocks that this
//! costs, and those that it does not.

use super::below::{
    HOST, SHUTDOWN, bring_up, fill, manager, manager_and_mover, pass, quick, quick_disk, rest,
};
use crate::ground::{BYTES, compute, hashes};
use crate::sim::{Remote, SimDisk, Weather};
use kvstrata::manager::{KvBlockManager, OffloadOptions, Offloaded, Purge, TierParts};
use kvstrata::transfer::{
    Cause, Extras, Failure, Landed, Path, Reserve, TierFacts, TierPort, TierRead, TierWrite,
};
use kvstrata_core::{BlockId, BlockPool, BlockRef, ImmutableBlock, SequenceHash};
use kvstrata_tiers::Tier;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The port's answer to a failed write is its last use of the slot. The block goes on to the next tier,
/// and its tenant no longer pays for the slot.
#[tokio::test(start_paused = true)]
async fn slot_of_failed_write_is_unowned_when_the_block_goes_on() {
    let fails = Weather { fails: 1000, ..Weather::fair(1) };
    let remote = Arc::new(Remote::new(32, BYTES, fails));
    let manager = manager(vec![
        TierParts::new("remote", Arc::<Remote>::clone(&remote)),
        TierParts::new("disk", quick_disk(32)),
    ]);
    let tenant = manager.tenant("a").expect("few tenants");
    let of = hashes(1, 4);
    drop(compute(&tenant, &of, None).await);
    assert_eq!(tenant.default_group().persist(&of).await.copied, 4, "the disk takes them");
    rest(&manager).await;
    let used = |number| tenant.usage(Tier::Below(number)).blocks;
    assert_eq!([used(0), used(1)], [0, 4]);
}

/// Blocks that the first tier has taken are neither lost nor failed when the next tier fails.
#[tokio::test(start_paused = true)]
async fn block_in_one_tier_is_not_lost_when_the_next_fails() {
    let fails = Weather { fails: 1000, ..Weather::fair(1) };
    let manager = manager(vec![
        TierParts::new("disk", quick_disk(64)),
        TierParts::new("remote", Arc::new(Remote::new(64, BYTES, fails))),
    ]);
    let group = manager.group(0).expect("the first");
    for sequence in 1..=3 {
        let of = hashes(sequence, 4);
        drop(compute(&manager, &of, None).await);
        let down = group.persist(&of).await;
        assert_eq!((down.copied + down.there, down.failed), (4, 0), "{down:?}");
    }
    // Victims of the device, and of the host.
    for sequence in 10..14 {
        drop(compute(&manager, &hashes(sequence, 4), None).await);
        rest(&manager).await;
    }
    drop(manager.default_group().allocate(4).await.expect("evictable"));
    rest(&manager).await;
    let stats = manager.stats();
    assert!(stats.path(Path::ToBelow(1)).failed.iter().sum::<u64>() > 0, "{stats:?}");
    assert_eq!(stats.dropped, [0, 0], "the disk has them");
    let again = group.persist(&hashes(1, 4)).await;
    assert_eq!((again.there, again.failed, again.refused), (4, 0, 0), "they are down");
}

/// A port that frees the slot of a failing write some time before it answers.
#[derive(Debug)]
struct Hasty {
    of: Arc<Remote>,
    cause: Cause,
    /// Writes that are still to fail.
    left: AtomicU32,
    answers: Mutex<Vec<TierWrite>>,
}

impl Hasty {
    fn answer(&self) {
        for write in self.answers.lock().expect("no panic").drain(..) {
            write.landing.land(Landed::Write(write.token, Err(Failure::of(self.cause))));
        }
    }
}

impl TierPort for Hasty {
    fn pool(&self) -> &BlockPool {
        self.of.pool()
    }

    fn facts(&self) -> TierFacts {
        self.of.facts()
    }

    fn find(&self, hash: SequenceHash, uses: bool) -> Option<ImmutableBlock<'_>> {
        self.of.find(hash, uses)
    }

    fn reserve(&self, which: Reserve, slots: &mut Vec<BlockId>) {
        self.of.reserve(which, slots);
    }

    fn read(&self, read: TierRead) {
        self.of.read(read);
    }

    fn write(&self, write: TierWrite) {
        if self.left.load(Relaxed) == 0 {
            return self.of.write(write);
        }
        self.left.fetch_sub(1, Relaxed);
        self.of.release(write.slot);
        self.answers.lock().expect("no panic").push(write);
    }

    fn release(&self, slot: BlockId) {
        self.of.release(slot);
    }

    fn forget(&self, block: BlockRef) {
        self.of.forget(block);
    }

    fn extras(&self) -> Extras<'_> {
        self.of.extras()
    }
}

/// The slot of a failed write is free before the failure is known. Another tenant's block that takes the
/// slot meanwhile keeps it, and that tenant's purge finds it.
#[tokio::test(start_paused = true)]
async fn slot_reused_before_failed_write_answers_keeps_its_owner() {
    for cause in [Cause::Away, Cause::Lost, Cause::Tier] {
        for next in [false, true] {
            let of = Arc::new(Remote::new(1, BYTES, Weather::fair(1)));
            let hasty = Arc::new(Hasty { of, cause, left: AtomicU32::new(1), answers: Mutex::default() });
            let mut below = vec![TierParts::new("hasty", Arc::<Hasty>::clone(&hasty))];
            below.extend(next.then(|| TierParts::new("disk", quick_disk(32))));
            let manager = manager(below);
            let [a, b] = ["a", "b"].map(|name| manager.tenant(name).expect("few tenants"));
            let (of_a, of_b) = (hashes(1, 4), hashes(2, 4));
            drop(compute(&a, &of_a[..1], None).await);
            let persisted = tokio::spawn({
                let (a, of_a) = (a.clone(), of_a.clone());
                async move { a.default_group().persist(&of_a[..1]).await }
            });
            while hasty.answers.lock().expect("no panic").is_empty() {
                pass(Duration::from_millis(1)).await;
            }
            drop(compute(&b, &of_b[..1], None).await);
            let other = tokio::spawn({
                let (b, of_b) = (b.clone(), of_b.clone());
                async move { b.default_group().persist(&of_b[..1]).await }
            });
            while manager.census().down < 2 || manager.stats().path(Path::DeviceToHost).transfers < 2 {
                pass(Duration::from_millis(1)).await;
            }
            assert_eq!(b.usage(Tier::Below(0)).blocks, 1, "{cause:?}: its write is under way");
            hasty.answer();
            let down = other.await.expect("no panic");
            assert_eq!(down.copied, 1, "{cause:?}: {down:?}");
            let _ = persisted.await.expect("no panic");
            rest(&manager).await;
            let there = hasty.pool().contains(of_b[0]);
            assert_eq!((b.usage(Tier::Below(0)).blocks, there), (1, true), "{cause:?}, {next}");
            let purged = b.purge(Purge::default()).await.expect("open");
            assert!(purged.complete && !hasty.pool().contains(of_b[0]), "{cause:?}, {next}: {purged:?}");
        }
    }
}

/// A tier that does not answer just now keeps its blocks. Those that another tier has too come up from there.
#[tokio::test(start_paused = true)]
async fn blocks_of_an_away_store_come_up_from_the_next_tier() {
    let away =
        Weather { there: Some([Duration::from_secs(100), Duration::from_secs(3600)]), ..Weather::fair(1) };
    let remote = Arc::new(Remote::new(64, BYTES, away));
    let manager = manager(vec![
        TierParts::new("remote", Arc::<Remote>::clone(&remote)),
        TierParts::new("disk", quick_disk(64)),
    ]);
    let all = fill(&manager, 3).await;
    tokio::time::advance(Duration::from_secs(100)).await;
    bring_up(&manager, &all[0], Tier::Below(0)).await;
    let stats = manager.stats();
    assert_eq!([0, 1].map(|number| stats.onboarded_from(Tier::Below(number))), [0, 4]);
    assert_eq!(stats.path(Path::FromBelow(0)).failed_by(Cause::Away), 4);
    assert!(all[0].iter().all(|hash| remote.pool().contains(*hash)), "it may have them still");
    rest(&manager).await;
    assert_eq!(remote.pool().census().active, 0, "nobody holds them");
}

/// Writes of victims find out that a store is back.
#[tokio::test(start_paused = true)]
async fn store_back_from_away_gets_victims_again() {
    let away = Weather { there: Some([Duration::from_secs(2), Duration::from_secs(20)]), ..Weather::fair(1) };
    let remote = Arc::new(Remote::new(1024, BYTES, away));
    let manager = manager(vec![
        TierParts::new("disk", quick_disk(1024)),
        TierParts::new("remote", Arc::<Remote>::clone(&remote)),
    ]);
    for sequence in 1..2000 {
        drop(compute(&manager, &hashes(sequence, 4), None).await);
        pass(Duration::from_millis(20)).await;
    }
    let events = remote.events();
    assert!(events.written > 0 && events.away > 10 && events.back > 10, "{events:?}");
    assert_eq!(manager.stats().dropped, [0, 0]);
}

/// Bytes that have rotted in host memory take no other block's place.
#[tokio::test(start_paused = true)]
async fn rotten_host_block_takes_no_place_in_lower_tiers() {
    let second = quick_disk(4);
    let (manager, mover) = manager_and_mover(vec![
        TierParts::new("one", quick_disk(4)),
        TierParts::new("other", Arc::<SimDisk>::clone(&second)),
    ]);
    let (kept, rotten) = (hashes(1, 4), hashes(2, 4));
    drop(compute(&manager, &kept, None).await);
    assert_eq!(manager.default_group().persist(&kept).await.copied, 4);
    drop(compute(&manager, &rotten, None).await);
    // To the host, and no further.
    let blocks = manager.default_group().match_device(&rotten);
    manager.default_group().offload(&blocks, OffloadOptions::default()).await;
    drop(blocks);
    rest(&manager).await;
    (0..HOST).for_each(|block| _ = mover.rot(block, 1));
    let down = manager.default_group().persist(&rotten).await;
    assert_eq!((down.failed, down.cause), (4, Some(Cause::Mismatch)), "{down:?}");
    rest(&manager).await;
    assert!(kept.iter().all(|hash| second.has(*hash)), "they were there before");
    assert_eq!(manager.stats().path(Path::ToBelow(1)).failed_by(Cause::Mismatch), 0);
}

/// Starts to persist a tenant's four blocks, and returns while the first tier holds their writes back.
async fn one_waits(manager: &KvBlockManager, first: &SimDisk) -> tokio::task::JoinHandle<Offloaded> {
    first.gate().hold();
    let of = hashes(1, 4);
    let tenant = manager.tenant("a").expect("few tenants");
    drop(compute(&tenant, &of, None).await);
    let asked = tokio::spawn(async move { tenant.default_group().persist(&of).await });
    while manager.metrics().paths[Path::ToBelow(0).index()].inflight < 4 {
        pass(Duration::from_millis(1)).await;
    }
    asked
}

/// A block in flight to one tier when its purge begins goes to no further tier.
#[tokio::test(start_paused = true)]
async fn block_purged_during_write_goes_to_no_further_tier() {
    let [first, second] = [16, 16].map(quick_disk);
    let manager = manager(vec![
        TierParts::new("one", Arc::<SimDisk>::clone(&first)),
        TierParts::new("other", Arc::<SimDisk>::clone(&second)),
    ]);
    let asked = one_waits(&manager, &first).await;
    let tenant = manager.tenant("a").expect("few tenants");
    let purge = tokio::spawn(async move { tenant.purge(Purge::default()).await });
    while manager.census().purges == 0 {
        pass(Duration::from_millis(1)).await;
    }
    first.gate().open();
    let purged = purge.await.expect("no panic").expect("open");
    assert!(purged.complete, "{purged:?}");
    asked.await.expect("no panic");
    assert_eq!([first.counts().written, second.counts().written], [4, 0]);
    assert!(first.left().is_empty() && second.left().is_empty());
}

/// A block in flight to one tier when the manager closes goes to no further tier, which the
/// shutdown would have to wait for.
#[tokio::test(start_paused = true)]
async fn block_in_flight_at_shutdown_goes_to_no_further_tier() {
    let [first, second] = [16, 16].map(quick_disk);
    let manager = manager(vec![
        TierParts::new("one", Arc::<SimDisk>::clone(&first)),
        TierParts::new("other", Arc::<SimDisk>::clone(&second)),
    ]);
    let asked = one_waits(&manager, &first).await;
    let closing = manager.clone();
    let shutdown = tokio::spawn(async move { closing.shutdown().await });
    // Half of the deadline is for transfers that have begun and wait.
    pass(SHUTDOWN * 3 / 4).await;
    first.gate().open();
    assert!(!shutdown.await.expect("no panic"), "not all of it was moved");
    assert_eq!(asked.await.expect("no panic").copied, 4, "the first has them");
    assert_eq!([first.counts().written, second.counts().written], [4, 0]);
}

/// A lower tier has given a tenant's slots to another tenant's transfers, which have not written them
/// yet. A purge of the former tenant takes these slots, and none of another tier.
#[tokio::test(start_paused = true)]
async fn purge_takes_unwritten_slots_of_their_tier_only() {
    let (first, second) = (quick_disk(16), Arc::new(SimDisk::with_at_once(4, BYTES, quick(), 1)));
    let manager = manager(vec![
        TierParts::new("one", Arc::<SimDisk>::clone(&first)),
        TierParts::new("other", Arc::<SimDisk>::clone(&second)),
    ]);
    let [a, b] = ["a", "b"].map(|name| manager.tenant(name).expect("few tenants"));
    let [of_a, of_b] = [1, 2].map(|sequence| hashes(sequence, 4));
    drop(compute(&b, &of_b, None).await);
    assert_eq!(b.default_group().persist(&of_b).await.copied, 4);
    assert!(of_b.iter().all(|hash| second.has(*hash)));
    second.gate().hold();
    drop(compute(&a, &of_a, None).await);
    let asked = tokio::spawn({
        let (a, of_a) = (a.clone(), of_a.clone());
        async move { a.default_group().persist(&of_a).await }
    });
    while manager.metrics().paths[Path::ToBelow(1).index()].queued.iter().sum::<u64>() < 3 {
        pass(Duration::from_millis(1)).await;
    }
    let purge = tokio::spawn(async move { b.purge(Purge::default()).await });
    while manager.census().purges == 0 {
        pass(Duration::from_millis(1)).await;
    }
    second.gate().open();
    let purged = purge.await.expect("no panic").expect("open");
    assert!(purged.complete && purged.failed == 0, "{purged:?}");
    assert_eq!(asked.await.expect("no panic").copied, 4, "the first has them");
    rest(&manager).await;
    assert!(of_b.iter().all(|hash| !first.has(*hash) && !second.has(*hash)), "nothing of it is left");
    assert!(of_a.iter().all(|hash| first.has(*hash)), "nor is anything of another's gone");
    assert_eq!([&first, &second].map(|disk| disk.pool().census().owned), [0, 0]);
    assert_eq!([&first, &second].map(|disk| disk.counts().violations), [vec![], vec![]] as [Vec<String>; 2]);
}
