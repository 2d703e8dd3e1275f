//! Blocks of a window that land before their parents, when the waiting caller does not need the parents.

use crate::gated::Ground;
use crate::ground::{compute, hashes, rest, settings};
use crate::grounded::until;
use kvstrata::manager::{Needs, OnboardGroups, OnboardOptions};
use kvstrata::transfer::Path;
use kvstrata_core::{Policy, SequenceHash};
use std::time::Duration;

/// Three blocks in the host, two tokens each. A sequence needs the last ones, within a window of so
/// many tokens. No copy up lands.
async fn below(window: u64) -> (Ground, Vec<SequenceHash>) {
    let (settings, run) = (settings(8, 16).device_policy(Policy::Lfu), hashes(1, 3));
    let ground = Ground::with_needs(settings, (8, 16), 2, None, Needs::Last { page: 2, window });
    drop(compute(&ground.manager, &run, None).await);
    drop(ground.manager.default_group().allocate(8).await.expect("idle"));
    rest(&ground.manager).await;
    ground.mover.close();
    (ground, run)
}

/// Brings up by layers the blocks that a sequence needs, and returns the index of the first one, too.
fn bring_up(ground: &Ground, run: &[SequenceHash]) -> (OnboardGroups, usize) {
    let found = ground.manager.match_groups(&[run]);
    assert_eq!(found.tokens(), 2 * run.len() as u64);
    let first = found.groups()[0].first;
    let patience = Some(Duration::from_secs(5));
    let options = OnboardOptions::default().layers(1).deadline(patience);
    (ground.manager.onboard_groups(found, options).expect("it fits"), first)
}

/// Lets copies land one after the other, except those of the transfer that began first, until so many
/// have landed.
async fn land(ground: &Ground, copies: u64) {
    let landed = || ground.manager.stats().path(Path::HostToDevice).transfers;
    let before = landed();
    for copy in 1..=copies {
        until("asked for", || ground.mover.waiting() > 1).await;
        ground.mover.open_but_first();
        until("landed", || landed() >= before + copy).await;
    }
}

/// A caller that was told that all layers are ready gets its blocks, and does not wait for another caller's.
#[tokio::test]
async fn window_block_lands_without_a_parent_of_another_caller() {
    let (ground, run) = below(2).await;
    let (other, _) = bring_up(&ground, &run[..1]);
    let (up, first) = bring_up(&ground, &run[..2]);
    assert_eq!(first, 1);
    land(&ground, 2).await;
    assert_eq!(up.group(0).expect("one").layer_ready(1).await, Ok(()));
    let came = up.await;
    assert_eq!((came.tokens, came.missed), (4, None), "the other's is not there yet");
    assert!(
        ground.manager.default_group().try_allocate(7).is_none(),
        "it has its block, and the other its own"
    );
    ground.mover.open();
    assert_eq!(other.await.tokens, 2);
    drop(came);
    rest(&ground.manager).await;
}

/// The same for a caller that comes when the block already waits behind its parent, for a caller that
/// needs both.
#[tokio::test]
async fn caller_joining_a_block_ends_its_wait_for_a_parent() {
    let (ground, run) = below(4).await;
    let (both, first) = bring_up(&ground, &run[..2]);
    assert_eq!(first, 0);
    land(&ground, 2).await;
    assert_eq!(ground.manager.census().up, 2, "the second waits behind the first");
    let (up, first) = bring_up(&ground, &run);
    assert_eq!(first, 1);
    land(&ground, 2).await;
    let came = up.await;
    assert_eq!((came.tokens, came.missed), (6, None));
    ground.mover.open();
    let both = both.await;
    assert_eq!((both.tokens, both.missed), (4, None));
    drop((came, both));
    rest(&ground.manager).await;
}
