//! Several tiers below host memory, one behind the other, of one kind or of different kinds.

use crate::ground::{BYTES, bytes_of, check, compute, hashes, settings};
use crate::sim::{Plan, Remote, SimDisk, SimMover, Weather};
use crate::time::{Instant, sleep_until};
use kvstrata::manager::{KvBlockManager, Needs, OnboardOptions, Parts, StackParts, TierParts};
use kvstrata::memory::MemoryTier;
use kvstrata::transfer::{HostMemory, Path, TierPort};
use kvstrata_core::{PoolConfig, SequenceHash};
use kvstrata_ffi::device::SimDevice;
use kvstrata_tiers::Tier;
use std::sync::Arc;
use std::time::Duration;

const DEVICE: u32 = 4;
pub const HOST: u32 = 4;
pub const SHUTDOWN: Duration = Duration::from_secs(8);

pub fn manager(below: Vec<TierParts>) -> KvBlockManager {
    manager_and_mover(below).0
}

pub fn manager_and_mover(below: Vec<TierParts>) -> (KvBlockManager, Arc<SimMover>) {
    let layers = [BYTES];
    let memory = HostMemory::new(HOST as usize + 2, &layers).expect("memory");
    let device = Arc::new(SimDevice::with_layers(0, DEVICE as usize, &layers).expect("memory"));
    let mover = Arc::new(SimMover::new(Arc::clone(&device), Arc::clone(&memory), quick()));
    let stack = StackParts {
        name: "all".to_owned(),
        device: PoolConfig::new(DEVICE),
        port: Some(device),
        mover: Arc::<SimMover>::clone(&mover),
        memory: Some(memory),
        host: Some(PoolConfig::new(HOST)),
        below,
        block_bytes: BYTES as u64,
        layers: 1,
        needs: Needs::All { page: 16 },
        linked: [false; 2],
        ahead_first: [false; 2],
    };
    let parts =
        Parts { stacks: vec![stack], runtime: tokio::runtime::Handle::current(), own: None, names: None };
    let settings = settings(DEVICE, HOST).deadline_shutdown(SHUTDOWN).build().expect("settings");
    (KvBlockManager::of_parts(&settings, parts).expect("they fit"), mover)
}

pub fn pageable(blocks: u32) -> Arc<MemoryTier> {
    Arc::new(MemoryTier::new(PoolConfig::new(blocks), BYTES, 1).expect("memory and a thread"))
}

pub fn quick() -> Plan {
    Plan { latency: Duration::ZERO..Duration::from_millis(1), ..Plan::calm(1) }
}

pub fn quick_disk(blocks: u32) -> Arc<SimDisk> {
    Arc::new(SimDisk::new(blocks, BYTES, quick()))
}

/// Lets so much time pass; virtual time passes at once.
pub async fn pass(time: Duration) {
    sleep_until(Instant::now() + time).await;
}

/// Waits until the manager is idle; virtual time passes meanwhile.
pub async fn rest(manager: &KvBlockManager) {
    while !manager.census().is_idle() {
        pass(Duration::from_millis(1)).await;
    }
}

/// Computes sequences of as many blocks as the device has, and persists each.
pub async fn fill(manager: &KvBlockManager, sequences: u64) -> Vec<Vec<SequenceHash>> {
    let group = manager.group(0).expect("the first");
    let mut all = Vec::new();
    for sequence in 1..=sequences {
        let of = hashes(sequence, u64::from(DEVICE));
        drop(compute(manager, &of, None).await);
        assert_eq!(group.persist(&of).await.copied, of.len(), "of sequence {sequence}");
        all.push(of);
    }
    rest(manager).await;
    all
}

/// Checks that tier `from` has the whole sequence, onboards it, and checks the bytes.
pub async fn bring_up(manager: &KvBlockManager, of: &[SequenceHash], from: Tier) {
    let group = manager.group(0).expect("the first");
    let found = group.match_prefix(of);
    assert_eq!((found.len(), found.in_tier(from)), (of.len(), of.len()), "{found:?}");
    let up = group.onboard(found, OnboardOptions::default()).expect("they fit").await;
    assert_eq!(up.missed, None);
    check(manager, &up.blocks, of);
}

