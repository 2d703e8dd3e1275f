//! Blocks registered behind blocks that a pass has still to write. They are computed from those, so they
//! are right only if those are written, and no sooner.

use super::ground::{BYTES, compute, hashes, rest, settings, still};
use super::unwritten::{ahead, back, down, ground, write};
use crate::gated::Ground;
use kvstrata::config::WriteMode;
use kvstrata::manager::{Ahead, Blocks, BlocksMut, RegisterFault};
use kvstrata::tier::Tier;
use kvstrata_core::{DevicePort, SequenceHash};

/// Allocates blocks for these hashes, with bytes that no pass computed.
async fn garbage(ground: &Ground, hashes: &[SequenceHash]) -> BlocksMut {
    let blocks = ground.manager.default_group().allocate(hashes.len()).await.expect("blocks");
    for block in blocks.ids() {
        ground.device.copy_in(block.0, 0, &[0xEE; BYTES]).expect("in range");
    }
    blocks
}

async fn behind(
    ground: &Ground,
    hashes: &[SequenceHash],
    parent: &Blocks,
    iteration: u64,
) -> (Blocks, Ahead) {
    let blocks = garbage(ground, hashes).await;
    blocks.register_ahead(hashes, Some(parent), iteration).expect("registered")
}

/// A request has found a prefix that another request of the same batch is to write. That request is
/// cancelled, so all blocks that both compute from the prefix are wrong.
#[tokio::test]
async fn withdrawn_blocks_take_their_dependents_along() {
    let ground = ground(settings(8, 16).offload_mode(WriteMode::Through));
    let manager = &ground.manager;
    let group = manager.default_group();
    let all = hashes(1, 8);
    let (first, cancelled) = ahead(&ground, &all[..2], 1).await;
    let found = group.match_device(&all);
    assert_eq!((found.len(), found.written_in()), (2, Some(1)));
    let (second, goes_on) = behind(&ground, &all[2..4], &found, 1).await;
    // One of a later pass, and one registered as if it had been computed already.
    let (third, _) = behind(&ground, &all[4..6], &second, 2).await;
    let fourth = garbage(&ground, &all[6..]).await.register(&all[6..], Some(&third)).expect("registered");
    assert_eq!((fourth.registered(), fourth.written_in(), manager.census().unwritten), (2, Some(2), 8));
    assert_eq!(cancelled.withdraw(), 8);
    for blocks in [&first, &found, &second, &third, &fourth] {
        assert_eq!(blocks.registered(), 0);
    }
    assert_eq!((goes_on.withdraw(), group.match_prefix(&all).len()), (0, 0));
    drop((first, found, second, third, fourth));
    for _ in 0..2 {
        manager.step().expect("none runs");
        still(manager).await;
    }
    assert_eq!((down(manager), group.pool_stats(Tier::Host).stored, manager.census().unwritten), (0, 0, 0));
    assert_eq!(group.try_allocate(8).expect("nobody holds them").len(), 8);
}

/// The block is registered as computed, and still counts as written only with its parents.
#[tokio::test]
async fn block_behind_unwritten_parent_waits_for_its_pass() {
    let ground = ground(settings(8, 16).offload_mode(WriteMode::Through));
    let manager = &ground.manager;
    let all = hashes(1, 4);
    let (first, _ahead) = ahead(&ground, &all[..2], 1).await;
    let second = garbage(&ground, &all[2..]).await.register(&all[2..], Some(&first)).expect("registered");
    still(manager).await;
    assert_eq!((down(manager), second.written_in()), (0, Some(1)));
    write(&ground, &first, &all[..2]);
    write(&ground, &second, &all[2..]);
    manager.step().expect("none runs");
    rest(manager).await;
    assert_eq!((down(manager), second.written_in()), (4, None));
    drop((first, second));
    back(manager, &all).await;
}

/// Two lists have the same blocks, and the earlier list withdraws. The blocks that its pass computes
/// from them are wrong; those of the later pass are not.
#[tokio::test]
async fn withdrawn_earlier_pass_keeps_blocks_of_the_later_pass() {
    let ground = ground(settings(8, 16));
    let manager = &ground.manager;
    let all = hashes(1, 4);
    let ((first, early), (same, _late)) =
        (ahead(&ground, &all[..2], 1).await, ahead(&ground, &all[..2], 2).await);
    let (soon, _) = behind(&ground, &all[2..3], &first, 1).await;
    assert_eq!((early.withdraw(), soon.registered(), same.registered()), (1, 0, 2));
    assert_eq!(manager.default_group().match_prefix(&all).len(), 2);
    let (then, _) = behind(&ground, &all[2..3], &same, 2).await;
    assert_eq!((then.registered(), then.written_in()), (1, Some(2)));
    drop((first, soon));
    manager.step().expect("none runs");
    write(&ground, &same, &all[..2]);
    write(&ground, &then, &all[2..3]);
    manager.step().expect("none runs");
    assert_eq!((same.written_in(), then.written_in()), (None, None));
    drop((same, then));
    back(manager, &all[..3]).await;
}

/// Computed blocks replace unwritten ones of the same hashes. Blocks registered behind the replaced ones
/// are withdrawn: no pass says any more whether those are written.
#[tokio::test]
async fn replaced_blocks_take_their_dependents_along() {
    let ground = ground(settings(8, 16));
    let manager = &ground.manager;
    let all = hashes(1, 3);
    let (first, _) = ahead(&ground, &all[..2], 1).await;
    let (second, _) = behind(&ground, &all[2..], &first, 1).await;
    let computed = compute(manager, &all[..2], None).await;
    assert_eq!((first.registered(), second.registered(), computed.registered()), (0, 0, 2));
    assert_eq!(manager.default_group().match_prefix(&all).len(), 2);
}

#[tokio::test]
async fn register_behind_withdrawn_or_later_parent_is_refused() {
    let ground = ground(settings(8, 16));
    let manager = &ground.manager;
    let all = hashes(1, 4);
    let (first, cancelled) = ahead(&ground, &all[..2], 3).await;
    let blocks = garbage(&ground, &all[2..]).await;
    let ids = blocks.ids().to_vec();
    let refused =
        blocks.register_ahead(&all[2..], Some(&first), 2).expect_err("its parent is written by the third");
    assert_eq!(refused.why, RegisterFault::Unwritten { parent: 3, iteration: 2 });
    assert!(refused.to_string().contains("written in iteration 3, after iteration 2"), "{refused}");
    assert_eq!((refused.blocks.ids(), cancelled.withdraw()), (&*ids, 2));
    let refused =
        refused.blocks.register_ahead(&all[2..], Some(&first), 3).expect_err("its parent is withdrawn");
    assert_eq!(refused.why, RegisterFault::Withdrawn);
    let refused = refused.blocks.register(&all[2..], Some(&first)).expect_err("its parent is withdrawn");
    assert_eq!((refused.why, refused.blocks.ids()), (RegisterFault::Withdrawn, &*ids));
    assert!(manager.default_group().match_prefix(&all).is_empty());
    let alone = refused.blocks.register(&all[2..], None).expect("as the start of another sequence");
    assert_eq!((alone.len(), manager.census().unwritten), (2, 0));
}
