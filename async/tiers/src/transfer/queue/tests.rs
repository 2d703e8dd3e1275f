//! The queue against a naive one, operation by operation; the shares of requests; the effect of each limit.

mod model;
mod shares;

use super::{Allowance, Limits, Popped, Queue};
use crate::transfer::Class;

const NO_LIMIT: Allowance = Allowance::new(None);

fn queue(in_flight_bytes: u64, quantum_bytes: u64) -> Queue<u32> {
    Queue::new(Limits { in_flight: u32::MAX, in_flight_bytes, quantum_bytes })
}

/// Pushes to the first lane.
fn push(queue: &mut Queue<u32>, class: Class, request: u64, bytes: u64, item: u32) -> super::Ticket {
    queue.push(class, request, 0, bytes, item)
}

fn items(queue: &mut Queue<u32>, allowance: &mut Allowance) -> Vec<u32> {
    std::iter::from_fn(|| queue.pop(allowance)).map(|popped| popped.item).collect()
}

#[test]
fn classes_go_one_after_the_other_and_requests_in_turn() {
    let mut queue = queue(1000, 10);
    for (class, first) in [(Class::Prefetch, 0), (Class::Background, 10), (Class::Urgent, 20)] {
        for (request, item) in [(1, 0), (1, 1), (1, 2), (2, 3), (2, 4)] {
            push(&mut queue, class, request, 5, first + item);
        }
    }
    // A quantum is two transfers.
    let expected = [20, 21, 23, 24, 22, 10, 11, 13, 14, 12, 0, 1, 3, 4, 2];
    assert_eq!(items(&mut queue, &mut NO_LIMIT.clone()), expected);
}

/// Lanes of staging: one lane is shut. Its transfers are the first that wait, and hold up none of the
/// other lane.
#[test]
fn shut_lane_waits_and_delays_no_other_lane() {
    let mut queue = queue(1000, 10);
    let allowance = &mut NO_LIMIT.clone();
    // Two transfers are a turn.
    for (class, request, lane, items) in [
        (Class::Urgent, 1, 0, 0..3),
        (Class::Urgent, 2, 0, 3..6),
        (Class::Urgent, 2, 1, 6..9),
        (Class::Background, 3, 1, 9..10),
        (Class::Background, 4, 0, 10..11),
    ] {
        items.for_each(|item| _ = queue.push(class, request, lane, 5, item));
    }
    let of = |queue: &mut Queue<u32>, lanes: &[u16], count: usize| -> Vec<u32> {
        let mut allowance = NO_LIMIT.clone();
        let next = || queue.pop_open(&mut allowance, |lane| lanes.contains(&lane));
        std::iter::from_fn(next).take(count).map(|popped| popped.item).collect()
    };
    assert!(of(&mut queue, &[], 9).is_empty());
    assert_eq!(of(&mut queue, &[0], 1), [0], "in the midst of its turn");
    assert_eq!(of(&mut queue, &[1], 9), [6, 7, 8, 9], "also what is less urgent");
    assert_eq!((queue.waiting_in(Class::Urgent, 0), queue.waiting_in(Class::Urgent, 1)), (5, 0));
    assert_eq!(items(&mut queue, allowance), [1, 3, 2, 4, 5, 10], "the turn goes on where it was");
}

/// A retried transfer arrives anew.
#[test]
fn retried_transfer_goes_behind_later_arrivals() {
    let mut queue = queue(1000, 10);
    let allowance = &mut NO_LIMIT.clone();
    queue.push(Class::Urgent, 1, 3, 5, 0);
    let popped = queue.pop(allowance).expect("nothing else");
    assert_eq!(popped, Popped { item: 0, class: Class::Urgent, request: 1, lane: 3, bytes: 5 });
    push(&mut queue, Class::Prefetch, 1, 5, 1);
    push(&mut queue, Class::Urgent, 1, 5, 2);
    queue.ended(popped.bytes);
    queue.push(popped.class, popped.request, popped.lane, popped.bytes, popped.item);
    assert_eq!(items(&mut queue, allowance), [2, 0, 1]);
}

#[test]
fn bytes_in_flight_are_bounded_and_a_larger_one_goes_alone() {
    let mut queue = queue(100, 1000);
    let allowance = &mut NO_LIMIT.clone();
    for (request, bytes) in [(1, 60), (2, 40), (3, 101), (4, 1)] {
        push(&mut queue, Class::Offload, request, bytes, request as u32);
    }
    assert_eq!(items(&mut queue, allowance), [1, 2], "100 of 100; the large one keeps the small one waiting");
    queue.ended(60);
    assert_eq!(queue.pop(allowance), None);
    queue.ended(40);
    assert_eq!(items(&mut queue, allowance), [3], "alone");
    assert_eq!((queue.in_flight(), queue.in_flight_bytes(), queue.waiting()), (1, 101, 1));
    push(&mut queue, Class::Urgent, 5, 1, 5);
    assert_eq!(queue.pop(allowance), None);
    queue.ended(101);
    assert_eq!(items(&mut queue, allowance), [5, 4]);
    queue.ended(1);
    queue.ended(1);
    push(&mut queue, Class::Urgent, 1, u64::MAX, 0);
    push(&mut queue, Class::Urgent, 1, 50, 1);
    assert_eq!(items(&mut queue, allowance), [0], "their sum is not small");
}