/// Pinned, then pageable host memory, as the reference draws it: blocks for which the pinned tier has no
/// room come up from the pageable one.
#[tokio::test]
async fn pageable_tier_serves_blocks_that_the_pinned_tier_lacks() {
    let manager = manager(vec![TierParts::new("pageable", pageable(32))]);
    let tier = manager.tier("pageable").expect("a tier of this name");
    assert_eq!((manager.tier_name(tier), manager.tier("disk")), ("pageable", None));
    let all = fill(&manager, 4).await;
    bring_up(&manager, &all[0], tier).await;
    bring_up(&manager, &all[1], tier).await;
    assert_eq!(manager.stats().onboarded_from(tier), 2 * u64::from(DEVICE));
    let text = manager.metrics().to_prometheus();
    for line in [
        "kvstrata_tier_blocks{tier=\"pageable\",group=\"all\"} 32",
        "kvstrata_onboarded_blocks_total{tier=\"pageable\"} 8",
        "kvstrata_transfers_total{path=\"pageable_to_device\"} 8",
        "kvstrata_transfers_total{path=\"host_to_pageable\"} 16",
        "kvstrata_hit_blocks_total{group=\"all\",tier=\"pageable\"} 8",
    ] {
        assert!(text.lines().any(|of| of == line), "{line}\n{text}");
    }
    assert!(!text.contains("tier=\"disk\"") && !text.contains("host_to_disk"), "no such tier: {text}");
    let said = manager.describe();
    assert!(said.contains("pageable memory, 32 blocks"), "{said}");
}

/// Pageable memory, a disk and a remote store, each larger than the one above. A block is written to all
/// three, and comes up from the first that still has it.
#[tokio::test(start_paused = true)]
async fn block_in_three_tiers_is_found_in_the_first() {
    let remote = Arc::new(Remote::new(64, BYTES, Weather::fair(1)));
    let manager = manager(vec![
        TierParts::new("memory", Arc::new(Remote::new(8, BYTES, Weather::fair(2)))),
        TierParts::new("disk", quick_disk(16)),
        TierParts::new("remote", Arc::<Remote>::clone(&remote)),
    ]);
    let all = fill(&manager, 8).await;
    assert_eq!(remote.events().written, 8 * u64::from(DEVICE));
    let tier = |name| manager.tier(name).expect("a tier of this name");
    // The newest are in the device and the host.
    bring_up(&manager, &all[0], tier("remote")).await;
    bring_up(&manager, &all[4], tier("disk")).await;
    bring_up(&manager, &all[6], tier("memory")).await;
    let up = |name| manager.stats().onboarded_from(tier(name));
    assert_eq!(["memory", "disk", "remote"].map(up), [4; 3]);
    assert!(manager.shutdown().await);
    assert_eq!(remote.violations(), [""; 0]);
}

/// A read that fails for good goes on from the next tier that has the block: no miss, and the right bytes.
#[tokio::test]
async fn failed_read_goes_on_from_the_next_tier() {
    let (first, disk) = (pageable(32), quick_disk(32));
    let manager = manager(vec![
        TierParts::new("pageable", Arc::<MemoryTier>::clone(&first)),
        TierParts::new("disk", Arc::<SimDisk>::clone(&disk)),
    ]);
    let all = fill(&manager, 3).await;
    let tier = manager.tier("pageable").expect("a tier of this name");
    let slots: Vec<_> = all[0].iter().map(|hash| first.pool().find(*hash).expect("there").id()).collect();
    for slot in slots {
        first.arena().write(slot.index()).expect("idle")[BYTES / 2] ^= 1;
    }
    bring_up(&manager, &all[0], tier).await;
    let stats = manager.stats();
    assert_eq!(stats.path(Path::FromBelow(0)).failed.iter().sum::<u64>(), 4, "they were rejected there");
    assert_eq!(stats.onboarded_from(manager.tier("disk").expect("a tier")), 4);
    assert_eq!(disk.counts().read, 4);
    // The spoilt blocks are gone there, and come back with the next copy down.
    rest(&manager).await;
    assert!(all[0].iter().all(|hash| !first.pool().contains(*hash)));
    let group = manager.group(0).expect("the first");
    drop(compute(&manager, &hashes(9, 4), None).await);
    assert_eq!(group.persist(&all[0]).await.failed, 0);
    assert!(all[0].iter().all(|hash| first.pool().contains(*hash)), "written there again");
    assert_eq!(bytes_of(all[0][0]).len(), BYTES);
}

#[tokio::test(start_paused = true)]
async fn store_that_is_away_costs_only_its_own_blocks() {
    let away =
        Weather { there: Some([Duration::from_secs(1), Duration::from_secs(3600)]), ..Weather::fair(1) };
    let remote = Arc::new(Remote::new(64, BYTES, away));
    let manager = manager(vec![
        TierParts::new("disk", quick_disk(8)),
        TierParts::new("remote", Arc::<Remote>::clone(&remote)),
    ]);
    tokio::time::advance(Duration::from_secs(2)).await;
    let group = manager.group(0).expect("the first");
    for sequence in 1..=4 {
        let of = hashes(sequence, 4);
        drop(compute(&manager, &of, None).await);
        let down = group.persist(&of).await;
        assert_eq!(down.copied + down.there + down.failed + down.refused, 4, "{down:?}");
    }
    rest(&manager).await;
    assert!(remote.events().away > 0 && remote.events().written == 0);
    bring_up(&manager, &hashes(3, 4), Tier::Below(0)).await;
    assert_eq!(group.match_prefix(&hashes(2, 4)).in_tier(Tier::Below(0)), 0, "the disk has two sequences");
}
