//! Models whose groups of layers keep different kinds of state.

use super::ground::{HYBRID, build, hashes, rest};
use kvstrata::config::ManagerConfig;
use kvstrata::manager::{AllocateError, Blocks, BlocksMut, KvBlockManager, OnboardOptions, Tiers};
use kvstrata_core::SequenceHash;

/// Full attention with pages of 16, a window of 32 with pages of 16, and a state each 64 tokens.
pub fn hybrid(more: &str) -> KvBlockManager {
    let state = r#"
        [[group]]
        name = "state"
        kind = "state"
        layers = [2]
        page_size = 64
        state_bytes = 4096
        share = 1.0
        [geometry]
        layers = 3
    "#;
    build(ManagerConfig::builder().toml("hybrid.toml", format!("{more}{HYBRID}{state}")))
}

/// Hashes of 256 tokens, by group.
pub fn sequence(number: u64) -> [Vec<SequenceHash>; 3] {
    [hashes(number, 16), hashes(number, 16), hashes(number, 4)]
}

async fn keep(
    manager: &Tiers,
    group: usize,
    hashes: &[SequenceHash],
    which: std::ops::Range<usize>,
) -> Blocks {
    let blocks = manager.group(group).expect("a group").allocate(which.len()).await.expect("blocks");
    blocks.register(&hashes[which], None).expect("registered")
}

fn found(manager: &Tiers, of: &[Vec<SequenceHash>; 3]) -> (u64, Vec<(usize, usize)>) {
    let lists: Vec<&[SequenceHash]> = of.iter().map(Vec::as_slice).collect();
    let found = manager.match_groups(&lists);
    (found.tokens(), found.groups().iter().map(|group| (group.first, group.found.len())).collect())
}

#[tokio::test]
async fn prefix_ends_where_each_group_has_its_blocks() {
    let manager = hybrid("");
    assert_eq!(manager.groups(), 3);
    let of = sequence(1);
    let full = keep(&manager, 0, &of[0], 0..14).await;
    assert_eq!(found(&manager, &of).0, 0, "no window, no state");
    let window = keep(&manager, 1, &of[1], 0..16).await;
    assert_eq!(found(&manager, &of).0, 0, "no state");
    let late = keep(&manager, 2, &of[2], 2..4).await;
    // 14 pages of 16 are 224 tokens; a state was kept at 192 and at 256.
    assert_eq!(found(&manager, &of), (192, vec![(0, 12), (10, 2), (2, 1)]));
    drop(window);
    drop((full, late));
}

#[tokio::test]
async fn gap_in_a_window_lowers_the_prefix() {
    let manager = hybrid("");
    let of = sequence(1);
    let full = keep(&manager, 0, &of[0], 0..16).await;
    let states = keep(&manager, 2, &of[2], 0..4).await;
    // The window lacks 128 to 144, and all before 96.
    let early = keep(&manager, 1, &of[1], 6..8).await;
    assert_eq!(found(&manager, &of), (128, vec![(0, 8), (6, 2), (1, 1)]));
    let later = keep(&manager, 1, &of[1], 14..16).await;
    assert_eq!(found(&manager, &of), (256, vec![(0, 16), (14, 2), (3, 1)]));
    drop((full, states, early, later));
}

#[tokio::test]
async fn onboard_groups_brings_up_all_groups() {
    let manager = hybrid("");
    let of = sequence(1);
    for (group, which) in [(0, 0..16), (1, 0..16), (2, 0..4)] {
        drop(keep(&manager, group, &of[group], which).await);
    }
    // Others need the room in each group.
    for group in 0..3 {
        drop(manager.group(group).expect("a group").allocate(64).await.expect("all of them"));
    }
    rest(&manager).await;
    let lists: Vec<&[SequenceHash]> = of.iter().map(Vec::as_slice).collect();
    let found = manager.match_groups(&lists);
    assert_eq!((found.tokens(), found.is_ready()), (256, false));
    let up = manager.onboard_groups(found, OnboardOptions::default()).expect("fits").await;
    assert_eq!((up.tokens, up.missed), (256, None));
    let held: Vec<(usize, usize)> = up.groups.iter().map(|(first, blocks)| (*first, blocks.len())).collect();
    assert_eq!(held, [(0, 16), (14, 2), (3, 1)]);
}

/// Blocks are written to the disk at their second use. A request counts as one use, however often the
/// end of its prefix is searched.
#[tokio::test]
async fn match_groups_counts_as_one_use() {
    let manager = hybrid("disk.blocks = 64\ndisk.admission = \"second-use\"\n");
    let of = sequence(1);
    // The common prefix is searched again and again: there are gaps in the window, and a state at 64 only.
    drop(keep(&manager, 0, &of[0], 0..16).await);
    drop(keep(&manager, 1, &of[1], 2..4).await);
    drop(keep(&manager, 1, &of[1], 5..15).await);
    drop(keep(&manager, 2, &of[2], 0..1).await);
    let written = async || {
        for group in 0..3 {
            let group = manager.group(group).expect("three");
            // Each block moves twice: from the device to the host, and from there to the disk.
            for _ in 0..4 {
                let others = manager.group(group.number()).expect("a group").allocate(64).await.expect("all");
                let number = manager.default_group().pool_stats(kvstrata::tier::Tier::Device).stored + 100;
                drop(others.register(&hashes(number, 64), None).expect("registered"));
                rest(&manager).await;
            }
        }
        (0..3).map(|group| on_disk(&manager, group, &of[group])).collect::<Vec<_>>()
    };
    assert_eq!(found(&manager, &of), (64, vec![(0, 4), (2, 2), (0, 1)]));
    assert_eq!(written().await, [0, 0, 0]);
}