#[test]
fn transfers_in_flight_are_bounded_however_small_they_are() {
    let allowance = &mut NO_LIMIT.clone();
    for (in_flight, expected) in [(2, 2), (0, 1)] {
        let limits = Limits { in_flight, in_flight_bytes: 1000, quantum_bytes: 10 };
        let mut queue = Queue::new(limits);
        (0..4).for_each(|item| _ = push(&mut queue, Class::Urgent, 1, 1, item));
        assert_eq!(items(&mut queue, allowance).len(), expected, "of {in_flight}, and one goes in any case");
        queue.ended(1);
        assert_eq!(items(&mut queue, allowance).len(), 1);
    }
}

#[test]
fn iteration_budget_bounds_bytes_except_urgent_ones() {
    let mut queues = [queue(10_000, 1), queue(10_000, 1_000)];
    let mut allowance = Allowance::new(Some(100));
    for queue in &mut queues {
        push(queue, Class::Urgent, 1, 500, 0);
        for item in 1..4 {
            push(queue, Class::Background, 1, 60, item);
        }
    }
    assert_eq!(items(&mut queues[0], &mut allowance), [0, 1]);
    assert_eq!(allowance.left(), Some(40));
    assert_eq!(items(&mut queues[1], &mut allowance), [0], "one budget for all paths");
    assert!(allowance.allows(40) && !allowance.allows(41));
    allowance.refill();
    assert_eq!(items(&mut queues[1], &mut allowance), [1]);
    push(&mut queues[0], Class::Offload, 1, 101, 9);
    assert_eq!(queues[0].pop(&mut allowance), None, "more than the budget, which is not full");
    allowance.refill();
    assert_eq!(items(&mut queues[0], &mut allowance), [9]);
    assert_eq!(allowance.left(), Some(0));
    assert_eq!(items(&mut queues[1], &mut NO_LIMIT.clone()), [2, 3]);
    assert_eq!((NO_LIMIT.left(), NO_LIMIT.allows(u64::MAX)), (None, true));
}

#[test]
fn ticket_is_stale_once_its_transfer_has_left() {
    let mut queue = queue(1000, 10);
    let allowance = &mut NO_LIMIT.clone();
    let popped = push(&mut queue, Class::Prefetch, 1, 5, 0);
    assert_eq!(items(&mut queue, allowance), [0]);
    let cancelled = push(&mut queue, Class::Prefetch, 1, 5, 1);
    assert_eq!(queue.cancel(cancelled), Some(1));
    // This one gets the place that both of them had.
    let waits = push(&mut queue, Class::Prefetch, 1, 5, 3);
    for ticket in [popped, cancelled] {
        assert_eq!(queue.cancel(ticket), None);
        assert!(!queue.promote(ticket, Class::Urgent));
    }
    assert_eq!((queue.waiting_of(Class::Prefetch), queue.cancel(waits), queue.waiting()), (1, Some(3), 0));
}

#[test]
fn promoted_prefetch_goes_first_and_never_back() {
    let mut queue = queue(1000, 100);
    let tickets: Vec<_> = (0..3).map(|item| push(&mut queue, Class::Prefetch, 1, 5, item)).collect();
    push(&mut queue, Class::Urgent, 1, 5, 9);
    assert!(queue.promote(tickets[2], Class::Urgent));
    assert!(queue.promote(tickets[2], Class::Background), "it waits, and before that class");
    assert_eq!((queue.waiting_of(Class::Urgent), queue.waiting_of(Class::Prefetch)), (2, 2));
    assert_eq!(items(&mut queue, &mut NO_LIMIT.clone()), [9, 2, 0, 1]);
}

/// So many that the table of requests must grow several times.
#[test]
fn many_requests_are_found_again_and_forgotten() {
    const REQUESTS: u64 = 1000;
    let mut queue = queue(1000, 10);
    let pushed = |queue: &mut Queue<u32>| -> Vec<_> {
        (0..REQUESTS).map(|request| push(queue, Class::Offload, request * request, 5, 0)).collect()
    };
    let first = pushed(&mut queue);
    for (i, &ticket) in first.iter().enumerate() {
        if i % 3 != 0 {
            assert_eq!(queue.cancel(ticket), Some(0));
        }
    }
    assert_eq!(queue.flows.slab.len() as u64, REQUESTS.div_ceil(3));
    let second = pushed(&mut queue);
    assert_eq!(queue.flows.slab.len() as u64, REQUESTS, "those that were there are found");
    for ticket in first.into_iter().chain(second) {
        queue.cancel(ticket);
    }
    assert_eq!((queue.flows.slab.len(), queue.waiting(), queue.pop(&mut NO_LIMIT.clone())), (0, 0, None));
}
