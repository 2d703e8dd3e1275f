//! Batches of the keyed store, beside the same tier without it and beside memcpy.
//!
//! ```text
//!   store     keys ─► pool metadata ─► straight into lent memory, or by way of a staging block
//!   tier      slots ─► straight into the same memory
//!   memcpy    one thread, from memory that no cache has
//! ```

use super::report::{Cell, Table};
use crate::disk::files::Folder;
use crate::disk::under_way::UnderWay;
use crate::disk::{Failure, size};
use crate::rounds::{Effort, Samples};
use crate::work::Timed;
use futures_executor::block_on;
use kvstrata::backend::disk::{DiskMover, DiskTier, TierOptions};
use kvstrata::backend::transfer::TierPort;
use kvstrata::backend::{HostArena, HostCopier, SizeClassParts, StoreParts, StoreRules, StoreRuntime};
use kvstrata::store::{BatchOptions, Outcome, Store};
use kvstrata_core::{PoolConfig, SequenceHash};
use kvstrata_ffi::disk::{Name, OwnerId, Urgency, VolumeOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Keys of a batch.
const BATCH: usize = 64;

fn key(number: usize) -> SequenceHash {
    SequenceHash::from_u128((number as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

/// A store over a disk tier or over host memory alone, and memory of a caller.
struct Ground {
    store: Store,
    tier: Option<Arc<DiskTier>>,
    aligned: Arc<HostArena>,
    unaligned: Arc<HostArena>,
    block_bytes: usize,
    keys: usize,
    _runtime: Arc<StoreRuntime>,
}

impl Ground {
    fn new(folder: Option<&Path>, block_bytes: usize, bytes: usize) -> Result<Ground, Failure> {
        let slots = (bytes / block_bytes).next_multiple_of(BATCH) as u32;
        let runtime = StoreRuntime::start(2)?;
        let staging = ((16 << 20) / block_bytes).clamp(8, 256);
        let host = if folder.is_none() { slots as usize } else { 0 };
        let memory = HostArena::new(host + staging, block_bytes)?;
        let tier = match folder {
            None => None,
            Some(folder) => {
                let volume =
                    VolumeOptions::new(folder.join(format!("store-{block_bytes}")), slots, block_bytes)
                        .keep(true)
                        .write_through(true)
                        .register(&memory);
                let (tier, _) = DiskTier::open(vec![volume], PoolConfig::new(slots), TierOptions::default())?;
                Some(Arc::new(tier))
            }
        };
        let below = tier.as_ref().map(|tier| -> Arc<dyn TierPort> {
            Arc::new(DiskMover::new(Arc::clone(tier), runtime.of_disks(0)))
        });
        let host = folder.is_none().then(|| PoolConfig::new(slots));
        let class = SizeClassParts { block_bytes, host, memory: Some(memory), below };
        let parts = StoreParts {
            classes: vec![class],
            copier: Arc::new(HostCopier::new(1)?),
            runtime: Arc::<StoreRuntime>::clone(&runtime),
            rules: StoreRules::default(),
        };
        let store = Store::of_parts(parts)?;
        runtime.attend(store.attendant());
        let aligned = HostArena::new(BATCH, block_bytes)?;
        (0..BATCH).for_each(|block| aligned.write(block).expect("ours").fill(block as u8));
        let unaligned = HostArena::of_buffers(vec![vec![1; block_bytes]; BATCH])?;
        // Room beside the keys. Without it a batch was evicted at times, probably by a write
        // between the answer of a forget and the end of the forgotten slots' use.
        let keys = slots as usize - 4 * BATCH;
        let ground = Ground { store, tier, aligned, unaligned, block_bytes, keys, _runtime: runtime };
        for batch in 0..ground.batches() {
            ground.store_batch(batch, &ground.aligned);
        }
        Ok(ground)
    }

    fn batches(&self) -> usize {
        self.keys / BATCH
    }

    fn bytes(&self) -> u64 {
        (BATCH * self.block_bytes) as u64
    }

    /// The keys of a batch: apart from each other, so that no two reads are neighbours.
    fn names(&self, batch: usize) -> Vec<SequenceHash> {
        let batches = self.batches();
        (0..BATCH).map(|at| key(at * batches + (batch + at * 7) % batches)).collect()
    }

    fn store_batch(&self, batch: usize, memory: &Arc<HostArena>) {
        let begun = self.store.store(&self.names(batch), Arc::clone(memory), BatchOptions::default());
        let ended = block_on(begun.expect("begun")).expect("an answer");
        assert!(ended.is_done(), "{:?}", ended.outcomes);
    }

    fn load_batch(&self, batch: usize, memory: &Arc<HostArena>) {
        let begun = self.store.load(&self.names(batch), Arc::clone(memory), BatchOptions::default());
        let ended = block_on(begun.expect("begun")).expect("an answer");
        assert!(ended.is_done(), "{:?}", ended.outcomes);
    }

    fn forget_batch(&self, batch: usize) {
        let ended = block_on(self.store.forget(&self.names(batch)).expect("begun")).expect("an answer");
        assert!(ended.outcomes.iter().all(|outcome| *outcome == Outcome::Forgotten));
    }

    /// Reads a batch without the store.
    fn read_alone(&self, batch: usize) {
        let tier = self.tier.as_ref().expect("a disk");
        block_on(async {
            let mut under_way = UnderWay::default();
            for (block, hash) in self.names(batch).into_iter().enumerate() {
                let held = tier.lookup(hash).expect("it is there");
                let into = self.aligned.write(block).expect("ours");
                let read = tier.read_slot(held.id(), hash, Urgency::Ordinary, into);
                under_way.push(async move { read.await.map(|_| held) });
            }
            while let Some(ended) = under_way.next().await {
                drop(ended.expect("read"));
            }
        });
    }

    /// Writes a batch without the store. Its keys are not there.
    fn write_alone(&self, batch: usize) {
        let tier = self.tier.as_ref().expect("a disk");
        let slots = tier.take(BATCH);
        assert_eq!(slots.len(), BATCH);
        block_on(async {
            let mut under_way = UnderWay::default();
            for (block, (slot, hash)) in slots.into_iter().zip(self.names(batch)).enumerate() {
                let (slot, name) = (slot.into_id(), Name { hash, parent: None, owner: OwnerId::NONE });
                let bytes = self.aligned.read(block).expect("ours");
                let write = tier.write_slot(slot, name, bytes);
                under_way.push(async move {
                    let outcome = write.await;
                    tier.ended(slot, name, outcome.as_ref())
                });
            }
            while under_way.next().await.is_some() {}
        });
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    LoadAlone,
    Load,
    LoadUnaligned,
    StoreAlone,
    Store,
    StoreUnaligned,
    Memcpy,
}

struct Run<'g> {
    ground: &'g Ground,
    what: What,
    at: usize,
    copied: Vec<u8>,
}

impl Timed for Run<'_> {
    fn items(&self) -> u64 {
        self.ground.bytes()
    }

    fn time(&mut self, runs: u64) -> Duration {
        let mut took = Duration::ZERO;
        for _ in 0..runs {
            let (batch, of) = (self.at % self.ground.batches(), self.ground);
            self.at += 1;
            if matches!(self.what, What::StoreAlone | What::Store | What::StoreUnaligned) {
                of.forget_batch(batch);
            }
            let start = Instant::now();
            match self.what {
                What::LoadAlone => of.read_alone(batch),
                What::Load => of.load_batch(batch, &of.aligned),
                What::LoadUnaligned => of.load_batch(batch, &of.unaligned),
                What::StoreAlone => of.write_alone(batch),
                What::Store => of.store_batch(batch, &of.aligned),
                What::StoreUnaligned => of.store_batch(batch, &of.unaligned),
                What::Memcpy => {
                    let bytes = self.ground.bytes() as usize;
                    let from = batch * bytes % (self.copied.len() - bytes);
                    for block in 0..BATCH {
                        let start = from + block * of.block_bytes;
                        let mut to = of.aligned.write(block).expect("ours");
                        to.copy_from_slice(&self.copied[start..start + of.block_bytes]);
                    }
                }
            }
            took += start.elapsed();
        }
        took
    }
}

fn rows(effort: Effort, ground: &Ground, shown: &[(&str, What)], reach: &str, table: &mut Table) {
    let large = if shown[0].1 == What::Memcpy { 512 << 20 } else { 0 };
    let run = |what| Run {
        ground,
        what,
        at: 0,
        copied: if what == What::Memcpy { vec![1; large] } else { Vec::new() },
    };
    let mut runs: Vec<Run<'_>> = shown.iter().map(|(_, what)| run(*what)).collect();
    let samples =
        Samples::take(effort, &mut runs.iter_mut().map(|run| run as &mut dyn Timed).collect::<Vec<_>>());
    for (at, (name, _)) in shown.iter().enumerate() {
        let share = samples.times(0, at);
        table.rows.push(vec![
            Cell::word(format!("{BATCH} × {}", size(ground.block_bytes))),
            Cell::word(*name),
            Cell::figure(samples.time(at).rate(ground.bytes() as f64), 2),
            if at > 0 { Cell::ratio(share) } else { Cell::none() },
            if at == 1 { Cell::reach(reach, share.median >= 0.95) } else { Cell::none() },
        ]);
    }
}

/// Measures this part: volumes of so many bytes, in this folder.
///
/// # Errors
/// There is no room, or a volume or a thread cannot be made.
pub fn measure(effort: Effort, parent: &Path, bytes: usize) -> Result<Vec<Table>, Failure> {
    let columns = &["batch", "contender", "GB/s", "to the first", "reach"];
    let mut disk =
        Table::new("The keyed store over a disk: batches, each key's sum verified".to_owned(), columns);
    let mut host =
        Table::new("The keyed store over host memory, with one copying thread".to_owned(), columns);
    let folder = Folder::new(parent, 2 * bytes as u64 + (256 << 20))?;
    for block_bytes in [64 << 10, 1 << 20] {
        let ground = Ground::new(Some(folder.path()), block_bytes, bytes)?;
        let loads = [
            ("disk tier alone, reads", What::LoadAlone),
            ("store, loads to page-aligned memory", What::Load),
            ("store, loads to other memory", What::LoadUnaligned),
        ];
        rows(effort, &ground, &loads, "≥ 0.95", &mut disk);
        let stores = [
            ("disk tier alone, writes", What::StoreAlone),
            ("store, stores of page-aligned memory", What::Store),
            ("store, stores of other memory", What::StoreUnaligned),
        ];
        rows(effort, &ground, &stores, "≥ 0.95", &mut disk);
        block_on(ground.store.close());
        std::fs::remove_file(folder.file(&format!("store-{block_bytes}")))?;
        let ground = Ground::new(None, block_bytes, 512 << 20)?;
        let loads = [("memcpy, one thread", What::Memcpy), ("store, loads", What::Load)];
        rows(effort, &ground, &loads, "≥ 0.95", &mut host);
        block_on(ground.store.close());
    }
    disk.notes.push(format!(
        "A volume of {} MiB; before each store its keys are forgotten, outside of the time.",
        bytes >> 20
    ));
    host.notes.push("A host tier of 512 MiB, batches in turns, so that no cache has them.".to_owned());
    Ok(vec![disk, host])
}
