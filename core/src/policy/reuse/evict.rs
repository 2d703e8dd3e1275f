//! The search for victims: finds the heads of all lists, and takes from the list whose head has the
//! least index, until another list's head has less.
//!
//! ```text
//!   heads of the lists, youngest segments ─► choice ─► a run of blocks of one list,
//!                                            each compared with the best of the other lists only ─► choice …
//! ```
//!
//! I1. A head is a block that could be taken when it was scanned: blocks in use are passed, and a
//!     block with children waits for them.
//! I2. A choice is a hint; `Scan::claim` decides.
//! I3. A search for few victims scans no head that was scanned a moment ago (`Sight`, the scan cache).
//!     So it may pass blocks that are new since, or back in their old places, for no more victims and
//!     releases together than the cache stands for (`Sight::age`).
//! I4. A youngest segment begins at `young`, and has the blocks released since the block at that place.
//!     Blocks that compaction has moved there are older and are no part of it.
//! I5. One scan of a list defers at most `PASSED` parents, however many stand before its first block that
//!     can be taken. The list then has no head, and the next scan continues, at once if no list has a
//!     head. So no eviction pays for all releases since the last one, and no evictable block is missed.
//! I6. Where a search took as many as it wanted, the next one continues with the same list, and compares
//!     its next block with the same rivals: one scan per block, whether it is taken with others or
//!     alone. The other heads are as they were (I3), and so is the test whether LRU has them: LRU only
//!     loses blocks, so the guard holds back for a few victims more than it must.

use super::Reuse;
use super::ages::{age, not_before};
use super::classes::{CLASSES, HIGH, LOW};
use super::journal::Page;
use super::orders::{Choice, Head, Leave, NO_YOUNGS, Youngs};
use super::sight::Sight;
use crate::policy::scan::Scan;
use crate::slot::{NO_TICKET, Priority, Slot};
use crate::sync::Relaxed;
use crate::timeline::{Candidate, Timeline, Verdict};

/// Older blocks within a youngest segment that a scan passes before it gives up.
pub(super) const OLDER: usize = 16;

/// The most places that a scan walks from one block of a list to the next: 64 words.
pub(super) const FAR: u32 = 4096;

/// I5: a cache miss each.
const PASSED: u32 = 64;

/// Number of victims for which a search scans all heads anew.
const MANY: usize = CLASSES;

/// A requeued parent: its list, and its place there.
type Parent = (usize, u64);

struct Search<'h, S> {
    policy: &'h Reuse,
    scan: &'h S,
    now: u32,
    sight: &'h mut Sight,
    page: Page,
}

impl Reuse {
    pub(super) fn search<'p>(&self, wanted: usize, scan: &impl Scan<'p>) -> usize {
        if wanted == 0 {
            return 0;
        }
        let few = || {
            self.sight.with(|sight| {
                sight.age(scan.timeline().clock() as u32, self.capacity);
                self.search_from(sight, wanted, scan)
            })
        };
        // Concurrent searches do not wait for each other.
        let taken = if wanted < MANY { few() } else { None };
        taken.unwrap_or_else(|| self.search_from(&mut Sight::none(), wanted, scan))
    }

    fn search_from<'p>(&self, sight: &mut Sight, wanted: usize, scan: &impl Scan<'p>) -> usize {
        let now = scan.timeline().clock() as u32;
        let mut search = Search { policy: self, scan, now, sight, page: Page::new() };
        let (mut taken, mut class) = (0, 0);
        while taken < wanted && class < Priority::EVICTABLE {
            let missing = wanted - taken;
            taken += match class {
                0 => scan.take_oldest(LOW, missing),
                1 => search.take(missing),
                _ => scan.take_oldest(HIGH, missing),
            };
            class = if scan.reordered() {
                // A parent of priority `Normal` may have been requeued, by a child of another priority.
                search.sight.since = None;
                0
            } else {
                class + 1
            };
        }
        search.sight.victims = search.sight.victims.saturating_add(taken as u32);
        if self.journal.write(&mut search.page) {
            self.hear();
        }
        taken
    }

    /// The head for a block of a list.
    #[inline]
    pub(super) fn head(&self, list: usize, place: u64, slot: &Slot, now: u32) -> Head {
        // Relaxed: written before the block's release, which made it inactive.
        let stamp = slot.stamp.load(Relaxed);
        let index = if list < CLASSES { self.orders.index(list, age(now, stamp)) } else { 0.0 };
        Head { place, stamp, index }
    }

    /// The index of the rest of each youngest segment.
    pub(super) fn youngs(&self, timeline: &Timeline, now: u32) -> Youngs {
        let mut youngs = NO_YOUNGS;
        for (list, (young, index)) in self.young.iter().zip(&mut youngs).enumerate() {
            // Relaxed: as in `place`.
            let place = young.load(Relaxed);
            if place != 0 {
                *index = self.orders.index(list, age(now, timeline.number(place) as u32));
            }
        }
        youngs
    }
}

