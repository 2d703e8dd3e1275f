//! The search for victims: the heads of all lists, and the one of least index taken, until another list's is
//! less.
//!
//! ```text
//!   heads of the lists, youngest segments ─► choice ─► a run of blocks of one list, each compared with the best of the others alone ─► choice …
//! ```
//!
//! I1. A head is a block that could be taken when it was looked at: what is in use is passed by, and what has
//! children waits for them. I2. What is chosen is a hint; `Scan::claim` decides. I3. Who takes few looks at
//! no head that was looked at a moment ago (`Sight`), and so may pass by what is new, or back in its old
//! place, since: for no
//!     more victims and releases together than a sight stands.
//! I4. A youngest segment begins at `young`, and has what was released since the block of that place: what
//! compaction has moved there is older. I5. One look at a list lets no more than `PASSED` parents wait,
//! however many are before its first that can be taken; it is without a head then, and goes on
//!     with the next look, at once if no list has a head: no eviction pays for all that was released since the last, and nothing evictable is missed.
//! I6. Where as many were taken as were wanted, the next search goes on with the same list, and compares its
//! next block with what the last was compared
//!     with: one look at a block, whether it is taken with others or by itself. Others' heads are as they were (I3), and whether LRU has
//!     them is as it was then: it loses blocks only, so what the guard holds back is held back for a few victims more.

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

/// Older blocks among a youngest segment that a look passes before it gives up.
pub(super) const OLDER: usize = 16;

/// Places from one block of a list to the next that are walked: 64 words.
pub(super) const FAR: u32 = 4096;

/// I5: a cache miss each.
const PASSED: u32 = 64;

/// Victims of a search that is worth a look at all heads.
const MANY: usize = CLASSES;

/// The list of a parent that came back, and its place there.
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
        // Two of them at once do not wait for each other.
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
                // A parent of `Normal` may be back, by a child of another priority.
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

    /// A block as the head of a list.
    #[inline]
    pub(super) fn head(&self, list: usize, place: u64, slot: &Slot, now: u32) -> Head {
        // Relaxed: written before the block was let go of, which made it inactive.
        let stamp = slot.stamp.load(Relaxed);
        let index = if list < CLASSES { self.orders.index(list, age(now, stamp)) } else { 0.0 };
        Head { place, stamp, index }
    }

    /// The index of what is left of each youngest segment.
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
                // What others have let go of meanwhile goes before blocks of a higher priority.
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
            // The parent that came back: one of ours may be its list's head, which a run comes by; another is of other priority, and the caller's.
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

    /// What the last search was at, if it may go on with that.
    #[inline]
    fn run(&self) -> Option<Choice> {
        let is_allowed = |run: &Choice| match run {
            Choice::Oldest(_) => true,
            Choice::Youngest(_) => self.policy.orders.leave(0).takes_young(),
        };
        self.sight.run.filter(is_allowed)
    }

    /// What goes next; none: there is no head.
    fn choose(&mut self) -> Option<Choice> {
        let orders = &self.policy.orders;
        let leave = orders.leave(0);
        let youngs = youngs(&mut self.sight.youngs, self.policy, self.scan, self.now, leave);
        orders.choose(&self.sight.heads, youngs, leave)
    }

    /// Whether a list goes on being the choice with another head.
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

    /// Goes on with a look that has let enough parents wait.
    fn look_on(&mut self, list: usize) {
        if self.sight.unfinished & (1 << list) != 0 {
            self.look(list);
        }
    }

    /// Finds the head of a list, and drops what it passes.
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

    /// The same where the first that the list has is not to be had.
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

    /// `is_unfinished`: none was found so far.
    #[inline]
    fn found(&mut self, list: usize, head: Head, is_unfinished: bool) {
        self.sight.heads[list] = head;
        self.sight.rivals.take_if(|rivals| rivals.list != list);
        self.sight.run.take_if(|run| matches!(run, Choice::Youngest(_)));
        self.sight.unfinished &= !(1 << list);
        self.sight.unfinished |= u32::from(is_unfinished) << list;
    }

    /// Takes from the old end of a list as long as it is the choice. How many, and the parent that came back by the last: its list, and its place there.
    fn take_oldest(&mut self, list: usize, wanted: usize) -> (usize, Option<Parent>) {
        let (policy, scan) = (self.policy, self.scan);
        // Of a run there is none, and each is compared.
        let chosen = self.sight.heads[list].place;
        let (mut parent, mut is_last, mut passed) = (None, false, 0);
        let mut next = Head::NONE;
        let taken = scan.timeline().take_oldest(scan.slots(), list, wanted, |candidate, slot| {
            if passed == PASSED {
                return Verdict::Stop;
            }
            // What is none is not compared, but passed.
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
            // It has no more, or parents enough were passed: the look ends there.
            self.look(list);
        }
        (taken, parent)
    }

    /// Takes what is left of a list's youngest segment, the deepest first, until a block has children, is gone, or has brought its parent back.
    /// How many, and that parent.
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
            // One that is used just now has neither.
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
        // Another may have begun meanwhile: a run goes on with it. What was taken is not walked again.
        let _ = policy.young[list].compare_exchange(place, left, Relaxed, Relaxed);
        if is_over {
            self.forget_youngest(list);
        }
        (taken, parent)
    }

    fn forget_youngest(&mut self, list: usize) {
        // Or a run would stop at what is over, and choose anew, for each block.
        self.sight.rivals = None;
        if let Some(youngs) = &mut self.sight.youngs {
            youngs[list] = f32::INFINITY;
        }
    }

    /// The books of a block that is ours now. Its parent, if that came back.
    fn note(&mut self, number: u32, slot: &Slot, verdict: Verdict) -> Option<Parent> {
        let parent = self.scan.parent_of(slot);
        self.policy.evicted(number, slot, parent, &mut self.page);
        let parent = &self.scan.slots()[parent.filter(|_| verdict == Verdict::TakenLast)? as usize];
        // Relaxed: a hint.
        Some((usize::from(parent.list.load(Relaxed)), parent.ticket()))
    }
}

/// Whether a block could be taken, as it seems.
#[inline]
fn is_head(slot: &Slot) -> bool {
    let word = slot.word();
    word.inactive() && word.priority() != Priority::Pinned && !slot.has_children()
}

/// The youngest segments as far as they are allowed, looked at once a sight.
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
