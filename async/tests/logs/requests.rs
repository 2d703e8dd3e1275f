//! Spans of requests, and lines about copies and about waiting callers.

use crate::directory;
use crate::ears::{Ears, Heard, check_complaints, listen};
use crate::gated::Ground;
use crate::ground::{BYTES, compute, hashes, rest, settings};
use crate::{fill, over_a_volume};
use kvstrata::config::TenantSettings;
use kvstrata::manager::{OffloadOptions, OnboardOptions, Purge};
use kvstrata::tier::Tier;
use kvstrata_core::BlockId;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tracing::Level;

/// Block numbers as spans format them.
fn numbers(ids: impl Iterator<Item = BlockId>) -> String {
    format!("{:?}", ids.map(|id| id.0).collect::<Vec<_>>())
}

#[tokio::test]
async fn failed_copies_are_logged_once_per_path() {
    let (ears, _turn) = listen().await;
    let ground = Ground::new(4, 16);
    fill(&ground, 2).await;
    drop(ground.manager.default_group().allocate(4).await.expect("blocks"));
    rest(&ground.manager).await;
    let mut came = Vec::new();
    for _ in 0..2 {
        // A failed copy is tried again, and arrives.
        ground.mover.close();
        let found = ground.manager.default_group().match_prefix(&hashes(1, 4));
        let up = ground.manager.default_group().onboard(found, OnboardOptions::default().request(7));
        ground.mover.fail();
        let up = up.expect("it fits").await;
        assert_eq!(up.blocks.len(), 4);
        came.push(numbers(up.blocks.ids()));
        drop(up);
        rest(&ground.manager).await;
        drop(ground.manager.default_group().allocate(4).await.expect("blocks"));
        rest(&ground.manager).await;
    }
    let complaints = ears.complaints();
    let at = |line: &Heard| (line.field("tier").to_owned(), line.field("path").to_owned());
    let places: Vec<_> = complaints.iter().map(at).collect();
    assert_eq!(places, [("host".to_owned(), "host_to_device".to_owned())], "{complaints:?}");
    let group = ground.manager.metrics().tiers[0].group.clone();
    assert_eq!((complaints[0].field("group"), complaints[0].field("tenant")), (group.as_str(), ""));
    check_complaints(&ears);
    // One span for each request, with its number and its counts.
    let spans = ears.spans("onboard");
    assert_eq!(spans.iter().map(|span| span.field("block_ids")).collect::<Vec<_>>(), came);
    for span in spans {
        let fields = ["request", "blocks", "host", "below", "came", "missed"]
            .map(|field| span.field(field).to_owned());
        assert_eq!(fields, ["7", "4", "4", "0", "4", ""].map(str::to_owned));
    }
}

#[tokio::test]
async fn offloads_and_waits_have_spans_and_full_queues_are_logged() {
    let (ears, _turn) = listen().await;
    let one_at_a_time = settings(4, 16).transfer_queue(1).transfer_in_flight(BYTES as u64);
    let ground = Ground::of(one_at_a_time, 4, 16);
    let group = ground.manager.default_group();
    let [first, second] = [1, 2].map(|sequence| hashes(sequence, 2));
    let first = compute(&ground.manager, &first, None).await;
    let second = compute(&ground.manager, &second, None).await;
    ground.mover.close();
    let asked = OffloadOptions::default().request(9);
    let under_way = group.offload(&first, asked);
    // One copy moves and one waits: the queue has no room for more.
    for _ in 0..2 {
        assert_eq!(group.offload(&second, asked).await.refused, 2);
    }
    ground.mover.open();
    assert_eq!(under_way.await.copied, 2);
    let spans = ears.spans("offload");
    let fields = |span: &Heard| {
        ["request", "blocks", "copied", "refused"].map(|field| span.field(field).to_owned()).join(" ")
    };
    assert_eq!(spans.iter().map(fields).collect::<Vec<_>>(), ["9 2 0 2", "9 2 0 2", "9 2 2 0"]);
    let patience = Some(Duration::from_millis(5));
    let more = ground.manager.default_group().allocate(1).request(11).deadline(patience).await;
    assert!(more.is_err(), "all are held");
    let fields = ["request", "blocks", "block_ids"];
    let of_request = |number: &str| {
        let spans: Vec<_> =
            ears.spans("allocate").into_iter().filter(|span| span.field("request") == number).collect();
        assert_eq!(spans.len(), 1, "{number}: {spans:?}");
        fields.map(|field| spans[0].field(field).to_owned())
    };
    assert_eq!(of_request("11"), ["11", "1", ""]);
    let ids = [&first, &second].map(|blocks| numbers(blocks.ids()));
    assert_eq!(
        spans.iter().map(|span| span.field("block_ids")).collect::<Vec<_>>(),
        [&ids[1], &ids[1], &ids[0]]
    );
    // A caller that waits and is then served.
    let mut more = Box::pin(group.allocate(1).request(12).into_future());
    assert!(poll_fn(|context| Poll::Ready(more.as_mut().poll(context).is_pending())).await, "all are held");
    drop(first);
    let more = more.await.expect("one that nobody has");
    assert_eq!(of_request("12"), ["12", "1", &numbers(more.ids().iter().copied())]);
    let complaints = ears.complaints();
    for what in ["queue is full", "allocation timed out"] {
        assert_eq!(
            complaints.iter().filter(|line| line.what.contains(what)).count(),
            1,
            "{what}: {complaints:?}"
        );
    }
    check_complaints(&ears);
}

