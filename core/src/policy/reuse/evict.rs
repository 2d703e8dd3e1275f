//! The search for victims: the heads of all lists, and the one of least index taken, until another list's is less.
//!
//! ```text
//!   heads of the lists, youngest segments ─► choice ─► a run of blocks of one list, each compared with the best of the others alone ─► choice …
//! ```
//!
//! I1. A head is a block that could be taken when it was looked at: what is in use is passed by, and what has children waits for them.
//! I2. What is chosen is a hint; `Hunt::claim` decides.
//! I3. Who takes few looks at no head that was looked at a moment ago (`Sight`), and so may pass by what is new, or back in its old place, since: for no
//!     more victims and releases together than a sight stands.
//! I4. A youngest segment begins at `young`, and has what was released since the block of that place: what compaction has moved there is older.
//! I5. One look at a list lets no more than `PASSED` parents wait, however many are before its first that can be taken; it is without a head then, and goes on
//!     with the next look, at once if no list has a head: no eviction pays for all that was released since the last, and nothing evictable is missed.

use super::ages::{age, not_before};
use super::journal::Page;
use super::orders::{Choice, Head, Heads, Leave, NO_YOUNGS, Rivals, Youngs};
use super::{CLASSES, HIGH, LISTS, LOW, Reuse};
use crate::pool::Hunt;
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
/// Releases and victims for which one look is good enough: as many as an index is, before it is computed anew; and few of a small pool's blocks.
const STANDS: u32 = 64;

/// The heads as they were looked at, and went on since.
pub(super) struct Sight {
    heads: Heads,
    /// Lists without a head, that have more to be looked at: a bit each (I5).
    unfinished: u32,
    /// Looked at when they may be chosen.
    youngs: Option<Youngs>,
    /// When; none: never. And victims since.
    since: Option<u32>,
    victims: u32,
}

impl Sight {
    pub(super) fn none() -> Sight {
        Sight { heads: [Head::NONE; CLASSES], unfinished: 0, youngs: None, since: None, victims: 0 }
    }

    /// What is not to be used any more is forgotten.
    fn age(&mut self, now: u32, capacity: u32) {
        let stands = STANDS.min(capacity / 64);
        let past = |since: u32| now.wrapping_sub(since).saturating_add(self.victims);
        if self.since.is_some_and(|since| past(since) > stands) {
            *self = Sight::none();
        }
    }
}

struct Search<'p, 'h> {
    policy: &'p Reuse,
    hunt: &'h Hunt<'p>,
    now: u32,
    sight: &'h mut Sight,
    page: Page,
}

