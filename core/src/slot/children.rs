//! A registration's resident children and open scopes, in one word of its slot. To evictors a
//! lease is a child (`pool/lease.rs`).
//!
//! ```text
//!  63            32  31  30     20 19        0
//! ┌────────────────┬────┬─────────┬───────────┐   deferred: an evictor met the block while it had children,
//! │ generation :32 │ def│ scopes  │ children  │   and relies on the last child to requeue it.
//! └────────────────┴────┴─────────┴───────────┘   scopes: all ones is *unscoped*: only eviction ends the
//!                                                 registration.
//! ```
//!
//! I1. A change that expects another generation than the word's changes nothing.
//! I2. Scopes only fall to 0 from 1, and never rise from 0: a thread that finds 0 finds a registration
//!     that is ending.
//! I3. Scopes and children do not overflow into their neighbours: a scope too many makes the block
//!     unscoped, a child too many is not counted.

use super::Slot;
use crate::sync::{AcqRel, Acquire, Relaxed, skipped};

const CHILDREN: u32 = (1 << 20) - 1;
pub(super) const SCOPE: u32 = 1 << 20;
pub(super) const UNSCOPED: u32 = ((1 << 11) - 1) << 20;
const DEFERRED: u32 = 1 << 31;

impl Slot {
    /// Counts a child. False: there are a million of them (I3), and this one stays without a parent; or
    /// the generation is another (I1), which a holder of the parent never sees.
    #[inline]
    #[must_use]
    pub(crate) fn child_added(&self, generation: u32) -> bool {
        self.change(generation, |counts| (counts & CHILDREN < CHILDREN).then_some(counts + 1)).is_some()
    }

    /// Discounts a child. Returns whether it was the last one and an evictor had deferred this block.
    #[inline]
    pub(crate) fn child_removed(&self, generation: u32) -> bool {
        let old = self.change(generation, |counts| match counts & CHILDREN {
            0 => None,
            1 => Some(counts & !(DEFERRED | CHILDREN)),
            _ => Some(counts - 1),
        });
        old.is_some_and(|old| old & (DEFERRED | CHILDREN) == DEFERRED | 1)
    }

    /// Returns whether the block has resident children. If so, marks it as deferred, so that the
    /// last child's eviction requeues it.
    #[inline]
    pub(crate) fn defer_if_parent(&self, generation: u32) -> bool {
        // A leaf, the common case, costs a load.
        self.change(generation, |counts| (counts & CHILDREN != 0).then_some(counts | DEFERRED)).is_some()
    }

    /// Returns whether the block has resident children, or leases: true for this moment only, a hint.
    #[inline]
    pub(crate) fn has_children(&self) -> bool {
        self.children.load(Relaxed) as u32 & CHILDREN != 0
    }

    /// Returns whether the block has exactly one resident child or lease: a hint, as
    /// [`has_children`](Slot::has_children).
    #[inline]
    pub(crate) fn has_one_child(&self) -> bool {
        self.children.load(Relaxed) as u32 & CHILDREN == 1
    }

    /// Returns whether the block has two or more resident children. Leases do not count, as far as the
    /// word and the children are of one moment: a hint.
    #[inline]
    pub(crate) fn has_siblings(&self) -> bool {
        let children = self.children.load(Relaxed) as u32 & CHILDREN;
        children > 1 && children > 1 + self.word().leases()
    }

    /// Returns whether an evictor has met the block while it had children, in this registration: a hint.
    #[inline]
    pub(crate) fn is_deferred(&self, generation: u32) -> bool {
        let now = self.children.load(Relaxed);
        (now >> 32) as u32 == generation && now as u32 & DEFERRED != 0
    }

    /// Ends the deferral, since the block takes a new place in its list; for the
    /// holder of its only reference.
    #[inline]
    pub(crate) fn forget_deferral(&self, generation: u32) {
        self.change(generation, |counts| (counts & DEFERRED != 0).then_some(counts & !DEFERRED));
    }

    /// Adds a registrar; for a holder of the block. False: its last scope has ended, and the
    /// registration is ending with it (I2).
    #[inline]
    pub(crate) fn scope_joined(&self, generation: u32, scoped: bool) -> bool {
        let joined = |counts| match (counts & UNSCOPED, scoped) {
            (UNSCOPED, _) => None,
            (0, _) if !skipped!("scope_join_ended") => None,
            (_, true) => Some(counts + SCOPE),
            (_, false) => Some(counts | UNSCOPED),
        };
        match self.change(generation, joined) {
            Some(_) => true,
            // Relaxed: no change leads away from either end, so the reason still holds (I2).
            None => self.children.load(Relaxed) as u32 & UNSCOPED == UNSCOPED,
        }
    }

    /// Removes a scope. Returns whether it was the last.
    pub(crate) fn scope_ended(&self, generation: u32) -> bool {
        let old = self.change(generation, |counts| match counts & UNSCOPED {
            0 | UNSCOPED => None,
            _ => Some(counts - SCOPE),
        });
        old.is_some_and(|old| old & UNSCOPED == SCOPE)
    }

    /// The one form of every change: unpack, decide, pack, compare-exchange, retry with the value found.
    /// Returns the old counts, or none if the generation is another (I1) or `decide` left them.
    #[inline]
    fn change(&self, generation: u32, decide: impl Fn(u32) -> Option<u32>) -> Option<u32> {
        // Acquire: pairs with the Release of the compare-exchange below: a thread that finds no child
        // sees all that the last child's evictor did.
        let mut now = self.children.load(Acquire);
        loop {
            if (now >> 32) as u32 != generation {
                return None;
            }
            let new = (now & !0xffff_ffff) | u64::from(decide(now as u32)?);
            // AcqRel: pairs with the Acquire above and below, in the evictor of this block, of its
            // children, and in its registrars. An evictor clears the bit of a deferred block and then
            // marks it here; the last child's evictor unmarks it here and then sets the bit. This
            // orders the two, as `clear_bits` does by itself. loom, whose read-modify-writes see the
            // newest value, can show neither.
            match self.children.compare_exchange(now, new, AcqRel, Acquire) {
                Ok(_) => return Some(now as u32),
                Err(seen) => now = seen,
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn counts(slot: &Slot) -> (u32, u32) {
        let counts = slot.children.load(Relaxed) as u32;
        ((counts & UNSCOPED) / SCOPE, counts & CHILDREN)
    }

    #[test]
    fn scopes_beyond_the_limit_become_unscoped() {
        let slot = Slot::new();
        slot.begin_registration(7, 0, true);
        assert!((1..2046).all(|_| slot.scope_joined(7, true)));
        assert_eq!(counts(&slot), (2046, 0));
        assert!(slot.scope_joined(7, true), "one too many");
        assert!((0..3000).all(|_| !slot.scope_ended(7)), "it is unscoped now");
    }

    #[test]
    fn children_at_the_limit_are_refused() {
        let slot = Slot::new();
        slot.begin_registration(7, 0, true);
        slot.children.fetch_add(u64::from(CHILDREN) - 1, Relaxed);
        assert!(slot.child_added(7) && !slot.child_added(7));
        assert_eq!(counts(&slot), (1, CHILDREN));
        assert!(!slot.child_removed(7) && slot.child_added(7));
    }

    #[test]
    fn counts_ignore_another_generation() {
        let slot = Slot::new();
        slot.begin_registration(7, 0, true);
        assert!(!slot.child_added(6) && !slot.child_removed(6) && !slot.defer_if_parent(6));
        assert!(!slot.scope_ended(8));
        assert_eq!(counts(&slot), (1, 0));
    }
}
