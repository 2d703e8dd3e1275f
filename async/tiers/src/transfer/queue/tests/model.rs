//! Random operations on the queue and on a naive one: lists that are searched, and rounds gone through
//! one by one. Lanes open and shut.

use crate::transfer::Class;
use crate::transfer::queue::{Allowance, Limits, Popped, Queue, Ticket};
use proptest::prelude::*;

const LANES: usize = 3;

/// Numbers are scaled to the number of entries.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Push {
        class: Class,
        request: u64,
        lane: u16,
        bytes: u64,
    },
    /// Pops from the open lanes.
    Pop {
        open: [bool; LANES],
    },
    /// A transfer under way ends, and may be tried again.
    End {
        which: u8,
        again: bool,
    },
    /// By any ticket ever given.
    Cancel {
        which: u8,
    },
    Promote {
        which: u8,
        class: Class,
    },
    Refill,
}

fn operation() -> impl Strategy<Value = Operation> {
    let class = || prop::sample::select(Class::ALL.to_vec());
    prop_oneof![
        8 => (class(), 0u64..5, 0..LANES as u16, 0u64..40)
            .prop_map(|(class, request, lane, bytes)| Operation::Push { class, request, lane, bytes }),
        6 => any::<[bool; LANES]>().prop_map(|open| Operation::Pop { open }),
        4 => (any::<u8>(), any::<bool>()).prop_map(|(which, again)| Operation::End { which, again }),
        1 => any::<u8>().prop_map(|which| Operation::Cancel { which }),
        1 => (any::<u8>(), class()).prop_map(|(which, class)| Operation::Promote { which, class }),
        1 => Just(Operation::Refill),
    ]
}

#[derive(Debug)]
struct Request {
    number: u64,
    deficit: u64,
    its_turn: bool,
    items: Vec<u32>,
}

#[derive(Debug, Default)]
struct NaiveClass {
    round: Vec<Request>,
    waiting: Vec<u32>,
}

/// Items are numbered as they are pushed; `all` keeps each.
#[derive(Debug)]
struct Naive {
    limits: Limits,
    budget: Option<u64>,
    left: u64,
    classes: [NaiveClass; 4],
    all: Vec<Popped<u32>>,
    /// By item: the number of its last push.
    pushed: Vec<u64>,
    pushes: u64,
    in_flight: Vec<u32>,
}

impl Naive {
    fn push(&mut self, item: u32) {
        self.pushed.resize(self.all.len(), 0);
        self.pushed[item as usize] = self.pushes;
        self.pushes += 1;
    }

    fn waits(&self, item: u32) -> bool {
        self.classes.iter().any(|class| class.waiting.contains(&item))
    }

    fn bytes(&self, items: &[u32]) -> u64 {
        items.iter().map(|&item| self.all[item as usize].bytes).sum()
    }

    /// Inserts an item behind its request's items.
    fn insert(&mut self, item: u32) {
        let Popped { class, request, .. } = self.all[item as usize];
        let class = &mut self.classes[class as usize];
        if !class.round.iter().any(|known| known.number == request) {
            class.round.push(Request { number: request, deficit: 0, its_turn: false, items: Vec::new() });
        }
        let known = class.round.iter_mut().find(|known| known.number == request).expect("just pushed");
        known.items.push(item);
        class.waiting.push(item);
    }

    fn remove(&mut self, item: u32) {
        let class = &mut self.classes[self.all[item as usize].class as usize];
        class.waiting.retain(|&other| other != item);
        class.round.iter_mut().for_each(|request| request.items.retain(|&other| other != item));
        class.round.retain(|request| !request.items.is_empty());
    }

    /// Returns the request's item that goes first: of the first items of its open lanes, the one
    /// pushed first.
    fn first(&self, items: &[u32], open: [bool; LANES]) -> Option<u32> {
        let lane = |item: u32| usize::from(self.all[item as usize].lane);
        let of_lane = |of: usize| items.iter().copied().find(|item| lane(*item) == of);
        let firsts = (0..LANES).filter(|lane| open[*lane]).filter_map(of_lane);
        firsts.min_by_key(|item| self.pushed[*item as usize])
    }

    fn pop(&mut self, open: [bool; LANES]) -> Option<u32> {
        let is_open = |item: &u32| open[usize::from(self.all[*item as usize].lane)];
        let class = self.classes.iter().position(|class| class.waiting.iter().any(is_open))?;
        // A request without an item in an open lane keeps its place: the turn is that of the first of
        // the others.
        let (item, number) = loop {
            let round = &self.classes[class].round;
            let firsts = round.iter().map(|request| self.first(&request.items, open));
            let (at, item) =
                firsts.enumerate().find_map(|(at, item)| Some((at, item?))).expect("one is open");
            let round = &mut self.classes[class].round;
            let request = &mut round[at];
            if !request.its_turn {
                request.its_turn = true;
                request.deficit += self.limits.quantum_bytes;
            }
            if request.deficit >= self.all[item as usize].bytes.max(1) {
                break (item, request.number);
            }
            request.its_turn = false;
            let last = round.remove(at);
            round.push(last);
        };
        let bytes = self.all[item as usize].bytes;
        let fits = self.in_flight.is_empty()
            || self.in_flight.len() < self.limits.in_flight as usize
                && self.bytes(&self.in_flight) + bytes <= self.limits.in_flight_bytes;
        let budget = self.budget.filter(|_| class != Class::Urgent as usize);
        if !fits || budget.is_some_and(|budget| bytes > self.left && self.left != budget) {
            return None;
        }
        if budget.is_some() {
            self.left = self.left.saturating_sub(bytes);
        }
        let round = self.classes[class].round.iter_mut();
        round.filter(|request| request.number == number).for_each(|request| request.deficit -= bytes.max(1));
        self.remove(item);
        self.in_flight.push(item);
        Some(item)
    }
}

