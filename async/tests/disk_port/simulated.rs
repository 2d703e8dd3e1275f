//! The simulated disk: its ground, the faults of its plan, and that it does the same each time.

use crate::common::Random;
use crate::ground::{BYTES, Faults, Ground, HOST_BLOCKS, SLOTS, bytes_of, hash, token};
use crate::sim::{ALWAYS, Plan, SimDisk};
use kvstrata::backend::transfer::{Admits, Cause, Failure, HostMemory, Landed, TierPort};
use kvstrata_core::BlockId;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Runs on one thread, with a clock that goes on only when all wait for it.
pub fn run<T>(body: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(body)
}

struct Breaks(Arc<SimDisk>);

impl Faults for Breaks {
    fn rot(&self, slot: BlockId) {
        self.0.rot(slot, 12_345);
    }

    fn fail_reads(&self, fail: bool) {
        self.0.change(|plan| plan.fail = if fail { ALWAYS } else { 0 });
    }

    fn lose(&self) {
        self.0.lose();
    }
}

pub fn ground_of(disk: &Arc<SimDisk>) -> Ground {
    let memory = HostMemory::new(HOST_BLOCKS, &[4096, BYTES - 4096]).expect("memory");
    Ground::new(Arc::clone(disk) as Arc<dyn TierPort>, memory, Box::new(Breaks(Arc::clone(disk))))
}

pub fn ground(plan: Plan) -> Ground {
    ground_of(&Arc::new(SimDisk::new(SLOTS, BYTES, plan)))
}

/// Reads and writes at random, some dozens at a time, under the faults of a plan. Returns the answers
/// with their times, and the counts.
async fn storm(plan: Plan, requests: u64) -> (Vec<String>, crate::sim::Counts) {
    let disk = Arc::new(SimDisk::new(SLOTS, BYTES, plan));
    let mut ground = ground_of(&disk);
    // Not the plan's numbers.
    let mut random = Random(77);
    let begin = tokio::time::Instant::now();
    let mut log = Vec::new();
    // By token: the block, the host block, and the held reference.
    let mut under_way = BTreeMap::new();
    let mut idle: Vec<u32> = (0..24).collect();
    let mut stuck = false;
    for _ in 0..requests {
        let number = random.below(3 * u64::from(SLOTS));
        if let Some(block) = idle.pop() {
            if let Some((held, token)) = ground.read(number, block) {
                under_way.insert(token.0, (number, block, Some(held)));
            } else if !disk.admits(hash(number), begin.elapsed()) {
                log.push(format!("{number} is refused"));
                idle.push(block);
            } else if let Some(slot) = ground.take(1).pop() {
                let bytes = ground.filled(block, number);
                let token = ground.write_to(slot, number, bytes);
                under_way.insert(token.0, (number, block, None));
            } else {
                idle.push(block);
            }
        }
        while idle.is_empty() || random.below(3) == 0 && !under_way.is_empty() && !stuck {
            let Ok(landed) = tokio::time::timeout(Duration::from_secs(30), ground.next()).await else {
                // All that is left hangs.
                disk.shutdown();
                stuck = true;
                continue;
            };
            stuck = false;
            let (number, block, held) = under_way.remove(&token(&landed)).expect("asked");
            let outcome = match landed {
                Landed::Read(_, outcome) => {
                    outcome.map(|bytes| assert!(*bytes == bytes_of(number), "block {number}"))
                }
                Landed::Write(_, outcome) => outcome.map(drop),
                Landed::Copies(_) => unreachable!("token() has looked"),
            };
            log.push(format!("{:?} {number} {outcome:?}", begin.elapsed()));
            idle.push(block);
            if let Some(held) = held {
                ground.release(held);
                if outcome.is_err() {
                    disk.forget(held);
                }
            }
        }
    }
    disk.shutdown();
    while ground.outstanding() > 0 {
        log.push(format!("{} at last", token(&ground.next().await)));
    }
    (log, disk.counts())
}

