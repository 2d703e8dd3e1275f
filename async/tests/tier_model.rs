//! Three tiers, one worker: hits, evictions and bytes moved equal those of a model made of three plain LRUs.

mod common;

use common::Lru;
use kvstrata::replay::{ByTier, Settings};
use kvstrata::trace::Request;
use std::collections::HashSet;

/// Victims that are taken down at a time.
const BATCH: usize = 128;

#[derive(Default)]
struct Model {
    capacity: [usize; 3],
    tiers: [Lru; 3],
    hits: [u64; 3],
    evicted: [u64; 3],
    copied_to_host: u64,
    written: u64,
}

impl Model {
    fn new(device: usize, host: usize, disk: usize) -> Model {
        Model { capacity: [device, host, disk], ..Model::default() }
    }

    fn serve(&mut self, request: &Request) {
        let ids = &request.hash_ids[..request.hash_ids.len().min(self.capacity[0])];
        let tier_of = |id: &u64| (0..3).find(|tier| self.tiers[*tier].contains(*id));
        let run: Vec<usize> = ids.iter().map_while(tier_of).collect();
        let found_in = |tier| -> Vec<u64> {
            ids.iter().zip(&run).filter(|(_, found)| **found == tier).map(|(id, _)| *id).collect()
        };
        let held: [Vec<u64>; 3] = [found_in(0), found_in(1), found_in(2)];
        let mut pinned: [HashSet<u64>; 3] = held.clone().map(HashSet::from_iter);
        // Behind the run, but on the device all the same.
        pinned[0].extend(ids[run.len()..].iter().filter(|id| self.tiers[0].contains(**id)));
        for (hits, held) in self.hits.iter_mut().zip(&held) {
            *hits += held.len() as u64;
        }

        let needed = ids.len() - pinned[0].len();
        let free = self.capacity[0] - self.tiers[0].len();
        let mut victims = Vec::new();
        for _ in free..needed {
            victims.extend(self.evict(0, &pinned[0]));
        }
        for batch in victims.chunks(BATCH) {
            self.down(1, batch, &pinned);
        }
        for tier in [1, 2] {
            held[tier].iter().rev().for_each(|id| self.tiers[tier].touch(*id));
        }
        ids.iter().rev().for_each(|id| self.tiers[0].touch(*id));
        assert!((0..3).all(|tier| self.tiers[tier].len() <= self.capacity[tier]));
    }

    fn evict(&mut self, tier: usize, pinned: &HashSet<u64>) -> Option<u64> {
        let victim = self.tiers[tier].evict(|id| pinned.contains(&id))?;
        self.evicted[tier] += 1;
        Some(victim)
    }

    /// Takes victims of the tier above into `tier`, or forgets them.
    fn down(&mut self, tier: usize, victims: &[u64], pinned: &[HashSet<u64>; 3]) {
        if tier == 3 {
            return;
        }
        let there: HashSet<u64> =
            victims.iter().copied().filter(|id| self.tiers[tier].contains(*id)).collect();
        let wanted = victims.len() - there.len();
        let free = self.capacity[tier] - self.tiers[tier].len();
        let held: HashSet<u64> = pinned[tier].union(&there).copied().collect();
        let next: Vec<u64> = (free..wanted).map_while(|_| self.evict(tier, &held)).collect();
        assert_eq!(next.len(), wanted.saturating_sub(free), "sizes at which the model is exact");
        self.down(tier + 1, &next, pinned);
        victims.iter().for_each(|id| self.tiers[tier].touch(*id));
        *(if tier == 1 { &mut self.copied_to_host } else { &mut self.written }) += wanted as u64;
    }
}

#[test]
fn three_tiers_count_as_three_plain_lrus() {
    let served = 2000;
    let requests = common::bundled(served);
    for (device, host, disk) in [(300, 700, 2000), (1000, 500, 6000), (260, 4000, 500)] {
        let mut model = Model::new(device, host, disk);
        requests.iter().for_each(|request| model.serve(request));
        let report = common::replay(Settings {
            requests: Some(served as u64),
            device_blocks: device as u32,
            host_blocks: host as u32,
            disk_blocks: disk as u32,
            block_bytes: 512,
            ..Settings::default()
        });
        let by_tier = |[device, host, disk]: [u64; 3]| ByTier { device, host, disk };
        assert_eq!(report.hits, by_tier(model.hits), "{device} {host} {disk}");
        assert_eq!(report.evicted, by_tier(model.evicted), "{device} {host} {disk}");
        assert_eq!(report.bytes.device_to_host, model.copied_to_host * 512);
        assert_eq!(report.bytes.host_to_disk, model.written * 512);
        assert_eq!(report.bytes.disk_to_host, model.hits[2] * 512);
        assert_eq!(report.bytes.host_to_device, (model.hits[1] + model.hits[2]) * 512);
        assert_eq!(report.verified_blocks, report.hit_blocks);
        assert_eq!((report.wrong_bytes, report.failures.total(), report.dropped_blocks), (0, 0, 0));
    }
}
