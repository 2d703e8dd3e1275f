//! Counts that callers give, and counts that grow to their limit.

use super::ground::{HYBRID, build, compute, hashes, settings};
use kvstrata::config::ManagerConfig;
use kvstrata::manager::AllocateError;
use kvstrata::tier::Tier;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The most references of a block.
const MOST: usize = (1 << 20) - 1;

#[tokio::test]
async fn count_beyond_the_device_is_refused_and_takes_nothing() {
    let manager = build(ManagerConfig::builder().toml("hybrid.toml", HYBRID));
    let tenant = manager.tenant("acme").expect("a tenant");
    for count in [65, u32::MAX as usize, 1 << 32, (1 << 32) + 1, usize::MAX / 2, usize::MAX] {
        assert!(
            manager.default_group().try_allocate(count).is_none()
                && tenant.default_group().try_allocate(count).is_none()
        );
        assert!(manager.group(1).expect("two").try_allocate(count).is_none());
        let error = tenant.default_group().allocate(count).await.expect_err("more than there are");
        assert!(matches!(error, AllocateError::TooMany { requested, .. } if requested == count), "{error}");
        let error = manager.allocate_groups(&[count, count]).await;
        assert!(matches!(error, Err(AllocateError::TooMany { .. })), "{error:?}");
        assert!(manager.group(count).is_none(), "there is no such group");
    }
    assert_eq!(tenant.usage(Tier::Device).blocks, 0);
    let mut all = manager.default_group().try_allocate(64).expect("all are free");
    assert_eq!((all.split_to(usize::MAX).len(), all.len()), (64, 0));
}

#[tokio::test]
async fn list_at_most_references_is_cloned_whole_or_refused() {
    let manager = build(settings(4, 0));
    let one = compute(&manager, &hashes(1, 2), None).await;
    // Each list holds 1,024 references to both blocks; single clones take the rest.
    let mut thousand = one.clone();
    while thousand.len() < 2 * 1024 {
        thousand.append(thousand.try_clone().expect("room")).expect("of one manager");
    }
    let many: Vec<_> = (1..(MOST - 1) / 1024).map(|_| thousand.try_clone().expect("room")).collect();
    let left = MOST - 2 - (many.len() + 1) * 1024;
    let rest: Vec<_> = (0..left).map(|_| one.try_clone().expect("room")).collect();
    // The references of `one` count, too. One more is possible, and none after it.
    let last = one.try_clone().expect("the last one");
    let refused = one.try_clone().expect_err("all are taken");
    assert_eq!(Some(refused.block), one.ids().next());
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let panicked = catch_unwind(AssertUnwindSafe(|| one.clone()));
    std::panic::set_hook(hook);
    let said = panicked.expect_err("not a shorter list").downcast::<String>().expect("a message");
    assert!(said.contains("1048575 references") && said.contains("share one by an Arc"), "{said}");
    drop(last);
    assert_eq!(one.clone().len(), 2);
    drop((thousand, many, rest, one));
    assert_eq!(manager.default_group().try_allocate(4).expect("nobody holds them").len(), 4);
}
