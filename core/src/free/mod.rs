//! Free slots: a bitmap in stripes, each with its own credits.
//!
//! ```text
//!   stripe 0                         stripe 1
//!   ┌ credits ┬ hint ┐               ┌ credits ┬ hint ┐        one cache line a stripe
//!   │ leaf leaf leaf … (bit = free)  │ leaf leaf leaf …        64 slots a leaf
//!   └ summary (bit = leaf may have)  └ summary                 64 leaves a summary word
//! ```
//!
//! `allocate(n)` is all or nothing: it first takes `n` credits, from the caller's own stripe, and from
//! the others only when that runs short. Then it claims that many bits. No word that every caller writes
//! lies on this path: threads on different lanes touch different lines.
//!
//! I1. For each stripe: `credits + credits held by claimers ≤ bits set`. A bit is given back before its
//!     credit, a credit is taken before its bit. So a holder of a credit finds a bit, if not at first sight.
//! I2. A bit is cleared by exactly one claimer (compare-exchange) and set only by the slot's owner.
//! I3. A leaf with a bit set has its summary bit set, or a thread between its two steps will set it; a
//!     claimer that finds no summary bit looks at the leaves themselves.
//!
//! # Orderings
//! A slot's last owner frees it with Release on the leaf (`free_leaf`); its next owner claims it with
//! Acquire (`claim_leaf`): all that the first did to the slot happens before all that the second does. A
//! leaf that fills is announced with Release on its summary word (`free_leaf`), and a thread that clears
//! that bit looks at the leaf again, with Acquire (`clear_summary`): of the two, one leaves the bit set
//! (I3). Credits and hints publish nothing: they are Relaxed throughout.

mod leaf;
#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::lane::wrap;
use crate::sync::{Acquire, AtomicU32, AtomicU64, CachePadded, Relaxed, Release, site, skipped, spin_loop};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The most stripes a map has.
pub(crate) const MAX_STRIPES: usize = 16;
/// Slots per leaf, and leaves per summary word: 64; two in loom's models, where a few slots must make
/// several of each.
const BITS: u32 = if cfg!(loom) { 2 } else { 64 };
/// Each stripe starts at a multiple of so many leaves: one cache line, so that stripes share none.
const LEAVES_ALIGN: usize = if cfg!(loom) { 1 } else { 8 };

struct Stripe {
    credits: AtomicU32,
    /// The leaf claimed from last, relative to the stripe.
    hint: AtomicU32,
    leaves: Box<[AtomicU64]>,
    summary: Box<[AtomicU64]>,
}

/// The bitmap; slots are numbered from 0.
pub(crate) struct FreeMap {
    stripes: Box<[CachePadded<Stripe>]>,
    /// Slots of each stripe except the last, which may have fewer.
    stripe_slots: u32,
    /// `ceil(2^48 / stripe_leaves)`, to find a leaf's stripe without a division: exact below 2^22 leaves
    /// per stripe.
    stripe_leaves_inverse: u64,
}

impl FreeMap {
    /// A map of `capacity` slots, all free, in at most `stripes` stripes.
    pub(crate) fn new(capacity: u32, stripes: usize) -> FreeMap {
        let leaves = capacity.div_ceil(BITS) as usize;
        let wanted = stripes.clamp(1, MAX_STRIPES);
        let stripe_leaves =
            leaves.div_ceil(wanted).next_multiple_of(if leaves < LEAVES_ALIGN { 1 } else { LEAVES_ALIGN });
        let stripe_slots = stripe_leaves as u32 * BITS;
        let stripes: Vec<_> = (0..capacity.div_ceil(stripe_slots))
            .map(|i| CachePadded(Stripe::new(stripe_slots.min(capacity - i * stripe_slots))))
            .collect();
        let stripe_leaves_inverse = (1u64 << 48).div_ceil(stripe_leaves as u64);
        FreeMap { stripes: stripes.into_boxed_slice(), stripe_slots, stripe_leaves_inverse }
    }

    /// Free slots, as the credits count them: exact when no thread allocates or frees.
    pub(crate) fn available(&self) -> usize {
        // Relaxed: a figure for people and for the decision to evict, guarded again by `allocate`.
        self.stripes.iter().map(|s| s.credits.load(Relaxed) as usize).sum()
    }

    /// Claims one slot: `allocate(1)` without runs.
    #[inline]
    pub(crate) fn allocate_one(&self, lane: usize) -> Option<u32> {
        let home = wrap(lane, self.stripes.len());
        let stripe = &self.stripes[home];
        if stripe.reserve_all(1) {
            // Relaxed: the hint is a guess.
            let leaf = stripe.hint.load(Relaxed);
            let mask = stripe.claim_leaf(leaf as usize, 1);
            if mask != 0 {
                return Some(home as u32 * self.stripe_slots + leaf * BITS + mask.trailing_zeros());
            }
            stripe.give_credits(1);
        }
        let mut slot = None;
        self.allocate(lane, 1, |first, _| slot = Some(first));
        slot
    }