#[tokio::test]
async fn call_served_at_once_has_a_span() {
    let (ears, _turn) = listen().await;
    let ground = Ground::new(4, 16);
    let group = ground.manager.default_group();
    let blocks = group.allocate(2).request(3).await;
    let ids = numbers(blocks.expect("free").ids().iter().copied());
    assert_eq!(span(&ears, "allocate", &["request", "blocks", "block_ids"]), format!("3 2 {ids}"));
    drop(compute(&ground.manager, &hashes(1, 3), None).await);
    let found = group.match_prefix(&hashes(1, 3));
    assert!(found.is_ready());
    let options = OnboardOptions::default().request(4);
    let there = group.onboard(found, options).expect("it fits").await.blocks;
    let fields = ["request", "blocks", "host", "below", "came", "block_ids"];
    assert_eq!(span(&ears, "onboard", &fields), format!("4 3 0 0 3 {}", numbers(there.ids())));
}

/// A tenant with a host quota of zero, and one with a quota of one block.
#[tokio::test]
async fn victims_without_room_below_are_logged_once_unless_intended() {
    let (ears, _turn) = listen().await;
    for (host, said) in [(0.0, 0), (1.0 / 16.0, 1)] {
        let acme = TenantSettings { name: "acme".to_owned(), host: Some(host), ..TenantSettings::default() };
        let ground = Ground::of(settings(4, 16).tenants([acme]), 4, 16);
        let acme = ground.manager.tenant("acme").expect("a name");
        for sequence in 1..=2 {
            drop(compute(&acme, &hashes(sequence, 4), None).await);
            ground.mover.close();
            let _ = ground.manager.default_group().allocate(4).deadline(Duration::from_millis(5)).await;
            ground.mover.open();
            rest(&ground.manager).await;
        }
        assert!(ground.manager.stats().dropped[0] > 1, "{:?}", ground.manager.stats());
        let lost: Vec<Heard> = ears.said("blocks are lost");
        assert_eq!(lost.len(), said, "{lost:?}");
        for line in &lost {
            let named = ["tier", "path", "tenant"].map(|field| line.field(field));
            assert_eq!(named, ["device", "device_to_host", "acme"], "{line:?}");
        }
    }
    check_complaints(&ears);
}

/// A caller holds the only host block, so each victim is lost at once, and nothing else changes.
#[tokio::test]
async fn victim_lost_at_once_is_logged() {
    let (ears, _turn) = listen().await;
    let ground = Ground::new(2, 1);
    let manager = &ground.manager;
    let group = manager.default_group();
    drop(compute(manager, &hashes(1, 1), None).await);
    drop(group.allocate(2).await.expect("idle"));
    rest(manager).await;
    let found = group.match_prefix(&hashes(1, 1));
    assert_eq!(found.in_tier(Tier::Host), 1);
    for round in 0..3 {
        drop(compute(manager, &hashes(2 + round, 2), None).await);
        drop(group.allocate(2).await.expect("idle"));
    }
    assert!(manager.stats().dropped[0] > 1, "{:?}", manager.stats());
    assert_eq!(ears.said("blocks are lost").len(), 1);
    drop(found);
}

