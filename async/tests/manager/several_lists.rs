//! Blocks that several lists have registered ahead of passes. The first of these passes to end writes
//! them, or the next one, if the list of the first withdraws.

use super::ground::{hashes, rest, settings, still};
use super::unwritten::{ahead, back, down, ground, write};
use kvstrata::config::WriteMode;
use kvstrata::manager::OffloadOptions;
use kvstrata::scheduler::Gate;
use kvstrata::tier::Tier;

/// Two requests have the same new prefix, and one of them is cancelled.
#[tokio::test]
async fn blocks_of_two_lists_stay_until_both_are_withdrawn() {
    for (first_stays, written) in [(true, 1), (false, 2)] {
        let ground = ground(settings(8, 16).offload_mode(WriteMode::Through));
        let manager = &ground.manager;
        let hashes = hashes(1, 2);
        let (blocks, first) = ahead(&ground, &hashes, 1).await;
        let (same, second) = ahead(&ground, &hashes, 2).await;
        assert_eq!((blocks.ids().collect::<Vec<_>>(), manager.census().unwritten), (same.ids().collect(), 4));
        let asked = manager.default_group().offload(&blocks, OffloadOptions::default());
        let (stays, goes) = if first_stays { (first, second) } else { (second, first) };
        assert_eq!((goes.withdraw(), blocks.registered()), (0, 2), "the other writes it");
        assert_eq!(blocks.written_in(), Some(written));
        for step in 1..=2 {
            assert_eq!(down(manager), 0);
            write(&ground, &blocks, &hashes);
            manager.step().expect("none runs");
            still(manager).await;
            if step == written {
                break;
            }
        }
        assert_eq!((down(manager), stays.withdraw()), (2, 0));
        drop((blocks, same));
        manager.step().expect("none runs");
        assert_eq!(asked.await.failed, 0);
        back(manager, &hashes).await;
    }
    let ground = ground(settings(8, 16));
    let hashes = hashes(1, 2);
    let ((blocks, first), (same, second)) =
        (ahead(&ground, &hashes, 1).await, ahead(&ground, &hashes, 1).await);
    assert_eq!((first.withdraw(), second.withdraw(), same.registered()), (0, 2, 0));
    drop((blocks, same));
    assert!(ground.manager.default_group().match_prefix(&hashes).is_empty());
    ground.manager.step().expect("none runs");
    assert_eq!(ground.manager.default_group().try_allocate(8).expect("all of them").len(), 8);
}

/// A copy waits for the pass of a list, and that list withdraws. Then it waits for the pass of the other
/// list: no byte is copied before it is written.
#[tokio::test]
async fn copy_behind_a_withdrawn_list_waits_for_the_other_pass() {
    enum Copy {
        Whole,
        Behind,
        Begun,
    }
    for copy in [Copy::Whole, Copy::Behind, Copy::Begun] {
        let ground = ground(settings(8, 16));
        let manager = &ground.manager;
        let hashes = hashes(1, 2);
        let (blocks, first) = ahead(&ground, &hashes, 1).await;
        let gate = match copy {
            Copy::Whole => Gate::Open,
            Copy::Behind | Copy::Begun => Gate::Layer { iteration: 1, layer: 0 },
        };
        let asked = manager.default_group().offload(&blocks, OffloadOptions::default().gate(gate));
        let pass = manager.begin_iteration().expect("none runs");
        if matches!(copy, Copy::Begun) {
            pass.layer_done(0).expect("one runs");
            still(manager).await;
        }
        let (same, _second) = ahead(&ground, &hashes, 2).await;
        assert_eq!((first.withdraw(), same.registered(), same.written_in()), (0, 2, Some(2)));
        pass.end().expect("one runs");
        still(manager).await;
        let begun = if matches!(copy, Copy::Begun) { 2 } else { 0 };
        assert_eq!((down(manager), manager.default_group().pool_stats(Tier::Host).stored), (begun, 0));
        write(&ground, &same, &hashes);
        manager.step().expect("none runs");
        rest(manager).await;
        assert_eq!(asked.await.failed as u64, begun);
        drop((blocks, same));
        back(manager, &hashes).await;
    }
}

/// One of two lists of the same pass is withdrawn: the copy by layers goes on.
#[tokio::test]
async fn copy_by_layers_goes_on_by_another_list_of_the_pass() {
    let ground = ground(settings(8, 16));
    let manager = &ground.manager;
    let hashes = hashes(1, 2);
    let pass = manager.begin_iteration().expect("none runs");
    let iteration = pass.number();
    let (blocks, first) = ahead(&ground, &hashes, iteration).await;
    let (same, _second) = ahead(&ground, &hashes, iteration).await;
    let gate = Gate::Layer { iteration, layer: 0 };
    write(&ground, &blocks, &hashes);
    pass.layer_done(0).expect("one runs");
    let asked = manager.default_group().offload(&blocks, OffloadOptions::default().gate(gate));
    still(manager).await;
    let (later, _third) = ahead(&ground, &hashes, iteration + 1).await;
    assert_eq!(first.withdraw(), 0);
    pass.end().expect("one runs");
    assert_eq!((asked.await.copied, same.written_in()), (2, None));
    drop((blocks, same, later));
    // The third list is over, too, and holds no block any more.
    manager.step().expect("none runs");
    back(manager, &hashes).await;
}

/// A later list, of the same pass or another one, does not delay copies of blocks that the first pass
/// has written.
#[tokio::test]
async fn copy_goes_with_the_first_pass_that_writes_its_block() {
    for (withdraws, second_pass, by_layers) in
        [(true, 1, false), (false, 2, false), (false, 2, true), (false, 1, true)]
    {
        let ground = ground(settings(8, 16));
        let manager = &ground.manager;
        let hashes = hashes(1, 2);
        let (blocks, first) = ahead(&ground, &hashes, 1).await;
        let gate = if by_layers { Gate::Layer { iteration: 1, layer: 0 } } else { Gate::Open };
        let asked = manager.default_group().offload(&blocks, OffloadOptions::default().gate(gate));
        let (same, _second) = ahead(&ground, &hashes, second_pass).await;
        if withdraws {
            assert_eq!(first.withdraw(), 0);
        }
        write(&ground, &blocks, &hashes);
        let pass = manager.begin_iteration().expect("none runs");
        pass.layer_done(0).expect("one runs");
        still(manager).await;
        assert_eq!(manager.census().down, if by_layers { 2 } else { 0 });
        pass.end().expect("one runs");
        assert_eq!(asked.await.copied, 2, "{withdraws} {second_pass} {by_layers}");
        // The pass of the second list is over.
        manager.step().expect("none runs");
        drop((blocks, same));
        back(manager, &hashes).await;
    }
}

/// The same if the copy is asked for when both lists are there.
#[tokio::test]
async fn copy_of_two_lists_waits_for_the_first_of_their_passes() {
    let ground = ground(settings(8, 16));
    let manager = &ground.manager;
    let hashes = hashes(1, 2);
    let ((blocks, _), (same, _)) = (ahead(&ground, &hashes, 1).await, ahead(&ground, &hashes, 2).await);
    assert_eq!(same.written_in(), Some(1));
    let asked = manager.default_group().offload(&same, OffloadOptions::default());
    write(&ground, &blocks, &hashes);
    manager.step().expect("none runs");
    assert_eq!((asked.await.copied, same.written_in()), (2, None));
}
