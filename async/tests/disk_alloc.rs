//! In steady state neither a read from the disk nor a write to it allocates.

use kvstrata::backend::disk::{DiskMover, DiskTier, TierOptions};
use kvstrata::backend::transfer::{Landed, Landing, Lands, Reserve, TierPort, TierRead, TierWrite, Token};
use kvstrata::config::DiskFill;
use kvstrata::{KvBlockManager, ManagerConfig};
use kvstrata_core::{BlockId, PoolConfig, SequenceHash};
use kvstrata_ffi::arena::{BlockRead, BlockWrite, HostArena};
use kvstrata_ffi::disk::{Backend, Name, OwnerId, Pending, Urgency, VolumeOptions};
use kvstrata_testing::counting::{Counting, allocations, counted_here};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::sync::Notify;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BYTES: usize = 4096;
const AT_ONCE: usize = 32;
const ROUNDS: usize = 50;

/// Counts on this thread: the ring thread has lists of its own, which grow as it merges.
fn counted(mut round: impl FnMut()) -> u64 {
    (0..ROUNDS).for_each(|_| round());
    counted_here(|| (0..ROUNDS).for_each(|_| round())).1
}

fn hash(number: usize) -> SequenceHash {
    SequenceHash::from_u128((number as u128 + 1) << 64)
}

/// Counts landings.
#[derive(Default)]
struct Ear {
    landed: AtomicUsize,
    all: Notify,
}

impl Lands for Ear {
    fn landed(&self, landed: Landed) {
        assert!(matches!(landed, Landed::Read(_, Ok(_)) | Landed::Write(_, Ok(_))), "{landed:?}");
        // Relaxed: one thread does all of it.
        if self.landed.fetch_add(1, Relaxed) + 1 == AT_ONCE {
            self.landed.store(0, Relaxed);
            self.all.notify_one();
        }
    }
}

#[test]
fn reads_and_writes_allocate_nothing() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let blocks = AT_ONCE as u32;
    let volume = VolumeOptions::new(folder.path().join("volume"), blocks, BYTES).backend(Backend::Blocking);
    let (tier, _) =
        DiskTier::open(vec![volume], PoolConfig::new(blocks), TierOptions::default()).expect("a tier");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let (tier, arena) = (Arc::new(tier), HostArena::new(AT_ONCE, BYTES).expect("memory"));
    let mover = DiskMover::new(Arc::clone(&tier), runtime.handle());
    let ear = Arc::new(Ear::default());
    let landing = || Landing::new(Arc::clone(&ear) as Arc<dyn Lands>);
    let token = Token(0);
    let mut slots: Vec<BlockId> = Vec::with_capacity(AT_ONCE);
    let mut sent = 0;
    for round in 0..2 * ROUNDS {
        let write = || {
            // The blocks of the round before make room.
            slots.clear();
            mover.reserve(Reserve::Some(AT_ONCE), &mut slots);
            for (number, slot) in slots.iter().enumerate() {
                let name = Name { hash: hash(number), parent: None, owner: OwnerId::NONE };
                let bytes = arena.read(number).expect("idle");
                mover.write(TierWrite { token, slot: *slot, name, bytes, sum: None, landing: landing() });
            }
            runtime.block_on(ear.all.notified());
        };
        let count = counted_here(write).1;
        sent += if round < ROUNDS { 0 } else { count };
    }
    let reads = counted(|| {
        for (number, slot) in slots.iter().enumerate() {
            let (hash, buffer) = (hash(number), arena.write(number).expect("idle"));
            let (urgency, landing) = (Urgency::Ordinary, landing());
            mover.read(TierRead { token, slot: *slot, hash, urgency, buffer, landing });
        }
        runtime.block_on(ear.all.notified());
    });
    let mut pending: Vec<Pending<BlockWrite>> = Vec::with_capacity(AT_ONCE);
    let mut written: Vec<Pending<BlockRead>> = Vec::with_capacity(AT_ONCE);
    let plain = counted(|| {
        for (number, slot) in slots.iter().enumerate() {
            let buffer = arena.write(number).expect("idle");
            pending.push(tier.read_slot(*slot, hash(number), Urgency::Ordinary, buffer));
        }
        pending.drain(..).for_each(|pending| drop(pending.wait().expect("read")));
    });
    let writes = counted(|| {
        for (number, slot) in slots.iter().enumerate() {
            let name = Name { hash: hash(number), parent: None, owner: OwnerId::NONE };
            let bytes = arena.read(number).expect("idle");
            written.push(tier.write_slot(*slot, name, bytes));
        }
        written.drain(..).for_each(|pending| drop(pending.wait().expect("written")));
    });
    let all =
        [("read", reads), ("written", sent), ("read without the mover", plain), ("written without", writes)];
    assert!(all.iter().all(|(_, count)| *count == 0), "{all:?}, for {} blocks each", AT_ONCE * ROUNDS);
}

/// Blocks that are allocated, registered and released over a full device, a full host and a full disk: each
/// pushes one down to the host and one from there to the disk. The bytes are checked on their way.
#[tokio::test]
async fn writes_of_a_manager_allocate_nothing_a_block() {
    const BLOCKS: usize = 16;
    let config = ManagerConfig::builder()
        .geometry_block_bytes(Some(BYTES as u64))
        .device_blocks(64)
        .host_blocks(64)
        .disk_blocks(256)
        .disk_fill(DiskFill::No)
        .build()
        .expect("settings");
    let manager = KvBlockManager::open(&config).expect("a manager");
    let mut next = 0;
    let mut hashes = vec![SequenceHash::from_u128(1); BLOCKS];
    let mut each = [0, 0];
    for (round, allocated) in each.iter_mut().enumerate() {
        for _ in 0..ROUNDS {
            hashes.fill_with(|| {
                next += 1;
                hash(next)
            });
            let before = allocations();
            let blocks = manager.default_group().allocate(BLOCKS).await.expect("evictable blocks");
            drop(blocks.register(&hashes, None).expect("fresh names"));
            *allocated += allocations() - before;
        }
        assert!(round == 0 || manager.stats().offloaded[1] > 0, "blocks went down to the disk");
    }
    // A request has some allocations of its own: less than one for each of its blocks.
    let (requests, blocks) = (ROUNDS as u64, (ROUNDS * BLOCKS) as u64);
    println!("{} allocations for {requests} requests of {BLOCKS} blocks", each[1]);
    assert!(each[1] < blocks, "{} allocations for {blocks} blocks", each[1]);
}
