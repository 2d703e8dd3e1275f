//! What a purge has in its hands: blocks that are nobody's any more, overwritten if asked for, and only then free.
//!
//! | where | overwritten with zeros by | then |
//! |---|---|---|
//! | device | the port that reaches its bytes | free, or the first's in line |
//! | host, staging | the block of the arena | the same |
//! | disk | a write of zeros to the slot, encrypted if the volume is; then its record is forgotten, and its bytes punched with `disk.trim` | free |
//!
//! What a drive keeps of sectors that were overwritten is the drive's affair; against that there is `disk.key_file`, and the end of the key.
//! A block that cannot be overwritten is never free again, and counted.

use super::TenantId;
use crate::manager::inner::Inner;
use crate::manager::traffic::Traffic;
use kvstrata_core::BlockId;

/// A block in a purge's hands: of which group, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::manager) enum Piece {
    Device(u16, BlockId),
    Host(u16, u32),
    /// A block of host memory that is for staging.
    Staged(u16, u32),
    Disk(u16, BlockId),
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Erased {
    pub(super) free: Vec<Piece>,
    pub(super) zeroed_bytes: u64,
    /// Blocks that could not be overwritten.
    pub(super) failed: usize,
}

/// Overwrites blocks, or only forgets those of the disk. Blocks until that is done.
pub(super) fn erase(inner: &Inner, pieces: Vec<Piece>, zero: bool) -> Erased {
    let mut erased = Erased::default();
    let mut slots: Vec<Vec<BlockId>> = inner.stacks.iter().map(|_| Vec::new()).collect();
    for piece in pieces {
        let done = match piece {
            Piece::Disk(stack, slot) => {
                slots[stack as usize].push(slot);
                continue;
            }
            _ if !zero => Some(0),
            Piece::Device(stack, block) => zero_device(inner, stack, block),
            Piece::Host(stack, block) | Piece::Staged(stack, block) => zero_host(inner, stack, block),
        };
        erased.count(piece, done);
    }
    for (slots, stack) in slots.into_iter().zip(0..) {
        let of = inner.stack(stack);
        let Some(disk) = of.disk.as_ref().filter(|_| !slots.is_empty()) else { continue };
        let kept = disk.erase(&slots, zero);
        for slot in slots {
            let bytes = if zero { of.block_bytes } else { 0 };
            erased.count(Piece::Disk(stack, slot), (!kept.contains(&slot)).then_some(bytes));
        }
    }
    erased
}

fn zero_device(inner: &Inner, stack: u16, block: BlockId) -> Option<u64> {
    let port = inner.stack(stack).port.as_ref()?;
    let zeros = vec![0; port.block_bytes()];
    port.copy_in(block.0, 0, &zeros).ok().map(|()| zeros.len() as u64)
}

fn zero_host(inner: &Inner, stack: u16, block: u32) -> Option<u64> {
    let mut bytes = inner.stack(stack).memory.as_ref()?.write(block).ok()?;
    bytes.fill(0);
    Some(bytes.len() as u64)
}

impl Erased {
    fn count(&mut self, piece: Piece, done: Option<u64>) {
        match done {
            Some(bytes) => {
                self.free.push(piece);
                self.zeroed_bytes += bytes;
            }
            None => self.failed += 1,
        }
    }
}

impl Traffic {
    /// They are free.
    pub(super) fn put_back(&mut self, inner: &Inner, tenant: TenantId, pieces: Vec<Piece>) {
        self.erased(tenant);
        for piece in pieces {
            match piece {
                Piece::Device(stack, block) => self.freed(inner, stack, block),
                Piece::Host(stack, block) => self.freed_host(inner, stack, block),
                Piece::Staged(stack, block) => self.lines[stack as usize].staging.push(block),
                Piece::Disk(stack, slot) => {
                    let of = inner.stack(stack);
                    of.disk_owners.hand_over(slot, TenantId::NOBODY);
                    of.disk.iter().for_each(|disk| disk.give_back(slot));
                }
            }
        }
    }
}
