//! The contract of blocks that are shorter than a slot, and of lent memory.

use crate::ground::{BYTES, Ground, SLOTS, bytes_of, hash, name};
use crate::sim::{Plan, SimDisk};
use crate::{simulated, volume};
use kvstrata::backend::disk::{DiskMover, TierOptions};
use kvstrata::backend::transfer::{Cause, Failure, HostMemory, Landed, TierRead, TierWrite};
use kvstrata_core::BlockId;
use kvstrata_ffi::arena::{BLOCK_ALIGN_BYTES, BlockRead, BlockWrite, HostArena};
use kvstrata_ffi::disk::Urgency;
use std::sync::Arc;
use tokio::runtime::Handle;

const LENGTHS: [usize; 9] = [1, 511, 512, 513, 4095, 4096, 4097, BYTES - 1, BYTES];
const MISFIT: Failure = Failure::of(Cause::Buffer);

/// The first bytes of a block.
fn start_of(number: u64, bytes: usize) -> Vec<u8> {
    let mut all = bytes_of(number);
    all.truncate(bytes);
    all
}

/// Writes the start of a block from a buffer as long as that.
async fn write(
    ground: &mut Ground,
    number: u64,
    mut from: BlockWrite,
) -> (BlockId, Result<BlockRead, Failure>) {
    let payload = start_of(number, from.len());
    from.copy_from_slice(&payload);
    let slot = ground.take(1).pop().expect("a slot");
    let (token, landing) = (ground.token(), ground.landing());
    ground.port.write(TierWrite {
        token,
        slot,
        name: name(number),
        bytes: from.into_read(),
        sum: None,
        landing,
    });
    (slot, ground.written().await)
}

async fn store(ground: &mut Ground, number: u64, bytes: usize) -> BlockId {
    let from = ground.memory.write(0).expect("idle").first(bytes);
    let (slot, outcome) = write(ground, number, from).await;
    assert_eq!(outcome.expect("written").len(), bytes, "the buffer comes back as narrow as it was");
    slot
}

/// Reads a block, which stays in every case.
async fn read(ground: &mut Ground, number: u64, buffer: BlockWrite) -> Result<BlockWrite, Failure> {
    let held = ground.port.find(hash(number), true).expect("found").into_ref();
    let (token, landing) = (ground.token(), ground.landing());
    let (slot, hash, urgency) = (held.id, hash(number), Urgency::Ordinary);
    ground.port.read(TierRead { token, slot, hash, urgency, buffer, landing });
    let outcome = ground.came().await;
    ground.release(held);
    outcome
}

async fn comes_back(ground: &mut Ground, number: u64, bytes: usize) {
    let buffer = ground.memory.write(1).expect("idle").first(bytes);
    let back = read(ground, number, buffer).await.expect("read");
    assert!(*back == start_of(number, bytes), "block {number}");
}

pub async fn short_block_comes_back_as_long_as_it_was(mut ground: Ground) {
    for (number, bytes) in (0..).zip(LENGTHS) {
        let slot = store(&mut ground, number, bytes).await;
        assert_eq!(ground.port.bytes_of(slot), Some(bytes));
    }
    for (number, bytes) in (0..).zip(LENGTHS) {
        let held = ground.port.find(hash(number), true).expect("found");
        assert_eq!(ground.port.bytes_of(held.id()), Some(bytes));
        drop(held);
        let mut buffer = ground.memory.write(1).expect("idle");
        buffer.fill(0xEE);
        let back = read(&mut ground, number, buffer.first(bytes)).await.expect("read");
        assert!(*back == start_of(number, bytes), "block {number}");
        // A transfer may go on to the next page.
        let end = bytes.next_multiple_of(BLOCK_ALIGN_BYTES);
        assert!(back.whole().iter().skip(end).all(|byte| *byte == 0xEE), "block {number}: a byte beside it");
    }
    // Slots take blocks of other lengths later.
    ground.give_back(ground.take(SLOTS as usize));
    ground.store(0..u64::from(SLOTS)).await;
    comes_back(&mut ground, 3, BYTES).await;
    assert!(ground.close().await.is_empty());
}

pub async fn read_of_another_length_fails_and_the_block_stays(mut ground: Ground) {
    for (number, bytes) in (0..).zip(LENGTHS) {
        store(&mut ground, number, bytes).await;
        for wrong in [bytes - 1, bytes + 1, BYTES, 1] {
            if wrong != bytes && (1..=BYTES).contains(&wrong) {
                let buffer = ground.memory.write(1).expect("idle").first(wrong);
                assert_eq!(read(&mut ground, number, buffer).await.map(drop), Err(MISFIT));
                assert!(ground.memory.write(1).is_ok(), "the buffer is back");
            }
        }
        comes_back(&mut ground, number, bytes).await;
    }
}

