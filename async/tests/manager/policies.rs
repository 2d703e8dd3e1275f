//! Blocks that nobody holds are to be had, whatever the policy keeps them for.

use super::flying::look;
use super::ground::{build, compute, hashes, settings};
use kvstrata::core::Policy;
use std::pin::pin;
use std::task::Poll;

#[tokio::test]
async fn parents_that_nobody_holds_are_had_though_their_children_are_held() {
    for policy in Policy::ALL {
        let manager = build(settings(4, 0).device_policy(policy));
        let mut blocks = compute(&manager, &hashes(1, 4), None).await;
        blocks.drop_first(2);
        let two = look(pin!(manager.allocate(2)));
        assert!(matches!(&two, Poll::Ready(Ok(two)) if two.len() == 2), "{policy}: {two:?}");
        assert_eq!(manager.census().tiers[0][0].owned, 2, "{policy}");
        drop(two);
        // Those leave that are free, not those that are held.
        let two = manager.try_allocate(2);
        assert_eq!(two.map(|two| two.len()), Some(2), "{policy}");
        assert!(manager.try_allocate(3).is_none(), "{policy}");
        assert_eq!(manager.match_sequence_hashes(&hashes(1, 4)).len(), 0);
    }
}