impl<'p, S: Scan<'p>> Search<'_, S> {
    /// Takes blocks of the lists of `Normal`.
    fn take(&mut self, wanted: usize) -> usize {
        if self.sight.since.is_none() {
            self.look_at_all();
        }
        let mut taken = 0;
        while taken < wanted {
            let Some(choice) = self.run().or_else(|| self.choose()) else {
                // Blocks that others released meanwhile go before blocks of a higher priority.
                self.look_at_all();
                while self.has_no_head() && self.sight.unfinished != 0 {
                    (0..CLASSES).for_each(|list| self.look_on(list));
                }
                if self.has_no_head() {
                    break;
                }
                continue;
            };
            self.sight.run = None;
            let (found, parent) = match choice {
                Choice::Oldest(list) => self.take_oldest(list, wanted - taken),
                Choice::Youngest(list) => self.take_youngest(list, wanted - taken),
            };
            taken += found;
            // A requeued parent of ours may be its list's head, which a run will reach. One of another
            // priority is handled by the caller.
            match parent {
                Some((list, place)) if list < CLASSES => {
                    self.scan.reordered();
                    if self.sight.run != Some(Choice::Oldest(list)) && place < self.sight.heads[list].place {
                        self.look(list);
                    }
                }
                Some(_) => break,
                None => {}
            }
        }
        taken
    }

    /// The choice that the last search ended with, if this one may continue with it.
    #[inline]
    fn run(&self) -> Option<Choice> {
        let is_allowed = |run: &Choice| match run {
            Choice::Oldest(_) => true,
            Choice::Youngest(_) => self.policy.orders.leave(0).takes_young(),
        };
        self.sight.run.filter(is_allowed)
    }

    /// Chooses the next victims; none: there is no head.
    fn choose(&mut self) -> Option<Choice> {
        let orders = &self.policy.orders;
        let leave = orders.leave(0);
        let youngs = youngs(&mut self.sight.youngs, self.policy, self.scan, self.now, leave);
        orders.choose(&self.sight.heads, youngs, leave)
    }

    /// Returns whether a list remains the choice with another head.
    #[inline]
    fn goes_on(&mut self, list: usize, head: Head) -> bool {
        let orders = &self.policy.orders;
        let leave = orders.leave(0);
        let rivals = match &mut self.sight.rivals {
            Some(rivals) if rivals.list == list && rivals.leave == leave => rivals,
            rivals => {
                let youngs = youngs(&mut self.sight.youngs, self.policy, self.scan, self.now, leave);
                rivals.insert(orders.rivals(&self.sight.heads, youngs, list, leave))
            }
        };
        orders.goes_on(rivals, head)
    }

    fn look_at_all(&mut self) {
        (0..CLASSES).for_each(|list| self.look(list));
        *self.sight =
            Sight { since: Some(self.now), run: None, rivals: None, youngs: None, victims: 0, ..*self.sight };
    }

    fn has_no_head(&self) -> bool {
        self.sight.heads.iter().all(|head| head.is_none())
    }

    /// Continues a scan that has deferred as many parents as it may.
    fn look_on(&mut self, list: usize) {
        if self.sight.unfinished & (1 << list) != 0 {
            self.look(list);
        }
    }

    /// Finds the head of a list, and drops the stale entries that it passes.
    #[inline]
    fn look(&mut self, list: usize) {
        let slots = self.scan.slots();
        if let Some(candidate) = self.scan.timeline().oldest(slots, list) {
            let slot = &slots[candidate.slot as usize];
            if is_head(slot) {
                self.found(list, self.policy.head(list, candidate.ticket, slot, self.now), false);
                return;
            }
        }
        self.look_further(list);
    }

    /// Finds the head of a list whose first entry cannot be taken.
    fn look_further(&mut self, list: usize) {
        let (policy, scan, now) = (self.policy, self.scan, self.now);
        let (mut head, mut passed) = (Head::NONE, 0);
        scan.timeline().take_oldest(scan.slots(), list, 1, |candidate, slot| {
            let word = slot.word();
            if !word.inactive() || word.priority() == Priority::Pinned {
                return Verdict::Stale;
            }
            if passed == PASSED {
                return Verdict::Stop;
            }
            if slot.defer_if_parent(word.generation()) {
                passed += 1;
                return Verdict::Deferred;
            }
            head = policy.head(list, candidate.ticket, slot, now);
            Verdict::Stop
        });
        self.found(list, head, passed == PASSED);
    }

    /// Stores a list's head. `is_unfinished`: none was found so far.
    #[inline]
    fn found(&mut self, list: usize, head: Head, is_unfinished: bool) {
        self.sight.heads[list] = head;
        self.sight.rivals.take_if(|rivals| rivals.list != list);
        self.sight.run.take_if(|run| matches!(run, Choice::Youngest(_)));
        self.sight.unfinished &= !(1 << list);
        self.sight.unfinished |= u32::from(is_unfinished) << list;
    }

    /// Takes from the old end of a list as long as it is the choice. Returns the number taken, and the
    /// parent that the last victim requeued.
    fn take_oldest(&mut self, list: usize, wanted: usize) -> (usize, Option<Parent>) {
        let (policy, scan) = (self.policy, self.scan);
        // In a run no head is chosen, so that each block is compared.
        let chosen = self.sight.heads[list].place;
        let (mut parent, mut is_last, mut passed) = (None, false, 0);
        let mut next = Head::NONE;
        let taken = scan.timeline().take_oldest(scan.slots(), list, wanted, |candidate, slot| {
            if passed == PASSED {
                return Verdict::Stop;
            }
            // Only heads are compared; `claim` passes the others.
            if candidate.ticket != chosen && is_head(slot) {
                let head = policy.head(list, candidate.ticket, slot, self.now);
                if !self.goes_on(list, head) {
                    next = head;
                    return Verdict::Stop;
                }
            }
            let verdict = scan.claim(candidate);
            if matches!(verdict, Verdict::Taken | Verdict::TakenLast) {
                parent = self.note(candidate.slot, slot, verdict);
                is_last = verdict == Verdict::TakenLast;
            }
            passed += u32::from(verdict == Verdict::Deferred);
            verdict
        });
        self.found(list, next, false);
        self.sight.run = (taken == wanted || is_last).then_some(Choice::Oldest(list));
        if next.is_none() && self.sight.run.is_none() {
            // The list has no more, or enough parents were passed: the scan ends there.
            self.look(list);
        }
        (taken, parent)
    }

    /// Takes the rest of a list's youngest segment, the deepest block first, until a block has children,
    /// is gone, or has requeued its parent. Returns the number taken, and that parent.
    fn take_youngest(&mut self, list: usize, wanted: usize) -> (usize, Option<Parent>) {
        let (policy, scan) = (self.policy, self.scan);
        // Relaxed, here and below: as in `place`.
        let place = policy.young[list].load(Relaxed);
        if place == 0 {
            self.forget_youngest(list);
            return (0, None);
        }
        let since = scan.timeline().number(place) as u32;
        let (mut taken, mut older, mut parent, mut is_over) = (0, 0, None, false);
        let to = scan.timeline().word_behind(place, FAR);
        let go_on = scan.timeline().peek_until(scan.slots(), list, place, to, |slot, number| {
            // The ticket first: with it the block is of the list, and was released then.
            let candidate = Candidate { slot: number, ticket: slot.ticket() };
            let stamp = slot.stamp.load(Relaxed);
            if !not_before(stamp, since) {
                older += 1;
                is_over = older == OLDER;
                return !is_over;
            }
            // A block in use just now has neither.
            let is_placed = candidate.ticket != NO_TICKET && usize::from(slot.list.load(Relaxed)) == list;
            let is_ours = is_placed && !slot.has_children();
            let verdict = if is_ours { scan.claim(candidate) } else { Verdict::Stale };
            if !matches!(verdict, Verdict::Taken | Verdict::TakenLast) {
                is_over = true;
                return false;
            }
            taken += 1;
            parent = self.note(number, slot, verdict);
            taken < wanted && verdict == Verdict::Taken && policy.orders.leave(0).takes_young()
        });
        let further = taken > 0 && to < scan.timeline().young_end();
        let left = go_on.or(further.then_some(to)).filter(|_| !is_over).unwrap_or(0);
        is_over |= left == 0;
        self.sight.run = (!is_over).then_some(Choice::Youngest(list));
        // If another segment has begun meanwhile, a run continues with that. Taken
        // blocks are not walked again.
        let _ = policy.young[list].compare_exchange(place, left, Relaxed, Relaxed);
        if is_over {
            self.forget_youngest(list);
        }
        (taken, parent)
    }

    fn forget_youngest(&mut self, list: usize) {
        // Otherwise a run would stop at the ended segment, and choose anew, for each block.
        self.sight.rivals = None;
        if let Some(youngs) = &mut self.sight.youngs {
            youngs[list] = f32::INFINITY;
        }
    }

    /// Records the eviction of a block that is ours now. Returns its parent, if that was requeued.
    fn note(&mut self, number: u32, slot: &Slot, verdict: Verdict) -> Option<Parent> {
        let parent = self.scan.parent_of(slot);
        self.policy.evicted(number, slot, parent, &mut self.page);
        let parent = &self.scan.slots()[parent.filter(|_| verdict == Verdict::TakenLast)? as usize];
        // Relaxed: a hint.
        Some((usize::from(parent.list.load(Relaxed)), parent.ticket()))
    }
}

/// Returns whether a block seems to be evictable.
#[inline]
fn is_head(slot: &Slot) -> bool {
    let word = slot.word();
    word.inactive() && word.priority() != Priority::Pinned && !slot.has_children()
}

/// The youngest segments, scanned once per scan cache, if the guard allows them; otherwise none.
fn youngs<'y, 'p>(
    youngs: &'y mut Option<Youngs>,
    policy: &Reuse,
    scan: &impl Scan<'p>,
    now: u32,
    leave: Leave,
) -> &'y Youngs {
    match leave.takes_young() {
        true => youngs.get_or_insert_with(|| policy.youngs(scan.timeline(), now)),
        false => &NO_YOUNGS,
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
