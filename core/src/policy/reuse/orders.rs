//! The published figures, for all threads to read: the index of each class at each age, LRU's horizon,
//! and the number of ghosts still allowed.
//!
//! ```text
//!   heads of the lists, by class ─► index at their age ─► the least, among those that the guard allows
//! ```
//!
//! Relaxed throughout: each word stands for itself and publishes nothing. A word that is read late, or
//! two words of different moments, give a choice that was right a moment ago.

use super::ages::{Ages, BUCKETS, not_before};
use super::classes::{CLASSES, YOUNG_LISTS};
use super::curve::Row;
use super::standing::Standing;
use crate::sync::{AtomicU32, CachePadded, Relaxed};

/// With enough lead, the rest of a youngest segment goes first if its index times this is the least.
pub(super) const YOUNG: f32 = 0.9;

pub(super) struct Orders {
    ages: Ages,
    rows: [[AtomicU32; BUCKETS + 1]; CLASSES],
    horizon: CachePadded<AtomicU32>,
    /// The oldest block goes unless another's index is below this part of its own; 1 with
    /// enough lead as proof. An `f32`.
    margin: AtomicU32,
    allowed: CachePadded<Allowed>,
    pub(super) standing: CachePadded<Standing>,
}

/// The number of ghosts still allowed: the difference of the two words, which wrap. Ghosts that the
/// learner has not read of yet count, since the learner writes one word and evictors the other.
struct Allowed {
    /// Ghosts that evictors have made.
    made: AtomicU32,
    /// How many evictors may have made: those that the learner has read of, and those still allowed.
    most: AtomicU32,
}

/// The first block of a list, as a scan found it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Head {
    /// Its place on the timeline.
    pub(super) place: u64,
    /// When it was released.
    pub(super) stamp: u32,
    pub(super) index: f32,
}

impl Head {
    /// The head of an empty list: later than all, and never the least.
    pub(super) const NONE: Head = Head { place: u64::MAX, stamp: 0, index: f32::INFINITY };

    pub(super) fn is_none(self) -> bool {
        self.place == u64::MAX
    }
}

/// The first block of each list of a class.
pub(super) type Heads = [Head; CLASSES];
/// The index of the rest of each youngest segment.
pub(super) type Youngs = [f32; YOUNG_LISTS];
pub(super) const NO_YOUNGS: Youngs = [f32::INFINITY; YOUNG_LISTS];

/// The choice of the next victim.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Choice {
    /// The head of this list.
    Oldest(usize),
    /// The rest of the youngest segment of this list.
    Youngest(usize),
}

impl Orders {
    pub(super) fn new(ages: Ages, clock: u32, margin: f32) -> Orders {
        let word = AtomicU32::new;
        Orders {
            ages,
            rows: core::array::from_fn(|_| core::array::from_fn(|_| word(0))),
            horizon: CachePadded(word(clock)),
            margin: word(margin.to_bits()),
            allowed: CachePadded(Allowed { made: word(0), most: word(0) }),
            standing: CachePadded(Standing::new()),
        }
    }

    pub(super) fn set_row(&self, class: usize, row: &Row) {
        for (index, value) in self.rows[class].iter().zip(row) {
            index.store(value.to_bits(), Relaxed);
        }
    }

    /// Publishes. `room`: how many ghosts are still allowed, behind the `heard`th.
    pub(super) fn set(&self, horizon: u32, margin: f32, heard: u32, room: i32) {
        // Each hit reads the horizon's cache line: it is written only when the horizon moves.
        if self.horizon.load(Relaxed) != horizon {
            self.horizon.store(horizon, Relaxed);
        }
        if self.margin.load(Relaxed) != margin.to_bits() {
            self.margin.store(margin.to_bits(), Relaxed);
        }
        self.allowed.most.store(heard.wrapping_add_signed(room), Relaxed);
    }

    /// Returns whether LRU has a block that was released at this stamp.
    #[inline]
    pub(super) fn lru_has(&self, stamp: u32) -> bool {
        not_before(stamp, self.horizon.load(Relaxed))
    }

    /// Counts one more ghost.
    pub(super) fn risk_one(&self) {
        self.allowed.made.fetch_add(1, Relaxed);
    }

    /// The index of a block of the class at this age; linear between the edges.
    #[inline]
    pub(super) fn index(&self, class: usize, age: u32) -> f32 {
        let b = self.ages.bucket(age);
        let (low, high) = self.ages.span(b);
        let part = (age.min(high) - low) as f32 / (high - low) as f32;
        let at = |b: usize| f32::from_bits(self.rows[class][b].load(Relaxed));
        at(b) + (at(b + 1) - at(b)) * part
    }

    /// The number of ghosts still allowed; below 0 where more were made.
    #[inline]
    pub(super) fn room(&self) -> i32 {
        // Correct up to two thousand million ghosts, which are read of long before.
        self.allowed.most.load(Relaxed).wrapping_sub(self.allowed.made.load(Relaxed)) as i32
    }

