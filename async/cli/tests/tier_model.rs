//! Three tiers, one worker: hits, evictions and bytes moved equal those of a model made of three plain LRUs.

mod common;

use common::Lru;
use kvstrata_cli::replay::{ByPath, ByTier, Settings};
use kvstrata_cli::trace::Request;
use kvstrata_core::Policy;
use std::collections::HashSet;

#[derive(Default)]
struct Model {
    capacity: [usize; 3],
    tiers: [Lru; 3],
    hits: [u64; 3],
    evicted: [u64; 3],
    copied_to_host: u64,
    written: u64,
    /// Device blocks that the current request has taken.
    owned: usize,
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
        // Blocks after the run that are in the device nevertheless.
        pinned[0].extend(ids[run.len()..].iter().filter(|id| self.tiers[0].contains(**id)));
        for (hits, held) in self.hits.iter_mut().zip(&held) {
            *hits += held.len() as u64;
        }

        // Room is made for the run first, then for the rest.
        let up = held[1].len() + held[2].len();
        for needed in [up, ids.len() - pinned[0].len() - up] {
            self.make_room(needed, &pinned);
        }
        for tier in [1, 2] {
            held[tier].iter().rev().for_each(|id| self.tiers[tier].touch(*id));
        }
        self.owned = 0;
        ids.iter().rev().for_each(|id| self.tiers[0].touch(*id));
        assert!((0..3).all(|tier| self.tiers[tier].len() <= self.capacity[tier]));
    }

    fn evict(&mut self, tier: usize, pinned: &HashSet<u64>) -> Option<u64> {
        let victim = self.tiers[tier].evict(|id| pinned.contains(&id))?;
        self.evicted[tier] += 1;
        Some(victim)
    }

    /// Takes `needed` blocks of the device: free ones, then those of victims. Each victim is
    /// offloaded in turn and becomes the most recent block of its tier. Victims that need no
    /// write arrive first: those that find a free host block, and those that replace a host
    /// block that is on disk already.
    fn make_room(&mut self, needed: usize, pinned: &[HashSet<u64>; 3]) {
        let free = self.capacity[0] - self.tiers[0].len() - self.owned;
        let victims: Vec<u64> = (free..needed).filter_map(|_| self.evict(0, &pinned[0])).collect();
        assert_eq!(victims.len(), needed.saturating_sub(free));
        self.owned += needed;
        let (mut at_once, mut behind, mut written) = (Vec::new(), Vec::new(), Vec::new());
        for id in victims {
            if self.tiers[1].contains(id) {
                self.tiers[1].touch(id);
            } else if written.contains(&id) {
                // The block has just left the host, so it is on its way to disk.
            } else if self.tiers[1].len() + at_once.len() + behind.len() < self.capacity[1] {
                at_once.push(id);
            } else {
                let next = self.evict(1, &pinned[1]).expect("sizes at which the model is exact");
                if self.tiers[2].contains(next) {
                    self.tiers[2].touch(next);
                    at_once.push(id);
                } else {
                    if self.tiers[2].len() + written.len() == self.capacity[2] {
                        self.evict(2, &pinned[2]).expect("sizes at which the model is exact");
                    }
                    written.push(next);
                    behind.push(id);
                }
            }
        }
        self.copied_to_host += (at_once.len() + behind.len()) as u64;
        self.written += written.len() as u64;
        at_once.iter().chain(&behind).for_each(|id| self.tiers[1].touch(*id));
        written.iter().for_each(|id| self.tiers[2].touch(*id));
    }
}

#[test]
fn three_tiers_count_like_three_plain_lrus() {
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
            policy: Policy::Lru,
            ..Settings::default()
        });
        let by_tier = |[device, host, disk]: [u64; 3]| ByTier { device, host, disk };
        assert_eq!(report.hits, by_tier(model.hits), "{device} {host} {disk}");
        assert_eq!(report.evicted, by_tier(model.evicted), "{device} {host} {disk}");
        assert_eq!(report.bytes.device_to_host, model.copied_to_host * 512);
        assert_eq!(report.bytes.host_to_disk, model.written * 512);
        assert_eq!(report.bytes.disk_to_host, model.hits[2] * 512);
        assert_eq!(report.bytes.host_to_device, (model.hits[1] + model.hits[2]) * 512);
        let ByPath { device_to_host, host_to_disk, disk_to_host, host_to_device, filled } =
            report.bytes_per_second;
        let rates = [device_to_host, host_to_disk, disk_to_host, host_to_device, filled];
        assert!(rates.iter().all(|rate| *rate > 0.0), "all paths were busy: {rates:?}");
        assert_eq!(report.verified_blocks, report.hit_blocks);
        assert_eq!((report.wrong_bytes, report.failures.total(), report.dropped_blocks), (0, 0, 0));
    }
}