impl Reuse {
    pub(super) fn search<'p>(&'p self, wanted: usize, hunt: &Hunt<'p>) -> usize {
        if wanted == 0 {
            return 0;
        }
        let few = || {
            self.sight.with(|sight| {
                sight.age(hunt.timeline().clock() as u32, self.capacity);
                self.search_from(sight, wanted, hunt)
            })
        };
        // Two of them at once do not wait for each other.
        let taken = if wanted < MANY { few() } else { None };
        taken.unwrap_or_else(|| self.search_from(&mut Sight::none(), wanted, hunt))
    }

    fn search_from<'p>(&'p self, sight: &mut Sight, wanted: usize, hunt: &Hunt<'p>) -> usize {
        let now = hunt.timeline().clock() as u32;
        let mut search = Search { policy: self, hunt, now, sight, page: Page::new() };
        let (mut taken, mut class) = (0, 0);
        while taken < wanted && class < Priority::EVICTABLE {
            let missing = wanted - taken;
            taken += match class {
                0 => hunt.take_oldest(LOW, missing),
                1 => search.take(missing),
                _ => hunt.take_oldest(HIGH, missing),
            };
            class = if hunt.reordered() {
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
    pub(crate) fn head(&self, list: usize, place: u64, slot: &Slot, now: u32) -> Head {
        // Relaxed: written before the block was let go of, which made it inactive.
        let stamp = slot.stamp.load(Relaxed);
        let index = if list < CLASSES { self.orders.index(list, age(now, stamp)) } else { 0.0 };
        Head { place, stamp, index }
    }

    /// Of which list the head goes first, as an evictor would have it now; the youngest segments left aside.
    pub(crate) fn first_of(&self, heads: &[Option<Head>; LISTS]) -> Option<usize> {
        let normal = core::array::from_fn(|list| heads[list].unwrap_or(Head::NONE));
        let chosen = || match self.orders.choose(&normal, &NO_YOUNGS, self.orders.leave(0))? {
            Choice::Oldest(list) | Choice::Youngest(list) => Some(list),
        };
        let low = heads[LOW].is_some().then_some(LOW);
        low.or_else(chosen).or(heads[HIGH].is_some().then_some(HIGH))
    }

    /// The index of what is left of each youngest segment.
    pub(super) fn youngs(&self, timeline: &Timeline, now: u32) -> Youngs {
        let mut youngs = NO_YOUNGS;
        for (list, (young, index)) in self.young.iter().zip(&mut youngs).enumerate() {
            // Relaxed: as in `place_in`.
            let place = young.load(Relaxed);
            if place != 0 {
                *index = self.orders.index(list, age(now, timeline.number(place) as u32));
            }
        }
        youngs
    }
}

impl Search<'_, '_> {
    /// Takes blocks of the lists of `Normal`.
    fn take(&mut self, wanted: usize) -> usize {
        if self.sight.since.is_none() {
            self.look_at_all();
        }
        let orders = &self.policy.orders;
        let mut taken = 0;
        while taken < wanted {
            let leave = orders.leave(0);
            let youngs = youngs(&mut self.sight.youngs, self.policy, self.hunt, self.now, leave);
            let Some(choice) = orders.choose(&self.sight.heads, youngs, leave) else {
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
            let (found, parent) = match choice {
                Choice::Oldest(list) => self.take_oldest(list, wanted - taken),
                Choice::Youngest(list) => self.take_youngest(list, wanted - taken),
            };
            taken += found;
            // The list of a parent that came back: one of ours is looked at anew; another is of other priority, and the caller's.
            match parent {
                Some(list) if list < CLASSES => {
                    self.hunt.reordered();
                    self.look(list);
                }
                Some(_) => break,
                None => {}
            }
        }
        taken
    }

    fn look_at_all(&mut self) {
        (0..CLASSES).for_each(|list| self.look(list));
        (self.sight.youngs, self.sight.since, self.sight.victims) = (None, Some(self.now), 0);
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
        let slots = self.hunt.slots();
        if let Some(candidate) = self.hunt.timeline().oldest(slots, list) {
            let slot = &slots[candidate.slot as usize];
            let word = slot.word();
            if word.inactive() && word.priority() != Priority::Pinned && !slot.has_children() {
                self.found(list, self.policy.head(list, candidate.ticket, slot, self.now), false);
                return;
            }
        }
        self.look_further(list);
    }

    /// The same where the first that the list has is not to be had.
    fn look_further(&mut self, list: usize) {
        let (policy, hunt, now) = (self.policy, self.hunt, self.now);
        let (mut head, mut passed) = (Head::NONE, 0);
        hunt.timeline().take_oldest(hunt.slots(), list, 1, |candidate, slot| {
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
        self.sight.unfinished &= !(1 << list);
        self.sight.unfinished |= u32::from(is_unfinished) << list;
    }

    /// Takes from the old end of a list as long as it is the choice. How many, and the list of a parent that came back by the last.
    fn take_oldest(&mut self, list: usize, wanted: usize) -> (usize, Option<usize>) {
        let (policy, hunt) = (self.policy, self.hunt);
        let (chosen, mut rivals) = (self.sight.heads[list].place, None::<Rivals>);
        let (mut parent, mut passed) = (None, 0);
        let mut next = Head::NONE;
        let taken = hunt.timeline().take_oldest(hunt.slots(), list, wanted, |candidate, slot| {
            if passed == PASSED {
                return Verdict::Stop;
            }
            if candidate.ticket != chosen {
                let head = policy.head(list, candidate.ticket, slot, self.now);
                let leave = policy.orders.leave(0);
                let rivals = match &mut rivals {
                    Some(rivals) if rivals.leave == leave => rivals,
                    rivals => {
                        let youngs = youngs(&mut self.sight.youngs, policy, hunt, self.now, leave);
                        rivals.insert(policy.orders.rivals(&self.sight.heads, youngs, list, leave))
                    }
                };
                if !policy.orders.goes_on(rivals, head) {
                    next = head;
                    return Verdict::Stop;
                }
            }
            let verdict = hunt.claim(candidate);
            if matches!(verdict, Verdict::Taken | Verdict::TakenLast) {
                parent = self.note(candidate.slot, slot, verdict);
            }
            passed += u32::from(verdict == Verdict::Deferred);
            verdict
        });
        self.found(list, next, false);
        if next.is_none() {
            // No more are wanted, or it has no more, or parents enough were passed, or a block was the last child of one that is gone or came back: the look
            // ends there.
            self.look(list);
        }
        (taken, parent)
    }

    /// Takes what is left of a list's youngest segment, the deepest first, until a block has children, is gone, or has brought its parent back.
    /// How many, and the list of that parent.
    fn take_youngest(&mut self, list: usize, wanted: usize) -> (usize, Option<usize>) {
        let (policy, hunt) = (self.policy, self.hunt);
        // Relaxed, here and below: as in `place_in`.
        let place = policy.young[list].load(Relaxed);
        if place == 0 {
            self.forget_youngest(list);
            return (0, None);
        }
        let since = hunt.timeline().number(place) as u32;
        let (mut taken, mut older, mut parent, mut is_over) = (0, 0, None, false);
        let to = hunt.timeline().word_behind(place, FAR);
        let go_on = hunt.timeline().peek_until(hunt.slots(), list, place, to, |slot, number| {
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
            let verdict = if is_ours { hunt.claim(candidate) } else { Verdict::Stale };
            if !matches!(verdict, Verdict::Taken | Verdict::TakenLast) {
                is_over = true;
                return false;
            }
            taken += 1;
            parent = self.note(number, slot, verdict);
            taken < wanted && verdict == Verdict::Taken && policy.orders.leave(0).takes_young()
        });
        let further = taken > 0 && to < hunt.timeline().young_end();
        let left = go_on.or(further.then_some(to)).filter(|_| !is_over).unwrap_or(0);
        is_over |= left == 0;
        // Another may have begun meanwhile: it is looked at by the next search. What was taken is not walked again.
        let _ = policy.young[list].compare_exchange(place, left, Relaxed, Relaxed);
        if is_over {
            self.forget_youngest(list);
        }
        (taken, parent)
    }

    fn forget_youngest(&mut self, list: usize) {
        if let Some(youngs) = &mut self.sight.youngs {
            youngs[list] = f32::INFINITY;
        }
    }

    /// The books of a block that is ours now. The list of its parent, if that came back.
    fn note(&mut self, number: u32, slot: &Slot, verdict: Verdict) -> Option<usize> {
        let parent = self.hunt.parent_of(slot);
        self.policy.evicted(number, slot, parent, &mut self.page);
        let parent = parent.filter(|_| verdict == Verdict::TakenLast)?;
        // Relaxed: a hint.
        Some(usize::from(self.hunt.slots()[parent as usize].list.load(Relaxed)))
    }
}

/// The youngest segments as far as they are allowed, looked at once a search.
fn youngs<'y>(
    youngs: &'y mut Option<Youngs>,
    policy: &Reuse,
    hunt: &Hunt<'_>,
    now: u32,
    leave: Leave,
) -> &'y Youngs {
    match leave.takes_young() {
        true => youngs.get_or_insert_with(|| policy.youngs(hunt.timeline(), now)),
        false => &NO_YOUNGS,
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
