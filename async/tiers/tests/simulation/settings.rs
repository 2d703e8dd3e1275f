//! A seed's settings: sizes, rules, faults, the number of engines.

use crate::common::Random;
use crate::sim::Plan;
use kvstrata_core::Policy;
use kvstrata_tiers::transfer::{Breaker, Limits, Path};
use kvstrata_tiers::{Quotas, Rules, Watermarks, WriteMode};
use std::time::Duration;

/// The blocks that are compared with their sums on the way to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    All,
    Disk,
}

#[derive(Debug, Clone)]
pub struct Settings {
    pub device: u32,
    pub host: u32,
    pub disk: u32,
    /// Blocks of a remote store below the disk, or below the host where there is none.
    pub remote: u32,
    /// Volumes of the disk.
    pub volumes: u32,
    /// Whether another process over the same disk follows this one.
    pub restarts: bool,
    pub staging: u32,
    pub layers: u32,
    pub layer_bytes: usize,
    pub headroom: u32,
    pub mode: WriteMode,
    pub verify: Verify,
    pub policies: [Policy; 2],
    pub linked: bool,
    pub ahead_first: [bool; 2],
    pub queue: u32,
    pub in_flight: u64,
    pub quantum: u64,
    pub retries: u32,
    pub retry_after: Duration,
    pub allocate: Duration,
    pub onboard: Duration,
    pub offload: Duration,
    pub shutdown: Duration,
    pub mover: Plan,
    pub disk_plan: Plan,
    /// Odds of a flipped bit in a block of host memory at each tick, in a thousand.
    pub rot: u64,
    /// Blocks that are prefetched, at most.
    pub prefetch: u32,
    pub lose_disk_after: Option<Duration>,
    pub shutdown_after: Option<Duration>,
    /// How long an iteration of the model takes, if it has any.
    pub iteration: Option<Duration>,
    /// Bytes that an iteration may move.
    pub iteration_bytes: Option<u64>,
    /// Whether no iteration runs while all requests wait.
    pub paced: bool,
    /// An engine without an iteration for so long is idle.
    pub iteration_idle: Option<Duration>,
    /// How long requests may wait for writes to the disk; `None`: as the manager finds.
    pub patience: Option<Duration>,
    /// The average time of a write from which the disk is too slow.
    pub slow_above: Duration,
    /// Watermarks of the device and the host.
    pub watermarks: [f64; 2],
    pub idle_after: u64,
    pub engines: u64,
    pub requests: u64,
    /// Blocks of the longest sequence.
    pub depth: u64,
    /// Children of a block.
    pub branch: u64,
    /// Futures that are dropped, of a hundred.
    pub hasty: u64,
    /// Tenants. Engines belong to none and to each of them in turn.
    pub tenants: u64,
    /// The quotas of each tenant: parts of device, host and disk.
    pub quotas: [f64; 3],
    /// Requests that begin with a purge, of a hundred.
    pub purges: u64,
    /// Requests that are preempted, of ten.
    pub preempts: u64,
    /// Of ten times that a request has blocks, the times that it gives them a class for eviction.
    pub classes: u64,
}

pub fn millis(random: &mut Random, from: u64, to: u64) -> Duration {
    Duration::from_millis(from + random.below(to - from))
}

pub fn one<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len() as u64) as usize]
}

pub fn plan(random: &mut Random, scale: u64) -> Plan {
    let seed = random.next();
    let mut plan = match random.below(10) {
        0..4 => Plan::calm(seed),
        4..8 => Plan { hang: 0, ..Plan::rough(seed) },
        _ => Plan::rough(seed),
    };
    let odds = |random: &mut Random, of_10: u64, most: u64| {
        if random.below(10) < of_10 { random.below(most) } else { 0 }
    };
    plan.fail += odds(random, 2, 500);
    plan.damage += odds(random, 1, 300);
    plan.hang += odds(random, 1, 50);
    plan.lose += odds(random, 1, 50);
    plan.refuse += odds(random, 1, 1000);
    plan.full += odds(random, 2, 1000);
    plan.latency = Duration::from_millis(scale)..Duration::from_millis(scale * (2 + random.below(10)));
    plan
}