    /// The limits by the guard now, with `ghosts` more under way.
    #[inline]
    pub(super) fn leave(&self, ghosts: u32) -> Leave {
        let room = i64::from(self.room()) - i64::from(ghosts);
        Leave { tight: room <= 0, margin: f32::from_bits(self.margin.load(Relaxed)) }
    }

    /// Chooses the least index among the heads that the guard allows; the oldest of all is preferred by
    /// the margin. With no ghost allowed, the oldest goes if LRU has it; if not, blocks that LRU does
    /// not have compete with it. None: there is no head.
    pub(super) fn choose(&self, heads: &Heads, youngs: &Youngs, leave: Leave) -> Option<Choice> {
        let rivals = self.rivals(heads, youngs, CLASSES, leave);
        if rivals.oldest.is_none() {
            return None;
        }
        if rivals.is_held(rivals.oldest_held) {
            return Some(Choice::Oldest(rivals.oldest_list));
        }
        let first = rivals.oldest.index * leave.margin;
        let (least, list) = if rivals.least < first {
            (rivals.least, rivals.least_list)
        } else {
            (first, rivals.oldest_list)
        };
        Some(match rivals.young < least {
            true => Choice::Youngest(rivals.young_list),
            false => Choice::Oldest(list),
        })
    }

    /// Sums up all heads except that of `list`, as far as a comparison with it needs.
    pub(super) fn rivals(&self, heads: &Heads, youngs: &Youngs, list: usize, leave: Leave) -> Rivals {
        let mut rivals = Rivals {
            list,
            leave,
            oldest: Head::NONE,
            oldest_list: CLASSES,
            oldest_held: false,
            least: f32::INFINITY,
            least_list: CLASSES,
            young: f32::INFINITY,
            young_list: YOUNG_LISTS,
        };
        for (of, head) in heads.iter().enumerate().filter(|(of, _)| *of != list) {
            if head.place < rivals.oldest.place {
                (rivals.oldest, rivals.oldest_list) = (*head, of);
            }
            if head.index < rivals.least && !(leave.tight && self.lru_has(head.stamp)) {
                (rivals.least, rivals.least_list) = (head.index, of);
            }
        }
        rivals.oldest_held = self.lru_has(rivals.oldest.stamp);
        if leave.takes_young() {
            for (of, index) in youngs.iter().enumerate() {
                if index * YOUNG < rivals.young {
                    (rivals.young, rivals.young_list) = (index * YOUNG, of);
                }
            }
        }
        rivals
    }

    /// Returns whether a list remains the choice with another head. So a run of one list is compared
    /// with the best rivals, not with all heads.
    #[inline]
    pub(super) fn goes_on(&self, rivals: &Rivals, head: Head) -> bool {
        let margin = rivals.leave.margin;
        let held = self.lru_has(head.stamp);
        if head.place < rivals.oldest.place {
            let first = head.index * margin;
            return rivals.is_held(held) || (rivals.least >= first && rivals.young >= first);
        }
        let first = rivals.oldest.index * margin;
        let is_least =
            head.index < rivals.least || (head.index == rivals.least && rivals.list < rivals.least_list);
        !rivals.is_held(rivals.oldest_held)
            && !rivals.is_held(held)
            && head.index < first
            && is_least
            && rivals.young >= head.index
    }
}

/// The limits by the guard.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Leave {
    /// No more ghosts: of the blocks that LRU has only the oldest may go.
    pub(super) tight: bool,
    margin: f32,
}

impl Leave {
    /// Returns whether the youngest segments are candidates.
    #[inline]
    pub(super) fn takes_young(self) -> bool {
        !self.tight && self.margin == 1.0
    }
}

/// The heads that a list's head is compared with, summed up.
pub(super) struct Rivals {
    pub(super) list: usize,
    pub(super) leave: Leave,
    oldest: Head,
    oldest_list: usize,
    /// LRU has it.
    oldest_held: bool,
    /// Among the allowed ones.
    least: f32,
    least_list: usize,
    young: f32,
    young_list: usize,
}

