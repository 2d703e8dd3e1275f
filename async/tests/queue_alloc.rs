//! A queue that has once been full allocates nothing more, over ten million random operations; nor do
//! gates and searches for idle blocks. A counting allocator watches.

use kvstrata::scheduler::{Ages, Clock, Gate, Gated, Search};
use kvstrata::transfer::{Allowance, Class, Limits, Popped, Queue, Ticket};
use kvstrata_core::{BlockId, BlockRef};
use kvstrata_testing::counting::{Counting, allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const OPERATIONS: u32 = 10_000_000;
const WAITING: u32 = 300;
/// Bytes in flight at most; transfers are of one byte here.
const IN_FLIGHT: u64 = 100;

/// A queue, its transfers in flight, and the last tickets given.
struct Bench {
    queue: Queue<u64>,
    allowance: Allowance,
    under_way: Vec<Popped<u64>>,
    tickets: Vec<Ticket>,
    pushed: u64,
    left: u64,
}

impl Bench {
    fn push(&mut self, class: Class, request: u64, bytes: u64) {
        if self.queue.waiting() < WAITING {
            let ticket = self.queue.push(class, request, 0, bytes, request);
            self.tickets[(self.pushed % 256) as usize] = ticket;
            self.pushed += 1;
        }
    }

    fn pop(&mut self) -> bool {
        let popped = self.queue.pop(&mut self.allowance);
        self.under_way.extend(popped);
        popped.is_some()
    }

    fn end(&mut self, which: usize, again: bool) {
        let popped = self.under_way.swap_remove(which);
        self.queue.ended(popped.bytes);
        match again {
            true => {
                let Popped { item, class, request, lane, bytes } = popped;
                self.tickets[0] = self.queue.push(class, request, lane, bytes, item);
            }
            false => self.left += 1,
        }
    }

    /// Fills the queue with transfers of a request each, and lets all those that may be in flight wait
    /// once more.
    fn fill(&mut self) {
        while self.pushed < IN_FLIGHT {
            self.push(Class::Urgent, self.pushed, 1);
        }
        while self.pop() {}
        for request in 0..u64::from(WAITING) {
            self.push(Class::ALL[request as usize % 4], request << 32, 1);
        }
        while !self.under_way.is_empty() {
            self.end(0, true);
        }
        assert_eq!(self.queue.waiting() as u64, u64::from(WAITING) + IN_FLIGHT);
    }
}

#[test]
fn queue_over_ten_million_operations_allocates_nothing() {
    let mut queue = Queue::new(Limits { in_flight: u32::MAX, in_flight_bytes: IN_FLIGHT, quantum_bytes: 7 });
    let ticket = queue.push(Class::Urgent, 0, 0, 1, 0);
    assert_eq!(queue.cancel(ticket), Some(0));
    let mut bench = Bench {
        queue,
        allowance: Allowance::new(Some(1000)),
        under_way: Vec::with_capacity(IN_FLIGHT as usize),
        tickets: vec![ticket; 256],
        pushed: 0,
        left: 0,
    };
    let before = allocations();
    bench.fill();
    assert!(allocations() > before, "the allocator counts");

    let before = allocations();
    let mut random = 1u64;
    for _ in 0..OPERATIONS {
        // xorshift64.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let [kind, class, which, ..] = random.to_le_bytes();
        let (class, which) = (Class::ALL[usize::from(class % 4)], usize::from(which));
        match kind % 16 {
            0..6 => {
                // Now and then more than may be in flight.
                let most = if which < 8 { 110 } else { 4 };
                bench.push(class, random >> 44, 1 + (random >> 32) % most);
            }
            6..10 => drop(bench.pop()),
            10..13 if !bench.under_way.is_empty() => {
                bench.end(which % bench.under_way.len(), kind.is_multiple_of(4))
            }
            13 => bench.left += u64::from(bench.queue.cancel(bench.tickets[which]).is_some()),
            14 => drop(bench.queue.promote(bench.tickets[which], class)),
            _ => bench.allowance.refill(),
        }
    }
    assert_eq!(allocations() - before, 0);
    assert_eq!(
        bench.pushed,
        bench.left + u64::from(bench.queue.waiting()) + bench.under_way.len() as u64,
        "each has left once, or is there"
    );
    assert_eq!(bench.queue.in_flight_bytes(), bench.under_way.iter().map(|popped| popped.bytes).sum::<u64>());
    assert!(bench.pushed > u64::from(OPERATIONS / 8), "most are not refused: {}", bench.pushed);
}

#[test]
fn gates_and_searches_after_the_first_allocate_nothing() {
    let (mut clock, mut gated) = (Clock::new(4), Gated::new(WAITING));
    let (ages, mut search) = (Ages::new(1000), Search::new());
    let mut out = Vec::with_capacity(100);
    let mut before = allocations();
    for round in 0..200 {
        let iteration = clock.step().expect("none runs");
        let keys = [(); WAITING as usize].map(|()| gated.hold(Gate::Iteration(iteration + 1), round).ok());
        assert!(gated.hold(Gate::Open, round).is_err(), "as many as may wait");
        keys.into_iter().step_by(2).flatten().for_each(|key| assert_eq!(gated.remove(key), Some(round)));
        clock.step().expect("none runs");
        assert_eq!(gated.released(&clock, drop), WAITING / 2);

        (0..1000).for_each(|id| ages.released(BlockRef { id: BlockId(id), generation: round }, iteration));
        search.start(iteration, 0, 100);
        out.clear();
        assert!(search.go_on(&ages, &mut out));
        assert_eq!(out.len(), 100);
        if round == 0 {
            assert!(allocations() > before, "the allocator counts");
            before = allocations();
        }
    }
    assert_eq!(allocations() - before, 0);
}
