//! The calls that the other examples leave out: look-ups, parts of runs, hints, priorities, tenants,
//! groups of layers, figures.
//!
//!     cargo run --release -p kvstrata --example tour

use kvstrata::backend::OwnRuntime;
use kvstrata::metrics::Requests;
use kvstrata::{
    Class, KvBlockManager, ManagerConfig, OffloadOptions, OnboardOptions, Priority, Purge, SequenceHash, Tier,
};
use std::error::Error;
use std::time::Duration;

/// A request that waits longer is preempted.
const SOON: Duration = Duration::from_secs(5);

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let config = ManagerConfig::builder().device_blocks(64).host_blocks(128).build()?;
    let runtime = OwnRuntime::start(1)?;
    let manager = KvBlockManager::builder(&config).runtime(runtime.handle().clone()).build()?;
    let group = manager.group(0).ok_or("a manager has one group at least")?;
    println!("group {}, {}: {} tokens a block", group.number(), group.name(), group.page_size());
    assert_eq!((group.capacity(Tier::Device), group.available(Tier::Device)), (64, 64));
    assert!(!manager.is_refusing() && !manager.is_inherited() && manager.metrics_address().is_none());

    // Hashes of a prompt at once: four full blocks of 16 tokens.
    let tokens: Vec<u32> = (0..64).collect();
    let salt = manager.salt("a model", "", &[]);
    let hashes = group.hashes_of(&tokens, salt);
    println!("blocks are named by {}", manager.hasher().name());

    // Acquire: one block more than there are hashes, for tokens to come; behind more urgent requests.
    let blocks = group.acquire(&hashes).more(1).class(Class::Background).request(7).deadline(SOON).await?;
    let mut fresh = blocks.fresh;
    assert_eq!((fresh.len(), fresh.group()), (5, 0));
    let full = fresh.split_to(4);
    let held = full.register(&hashes, None)?;
    assert_eq!((held.registered(), held.written_in(), held.group()), (4, None, 0));

    // Parts of a list: the first block released, then the last; a second handle for the rest.
    let mut part = held.try_clone()?;
    part.drop_first(1);
    part.truncate(2);
    assert_eq!(part.len(), 2);
    // The conversation has ended: its last blocks leave the device first.
    part.set_priority(Priority::Low);
    let down = group
        .offload(&held, OffloadOptions::default().class(Class::Background).request(7).deadline(SOON))
        .await;
    assert_eq!(down.copied, 4);
    drop((held, part, fresh));

    // Look-ups: by tier; of the device alone; a use without holding.
    let found = group.match_prefix(&hashes);
    assert!(found.is_ready() && found.pending() == 0 && found.tier_of(0) == Some(Tier::Device));
    assert_eq!((found.device().len(), found.into_device().len()), (4, 4));
    assert_eq!((group.match_noted(&hashes).len(), group.touch(hashes[0])), (4, true));
    let up = group.onboard(
        group.match_prefix(&hashes),
        OnboardOptions::default().class(Class::Urgent).request(8).deadline(SOON),
    )?;
    assert_eq!(up.await.blocks.len(), 4);

    // Hints of queued requests: dropped, a hint is withdrawn; detached, it stays.
    group.prefetch(&hashes).detach();
    drop(group.prefetch_tokens(&tokens, salt));

    // A request that gives its blocks up, and waits until they are in host memory.
    let (held, tail) = (group.match_device(&hashes), group.allocate(1).request(1).deadline(SOON).await?);
    let mut preempted = group.preempt(held, tail, 1).map_err(|_| "the request keeps its blocks")?;
    preempted.settled().await;
    let resumed = group.resume(preempted, OnboardOptions::default()).await?;
    drop(resumed);

    // All groups of layers in one call, as a hybrid model does.
    let lists: Vec<&[SequenceHash]> = vec![&hashes; manager.groups()];
    let found = manager.match_groups(&lists);
    assert_eq!((found.is_ready(), found.tokens(), found.groups().len()), (true, 64, 1));
    let up = manager.onboard_groups(found, OnboardOptions::default())?;
    assert!(up.group(0).is_some());
    assert_eq!(up.await.tokens, 64);
    assert_eq!(manager.allocate_groups(&[2]).request(9).deadline(SOON).await?.len(), 1);

    // Tenants: hashes of their own, figures, and a purge of all tiers.
    let tenant = manager.tenant("acme")?;
    println!("tenant {:?} is number {}", tenant.tenant_name(), tenant.tenant_id().0);
    let theirs = tenant.default_group().hashes_of(&tokens, tenant.salt("a model", "", &[]));
    assert_ne!(theirs, hashes);
    let blocks = tenant.default_group().allocate(4).await?.register(&theirs, None)?;
    assert_eq!(tenant.usage(Tier::Device).blocks, 4);
    drop(blocks);
    let purged = tenant.purge(Purge::new().zero(true).deadline(SOON)).await?;
    println!("purged: {purged:?}");
    assert_eq!(tenant.usage(Tier::Device).blocks, 0);

    // An engine that counts its passes, without layers.
    println!("pass {}", manager.step()?);
    manager.check_watermark();

    // Figures: for people, for routers, for Prometheus.
    manager.tell_requests(Requests { active_slots: 1, total_slots: 8, waiting: 0 });
    assert_eq!(manager.tier("host"), Some(Tier::Host));
    for tier in manager.tiers() {
        println!("{}: {:?}", manager.tier_name(tier), group.pool_stats(tier));
    }
    assert!(manager.metrics().to_prometheus().contains("kvstrata_tier_blocks"));
    let watcher = manager.watcher();
    assert!(watcher.gives() && watcher.metrics().is_some());
    println!("idle: {}", manager.census().is_idle());
    assert!(manager.shutdown().await);
    Ok(())
}
