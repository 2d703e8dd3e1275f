//! Copies down that a caller asks for: the blocks stay where they are, and the tier below has them too.

use super::blocks::Blocks;
use super::down::{Have, let_go};
use super::inner::Inner;
use super::schedule::GatedCopy;
use super::traffic::Traffic;
use crate::scheduler::Gate;
use crate::transfer::{Cause, Class};
use kvstrata_core::SequenceHash;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// How blocks are offloaded.
#[derive(Debug, Clone, Copy)]
pub struct OffloadOptions {
    /// Who goes first.
    pub class: Class,
    /// Whose it is: requests of one class take turns. 0: nobody's.
    pub request: u64,
    /// What must be over before: a layer or an iteration that still writes the blocks.
    pub gate: Gate,
}

impl Default for OffloadOptions {
    fn default() -> OffloadOptions {
        OffloadOptions { class: Class::Offload, request: 0, gate: Gate::Open }
    }
}

/// What came of an offload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offloaded {
    /// Blocks that were copied.
    pub copied: usize,
    /// Blocks that the tier below had, or that were on their way there.
    pub there: usize,
    /// Blocks that no tier below has room for, or wants.
    pub refused: usize,
    /// Blocks whose copy failed.
    pub failed: usize,
    /// Why the last of those did.
    pub cause: Option<Cause>,
}

/// An offload that somebody may wait for.
#[derive(Debug, Default)]
pub(super) struct Offloading {
    left: usize,
    so_far: Offloaded,
    waker: Option<Waker>,
    /// Nobody does.
    alone: bool,
}

/// Blocks on their way down. Dropped, they go all the same.
pub struct Offload {
    inner: Arc<Inner>,
    key: Option<u32>,
}

impl Offload {
    pub(super) fn begin(blocks: &Blocks, options: OffloadOptions) -> Offload {
        let inner = Arc::clone(blocks.inner());
        let key = inner.with(|traffic| traffic.offload(&inner, blocks, options));
        Offload { inner, key: Some(key) }
    }
}

/// See [`KvBlockManager::persist`](super::KvBlockManager::persist).
pub(super) async fn persist(inner: &Arc<Inner>, stack: u16, hashes: &[SequenceHash]) -> Offloaded {
    let of = inner.stack(stack);
    let in_host = |hash: &SequenceHash| of.host.as_ref().is_some_and(|host| host.pool.contains(*hash));
    let on_disk = |hash: &SequenceHash| of.disk.as_ref().is_some_and(|disk| disk.pool().contains(*hash));
    let above = hashes.iter().filter(|hash| !on_disk(hash) && !in_host(hash));
    let refs = above.filter_map(|hash| of.device.pool.lookup_ref(*hash)).collect();
    let blocks = Blocks::new(Arc::clone(inner), stack, refs);
    let key = inner.with(|traffic| {
        let key = traffic.offload(inner, &blocks, OffloadOptions::default());
        // Victims, which the device has no more and the host not yet.
        for hash in hashes.iter().filter(|hash| !of.device.pool.contains(**hash)) {
            traffic.join_down(key, stack, *hash);
        }
        key
    });
    let first = Offload { inner: Arc::clone(inner), key: Some(key) }.await;
    if of.host.is_none() {
        return first;
    }
    let key = inner.with(|traffic| traffic.offload_to_disk(inner, stack, hashes));
    let second = Offload { inner: Arc::clone(inner), key: Some(key) }.await;
    // What has not reached the host has not been looked for in it.
    let (refused, failed) = (first.refused + second.refused, first.failed + second.failed);
    Offloaded { refused, failed, cause: first.cause.or(second.cause), ..second }
}

impl Future for Offload {
    type Output = Offloaded;

    /// Ready once; polled after that it stays pending.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Offloaded> {
        let Some(key) = self.key else { return Poll::Pending };
        // Cloned before and dropped after the lock: a waker is a caller's code.
        let waker = context.waker().clone();
        let mut traffic = self.inner.look();
        match traffic.offloadings.get_mut(key as usize) {
            Some(of) if of.left > 0 => {
                let before = of.waker.replace(waker);
                drop(traffic);
                drop(before);
                Poll::Pending
            }
            _ => {
                let of = traffic.offloadings.try_remove(key as usize).unwrap_or_default();
                drop(traffic);
                self.key = None;
                Poll::Ready(of.so_far)
            }
        }
    }
}