    /// Claims `n` slots and hands them to `take` as runs `(first, length)`, or touches nothing.
    #[inline]
    pub(crate) fn allocate(&self, lane: usize, n: u32, mut take: impl FnMut(u32, u32)) -> bool {
        let home = wrap(lane, self.stripes.len());
        if self.stripes[home].reserve_all(n) {
            self.claim(home, n, &mut take);
            return true;
        }
        self.allocate_across(home, n, take)
    }

    /// The home stripe runs short: takes all that it has, and the rest from the others.
    #[cold]
    fn allocate_across(&self, home: usize, n: u32, mut take: impl FnMut(u32, u32)) -> bool {
        let mut held = [0u32; MAX_STRIPES];
        let mut missing = n;
        let count = self.stripes.len();
        for i in (0..count).map(|k| (home + k) % count) {
            held[i] = self.stripes[i].reserve_some(missing);
            missing -= held[i];
            if missing == 0 {
                break;
            }
        }
        if missing > 0 {
            // I1: the credits were not enough, and go back to their stripes.
            for (stripe, held) in
                self.stripes.iter().zip(held).filter(|(_, held)| *held > 0 && !skipped!("free_refusal_keeps"))
            {
                stripe.give_credits(held);
            }
            return false;
        }
        for (i, held) in held.into_iter().enumerate().filter(|(_, held)| *held > 0) {
            self.claim(i, held, &mut take);
        }
        true
    }

    fn claim(&self, stripe: usize, n: u32, take: &mut impl FnMut(u32, u32)) {
        let first = stripe as u32 * self.stripe_slots;
        self.stripes[stripe].claim(n, |leaf, mask| {
            leaf::runs(mask, |bit, length| take(first + leaf * BITS + bit, length));
        });
    }

    /// Frees slots, in any order; neighbours in order cost one leaf's change.
    #[inline]
    pub(crate) fn free(&self, slots: impl IntoIterator<Item = u32>) {
        let (mut leaf, mut mask) = (u32::MAX, 0u64);
        // Inner iteration: a `Drain` that is moved about costs more than the atomics here.
        slots.into_iter().for_each(|slot| {
            if slot / BITS != leaf {
                if mask != 0 {
                    self.free_mask(leaf, mask);
                }
                (leaf, mask) = (slot / BITS, 0);
            }
            mask |= 1 << (slot % BITS);
        });
        if mask != 0 {
            self.free_mask(leaf, mask);
        }
    }

    #[inline]
    fn free_mask(&self, leaf: u32, mask: u64) {
        let number = self.stripe_of_leaf(leaf);
        let stripe = &self.stripes[number];
        stripe.free_leaf((leaf - number as u32 * (self.stripe_slots / BITS)) as usize, mask);
        stripe.give_credits(mask.count_ones());
    }

    #[inline]
    fn stripe_of_leaf(&self, leaf: u32) -> usize {
        ((u64::from(leaf) * self.stripe_leaves_inverse) >> 48) as usize
    }

    /// Bytes of the map.
    pub(crate) fn memory_bytes(&self) -> usize {
        let words = |s: &Stripe| size_of_val(&*s.leaves) + size_of_val(&*s.summary);
        size_of_val(&*self.stripes) + self.stripes.iter().map(|stripe| words(stripe)).sum::<usize>()
    }

    /// Returns whether the slot is free; for censuses at rest, and for a slot's owner.
    pub(crate) fn is_free(&self, slot: u32) -> bool {
        let stripe = (slot / self.stripe_slots) as usize;
        let at = slot % self.stripe_slots;
        // Relaxed: nothing is read after it; at rest, or asked by the slot's owner, it is exact.
        self.stripes[stripe].leaves[(at / BITS) as usize].load(Relaxed) & (1 << (at % BITS)) != 0
    }
}

impl Stripe {
    fn new(slots: u32) -> Stripe {
        // `count` bits set, in as many words as they take.
        let words = |count: u32| -> Box<[AtomicU64]> {
            let word = |i: u32| AtomicU64::new(leaf::low_bits((count - i * BITS).min(BITS)));
            (0..count.div_ceil(BITS)).map(word).collect()
        };
        let leaves = words(slots);
        let summary = words(leaves.len() as u32);
        Stripe { credits: AtomicU32::new(slots), hint: AtomicU32::new(0), leaves, summary }
    }

    /// Takes all `n` credits or none.
    #[inline]
    fn reserve_all(&self, n: u32) -> bool {
        // Relaxed: a guess; the exchange decides.
        let mut now = self.credits.load(Relaxed);
        while now >= n || skipped!("free_no_credits") {
            // Relaxed: a credit promises a bit, not which one; the bit itself orders its slot's owners.
            match self.credits.compare_exchange_weak(now, now.wrapping_sub(n), Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(seen) => now = seen,
            }
        }
        false
    }

