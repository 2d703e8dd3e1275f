//! What a purge has in its hands: blocks that are nobody's any more, overwritten if asked for, and only then
//! free.
//!
//! | where | overwritten with zeros by | then |
//! |---|---|---|
//! | device | the mover, after whatever else it does with the block | free, or the first's in the queue |
//! | host, staging | the block of the arena | the same |
//! | disk | a write of zeros to the slot, encrypted if the volume is; then its record is forgotten, and its bytes punched with `disk.trim` | free |
//!
//! What a drive keeps of sectors that were overwritten is the drive's affair; against that there is
//! `disk.key_file`, and the end of the key. A block that cannot be overwritten is never free again, and
//! counted; so is a slot whose volume cannot write down that it is forgotten. The mover is asked as often as
//! for other copies.

use crate::engine::inner::Inner;
use crate::state::{Erased, GroupId, HostSlot, Piece};
use crate::transfer::{Copies, Copy, HostSide, Landed, Landing, Lands, Token};
use futures_channel::oneshot;
use kvstrata_core::BlockId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Overwrites blocks, or only forgets those of the disk. A task's: nothing of it waits but for movers and
/// timers.
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
                // A block takes as long as a copy of it, and others of this thread want to go on.
                inner.runtime.yield_now().await;
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

/// Ends when no restart finds what slots of disks held that were given up before; whether that is so of all
/// disks that are in service.
pub(crate) async fn forget(inner: &Inner) -> bool {
    let lower = inner.groups.iter().flat_map(|of| &of.lower);
    let all: Vec<_> = lower.map(|lower| lower.port.forget_for_good()).collect();
    let mut forgotten = true;
    for one in all {
        forgotten &= one.await;
    }
    forgotten
}

/// Ends when what earlier purges have freed without zeros is overwritten on all disks; whether it is.
pub(crate) async fn erase_left(inner: &Inner) -> bool {
    let lower = inner.groups.iter().flat_map(|of| &of.lower);
    let all: Vec<_> = lower.map(|lower| lower.port.erase_left()).collect();
    let mut erased = true;
    for one in all {
        erased &= one.await;
    }
    erased
}

/// Blocks of a list at least, where so many are left: a list after the other, so that what else moves is not
/// far behind.
const AT_ONCE: usize = 64;

/// Overwrites blocks of the device by its mover; gives those that could not be.
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
            // Each list is answered.
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
            // What is in no answer may hold anything.
            failed.append(&mut asked);
            if !left.is_empty() {
                attempts += 1;
                inner.pause(inner.rules.retry_after).await;
            }
        }
    }
    failed
}

/// Where a list is answered.
struct Answer(Mutex<Option<oneshot::Sender<Vec<Copy>>>>);

impl Lands for Answer {
    fn landed(&self, landed: Landed) {
        let to = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(to), Landed::Copies(list)) = (to, landed) {
            // Nobody listens any more: the runtime has ended.
            let _ = to.send(list);
        }
    }
}

fn zero_host(inner: &Inner, group: GroupId, block: HostSlot) -> Option<u64> {
    let mut bytes = inner.group(group).memory.as_ref()?.write(block.number()).ok()?;
    bytes.fill(0);
    Some(bytes.len() as u64)
}