fn run(limits: Limits, budget: Option<u64>, operations: Vec<Operation>) -> Result<(), TestCaseError> {
    let mut queue: Queue<u32> = Queue::new(limits);
    let mut allowance = Allowance::new(budget);
    let mut naive = Naive {
        limits,
        budget,
        left: budget.unwrap_or(0),
        classes: Default::default(),
        all: Vec::new(),
        pushed: Vec::new(),
        pushes: 0,
        in_flight: Vec::new(),
    };
    // Every ticket ever given, with its item.
    let mut tickets: Vec<(Ticket, u32)> = Vec::new();
    // An item's last ticket is the good one, while the item waits.
    let good = |tickets: &[(Ticket, u32)], naive: &Naive, which: usize| {
        let item = tickets[which].1;
        naive.waits(item) && tickets[which + 1..].iter().all(|&(_, other)| other != item)
    };
    for operation in operations {
        let any = |which: u8, count: usize| (count > 0).then(|| usize::from(which) * count / 256);
        match operation {
            Operation::Push { class, request, lane, bytes } => {
                let item = naive.all.len() as u32;
                tickets.push((queue.push(class, request, lane, bytes, item), item));
                naive.all.push(Popped { item, class, request, lane, bytes });
                naive.push(item);
                naive.insert(item);
            }
            Operation::Pop { open } => {
                let popped = match open {
                    [true, true, true] => queue.pop(&mut allowance),
                    _ => queue.pop_open(&mut allowance, |lane| open[usize::from(lane)]),
                };
                let expected = naive.pop(open).map(|item| naive.all[item as usize]);
                prop_assert_eq!(popped, expected);
            }
            Operation::End { which, again } => {
                let Some(which) = any(which, naive.in_flight.len()) else { continue };
                let item = naive.in_flight.swap_remove(which);
                let popped = naive.all[item as usize];
                queue.ended(popped.bytes);
                if again {
                    let Popped { class, request, lane, bytes, .. } = popped;
                    tickets.push((queue.push(class, request, lane, bytes, item), item));
                    naive.push(item);
                    naive.insert(item);
                }
            }
            Operation::Cancel { which } => {
                let Some(which) = any(which, tickets.len()) else { continue };
                let (ticket, item) = tickets[which];
                let expected = good(&tickets, &naive, which).then_some(item);
                prop_assert_eq!(queue.cancel(ticket), expected);
                expected.into_iter().for_each(|item| naive.remove(item));
            }
            Operation::Promote { which, class } => {
                let Some(which) = any(which, tickets.len()) else { continue };
                let (ticket, item) = tickets[which];
                let waits = good(&tickets, &naive, which);
                prop_assert_eq!(queue.promote(ticket, class), waits);
                if waits && class < naive.all[item as usize].class {
                    naive.remove(item);
                    naive.all[item as usize].class = class;
                    naive.insert(item);
                }
            }
            Operation::Refill => {
                allowance.refill();
                naive.left = budget.unwrap_or(0);
            }
        }
        let waiting: Vec<u32> = naive.classes.iter().flat_map(|class| class.waiting.clone()).collect();
        prop_assert_eq!(queue.waiting() as usize, waiting.len());
        prop_assert_eq!(queue.in_flight() as usize, naive.in_flight.len());
        prop_assert_eq!(queue.in_flight_bytes(), naive.bytes(&naive.in_flight));
        prop_assert_eq!(allowance.left(), budget.map(|_| naive.left));
        let lane_of = |item: u32| naive.all[item as usize].lane;
        for class in Class::ALL {
            let waiting = &naive.classes[class as usize].waiting;
            prop_assert_eq!(queue.waiting_of(class) as usize, waiting.len());
            for lane in 0..LANES as u16 {
                let of_lane = waiting.iter().filter(|item| lane_of(**item) == lane).count();
                prop_assert_eq!(queue.waiting_in(class, lane) as usize, of_lane);
            }
        }
        let requests: usize = naive.classes.iter().map(|class| class.round.len()).sum();
        prop_assert_eq!(queue.flows.slab.len(), requests, "a request is known only while something waits");
        prop_assert!(queue.flows.lanes.len() >= requests && queue.flows.lanes.len() <= waiting.len());
    }
    Ok(())
}

proptest! {
    #[test]
    fn queue_pops_as_naive_lists_and_rounds_do(
        in_flight in prop_oneof![Just(u32::MAX), 0u32..8],
        in_flight_bytes in 1u64..200,
        quantum_bytes in prop_oneof![1u64..8, 1u64..100],
        budget in prop_oneof![Just(None), (1u64..150).prop_map(Some)],
        operations in prop::collection::vec(operation(), 0..400),
    ) {
        run(Limits { in_flight, in_flight_bytes, quantum_bytes }, budget, operations)?;
    }
}
