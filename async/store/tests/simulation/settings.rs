//! The settings of a seed.

use crate::common::Random;
use crate::sim::Plan;
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Settings {
    pub seed: u64,
    /// Blocks of the host tier, by size class.
    pub host: u32,
    pub staging: u32,
    /// Slots of the disk, by size class; 0: none.
    pub disk: u32,
    /// Reads, and writes, at once.
    pub at_once: u32,
    pub plan: Plan,
    pub queue: usize,
    pub callers: u64,
    pub steps: u64,
    /// Copies of a thousand that are abandoned.
    pub abandon: u64,
    /// Steps of a thousand that flip a bit of host memory.
    pub rot: u64,
    /// Steps of a thousand with a deadline that is soon over.
    pub hurry: u64,
    /// Futures of a thousand that are dropped.
    pub drop: u64,
    pub patience: Duration,
    /// Whether aligned memory goes straight to the disk.
    pub straight: bool,
    /// Whether the store is closed in the middle.
    pub closes: bool,
}

impl Settings {
    pub fn of(seed: u64) -> Settings {
        let mut random = Random(seed ^ 0x5707);
        let calm = random.below(4) == 0;
        let host = [0, 1, 2, 7][random.below(4) as usize];
        let disk = if host > 0 && random.below(6) == 0 { 0 } else { 1 + random.below(20) as u32 };
        let plan = if calm { Plan::calm(seed) } else { Plan::rough(seed) };
        let odds = |random: &mut Random, of: u64| if calm { 0 } else { random.below(of) };
        Settings {
            seed,
            host,
            staging: 1 + random.below(4) as u32,
            disk,
            at_once: 1 + random.below(6) as u32,
            plan: Plan { one_by_one: random.below(4) == 0, ..plan },
            queue: if random.below(3) == 0 { 4 } else { 200 },
            callers: 1 + random.below(5),
            steps: 10 + random.below(30),
            abandon: odds(&mut random, 100),
            rot: odds(&mut random, 200),
            hurry: odds(&mut random, 300),
            drop: odds(&mut random, 200),
            patience: Duration::from_secs(if calm { 3600 } else { 1 + random.below(20) }),
            straight: random.below(3) > 0,
            closes: random.below(8) == 0,
        }
    }
}