/// A purge has the only host block. A larger host is no remedy, so no line is spent on it.
#[tokio::test]
async fn host_block_under_purge_logs_no_lost_blocks() {
    let (ears, _turn) = listen().await;
    let ground = Ground::new(2, 1);
    let manager = &ground.manager;
    let acme = manager.tenant("acme").expect("a name");
    drop(compute(&acme, &hashes(1, 1), None).await);
    drop(manager.default_group().allocate(2).await.expect("idle"));
    rest(manager).await;
    drop(compute(&acme, &hashes(2, 1), None).await);
    ground.mover.close();
    let mut purge = pin!(acme.purge(Purge::default().zero(true)));
    assert!(poll_fn(|context| Poll::Ready(purge.as_mut().poll(context).is_pending())).await);
    while ground.mover.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    drop(compute(manager, &hashes(3, 1), None).await);
    drop(manager.default_group().allocate(1).deadline(Duration::from_millis(5)).await.expect("dropped"));
    assert_eq!(manager.stats().dropped[0], 1);
    ground.mover.open();
    let _ = purge.await;
    assert_eq!(ears.said("blocks are lost").len(), 0);
}

/// The given fields of the only span with this name.
fn span(ears: &Ears, name: &str, fields: &[&str]) -> String {
    let spans = ears.spans(name);
    assert_eq!(spans.len(), 1, "{name}: {spans:?}");
    fields.iter().map(|field| spans[0].field(field)).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn preempted_request_has_its_number_in_each_span() {
    let (ears, _turn) = listen().await;
    let ground = Ground::new(4, 16);
    let group = ground.manager.default_group();
    let held = compute(&ground.manager, &hashes(1, 2), None).await;
    let last = group.allocate(1).await.expect("a block");
    let given_up = numbers(held.ids().chain(last.ids().iter().copied()));
    let preempted = group.preempt(held, last, 5).expect("of one manager");
    rest(&ground.manager).await;
    drop(group.allocate(4).await.expect("blocks"));
    let options = OnboardOptions::default().request(5);
    let resumed = group.resume(preempted, options).await.expect("it fits");
    assert_eq!((resumed.blocks.len(), resumed.missed), (2, None));
    assert_eq!(span(&ears, "preempt", &["request", "blocks", "partial"]), "5 2 1");
    assert_eq!(span(&ears, "resume", &["request", "blocks", "partial", "came", "missed"]), "5 2 1 3 ");
    assert_eq!(span(&ears, "onboard", &["request", "came"]), "5 3");
    let partial = resumed.partial.expect("one that was not full");
    let back = numbers(resumed.blocks.ids().chain(partial.ids().iter().copied()));
    for (name, ids) in [("preempt", &given_up), ("onboard", &back), ("resume", &back)] {
        assert_eq!(span(&ears, name, &["block_ids"]), *ids, "{name}");
    }
    let offloads = ears.spans("offload");
    assert!(offloads.len() == 2 && offloads.iter().all(|span| span.field("request") == "5"), "{offloads:?}");
}

#[tokio::test]
async fn persist_and_purge_have_spans_with_counts() {
    let (ears, _turn) = listen().await;
    let folder = directory();
    let (ground, _tier) = over_a_volume(folder.path());
    fill(&ground, 1).await;
    assert_eq!(ground.manager.default_group().persist(&hashes(1, 5)).await.copied, 4);
    assert_eq!(span(&ears, "persist", &["blocks", "copied", "there", "refused", "failed"]), "5 4 0 1 0");
    let of_persist = &ears.spans("persist")[0];
    let named: Vec<_> = hashes(1, 5).iter().map(|hash| format!("{:032x}", hash.to_u128())).collect();
    let named = format!("[{}]", named.join(", "));
    assert_eq!((of_persist.level, of_persist.field("hashes")), (Level::DEBUG, named.as_str()));
    let acme = ground.manager.tenant("acme").expect("a name");
    drop(compute(&acme, &hashes(2, 3), None).await);
    rest(&ground.manager).await;
    let purged = acme.purge(Purge::default()).await.expect("none is under way");
    assert!(purged.complete && purged.device.purged == 3, "{purged:?}");
    let fields = ["tenant", "zero", "purged", "busy", "failed", "complete"];
    assert_eq!(span(&ears, "purge", &fields), "acme false 3 0 0 true");
}
