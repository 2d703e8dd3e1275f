//! The search for victims: the heads of all lists, and the one of least index taken, until another list's is less.
//!
//! I1. A head is a block that could be taken when it was looked at: what is in use is passed by, and what has children waits for them.
//! I2. What is chosen is a hint; `Hunt::claim` decides.

use super::journal::Page;
use super::orders::{Choice, Head, Heads, YOUNG_LISTS};
use super::{CLASSES, HIGH, LOW, Reuse};
use crate::pool::Hunt;
use crate::slot::{Priority, Slot};
use crate::sync::Relaxed;
use crate::timeline::{Candidate, Verdict};

struct Search<'p, 'h> {
    policy: &'p Reuse,
    hunt: &'h Hunt<'p>,
    now: u32,
    heads: Heads,
    /// Index of the youngest segments.
    young: [f32; YOUNG_LISTS],
    page: Page,
}

impl Reuse {
    pub(super) fn search<'p>(&'p self, wanted: usize, hunt: &Hunt<'p>) -> usize {
        if wanted == 0 {
            return 0;
        }
        self.learn(|| hunt.free());
        let mut search = Search {
            policy: self,
            hunt,
            now: hunt.timeline().clock() as u32,
            heads: [None; CLASSES],
            young: [f32::INFINITY; YOUNG_LISTS],
            page: Page::new(),
        };
        let (mut taken, mut class) = (0, 0);
        while taken < wanted && class < Priority::EVICTABLE {
            let missing = wanted - taken;
            taken += match class {
                0 => hunt.take_oldest(LOW, missing),
                1 => search.take(missing),
                _ => hunt.take_oldest(HIGH, missing),
            };
            class = if hunt.reordered() { 0 } else { class + 1 };
        }
        self.journal.write(&mut search.page);
        taken
    }

    /// A block as the head of a list.
    #[inline]
    pub(crate) fn head(&self, list: usize, place: u64, slot: &Slot, now: u32) -> Head {
        // Relaxed: written before the block was let go of, which made it inactive.
        let stamp = slot.stamp.load(Relaxed);
        let index = if list < CLASSES { self.orders.index(list, now.wrapping_sub(stamp)) } else { 0.0 };
        Head { place, stamp, index }
    }

    /// Of which list the head goes first, as an evictor would have it now; the youngest segments left aside.
    pub(crate) fn first_of(&self, heads: &[Option<Head>; super::LISTS]) -> Option<usize> {
        let normal = core::array::from_fn(|list| heads[list]);
        let chosen = || match self.orders.choose(&normal, &[f32::INFINITY; YOUNG_LISTS])? {
            Choice::Oldest(list) | Choice::Youngest(list) => Some(list),
        };
        let low = heads[LOW].is_some().then_some(LOW);
        low.or_else(chosen).or(heads[HIGH].is_some().then_some(HIGH))
    }
}

impl Search<'_, '_> {
    /// Takes blocks of the lists of `Normal`.
    fn take(&mut self, wanted: usize) -> usize {
        (0..CLASSES).for_each(|list| self.look(list));
        for list in 0..YOUNG_LISTS {
            // Relaxed: as in `place_in`.
            let place = self.policy.young[list].load(Relaxed);
            let stamp = self.hunt.timeline().number(place) as u32;
            self.young[list] = match place {
                0 => f32::INFINITY,
                _ => self.policy.orders.index(list, self.now.wrapping_sub(stamp)),
            };
        }
        let mut taken = 0;
        while taken < wanted
            && let Some(choice) = self.policy.orders.choose(&self.heads, &self.young)
        {
            let (found, parent) = match choice {
                Choice::Oldest(list) => self.take_oldest(list, wanted - taken),
                Choice::Youngest(list) => self.take_youngest(list),
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

    /// Finds the head of a list, and drops what it passes.
    fn look(&mut self, list: usize) {
        let (policy, hunt, now) = (self.policy, self.hunt, self.now);
        let mut head = None;
        hunt.timeline().take_oldest(hunt.slots(), list, 1, |candidate, slot| {
            let word = slot.word();
            if !word.inactive() || word.priority() == Priority::Pinned {
                return Verdict::Stale;
            }
            if slot.defer_if_parent(word.generation()) {
                return Verdict::Deferred;
            }
            head = Some(policy.head(list, candidate.ticket, slot, now));
            Verdict::Stop
        });
        self.heads[list] = head;
    }

    /// Takes from the old end of a list as long as it is the choice. How many, and the list of a parent that came back by the last.
    fn take_oldest(&mut self, list: usize, wanted: usize) -> (usize, Option<usize>) {
        let (policy, hunt) = (self.policy, self.hunt);
        let mut parent = None;
        let mut next = None;
        let taken = hunt.timeline().take_oldest(hunt.slots(), list, wanted, |candidate, slot| {
            let head = policy.head(list, candidate.ticket, slot, self.now);
            self.heads[list] = Some(head);
            if policy.orders.choose(&self.heads, &self.young) != Some(Choice::Oldest(list)) {
                next = Some(head);
                return Verdict::Stop;
            }
            let verdict = hunt.claim(candidate);
            if matches!(verdict, Verdict::Taken | Verdict::TakenLast) {
                parent = self.note(candidate.slot, slot, verdict);
            }
            verdict
        });
        self.heads[list] = next;
        if next.is_none() && taken < wanted {
            // It has no more, or a block was the last child of one that is gone or came back: the look ends there.
            self.look(list);
        }
        (taken, parent)
    }

    /// Takes the deepest block that is left of a list's youngest segment, unless it has children or is gone.
    fn take_youngest(&mut self, list: usize) -> (usize, Option<usize>) {
        let (policy, hunt) = (self.policy, self.hunt);
        // Relaxed, here and below: as in `place_in`.
        let place = policy.young[list].load(Relaxed);
        let mut found = None;
        hunt.timeline().peek(hunt.slots(), list, place, |_, number| {
            found = Some(number);
            false
        });
        if let Some(number) = found {
            let slot = &hunt.slots()[number as usize];
            let candidate = Candidate { slot: number, ticket: slot.ticket() };
            if !slot.has_children() {
                let verdict = hunt.claim(candidate);
                if matches!(verdict, Verdict::Taken | Verdict::TakenLast) {
                    return (1, self.note(number, slot, verdict));
                }
            }
        }
        // Another may have begun meanwhile: it is looked at by the next search.
        let _ = policy.young[list].compare_exchange(place, 0, Relaxed, Relaxed);
        self.young[list] = f32::INFINITY;
        (0, None)
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
