use super::*;
use crate::config::ManagerConfig;
use crate::manager::KvBlockManager;

/// A manager of four blocks in the device.
fn manager() -> KvBlockManager {
    let settings = ManagerConfig::builder().geometry_block_bytes(Some(4096)).device_blocks(4).host_blocks(0);
    KvBlockManager::new(&settings.build().expect("a configuration")).expect("a manager")
}

#[tokio::test]
async fn while_it_waits_for_a_release_tags_are_not_looked_through_whatever_others_do() {
    let manager = manager();
    let a = manager.tenant("a").expect("few tenants");
    let filled = a.allocate(2).await.expect("free");
    let held = filled.register(&[1, 2].map(SequenceHash::from_u128), None).expect("registered");
    let purge = tokio::spawn(async move { a.purge(Purge::default()).await });
    let scans = || manager.inner.look().purging.first().map(|purging| purging.scans);
    while scans().is_none() {
        tokio::task::yield_now().await;
    }
    for _ in 0..1000 {
        manager.check_watermark();
        tokio::task::yield_now().await;
    }
    assert_eq!(scans(), Some(1), "at its beginning");
    drop(held);
    let purged = purge.await.expect("no panic").expect("open");
    assert_eq!((purged.complete, purged.device.found, purged.device.purged), (true, 2, 2));
}
