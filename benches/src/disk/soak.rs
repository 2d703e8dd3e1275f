//! Minutes of everything at once: writes, reads, forgetting, opening again, at full rate, each byte checked.
//!
//! A slot's number and generation (the draw of its last write) determine its contents. So a reader knows
//! every byte, and the blocks that an opened volume found can be compared with those that were there.
//!
//! Invariants
//! - I1: no other request uses a slot in flight: `Slot::busy`.
//! - I2: `generation` is that of the last write that ended; 0 after the slot was forgotten, or before it was
//!   written.

use super::Failure;
use super::target::{Plan, Target, fill, holds};
use crate::inputs::mix;
use futures_executor::block_on;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::fs;
use std::time::{Duration, Instant};

/// The time between two lines.
const LINE: Duration = Duration::from_secs(10);
/// Growth of memory since the first tenth of the run that counts as a leak.
const MEMORY_SLACK_BYTES: u64 = 32 << 20;

/// The length, the openings and the depth of a run.
#[derive(Clone, Debug)]
pub struct Soak {
    /// The length of the whole run.
    pub length: Duration,
    /// The time between two openings.
    pub open_every: Duration,
    /// Requests in flight.
    pub depth: usize,
    /// Decides the operations and their slots.
    pub seed: u64,
}

/// The operations of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Blocks written.
    pub writes: u64,
    /// Blocks read and found right.
    pub reads: u64,
    /// Blocks forgotten.
    pub forgets: u64,
    /// Reads of forgotten blocks, refused.
    pub refused: u64,
    /// Times that the volume was opened again.
    pub opened: u64,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    generation: u64,
    busy: bool,
}

/// A request that ended.
enum Ended {
    Written(u64),
    Read,
    Refused,
}

/// The resources that the process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    memory_bytes: u64,
    descriptors: usize,
}

impl Held {
    fn now() -> Result<Held, Failure> {
        let statm = fs::read_to_string("/proc/self/statm")?;
        let pages: u64 = statm.split(' ').nth(1).ok_or("statm has no second field")?.parse()?;
        // SAFETY: it only returns a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let memory_bytes = pages * u64::try_from(page)?;
        // Without the one that lists them.
        let descriptors = fs::read_dir("/proc/self/fd")?.count() - 1;
        Ok(Held { memory_bytes, descriptors })
    }

    /// Fails if more has grown since than allowed.
    fn compare(self, since: Held) -> Result<(), Failure> {
        self.grown(since).map_or(Ok(()), |grown| Err(grown.into()))
    }

    fn grown(self, since: Held) -> Option<String> {
        let limit = since.memory_bytes + since.memory_bytes / 10 + MEMORY_SLACK_BYTES;
        if self.memory_bytes > limit {
            return Some(format!(
                "memory grew from {} to {} MiB",
                since.memory_bytes >> 20,
                self.memory_bytes >> 20
            ));
        }
        (self.descriptors > since.descriptors)
            .then(|| format!("open descriptors grew from {} to {}", since.descriptors, self.descriptors))
    }
}

fn hash(slot: u32, generation: u64) -> u128 {
    (u128::from(mix(generation)) << 64) | u128::from(slot) | 1 << 40
}

fn seed(slot: u32, generation: u64) -> u64 {
    mix((u64::from(slot) << 32) ^ generation)
}

/// Runs the soak, and prints a line to stderr every ten seconds.
///
/// # Errors
/// A wrong byte, a request that failed, a volume that lost or made up a block, memory or descriptors
/// that grow.
pub fn soak(plan: &Plan, options: &Soak) -> Result<Done, Failure> {
    let (mut target, found) = Target::open(plan)?;
    if !found.created {
        return Err(format!("{}: the volume is not new; name another path", plan.path.display()).into());
    }
    eprintln!("{}", target.describe());
    let mut slots = vec![Slot::default(); plan.slots as usize];
    let (mut done, mut baseline, start) = (Done::default(), None, Instant::now());
    let (mut watch, mut draws) = (Watch { line: start, moved: 0 }, options.seed);
    while start.elapsed() < options.length {
        let until = (start.elapsed() + options.open_every).min(options.length);
        let check = |done: &Done| -> Result<(), Failure> {
            let held = Held::now()?;
            match baseline {
                None if start.elapsed() * 10 >= options.length => baseline = Some(held),
                None => {}
                Some(since) => held.compare(since)?,
            }
            watch.line(start, plan, done, held);
            Ok(())
        };
        block_on(phase(&target, &mut slots, options.depth, &mut draws, &mut done, (start, until), check))?;
        let (again, found) = target.reopen()?;
        target = again;
        let found = found.blocks.iter().map(|block| (block.slot, block.label.hash.to_u128()));
        same(found.collect(), &slots)?;
        done.opened += 1;
    }
    if let Some(since) = baseline {
        Held::now()?.compare(since)?;
    }
    Ok(done)
}

struct Watch {
    line: Instant,
    moved: u64,
}