    /// Takes up to `n` credits.
    fn reserve_some(&self, n: u32) -> u32 {
        // Relaxed, all: as in `reserve_all`.
        let mut now = self.credits.load(Relaxed);
        loop {
            let taken = now.min(n);
            if taken == 0 {
                return 0;
            }
            if skipped!("free_steal_no_exchange") {
                self.credits.store(now - taken, Relaxed);
                return taken;
            }
            match self.credits.compare_exchange_weak(now, now - taken, Relaxed, Relaxed) {
                Ok(_) => return taken,
                Err(seen) => now = seen,
            }
        }
    }

    #[inline]
    fn give_credits(&self, n: u32) {
        // Relaxed: as in `reserve_all`.
        self.credits.fetch_add(n, Relaxed);
    }

    /// Claims `n` bits, which exist since the caller holds `n` credits (I1).
    #[inline]
    fn claim(&self, n: u32, mut take: impl FnMut(u32, u64)) {
        // Relaxed: the hint is a guess.
        let mut leaf = self.hint.load(Relaxed) as usize;
        let mut missing = n;
        while missing > 0 {
            let mask = self.claim_leaf(leaf, missing);
            if mask != 0 {
                take(leaf as u32, mask);
                missing -= mask.count_ones();
                if missing == 0 {
                    // Relaxed, both: as above.
                    if leaf as u32 != self.hint.load(Relaxed) {
                        self.hint.store(leaf as u32, Relaxed);
                    }
                    break;
                }
            }
            leaf = self.next_leaf(leaf);
        }
    }

    /// Takes up to `n` bits of one leaf, whole runs first.
    #[inline]
    fn claim_leaf(&self, leaf: usize, n: u32) -> u64 {
        let leaf = &self.leaves[leaf];
        // Relaxed: a guess; the exchange decides.
        let mut now = leaf.load(Relaxed);
        while now != 0 {
            let mask = leaf::choose(now, n);
            if skipped!("free_claim_no_exchange") {
                leaf.store(now & !mask, Relaxed);
                return mask;
            }
            // Acquire: pairs with the Release in `free_leaf`; the slots' last owners are done with them (I2).
            match leaf.compare_exchange_weak(now, now & !mask, site!("free_claim_relaxed", Acquire), Relaxed)
            {
                Ok(_) => return mask,
                Err(seen) => now = seen,
            }
        }
        0
    }

    /// The next leaf after `from` that may have bits, cyclically.
    #[cold]
    fn next_leaf(&self, from: usize) -> usize {
        self.clear_summary(from);
        let words = self.summary.len();
        let start = (from + 1) % self.leaves.len();
        for k in 0..=words {
            let number = (start / BITS as usize + k) % words;
            // Relaxed: a guess; the leaf is looked at next, and without a guess all leaves are.
            let mut bits = self.summary[number].load(Relaxed);
            if k == 0 {
                bits &= u64::MAX << (start % BITS as usize);
            }
            if bits != 0 {
                return number * BITS as usize + bits.trailing_zeros() as usize;
            }
        }
        // I3: the bits are there, their summary is between two steps of another thread.
        spin_loop();
        start
    }

    /// The summary word of a leaf, and its bit.
    #[inline]
    fn summary_of(&self, leaf: usize) -> (&AtomicU64, u64) {
        (&self.summary[leaf / BITS as usize], 1 << (leaf % BITS as usize))
    }

    /// Clears the summary bit of an empty leaf, and sets it again if the leaf filled meanwhile.
    fn clear_summary(&self, leaf: usize) {
        let (word, bit) = self.summary_of(leaf);
        // Relaxed: a look, which saves the write that hardly any caller needs.
        if self.leaves[leaf].load(Relaxed) != 0 || word.load(Relaxed) & bit == 0 {
            return;
        }
        // Acquire: pairs with the Release in `free_leaf`: if that set this bit before, its leaf is
        // visible to the load below; if after, the bit stays (I3).
        word.fetch_and(!bit, site!("free_clear_relaxed", Acquire));
        // Relaxed, both: ordered by the line before; the freer has announced, or will announce, the bit
        // that is set again.
        if self.leaves[leaf].load(Relaxed) != 0 && !skipped!("free_clear_no_recheck") {
            word.fetch_or(bit, Relaxed);
        }
    }

    #[inline]
    fn free_leaf(&self, leaf: usize, mask: u64) {
        // The bits are clear, since their slots were owned (I2), so adding sets them; and unlike `or`,
        // adding gives the old value in one instruction. Release: pairs with the Acquire in `claim_leaf`.
        let old = self.leaves[leaf].fetch_add(mask, site!("free_give_relaxed", Release));
        debug_assert_eq!(old & mask, 0, "a slot was freed twice: leaf {leaf}, bits {:#x}", old & mask);
        if old == 0 {
            let (word, bit) = self.summary_of(leaf);
            // Release: pairs with the Acquire in `clear_summary`.
            word.fetch_or(bit, site!("free_announce_relaxed", Release));
        }
    }
}