#[test]
fn same_seed_is_the_same_run_without_a_wrong_byte() {
    for seed in 1..6 {
        let runs = [0, 1].map(|_| run(storm(Plan::rough(seed), 3000)));
        let (log, counts) = &runs[0];
        if let Some(at) = (0..log.len()).find(|at| log.get(*at) != runs[1].0.get(*at)) {
            panic!("seed {seed}: {:?} and then {:?}", &log[at..at + 3], runs[1].0.get(at..at + 3));
        }
        assert_eq!(counts, &runs[1].1);
        assert!(
            counts.read > 100 && counts.failed > 20 && counts.rejected > 20 && counts.quarantined > 0,
            "{counts:?}"
        );
        assert!(counts.refused > 0 && counts.refused < counts.asked / 4, "{counts:?}");
        assert_eq!(log.iter().filter(|line| line.ends_with("refused")).count() as u64, counts.refused);
        assert_eq!(counts.violations, [""; 0]);
        let (other, _) = run(storm(Plan::rough(seed + 100), 3000));
        assert!(*log != other, "another seed is another run");
    }
}

#[test]
fn plan_without_faults_fails_nothing() {
    let (log, counts) = run(storm(Plan::calm(3), 3000));
    assert_eq!((counts.failed, counts.rejected, counts.quarantined, counts.refused), (0, 0, 0, 0));
    assert!(
        counts.read > 100 && log.iter().all(|line| line.ends_with("Ok(())") || line.ends_with("at last"))
    );
}

#[test]
fn hanging_requests_are_answered_at_the_shutdown() {
    run(async {
        let disk = Arc::new(SimDisk::new(SLOTS, BYTES, Plan::calm(1)));
        let mut ground = ground_of(&disk);
        ground.store(0..2).await;
        disk.change(|plan| plan.hang = ALWAYS);
        let (held, _) = ground.read(0, 0).expect("found");
        ground.write(5, 1);
        tokio::time::timeout(Duration::from_secs(30), ground.next()).await.expect_err("hangs");
        assert!(ground.memory.read(0).is_err(), "the disk has the buffer");
        assert!(ground.port.find(hash(5), true).is_none(), "not found before its answer");
        disk.shutdown();
        for _ in 0..2 {
            let failure = match ground.next().await {
                Landed::Read(_, outcome) => outcome.map(drop),
                Landed::Write(_, outcome) => outcome.map(drop),
                Landed::Copies(_) => unreachable!("token() has looked"),
            };
            assert_eq!(failure, Err(Failure::of(Cause::Abandoned)));
        }
        ground.release(held);
        assert!(ground.memory.write(0).is_ok() && ground.memory.write(1).is_ok());
        assert_eq!(
            (disk.counts().quarantined, disk.pool().census().owned),
            (1, 1),
            "the slot is not used again"
        );
        assert!(ground.port.find(hash(5), true).is_none());
    });
}

#[test]
fn forbidden_calls_are_noted() {
    run(async {
        let disk = Arc::new(SimDisk::new(SLOTS, BYTES, Plan::calm(1)));
        let mut ground = ground_of(&disk);
        let slots = ground.store(0..1).await;
        let (held, _) = ground.read(0, 0).expect("found");
        let bytes = ground.filled(1, 9);
        ground.write_to(slots[0], 9, bytes);
        disk.release(slots[0]);
        let violations = disk.counts().violations;
        assert_eq!(violations.len(), 3, "{violations:?}");
        // The slot of the read was emptied under it.
        while ground.outstanding() > 0 {
            match ground.next().await {
                Landed::Read(_, outcome) => drop(outcome.map(|_| panic!("nothing is there")).map_err(|_| ())),
                other => drop(other),
            }
        }
        ground.release(held);
    });
}

#[test]
fn dropped_disk_answers_hanging_requests() {
    run(async {
        let mut hanging = ground(Plan { hang: ALWAYS, ..Plan::calm(1) });
        hanging.write(5, 1);
        let last = hanging.close().await;
        assert!(
            matches!(last[..], [Landed::Write(_, Err(Failure { cause: Cause::Abandoned, .. }))]),
            "{last:?}"
        );
    });
}