pub async fn block_longer_than_a_slot_is_refused(mut ground: Ground) {
    let longer = HostArena::new(1, BYTES + 1).expect("memory");
    let slot = ground.take(1).pop().expect("a slot");
    ground.write_to(slot, 1, longer.read(0).expect("idle"));
    assert_eq!(ground.written().await.map(drop), Err(MISFIT));
    assert!(ground.port.find(hash(1), true).is_none() && longer.write(0).is_ok());
    store(&mut ground, 1, 100).await;
    let buffer = longer.write(0).expect("idle");
    assert_eq!(read(&mut ground, 1, buffer).await.map(drop), Err(MISFIT));
    comes_back(&mut ground, 1, 100).await;
}

/// Every tier moves aligned memory. Other memory may be refused, as by a volume with O_DIRECT.
pub async fn lent_memory_is_moved_or_refused(mut ground: Ground) {
    let whole = HostArena::new(1, 4 * BLOCK_ALIGN_BYTES).expect("memory");
    let parts = [0..4096, 4096..4097, 8192..8192 + BYTES, 13_500..14_000];
    let lent = whole.write(0).expect("idle").lend(&parts).expect("parts");
    for (number, block) in (0..).zip([0, 1, 2, 3]) {
        let bytes = lent.bytes_of(block);
        let from = lent.write(block).expect("idle");
        let is_aligned = from.is_aligned();
        assert_eq!(is_aligned, block == 0, "the others have no room for padding, or begin elsewhere");
        match write(&mut ground, number, from).await.1 {
            Ok(back) => assert!(back.len() == bytes && Arc::ptr_eq(back.arena(), &lent)),
            Err(failure) => {
                assert!(failure == MISFIT && !is_aligned, "{failure}");
                assert!(ground.port.find(hash(number), true).is_none());
                store(&mut ground, number, bytes).await;
            }
        }
        comes_back(&mut ground, number, bytes).await;
        let mut buffer = lent.write(block).expect("the source is back");
        buffer.fill(0xEE);
        match read(&mut ground, number, buffer).await {
            Ok(back) => assert!(*back == start_of(number, bytes), "block {number}"),
            Err(failure) => assert!(failure == MISFIT && !is_aligned, "{failure}"),
        }
        comes_back(&mut ground, number, bytes).await;
    }
    assert!((0..4).all(|block| lent.write(block).is_ok()), "the targets are back");
    drop(lent);
    assert!(ground.close().await.is_empty());
    assert!(whole.write(0).is_ok(), "the loan has ended");
}

pub async fn short_requests_at_the_port_drop_are_answered(mut ground: Ground) {
    store(&mut ground, 0, 100).await;
    for number in 1..20 {
        let slot = ground.take(1).pop().expect("a slot");
        let bytes = ground.filled(number as u32, number).first(100 * number as usize);
        ground.write_to(slot, number, bytes);
    }
    let memory = Arc::clone(&ground.memory);
    let last = ground.close().await;
    assert!(
        last.len() == 19 && last.iter().all(|landed| matches!(landed, Landed::Write(_, Ok(_)))),
        "{last:?}"
    );
    drop(last);
    assert!((0..20).all(|block| memory.write(block).is_ok()), "buffers are back");
}

async fn store_all(ground: &mut Ground) {
    for (number, bytes) in (0..).zip(LENGTHS) {
        store(ground, number, bytes).await;
    }
}

async fn all_come_back(ground: &mut Ground) {
    for (number, bytes) in (0..).zip(LENGTHS) {
        let found = ground.port.find(hash(number), true).expect("found").id();
        assert_eq!(ground.port.bytes_of(found), Some(bytes));
        comes_back(ground, number, bytes).await;
    }
}

#[test]
fn short_blocks_on_a_volume_survive_a_restart() {
    let (runtime, place) = (volume::one_thread(), volume::folder());
    runtime.block_on(async {
        let open = || Arc::new(volume::open(place.path(), SLOTS, TierOptions::default()).0);
        let memory = || HostMemory::new(2, &[BYTES]).expect("memory");
        for restart in [false, true] {
            let tier = open();
            let port = Arc::new(DiskMover::new(Arc::clone(&tier), &Handle::current()));
            let mut ground = Ground::new(port, memory(), Box::new(volume::Nothing));
            if !restart {
                store_all(&mut ground).await;
            }
            all_come_back(&mut ground).await;
            tier.close();
        }
    });
}

#[test]
fn short_blocks_on_the_simulated_disk_survive_a_restart() {
    simulated::run(async {
        let disk = Arc::new(SimDisk::new(SLOTS, BYTES, Plan::calm(1)));
        store_all(&mut simulated::ground_of(&disk)).await;
        let next = Arc::new(disk.reopened(Plan::calm(2)));
        all_come_back(&mut simulated::ground_of(&next)).await;
    });
}