fn on_disk(manager: &Tiers, group: usize, hashes: &[SequenceHash]) -> usize {
    let group = manager.group(group).expect("three");
    let on_disk =
        |hash: &&SequenceHash| group.match_prefix(&[**hash]).in_tier(kvstrata::tier::Tier::DISK) > 0;
    hashes.iter().filter(on_disk).count()
}

/// The pages' common boundary is beyond any number of tokens: then no prefix is of use to all groups.
#[tokio::test]
async fn pages_without_common_boundary_have_no_prefix() {
    let primes = [65_521, 65_519, 65_497, 65_479, 65_449];
    let group = |(layer, page): (usize, &u32)| {
        format!("[[group]]\nkind = \"state\"\nlayers = [{layer}]\npage_size = {page}\nstate_bytes = 64\n")
    };
    let groups: String = primes.iter().enumerate().map(group).collect();
    let text = format!("[device]\nblocks = 4\n[host]\nblocks = 8\n{groups}");
    let manager = build(ManagerConfig::builder().toml("primes.toml", text));
    let all = hashes(1, 2);
    for group in 0..primes.len() {
        drop(keep(&manager, group, &all, 0..2).await);
    }
    let found = manager.match_groups(&[&all[..]; 5]);
    let lengths: Vec<_> = found.groups().iter().map(|group| (group.first, group.found.len())).collect();
    assert_eq!((found.tokens(), lengths), (0, vec![(0, 0); 5]));
    let up = manager.onboard_groups(found, OnboardOptions::default()).expect("nothing").await;
    let lengths: Vec<_> = up.groups.iter().map(|(first, blocks)| (*first, blocks.len())).collect();
    assert_eq!((up.tokens, lengths), (0, vec![(0, 0); 5]));
}

/// A request gets the blocks of all its groups, or waits for them. Of two requests for more than half of
/// each group, both are served in the end.
#[tokio::test]
async fn allocations_of_all_groups_are_served_in_order() {
    let manager = hybrid("");
    let all = |blocks: &[BlocksMut]| blocks.iter().map(BlocksMut::len).collect::<Vec<_>>();
    let first = manager.allocate_groups(&[40, 40, 40]).await.expect("free ones");
    assert_eq!(all(&first), [40; 3]);
    let second = tokio::spawn({
        let manager = manager.clone();
        async move { manager.allocate_groups(&[20, 30, 0]).await }
    });
    let waiting = |manager: &Tiers| manager.census().waiting;
    while waiting(&manager) < 1 {
        tokio::task::yield_now().await;
    }
    // No other caller gets the blocks that it has of the first group, or overtakes it for free blocks of
    // the second.
    let at_once = |group: usize| manager.group(group).expect("three").try_allocate(20).is_some();
    assert_eq!([0, 1, 2].map(at_once), [false, false, true]);
    drop(first);
    assert_eq!(all(&second.await.expect("no panic").expect("all of them")), [20, 30, 0]);
    let refused = manager.allocate_groups(&[1, 1]).await.expect_err("three groups");
    assert!(matches!(refused, AllocateError::Groups { given: 2, groups: 3 }), "{refused}");
    let refused = manager.allocate_groups(&[1, 65, 1]).await.expect_err("more than there are");
    assert!(matches!(refused, AllocateError::TooMany { requested: 65, capacity: 64 }), "{refused}");
    assert_eq!(manager.census().tiers.iter().map(|tiers| tiers[0].owned).sum::<usize>(), 0, "given back");
}

/// The first layer of each group is ready while other layers are in flight.
#[tokio::test]
async fn onboard_groups_by_layers_readies_each_first_layer() {
    let manager = hybrid("");
    let of = sequence(1);
    for (group, which) in [(0, 0..16), (1, 0..16), (2, 0..4)] {
        drop(keep(&manager, group, &of[group], which).await);
        drop(manager.group(group).expect("a group").allocate(64).await.expect("all of them"));
    }
    rest(&manager).await;
    let lists: Vec<&[SequenceHash]> = of.iter().map(Vec::as_slice).collect();
    let options = OnboardOptions::default().layers(1);
    let up = manager.onboard_groups(manager.match_groups(&lists), options).expect("fits");
    let mut told = Vec::new();
    for group in 0..3 {
        let part = up.group(group).expect("three");
        part.layer_ready(0).await.expect("copied");
        told.push(part.ids().expect("all have places"));
    }
    let up = up.await;
    assert_eq!((up.tokens, up.missed), (256, None));
    let held: Vec<Vec<_>> = up.groups.iter().map(|(_, blocks)| blocks.ids().collect()).collect();
    assert_eq!(held, told);
}