impl Settings {
    pub fn draw(random: &mut Random) -> Settings {
        let device = 4 + random.below(21) as u32;
        let host = if random.below(4) == 0 { 0 } else { 1 + random.below(32) as u32 };
        let disk = if random.below(3) == 0 { 0 } else { 1 + random.below(48) as u32 };
        let layers = 1 + random.below(4);
        let words = 8_u64.div_ceil(layers) + random.below(32 / layers - 8_u64.div_ceil(layers) + 1);
        let block = layers * words * 8;
        let verify = if random.below(5) == 0 { Verify::Disk } else { Verify::All };
        let [up, down] = [0, 0].map(|_| one(random, &[2, 20, 20, 100]));
        let (mover, disk_plan) = (plan(random, up), plan(random, down));
        let rot = if verify == Verify::All { one(random, &[0, 0, 50, 300]) } else { 0 };
        let iteration = (random.below(2) == 0).then(|| millis(random, 2, 50));
        let after =
            |random: &mut Random, of_100| (random.below(100) < of_100).then(|| millis(random, 1, 3000));
        let mut later = Random(random.next());
        let mut mover = mover;
        mover.keep = later.below(2) == 0;
        let tenants = if later.below(2) == 0 { 0 } else { 1 + later.below(3) };
        let quotas = [0; 3].map(|_| one(&mut later, &[1.0, 1.0, 0.75, 0.5]));
        let quotas = if tenants > 0 { quotas } else { [1.0; 3] };
        let purges = if tenants > 0 { one(&mut later, &[0, 10, 30]) } else { 0 };
        let preempts = one(&mut later, &[0, 2, 6]);
        let most = ((f64::from(device) * quotas[0]) as u64).max(1);
        let paced = later.below(3) == 0;
        let iteration = iteration.or_else(|| paced.then(|| millis(&mut later, 2, 50)));
        let short = paced.then(|| block * (1 + later.below(3)));
        // A purge takes pinned blocks, too.
        let classes = if purges == 0 { one(&mut later, &[0, 3, 6]) } else { 0 };
        let (volumes, restarts) = (1 + later.below(3) as u32, later.below(2) == 0);
        // A generator of its own, so that seeds stay what they were.
        let mut latest = Random(mover.seed.rotate_left(17));
        let ahead_first = [(); 2].map(|()| latest.below(2) == 0);
        let mut disk_plan = disk_plan;
        // A drive that moves one block at a time, while many wait.
        disk_plan.one_by_one = latest.below(4) == 0;
        let patience = match latest.below(4) {
            0 => Some(Duration::ZERO),
            1 => Some(millis(&mut latest, 1, 200)),
            _ => None,
        };
        let slow_above = Duration::from_millis(one(&mut latest, &[1000, 1000, 100, 20]));
        let remote = if latest.below(3) == 0 { 1 + latest.below(64) as u32 } else { 0 };
        Settings {
            device,
            host,
            disk,
            remote,
            volumes,
            restarts,
            staging: 2 + random.below(4) as u32,
            layers: layers as u32,
            layer_bytes: words as usize * 8,
            headroom: if host > 0 { random.below(u64::from(host).div_ceil(3)) as u32 } else { 0 },
            mode: one(random, &[WriteMode::Back, WriteMode::Back, WriteMode::Through, WriteMode::SecondUse]),
            verify,
            policies: [one(random, &Policy::ALL), one(random, &Policy::ALL)],
            linked: random.below(2) == 0,
            ahead_first,
            queue: one(random, &[1, 2, 4, 16, 1024]),
            in_flight: block * one(random, &[1, 2, 4, 64]),
            quantum: one(random, &[1, block, 4 * block, 64 * block]),
            retries: random.below(4) as u32,
            retry_after: millis(random, 0, 50),
            allocate: millis(random, 50, 5000),
            onboard: millis(random, 50, 5000),
            offload: millis(&mut later, 50, 5000),
            shutdown: millis(random, 200, 5000),
            mover,
            disk_plan,
            rot,
            prefetch: random.below(u64::from(device) + 1).min(6) as u32,
            lose_disk_after: after(random, 8),
            shutdown_after: after(random, 15),
            iteration,
            iteration_bytes: iteration
                .filter(|_| random.below(3) == 0)
                .map(|_| block * (1 + random.below(4)))
                .or(short),
            paced,
            // An engine that does without the bytes of the next iteration would hide the wait for it.
            iteration_idle: (!paced && later.below(2) == 0).then(|| millis(&mut later, 1, 100)),
            patience,
            slow_above,
            watermarks: [0, 0].map(|_| 0.2 + random.below(80) as f64 / 100.0),
            idle_after: 1 + random.below(30),
            engines: 1 + random.below(6),
            requests: 2 + random.below(6),
            depth: 1 + random.below(u64::from(device)).min(most - 1),
            branch: 1 + random.below(3),
            hasty: one(random, &[0, 10, 40]),
            tenants,
            quotas,
            purges,
            preempts,
            classes,
        }
    }

    /// Blocks of the device that one request may have.
    pub fn most(&self) -> usize {
        (f64::from(self.device) * self.quotas[0]) as usize
    }

    /// Blocks of host memory for transfers from lower tiers, and for transfers there without a host tier.
    pub fn staging(&self) -> u32 {
        if self.disk + self.remote > 0 { self.staging } else { 0 }
    }

    pub fn block_bytes(&self) -> usize {
        self.layers as usize * self.layer_bytes
    }

    pub fn rules(&self) -> Rules {
        let limits =
            Limits { in_flight: u32::MAX, in_flight_bytes: self.in_flight, quantum_bytes: self.quantum };
        let [device, host] = self.watermarks;
        let ahead = |high: f64, idle| Watermarks { high, low: high.min(0.85), idle_after: Some(idle) };
        let defaults = Rules::default();
        Rules {
            verify_host: self.verify == Verify::All,
            mode: self.mode,
            host_headroom: if self.host > 0 { self.headroom } else { 0 },
            device_ahead: ahead(device, self.idle_after),
            host_ahead: ahead(host, self.idle_after * 3),
            prefetch_blocks: self.prefetch,
            hot_from: defaults.hot_from.filter(|_| self.prefetch > 0 && self.host > 0),
            idle_engine_after: self.iteration_idle,
            iteration_bytes: self.iteration_bytes,
            retries: self.retries,
            retry_after: self.retry_after,
            queue: self.queue,
            in_flight: [limits; Path::OF_SETTINGS.len()],
            patience: self.patience,
            breaker: Breaker::new(self.slow_above, self.slow_above / 2),
            allocate_deadline: self.allocate,
            onboard_deadline: self.onboard,
            offload_deadline: self.offload,
            shutdown_deadline: self.shutdown,
            quotas: Quotas { parts: self.quotas, ..defaults.quotas },
            ..defaults
        }
    }
}
