//! The engine's clock, and what is done between iterations: copies ahead of need.
//!
//! ```text
//!   eviction order of a tier     1 2 3 4 5 6 7 8 9 …          the next victims first
//!                                └── window ───┘              copied down before they must go: their eviction then waits for nothing
//!                                c c · c · · ·                c: the tier below has it, and there is nothing to do
//! ```
//!
//! The window is what a tier lacks of free blocks below its low watermark, once it is above the high one; and as far as blocks are idle.
//! What is copied stays where it is, in its place of the eviction order, and is found there until it is evicted: so being ahead costs no
//! hit. (Evicting at the watermark, as the textbook has it, would keep a tenth of the device empty.)

use super::down::{Have, let_go};
use super::inner::Inner;
use super::stack::Books;
use super::traffic::Traffic;
use crate::config::WriteMode;
use crate::scheduler::{Gate, Misuse};
use crate::tier::Tier;
use crate::transfer::{Class, Path};
use kvstrata_core::BlockRef;
use kvstrata_ffi::disk::Name;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Victims looked at between two iterations, at most: some tens of microseconds.
const LOOK: usize = 4096;
/// Of them, those that are looked at for idleness alone.
const LOOK_IDLE: usize = 256;

/// A tier's watermarks and idleness.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ahead {
    pub(super) high: f64,
    pub(super) low: f64,
    pub(super) idle_after: Option<u64>,
}

impl Ahead {
    /// How many of the next victims are to be copied, of a tier with so many free blocks.
    fn window(&self, capacity: usize, free: usize) -> usize {
        let part = |part: f64| ((1.0 - part) * capacity as f64).ceil() as usize;
        if free >= part(self.high) { 0 } else { part(self.low).saturating_sub(free) }
    }
}

/// A copy that waits for its gate.
#[derive(Debug)]
pub(super) struct GatedCopy {
    pub(super) stack: u16,
    pub(super) block: BlockRef,
    pub(super) name: Name,
    pub(super) class: Class,
    pub(super) request: u64,
    pub(super) asked: Option<u32>,
}

impl Inner {
    /// An iteration begins. See [`KvBlockManager::iteration_begin`](super::KvBlockManager::iteration_begin).
    pub(super) fn iteration_begin(self: &Arc<Inner>) -> Result<u64, Misuse> {
        self.with(|traffic| {
            let iteration = traffic.clock.begin()?;
            self.iteration.store(iteration, Relaxed);
            traffic.refill();
            Ok(iteration)
        })
    }

    pub(super) fn layer_done(self: &Arc<Inner>, layer: u32) -> Result<(), Misuse> {
        self.with(|traffic| {
            traffic.clock.layer_done(layer)?;
            traffic.open_gates(self);
            Ok(())
        })
    }

    pub(super) fn iteration_end(self: &Arc<Inner>) -> Result<u64, Misuse> {
        self.with(|traffic| {
            let iteration = traffic.clock.end()?;
            traffic.open_gates(self);
            traffic.copy_ahead(self);
            Ok(iteration)
        })
    }

    pub(super) fn step(self: &Arc<Inner>) -> Result<u64, Misuse> {
        self.with(|traffic| {
            let iteration = traffic.clock.step()?;
            self.iteration.store(iteration, Relaxed);
            traffic.refill();
            traffic.open_gates(self);
            traffic.copy_ahead(self);
            Ok(iteration)
        })
    }

    pub(super) fn check_watermark(self: &Arc<Inner>) {
        self.with(|traffic| traffic.copy_ahead(self));
    }
}

impl Traffic {
    /// What has waited for the layer or the iteration goes on.
    fn open_gates(&mut self, inner: &Inner) {
        let mut open = std::mem::take(&mut self.opened);
        self.gated.released(&self.clock, |copy| open.push(copy));
        for copy in open.drain(..) {
            self.let_through(inner, copy);
        }
        self.opened = open;
    }

    fn let_through(&mut self, inner: &Inner, copy: GatedCopy) {
        let GatedCopy { stack, block, name, class, request, asked } = copy;
        let source = Have::Held(block);
        match self.copy_down(inner, stack, source, name, class, request) {
            Some(flight) => self.downs[flight as usize].asked.extend(asked),
            None => {
                let_go(&inner.stack(stack).device, source, inner.now());
                if let Some(asked) = asked {
                    self.offload_refused(asked);
                }
            }
        }
    }