impl Drop for Offload {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        let mut traffic = self.inner.look();
        let waker = match traffic.offloadings.get_mut(key as usize) {
            Some(of) if of.left > 0 => {
                of.alone = true;
                of.waker.take()
            }
            Some(_) => traffic.offloadings.remove(key as usize).waker,
            None => None,
        };
        drop(traffic);
        drop(waker);
    }
}

impl fmt::Debug for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Offload({:?})", self.key)
    }
}

impl Traffic {
    fn offload(&mut self, inner: &Inner, blocks: &Blocks, options: OffloadOptions) -> u32 {
        let stack = blocks.stack();
        let books = &inner.stack(stack).device;
        let key = self.offloadings.insert(Offloading::default()) as u32;
        let (mut there, mut refused) = (0, 0);
        for block in blocks.refs() {
            // Held, and purged: nobody is to have it any more.
            let Some(held) = books.pool.upgrade(*block) else {
                refused += 1;
                continue;
            };
            let name = books.name(held.id(), held.hash());
            let held = held.into_ref();
            if self.join_down(key, stack, name.hash) {
                let_go(books, Have::Held(held), inner.now());
                continue;
            }
            if !self.wants_copy(inner.stack(stack), stack, name) {
                there += 1;
                let_go(books, Have::Held(held), inner.now());
                continue;
            }
            let OffloadOptions { class, request, gate } = options;
            self.offloadings[key as usize].left += 1;
            let (block, asked) = (held, Some(key));
            self.copy_at(inner, gate, GatedCopy { stack, block, name, class, request, asked });
        }
        let so_far = &mut self.offloadings[key as usize].so_far;
        so_far.there = there;
        so_far.refused += refused;
        key
    }

    /// Blocks of the host on their way to the disk.
    fn offload_to_disk(&mut self, inner: &Inner, stack: u16, hashes: &[SequenceHash]) -> u32 {
        let key = self.offloadings.insert(Offloading::default()) as u32;
        let (Some(host), Some(disk)) = (&inner.stack(stack).host, &inner.stack(stack).disk) else {
            return key;
        };
        for hash in hashes {
            if disk.pool().contains(*hash) {
                self.offloadings[key as usize].so_far.there += 1;
                continue;
            }
            if self.join_down(key, stack, *hash) {
                continue;
            }
            let Some(block) = host.pool.lookup_ref(*hash) else { continue };
            let source = Have::Held(block);
            let name = host.name(block.id, *hash);
            self.offloadings[key as usize].left += 1;
            match self.sink(inner, stack, source, name, Class::Offload) {
                Some(flight) => self.downs[flight as usize].asked.push(key),
                None => {
                    let_go(host, source, inner.now());
                    self.offload_refused(key);
                }
            }
        }
        key
    }

    /// Waits for a block that is on its way down, if it is.
    fn join_down(&mut self, key: u32, stack: u16, hash: SequenceHash) -> bool {
        let flight = self.down_of.get(&(stack, hash)).copied();
        let Some(down) = flight.and_then(|flight| self.downs.get_mut(flight as usize)) else { return false };
        down.asked.push(key);
        self.offloadings[key as usize].left += 1;
        true
    }

    /// One that was asked for finds no room.
    pub(super) fn offload_refused(&mut self, key: u32) {
        self.offload_counted(key, |so_far| so_far.refused += 1);
    }

    /// A flight that was asked for has ended.
    pub(super) fn offload_answered(&mut self, key: u32, outcome: Result<(), Cause>) {
        self.offload_counted(key, |so_far| match outcome {
            Ok(()) => so_far.copied += 1,
            Err(cause) => {
                so_far.failed += 1;
                so_far.cause = Some(cause);
            }
        });
    }

    fn offload_counted(&mut self, key: u32, count: impl FnOnce(&mut Offloaded)) {
        let Some(of) = self.offloadings.get_mut(key as usize) else { return };
        of.left -= 1;
        count(&mut of.so_far);
        if of.left == 0 {
            self.out.wakes.extend(of.waker.take());
            if of.alone {
                self.offloadings.remove(key as usize);
            }
        }
    }
}
