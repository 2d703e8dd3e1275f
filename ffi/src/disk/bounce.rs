//! Encrypts the payloads of an encrypted volume before they are written. It does so in copies, since the
//! caller's bytes are shared and must not change.
//!
//! ```text
//!   caller's thread   payload ─copy─► block ─seal, in place─► request ─► inbox ─► ring thread ─► device
//!                                       ▲                                            │
//!                                       └───────────── idle ◄───── ended ◄───────────┘
//! ```
//!
//! The blocks are made once, with the volume. If none is idle, a caller waits, as it does for room in the
//! queue. The ring thread gives blocks back and never waits for one.
//!
//! Invariants
//! - I1: a block is idle, or lent to one [`SealedCopy`], which has its guard. It comes back when the
//!   copy is dropped, by whichever thread: after the request's last completion, or if the request
//!   never started.
//! - I2: a waiting caller is woken by each block that comes back, and by the loss of one. A block that a
//!   lost ring may still touch never comes back, and from then on no caller waits.
//! - I3: a device reads only sealed bytes of a block, and zeros: no request has a copy before it is sealed,
//!   and the bytes up to the transfer's end, which an earlier payload may have reached, are cleared.

use super::cipher::{Binding, Cipher, Sealed};
use super::error::FailureCause;
use super::format::sum_of_payload;
use super::recovery::{Name, Rejection};
use super::stats::Counter;
use crate::arena::{ArenaError, BLOCK_ALIGN_BYTES, BlockWrite, HostArena};
use core::ptr::NonNull;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes of all blocks of a volume together, unless two blocks need more. In tests so few
/// that callers wait.
const BOUNCE_BYTES: usize = if cfg!(test) { 256 << 10 } else { 64 << 20 };

/// The number of blocks for a volume of such slots: at most one for each possible request.
pub(super) fn blocks(slot_bytes: usize, requests: usize) -> usize {
    (BOUNCE_BYTES / slot_bytes.max(1)).min(requests).max(2)
}

/// The blocks, and the cipher that seals in them.
#[derive(Debug)]
pub(super) struct Bounce {
    cipher: Arc<Cipher>,
    arena: Arc<HostArena>,
    pool: Arc<Pool>,
}

#[derive(Debug)]
struct Pool {
    state: Mutex<State>,
    came_back: Condvar,
}

#[derive(Debug)]
struct State {
    /// Numbers of blocks, the longest idle one first. The last one back may still lie in the cache of the
    /// core that read it for a virtual drive, and writing over it there costs up to three times as much.
    idle: VecDeque<usize>,
    /// Number of waiting callers.
    waiting: usize,
    /// A block is gone for good (I2).
    lost: bool,
}

/// A lent block's number; it becomes idle again on drop.
#[derive(Debug)]
struct Lent {
    number: usize,
    pool: Arc<Pool>,
}

/// A payload as it is sent to the device.
#[derive(Debug)]
pub(super) struct SealedCopy {
    /// Dropped before `lent`, so that an idle block is free.
    block: BlockWrite,
    lent: Lent,
    pub(super) sealed: Sealed,
}

/// Why there is no copy.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoCopy {
    /// No block is idle.
    Full,
    Failed(FailureCause),
}

impl Bounce {
    pub(super) fn new(cipher: Arc<Cipher>, blocks: usize, slot_bytes: usize) -> Result<Bounce, ArenaError> {
        let arena = HostArena::new(blocks, slot_bytes)?;
        let state = State { idle: (0..blocks).collect(), waiting: 0, lost: false };
        let pool = Arc::new(Pool { state: Mutex::new(state), came_back: Condvar::new() });
        Ok(Bounce { cipher, arena, pool })
    }

    /// The arena, to be registered with the ring.
    pub(super) fn arena(&self) -> &Arc<HostArena> {
        &self.arena
    }

    /// Callers that wait for a block now.
    pub(super) fn blocked(&self) -> usize {
        self.pool.lock().waiting
    }

    /// Copies and seals a payload as the block `name` in a slot. If no block is idle, waits and counts
    /// that in `waits`; without a counter, never waits. The seal is the cipher's tag. So a sum that the
    /// caller made is compared here: no read could tell later that the payload had changed before.
    pub(super) fn seal(
        &self,
        slot: u32,
        name: Name,
        (payload, sum): (&[u8], Option<u64>),
        waits: Option<&Counter>,
    ) -> Result<SealedCopy, NoCopy> {
        let lent = Lent { number: self.pool.take(waits)?, pool: Arc::clone(&self.pool) };
        // Neither happens: an idle block is free (I1), and the volume has checked the length.
        let block = self.arena.write(lent.number).ok().filter(|block| block.len() >= payload.len());
        let mut block = block.ok_or(NoCopy::Failed(FailureCause::OutOfService))?;
        let end = payload.len().next_multiple_of(BLOCK_ALIGN_BYTES).min(block.len());
        // I3. No volume has a larger alignment.
        block[payload.len()..end].fill(0);
        let mut block = block.first(payload.len());
        block.copy_from_slice(payload);
        if sum.is_some_and(|sum| sum != sum_of_payload(&block)) {
            return Err(NoCopy::Failed(FailureCause::Rejected(Rejection::Payload)));
        }
        let binding = Binding { slot, label: name.into() };
        match self.cipher.seal(&binding, &mut block) {
            Ok(sealed) => Ok(SealedCopy { block, lent, sealed }),
            // Slots are below 4 GiB, which GCM can seal.
            Err(_) => Err(NoCopy::Failed(FailureCause::SequencesSpent)),
        }
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code of ours or of a caller's runs under the lock, so a poisoned state is still consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a block that was idle. Waits for one if `waits` is given.
    fn take(&self, waits: Option<&Counter>) -> Result<usize, NoCopy> {
        let mut state = self.lock();
        let mut counted = false;
        loop {
            if state.lost {
                return Err(NoCopy::Failed(FailureCause::OutOfService));
            }
            if let Some(number) = state.idle.pop_front() {
                return Ok(number);
            }
            let waits = waits.ok_or(NoCopy::Full)?;
            if !core::mem::replace(&mut counted, true) {
                waits.add(1);
            }
            state.waiting += 1;
            state = self.came_back.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
    }
}

impl SealedCopy {
    pub(super) fn io_pointer(&mut self) -> NonNull<u8> {
        self.block.io_pointer()
    }

    /// Bytes that a transfer of the copy may touch.
    pub(super) fn room_bytes(&self) -> usize {
        self.block.room_bytes()
    }

    /// The bytes for the device.
    #[cfg(any(test, feature = "simulation"))]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.block
    }

    /// Takes the block out of the copy; it does not come back to the pool (I2).
    pub(super) fn lose(self) -> BlockWrite {
        let SealedCopy { block, lent, .. } = self;
        lent.pool.lock().lost = true;
        lent.pool.came_back.notify_all();
        block
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.pool.lock().idle.push_back(self.number);
        self.pool.came_back.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounce_blocks_are_two_to_the_limit_of_bytes_and_requests() {
        assert_eq!(
            (blocks(1 << 16, 320), blocks(1, 320), blocks(1 << 30, 320), blocks(1, 1)),
            (4, 320, 2, 2)
        );
    }
}
