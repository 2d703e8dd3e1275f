//! The bytes that requests of a class get; a small quantum costs no request.

use super::{NO_LIMIT, push, queue};
use crate::transfer::Class;
use crate::transfer::queue::Queue;
use proptest::prelude::*;

const LARGEST: u64 = 64;

/// Keeps every request waiting, with transfers of its own sizes in turn.
struct Backlogged {
    queue: Queue<u32>,
    sizes: Vec<Vec<u64>>,
    pushed: Vec<usize>,
    had: Vec<u64>,
}

impl Backlogged {
    fn push(&mut self, request: usize) {
        let sizes = &self.sizes[request];
        let bytes = sizes[self.pushed[request] % sizes.len()];
        self.pushed[request] += 1;
        push(&mut self.queue, Class::Offload, request as u64, bytes, request as u32);
    }

    fn serve(&mut self) {
        let popped = self.queue.pop(&mut NO_LIMIT.clone()).expect("all of them wait");
        self.queue.ended(popped.bytes);
        self.had[popped.item as usize] += popped.bytes;
        self.push(popped.item as usize);
    }
}

fn differ(had: &[u64]) -> u64 {
    had.iter().max().unwrap_or(&0) - had.iter().min().unwrap_or(&0)
}

proptest! {
    #[test]
    fn bytes_differ_by_a_quantum_and_the_largest_transfer(
        quantum in prop_oneof![1u64..10, 1u64..200],
        sizes in prop::collection::vec(prop::collection::vec(1..=LARGEST, 1..5), 2..6),
        joins in 0usize..100,
    ) {
        let requests = sizes.len();
        let mut all = Backlogged {
            queue: queue(1 << 20, quantum),
            sizes,
            pushed: vec![0; requests],
            had: vec![0; requests],
        };
        // Two transfers for each request: one must wait while the other goes.
        for request in (0..requests - 1).chain(0..requests - 1) {
            all.push(request);
        }
        for _ in 0..joins {
            all.serve();
            prop_assert!(differ(&all.had[..requests - 1]) < quantum + LARGEST, "{:?}", all.had);
        }
        // The last request comes later; bytes are counted from there.
        all.had.fill(0);
        all.push(requests - 1);
        all.push(requests - 1);
        for _ in 0..300 {
            all.serve();
            prop_assert!(differ(&all.had) < quantum + 2 * LARGEST, "{:?}", all.had);
        }
    }
}

/// Gone through one by one, so many rounds would not end.
#[test]
fn quantum_far_smaller_than_transfers_costs_no_rounds() {
    let mut queue = queue(u64::MAX, 1);
    for request in 0..50 {
        push(&mut queue, Class::Offload, request, (1 << 50) - request, request as u32);
    }
    let mut allowance = NO_LIMIT.clone();
    let order: Vec<u32> =
        std::iter::from_fn(|| queue.pop(&mut allowance)).map(|popped| popped.item).collect();
    assert_eq!(order, (0..50).rev().collect::<Vec<_>>(), "the smallest needs the fewest rounds");
}

/// Transfers without bytes take turns like any others.
#[test]
fn transfers_without_bytes_take_turns() {
    let mut queue = queue(100, 4);
    for item in 0..20 {
        push(&mut queue, Class::Offload, 1, 0, item);
    }
    push(&mut queue, Class::Offload, 2, 1, 99);
    let mut allowance = NO_LIMIT.clone();
    let first: Vec<_> = (0..5).filter_map(|_| queue.pop(&mut allowance)).map(|popped| popped.item).collect();
    assert_eq!(first, [0, 1, 2, 3, 99]);
}