impl Watch {
    /// Prints a line, at most every ten seconds.
    fn line(&mut self, start: Instant, plan: &Plan, done: &Done, held: Held) {
        let since = self.line.elapsed();
        if since < LINE {
            return;
        }
        let moved = (done.writes + done.reads) * plan.slot_bytes as u64;
        let rate = (moved - self.moved) as f64 / since.as_secs_f64() / 1e9;
        eprintln!(
            "{:5.0} s  {rate:.2} GB/s  {} MiB  {} descriptors  {done:?}",
            start.elapsed().as_secs_f64(),
            held.memory_bytes >> 20,
            held.descriptors,
        );
        (self.line, self.moved) = (Instant::now(), moved);
    }
}

/// Keeps requests in flight until then; none is left at its end.
async fn phase(
    target: &Target,
    slots: &mut [Slot],
    depth: usize,
    draws: &mut u64,
    done: &mut Done,
    (start, until): (Instant, Duration),
    mut check: impl FnMut(&Done) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut under_way = FuturesUnordered::new();
    let mut free: Vec<usize> = (0..depth).collect();
    let mut checked = Instant::now();
    loop {
        while start.elapsed() < until
            && let Some(block) = free.pop()
        {
            // Never the same number, so it is also the generation of the written block.
            *draws += 1;
            let (next, draw) = (*draws, mix(*draws));
            let mut slot = (draw >> 32) as usize % slots.len();
            while slots[slot].busy {
                slot = (slot + 1) % slots.len();
            }
            let number = slot as u32;
            if draw % 100 < 5 && slots[slot].generation != 0 {
                target.forget(number);
                slots[slot].generation = 0;
                done.forgets += 1;
            }
            let generation = slots[slot].generation;
            // Most draws of an empty slot write it; the others read it, and must be refused.
            let write = if generation == 0 { draw % 100 >= 10 } else { draw % 100 >= 50 };
            slots[slot].busy = true;
            under_way.push(async move {
                let ended = match write {
                    true => write_one(target, number, next, block).await.map(|()| Ended::Written(next)),
                    false => read_one(target, number, generation, block).await,
                };
                ended.map(|ended| (slot, block, ended))
            });
        }
        let Some(ended) = under_way.next().await else { return Ok(()) };
        let (slot, block, ended) = ended?;
        slots[slot].busy = false;
        free.push(block);
        match ended {
            Ended::Written(generation) => {
                slots[slot].generation = generation;
                done.writes += 1;
            }
            Ended::Read => done.reads += 1,
            Ended::Refused => done.refused += 1,
        }
        if checked.elapsed() >= Duration::from_millis(200) {
            checked = Instant::now();
            check(done)?;
        }
    }
}

async fn write_one(target: &Target, slot: u32, generation: u64, block: usize) -> Result<(), Failure> {
    let mut buffer = target.arena().write(block)?;
    fill(&mut buffer, seed(slot, generation));
    target.write(slot, hash(slot, generation), buffer.into_read()).await?;
    Ok(())
}

async fn read_one(target: &Target, slot: u32, generation: u64, block: usize) -> Result<Ended, Failure> {
    let buffer = target.arena().write(block)?;
    match (target.read(slot, hash(slot, generation), generation.is_multiple_of(2), buffer).await?, generation)
    {
        (None, 0) => Ok(Ended::Refused),
        (Some(_), 0) => Err(format!("slot {slot} was forgotten, and is served").into()),
        (None, _) => Err(format!("slot {slot}, generation {generation}: written, and a miss").into()),
        (Some(buffer), _) if holds(&buffer, seed(slot, generation)) => Ok(Ended::Read),
        (Some(_), _) => Err(format!("slot {slot}, generation {generation}: a wrong byte").into()),
    }
}

/// Fails unless the volume found exactly the blocks that were there.
fn same(mut found: Vec<(u32, u128)>, slots: &[Slot]) -> Result<(), Failure> {
    found.sort_unstable();
    let was = slots.iter().enumerate().filter(|(_, slot)| slot.generation != 0);
    let was: Vec<(u32, u128)> =
        was.map(|(number, slot)| (number as u32, hash(number as u32, slot.generation))).collect();
    if found != was {
        let lost = was.iter().filter(|one| found.binary_search(one).is_err()).count();
        let made_up = found.iter().filter(|one| was.binary_search(one).is_err()).count();
        return Err(format!("opened again: {lost} blocks lost, {made_up} that were not there").into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_growth_is_reported() {
        let since = Held { memory_bytes: 1 << 30, descriptors: 9 };
        let grown = |memory_bytes, descriptors| Held { memory_bytes, descriptors }.grown(since);
        assert_eq!(grown(1 << 30, 9), None);
        assert_eq!(grown((1 << 30) + (100 << 20), 8), None);
        assert!(grown((1 << 30) + (200 << 20), 9).is_some_and(|what| what.contains("memory")));
        assert!(grown(1 << 30, 10).is_some_and(|what| what.contains("descriptors")));
    }

    #[test]
    fn lost_and_invented_blocks_are_reported() {
        let slots = [Slot::default(), Slot { generation: 3, busy: false }];
        same(vec![(1, hash(1, 3))], &slots).expect("the same");
        assert!(same(vec![], &slots).is_err());
        assert!(same(vec![(1, hash(1, 2))], &slots).is_err());
        assert!(same(vec![(0, hash(0, 1)), (1, hash(1, 3))], &slots).is_err());
    }
}
