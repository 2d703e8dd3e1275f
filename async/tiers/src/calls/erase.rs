//! Blocks in a purge's hands: they have no owner any more, are overwritten if asked for, and only then
//! are free.
//!
//! | where | overwritten with zeros by | then |
//! |---|---|---|
//! | device | the mover, after its other work with the block | free, or given to the first waiter |
//! | host, staging | a write to the arena's block | the same |
//! | disk | a write of zeros to the slot, encrypted if the volume is | record forgotten; slot free |
//!
//! With `disk.trim`, the slot's bytes are punched too, after its record is forgotten.
//!
//! A drive may keep old contents of overwritten sectors. Against that, use `disk.key_file` and destroy
//! the key. A block that cannot be overwritten is counted and never free again. So is a slot whose
//! volume cannot record that it is forgotten. The mover is asked as often as for other copies.

use crate::engine::inner::Inner;
use crate::runtime::yield_now;
use crate::state::{Erased, GroupId, HostSlot, Piece};
use crate::transfer::{Copies, Copy, HostSide, Landed, Landing, Lands, Token};
use futures_channel::oneshot;
use kvstrata_core::BlockId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

/// Overwrites blocks, or only forgets those of the disk. Runs in a task, which waits only for
/// movers and timers.
pub(crate) async fn erase(inner: &Arc<Inner>, pieces: Vec<Piece>, zero: bool) -> Erased {
    let mut erased = Erased::default();
    let mut of_device: Vec<Vec<BlockId>> = inner.groups.iter().map(|_| Vec::new()).collect();
    let mut slots: BTreeMap<(GroupId, u8), Vec<BlockId>> = BTreeMap::new();
    for piece in pieces {
        match piece {
            Piece::Below(group, number, slot) => slots.entry((group, number)).or_default().push(slot),
            _ if !zero => erased.count(piece, Some(0)),
            Piece::Device(group, block) => of_device[group.index()].push(block),
            Piece::Host(group, block) | Piece::Staged(group, block) => {
                erased.count(piece, zero_host(inner, group, block));
                // Zeroing takes as long as a copy of the block, so other tasks of this thread run in between.
                let later = |waker: &Waker| {
                    inner.runtime.wake_later(waker);
                    true
                };
                yield_now(later).await;
            }
        }
    }
    for (blocks, group) in of_device.into_iter().zip(GroupId::all(inner.groups.len())) {
        let bytes = inner.group(group).block_bytes;
        let failed = zero_device(inner, group, &blocks).await;
        for block in blocks {
            let done = (!failed.contains(&block)).then_some(bytes);
            erased.count(Piece::Device(group, block), done);
        }
    }
    for ((group, number), slots) in slots {
        let of = inner.group(group);
        let Some(lower) = of.lower(number) else { continue };
        let failed = lower.port.erase(slots.clone(), zero).await;
        for slot in slots {
            let bytes = if zero { of.block_bytes } else { 0 };
            erased.count(Piece::Below(group, number, slot), (!failed.contains(&slot)).then_some(bytes));
        }
    }
    erased
}

/// Waits until no restart finds the earlier blocks of given-up slots. Returns whether this is so on all
/// disks in service.
pub(crate) async fn forget(inner: &Inner) -> bool {
    let lower = inner.groups.iter().flat_map(|of| &of.lower);
    let all: Vec<_> = lower.map(|lower| lower.port.forget_for_good()).collect();
    let mut forgotten = true;
    for one in all {
        forgotten &= one.await;
    }
    forgotten
}

/// Overwrites what earlier purges have freed without zeros, on all disks. Returns whether all of it is.
pub(crate) async fn erase_left(inner: &Inner) -> bool {
    let lower = inner.groups.iter().flat_map(|of| &of.lower);
    let all: Vec<_> = lower.map(|lower| lower.port.erase_left()).collect();
    let mut erased = true;
    for one in all {
        erased &= one.await;
    }
    erased
}

/// Smallest number of blocks in a list, if so many are left. One list follows the other, so other copies
/// need not wait long.
const AT_ONCE: usize = 64;

/// Overwrites blocks of the device by its mover. Returns those that could not be overwritten.
async fn zero_device(inner: &Arc<Inner>, group: GroupId, blocks: &[BlockId]) -> Vec<BlockId> {
    let of = inner.group(group);
    let mut failed = Vec::new();
    for some in blocks.chunks(of.mover.blocks_at_once().max(AT_ONCE)) {
        let (mut left, mut attempts) = (some.to_vec(), 0);
        while !left.is_empty() {
            let zeros = |block| Copy::new(Token(0), block, HostSide::Zeros, 0..of.layers, false);
            let (answer, answered) = oneshot::channel();
            let landing = Landing::new(Arc::new(Answer(Mutex::new(Some(answer)))));
            let mut asked = std::mem::take(&mut left);
            of.mover.start(Copies::new(asked.iter().copied().map(zeros).collect(), landing));
            // The mover answers each list.
            for copy in answered.await.unwrap_or_default() {
                asked.retain(|block| *block != copy.device);
                let kept = matches!(copy.host, HostSide::Kept { .. });
                match copy.outcome {
                    Ok(()) => {}
                    Err(why) if why.retryable && !kept && attempts < inner.rules.retries => {
                        left.push(copy.device);
                    }
                    Err(_) => failed.push(copy.device),
                }
            }
            // A block without an answer may hold any bytes.
            failed.append(&mut asked);
            if !left.is_empty() {
                attempts += 1;
                inner.pause(inner.rules.retry_after).await;
            }
        }
    }
    failed
}

/// Receives the answer of a list.
struct Answer(Mutex<Option<oneshot::Sender<Vec<Copy>>>>);

impl Lands for Answer {
    fn landed(&self, landed: Landed) {
        let to = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(to), Landed::Copies(list)) = (to, landed) {
            // An error means that the runtime has ended.
            let _ = to.send(list);
        }
    }
}

fn zero_host(inner: &Inner, group: GroupId, block: HostSlot) -> Option<u64> {
    let mut bytes = inner.group(group).memory.as_ref()?.write(block.number()).ok()?;
    bytes.fill(0);
    Some(bytes.len() as u64)
}