    /// Holds a copy back until its gate opens; now, if it is open or too many wait.
    pub(super) fn copy_at(&mut self, inner: &Inner, gate: Gate, copy: GatedCopy) {
        if self.clock.passed(gate) {
            return self.let_through(inner, copy);
        }
        if let Err(full) = self.gated.hold(gate, copy) {
            let GatedCopy { stack, block, asked, .. } = full.item;
            let_go(&inner.stack(stack).device, Have::Held(block), inner.now());
            if let Some(asked) = asked {
                self.offload_refused(asked);
            }
        }
    }

    /// Everything that waits for a gate is let go of.
    pub(super) fn drop_gated(&mut self, inner: &Inner) {
        while let Some(GatedCopy { stack, block, asked, .. }) = self.gated.pop() {
            let_go(&inner.stack(stack).device, Have::Held(block), inner.now());
            if let Some(asked) = asked {
                self.offload_refused(asked);
            }
        }
    }

    /// Copies down what will have to go soon, or has been idle for long.
    fn copy_ahead(&mut self, inner: &Inner) {
        if self.refusing {
            return;
        }
        for stack in 0..self.lines.len() as u16 {
            let of = inner.stack(stack);
            if of.host.is_some() || of.disk.is_some() {
                self.ahead_of(inner, stack, Tier::Device, &of.device);
            }
            if let (Some(host), Some(_)) = (&of.host, &of.disk) {
                self.ahead_of(inner, stack, Tier::Host, host);
            }
        }
    }

    fn ahead_of(&mut self, inner: &Inner, stack: u16, tier: Tier, books: &Books) {
        let ahead = if tier == Tier::Device { &inner.rules.device_ahead } else { &inner.rules.host_ahead };
        let window = ahead.window(books.pool.capacity(), books.pool.free()).min(LOOK);
        let look = if ahead.idle_after.is_some() { window.max(LOOK_IDLE) } else { window };
        let mut next = std::mem::take(&mut self.next);
        books.pool.next_victims(look, &mut next);
        for (index, (block, hash)) in next.drain(..).enumerate() {
            let class = if index < window { Class::Offload } else { Class::Background };
            let idle = || ahead.idle_after.is_some_and(|after| books.ages.idle(block, inner.now()) >= after);
            if index >= window && !idle() {
                break;
            }
            if books.ages.is_clean(block) {
                continue;
            }
            if !self.one_ahead(inner, (stack, tier), block, books.name(block.id, hash), class) {
                break;
            }
        }
        self.next = next;
    }

    /// Copies one block down, if the tier below lacks it. False: there is no room in the queue.
    fn one_ahead(
        &mut self,
        inner: &Inner,
        (stack, tier): (u16, Tier),
        block: BlockRef,
        name: Name,
        class: Class,
    ) -> bool {
        let of = inner.stack(stack);
        let books = match (tier, &of.host) {
            (Tier::Host, Some(host)) => host,
            _ => &of.device,
        };
        let path = if tier == Tier::Device { Path::DeviceToHost } else { Path::HostToDisk };
        let below = match (tier, &of.host, &of.disk) {
            (Tier::Device, Some(host), _) => host.pool.contains(name.hash),
            (_, _, Some(disk)) => disk.pool().contains(name.hash),
            _ => true,
        };
        let worth = tier != Tier::Device
            || inner.rules.mode != WriteMode::SecondUse
            || books.ages.used_again(block.id);
        if below || !worth || self.down_of.contains_key(&(stack, name.hash)) {
            if below {
                books.ages.set_clean(block);
            }
            return true;
        }
        if !self.has_room(path, 1) {
            return false;
        }
        // Recycled meanwhile, or held and released: the next look will tell.
        if !books.pool.lease(block) {
            return true;
        }
        let source = Have::Leased(block);
        let flight = match tier {
            Tier::Device => self.copy_down(inner, stack, source, name, class, 0),
            _ => self.sink(inner, stack, source, name, class),
        };
        if flight.is_none() {
            // No room below, or not worth it: not to be asked about again and again.
            books.ages.set_clean(block);
            let_go(books, source, inner.now());
        }
        true
    }
}