impl Rivals {
    /// Returns whether a block may go only in LRU's order. `lru_has`: LRU has the block.
    fn is_held(&self, lru_has: bool) -> bool {
        self.leave.tight && lru_has
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn orders(horizon: u32, margin: f32, room: i32) -> Orders {
        let orders = Orders::new(Ages::new(1000), 0, margin);
        orders.set(horizon, margin, 0, room);
        orders
    }

    /// A ghost whose record is not read yet is not allowed once more.
    #[test]
    fn ghosts_not_yet_read_count_against_the_allowance() {
        let orders = orders(0, 1.0, 3);
        (0..2).for_each(|_| orders.risk_one());
        assert!(!orders.leave(0).tight && orders.leave(1).tight);
        orders.set(0, 1.0, 0, 3);
        assert!(orders.leave(1).tight, "none was heard of");
        orders.set(0, 1.0, 2, 3);
        assert!(!orders.leave(2).tight && orders.leave(3).tight, "both were");
        orders.set(0, 1.0, 2, 0);
        orders.risk_one();
        assert!(orders.leave(0).tight);
    }

    /// Heads of the first lists: place, which is also the stamp, and index.
    fn heads(of: &[(u64, f32)]) -> Heads {
        let mut heads = [Head::NONE; CLASSES];
        for (head, (place, index)) in heads.iter_mut().zip(of) {
            *head = Head { place: *place, stamp: *place as u32, index: *index };
        }
        heads
    }

    fn youngs(list: usize, index: f32) -> Youngs {
        let mut youngs = NO_YOUNGS;
        youngs[list] = index;
        youngs
    }

    fn choice(orders: &Orders, heads: &Heads, youngs: &Youngs) -> Option<Choice> {
        orders.choose(heads, youngs, orders.leave(0))
    }

    #[test]
    fn oldest_block_is_preferred_by_the_margin() {
        let of = heads(&[(20, 0.5), (10, 1.0), (30, 0.45)]);
        for (margin, list) in [(0.4, 1), (0.46, 2), (1.0, 2)] {
            assert_eq!(
                choice(&orders(0, margin, 9), &of, &NO_YOUNGS),
                Some(Choice::Oldest(list)),
                "{margin}"
            );
        }
        assert_eq!(choice(&orders(0, 1.0, 9), &heads(&[]), &NO_YOUNGS), None);
    }

    #[test]
    fn choice_without_ghosts_left_is_the_oldest_or_lost_by_lru() {
        let of = heads(&[(20, 0.5), (10, 1.0), (30, 0.1)]);
        assert_eq!(choice(&orders(5, 1.0, 0), &of, &NO_YOUNGS), Some(Choice::Oldest(1)), "LRU has all");
        assert_eq!(choice(&orders(15, 1.0, 0), &of, &NO_YOUNGS), Some(Choice::Oldest(1)), "and two of three");
        assert_eq!(choice(&orders(25, 1.0, 0), &of, &NO_YOUNGS), Some(Choice::Oldest(0)), "and one of three");
        assert_eq!(
            choice(&orders(5, 1.0, 1), &of, &NO_YOUNGS),
            Some(Choice::Oldest(2)),
            "one more is allowed"
        );
        assert!(orders(5, 1.0, 1).leave(1).tight, "and is under way");
    }

    #[test]
    fn youngest_segment_goes_with_a_lead_and_a_spare_ghost() {
        let of = heads(&[(20, 0.5), (10, 1.0)]);
        for (margin, room, index, young) in
            [(1.0, 9, 0.5, true), (1.0, 9, 0.56, false), (0.9, 9, 0.1, false), (1.0, 0, 0.1, false)]
        {
            let chosen = choice(&orders(5, margin, room), &of, &youngs(3, index));
            assert_eq!(chosen == Some(Choice::Youngest(3)), young, "{margin}, {room}, {index}: {chosen:?}");
        }
    }

    /// A run of a list ends where a comparison of all heads would end it.
    #[test]
    fn run_continues_while_it_remains_the_choice() {
        let mut seed = 1u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (seed >> 33) % below
        };
        let mut runs = 0;
        for _ in 0..50_000 {
            let lists = 1 + random(4) as usize;
            let mut of: [(u64, f32); 4] = [(0, 0.0); 4];
            // Few different indices, so that some are equal; no two heads in one place.
            of.iter_mut().for_each(|head| *head = (random(50), 0.1 * random(6) as f32 + 0.1));
            of.iter_mut().enumerate().for_each(|(i, head)| head.0 = 4 * head.0 + i as u64);
            let mut heads = heads(&of[..lists]);
            let margin = [0.4, 1.0][random(2) as usize];
            let orders = orders(random(200) as u32, margin, random(2) as i32);
            let youngs = if random(2) == 0 { NO_YOUNGS } else { youngs(2, 0.1 * random(6) as f32) };
            let list = random(lists as u64) as usize;
            let rivals = orders.rivals(&heads, &youngs, list, orders.leave(0));
            heads[list] =
                Head { place: 201 + random(9), stamp: random(200) as u32, index: 0.1 * random(7) as f32 };
            if random(2) == 0 {
                heads[list].place = 0;
            }
            let is_choice = choice(&orders, &heads, &youngs) == Some(Choice::Oldest(list));
            assert_eq!(orders.goes_on(&rivals, heads[list]), is_choice, "{heads:?} {list}");
            runs += u32::from(is_choice);
        }
        assert!((10_000..40_000).contains(&runs), "{runs}");
    }
}
