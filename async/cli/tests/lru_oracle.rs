//! One tier, one worker: hits equal those of an exact LRU over blocks, ordered by last release, tail first.

mod common;

use common::Lru;
use kvstrata_cli::replay::Settings;
use kvstrata_cli::trace::Request;
use kvstrata_core::Policy;

/// Hits of an exact LRU of `capacity` blocks.
fn oracle(requests: &[Request], capacity: usize) -> u64 {
    let (mut cache, mut hits) = (Lru::default(), 0);
    for request in requests {
        hits += request.hash_ids.iter().take_while(|id| cache.contains(**id)).count() as u64;
        request.hash_ids.iter().rev().for_each(|id| cache.touch(*id));
        while cache.len() > capacity {
            cache.evict(|_| false).expect("not empty");
        }
    }
    hits
}

fn device_only(device_blocks: u32) -> Settings {
    let policy = Policy::Lru;
    Settings { device_blocks, host_blocks: 0, disk_blocks: 0, block_bytes: 64, policy, ..Settings::default() }
}

#[test]
fn bundled_trace_has_the_hits_of_an_exact_lru() {
    let requests = common::bundled(usize::MAX);
    // Known hits of this trace at these capacities, in per cent.
    for (capacity, known) in [(1000, "4.45"), (3000, "6.53"), (10_000, "21.16"), (30_000, "32.57")] {
        let report = common::replay(device_only(capacity));
        assert_eq!(report.hits.device, oracle(&requests, capacity as usize), "capacity {capacity}");
        assert_eq!(format!("{:.2}", report.hit_ratio * 100.0), known);
        assert_eq!((report.requests, report.blocks), (12_031, 288_500));
        assert_eq!((report.hit_blocks, report.verified_blocks), (report.hits.device, report.hits.device));
        assert_eq!((report.wrong_bytes, report.uncached_blocks, report.failures.total()), (0, 0, 0));
    }
}

#[test]
fn device_smaller_than_a_request_hits_like_an_lru() {
    let requests = common::bundled(1500);
    for capacity in [1, 2, 7, 40, 100] {
        let report = common::replay(Settings { requests: Some(1500), ..device_only(capacity) });
        assert_eq!(report.hit_blocks, oracle(&requests, capacity as usize), "capacity {capacity}");
        let too_long = |request: &Request| request.hash_ids.len().saturating_sub(capacity as usize) as u64;
        assert_eq!(report.uncached_blocks, requests.iter().map(too_long).sum::<u64>());
        assert_eq!(report.wrong_bytes, 0);
    }
}

#[test]
fn ids_with_changing_predecessors_hit_like_an_lru() {
    // No real trace of prompts looks like this, but a user may give one.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let mut state = 1u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let requests: Vec<Vec<u64>> = (0..2000).map(|_| (0..1 + next(6)).map(|_| next(60)).collect()).collect();
    let parsed: Vec<Request> =
        requests.iter().map(|ids| Request { hash_ids: ids.clone(), ..Request::default() }).collect();
    // Distinct ids only: a repeated id within one request has no defined meaning.
    let distinct = |request: &&Request| {
        let ids = &request.hash_ids;
        (1..ids.len()).all(|i| !ids[..i].contains(&ids[i]))
    };
    let parsed: Vec<Request> = parsed.iter().filter(distinct).cloned().collect();
    let ids: Vec<Vec<u64>> = parsed.iter().map(|request| request.hash_ids.clone()).collect();
    for capacity in [6, 13, 40] {
        let settings = device_only(capacity);
        let device = common::device(&settings);
        let report = common::run(settings, device, common::trace_file(folder.path(), &ids), &|_| {});
        assert_eq!(report.hit_blocks, oracle(&parsed, capacity as usize), "capacity {capacity}");
        assert_eq!((report.wrong_bytes, report.uncached_blocks), (0, 0));
    }
}
