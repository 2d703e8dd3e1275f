//! The effects of a change, carried out after the lock has been released.
//!
//! Invariants
//! - I1: all effects are carried out, whatever a waker, a mover, a disk or a subscriber does. One that panics
//!   has said so by the panic hook; it keeps neither others from being woken nor blocks from their owner, and
//!   ends no mover's thread and no task. A transfer that it was given, and drops, is answered by the drop.

use crate::contained::contained;
use crate::engine::checked::Checked;
use crate::engine::inner::Inner;
use crate::state::{Effects, Granted};
use crate::transfer::Copies;
use std::sync::Arc;
use tracing::{debug, trace};

impl Effects {
    /// Carries out all effects. The thread that settles takes the landings that arrive meanwhile.
    pub(crate) fn perform(&mut self, inner: &Arc<Inner>) {
        // Reads first: they take longest.
        for (tier, read, request) in self.take_reads() {
            contained(|| trace!(request, slot = read.slot.0, token = read.token.0, "a read begins"));
            contained(|| tier.read(read));
        }
        for (group, path, list) in self.take_copies() {
            contained(|| {
                debug!(%path, blocks = ?list.iter().map(|copy| copy.device.0).collect::<Vec<_>>(), "copies begin");
            });
            let copies = Copies::new(list, inner.landing());
            contained(|| inner.group(group).mover.start(copies));
        }
        for (tier, write, memory, request) in self.take_writes() {
            contained(|| trace!(request, slot = write.slot.0, token = write.token.0, "a write begins"));
            match memory {
                None => contained(|| tier.write(write)),
                Some(memory) => {
                    let checked = Checked::new(tier, memory, write);
                    contained(|| inner.checks.push(&inner.runtime, checked));
                }
            }
        }
        // This may ring a volume's thread, by a system call. Until then the port keeps these slots from
        // being taken.
        if self.take_given_back() {
            let lower = inner.groups.iter().flat_map(|of| &of.lower);
            lower.for_each(|lower| contained(|| lower.port.forget_released()));
        }
        // Late callers first: they came before those that are served now.
        for (to, late) in self.take_late() {
            contained(|| _ = to.send(Err(late)));
        }
        for (to, group, blocks, tenant) in self.take_grants() {
            let home: Arc<Inner> = Arc::clone(inner);
            let blocks = Granted::new(home, group, blocks, tenant);
            // A caller that has gone away gives the blocks back by dropping them.
            contained(|| _ = to.send(Ok(blocks)));
        }
        self.take_dismissed().for_each(|to| contained(|| drop(to)));
        self.take_moments().for_each(|to| contained(|| _ = to.send(())));
        if let Some(at) = self.take_wake_at() {
            contained(|| inner.runtime.wake_at(at));
        }
        if self.take_idle() {
            contained(|| inner.idle.tell());
        }
        self.take_wakes().for_each(|waker| contained(|| waker.wake()));
    }
}
