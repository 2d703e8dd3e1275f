//! The queue of a path: what waits, what goes next, and how many bytes are under way. It has no lock, no clock and no thread.
//!
//! ```text
//!   class      round of requests              transfers of each, FIFO
//!   Urgent     request 7 ► request 9          [a]─[b]    [c]
//!   Offload    request 7                      [d]─[e]─[f]
//!   Background
//!   Prefetch   request 8 ► request 7          [g]        [h]
//! ```
//!
//! It refuses nothing: what waits owns what it touches, so that refusing it would make no room. Who begins something looks before at how much waits.
//!
//! What a request's transfers need beside the path may be of several kinds, of which one may be short while others are not: blocks of staging, which each
//! group of layers has of its own. So a transfer is in a lane, and who pops says which lanes are open. What is in a shut one waits as it is; all
//! others go as if it were not there.
//!
//! Between the requests of a class bytes are shared by deficit round robin (Shreedhar & Varghese, SIGCOMM 1995): a request's turn adds
//! the quantum to its deficit, and lasts while the deficit pays for its next transfer.
//!
//! Invariants
//! - I1: nothing of a class goes while something of an earlier class waits in an open lane. What may not go yet (what is in flight, the
//!   iteration's budget) keeps what is behind it waiting, its own request and others: passed by small ones, a large one would never go.
//! - I2: transfers and bytes in flight are at most the limits, or one transfer, alone. They are those popped less those ended.
//! - I3: in the order of arrival within a request, class and lane. One that is tried again arrives anew.
//! - I4: two requests of a class, from when both wait in open lanes until one does not, have had bytes that differ by less than the quantum and
//!   two of the largest transfer; by less than the quantum and one of them where neither had been served before. A request whose lanes are shut
//!   keeps its place in the round, its turn and what is left of it.
//! - I5: no allocation once it has held as much as it does; a request is known only while something of it waits.
//! - I6: a ticket is good from the push until the transfer leaves, however often its place is used again: it has the push's number.

mod allowance;
mod flow;
mod list;
#[cfg(test)]
mod tests;

pub use allowance::Allowance;

use super::path::Class;
use flow::{Flow, Flows, Lane};
use list::{Linked, Links, List};
use slab::Slab;

/// The kinds of lists: a flow's transfers of a lane, a class's flows, a flow's lanes.
const FIFO: usize = 0;
const ROUND: usize = 1;
const LANE: usize = 2;

/// What a queue has in flight at most, and how it is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Transfers in flight: as many as what carries them out takes. Of none, one goes all the same.
    pub in_flight: u32,
    /// Bytes in flight (`transfer.in_flight`).
    pub in_flight_bytes: u64,
    /// Bytes that a request may move before the next one's turn (`transfer.quantum`). Fewer than a transfer has cost a walk over the
    /// requests for some transfers, and are as fair.
    pub quantum_bytes: u64,
}

/// A transfer that waits. Once it has left, whatever the way, its ticket is stale: nothing else answers to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket {
    key: u32,
    number: u64,
}

/// A transfer that is now under way: [`Queue::ended`] is due once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Popped<T> {
    /// Whatever was pushed.
    pub item: T,
    /// The class in which it waited last.
    pub class: Class,
    /// Whose it is.
    pub request: u64,
    /// The lane in which it waited.
    pub lane: u16,
    /// What it moves.
    pub bytes: u64,
}

#[derive(Debug)]
struct Waiting<T> {
    item: T,
    bytes: u64,
    number: u64,
    /// The key of its flow's lane.
    lane: u32,
    fifo: Links,
}

impl<T> Linked<FIFO> for Waiting<T> {
    fn links(&mut self) -> &mut Links {
        &mut self.fifo
    }
}

/// A class: its requests that have something waiting.
#[derive(Debug)]
struct Backlog {
    round: List<ROUND>,
    /// By lane: how many wait.
    lanes: Vec<u32>,
}

/// The queue of a path.
#[derive(Debug)]
pub struct Queue<T> {
    limits: Limits,
    transfers: Slab<Waiting<T>>,
    flows: Flows,
    backlogs: [Backlog; Class::ALL.len()],
    /// Of the next push.
    number: u64,
    in_flight: u32,
    in_flight_bytes: u64,
}

impl<T: Copy> Queue<T> {
    /// An empty one. A quantum of nothing is taken as one byte.
    #[must_use]
    pub fn new(limits: Limits) -> Queue<T> {
        Queue {
            limits: Limits { quantum_bytes: limits.quantum_bytes.max(1), ..limits },
            transfers: Slab::new(),
            flows: Flows::new(),
            backlogs: Class::ALL.map(|_| Backlog { round: List::EMPTY, lanes: Vec::new() }),
            number: 0,
            in_flight: 0,
            in_flight_bytes: 0,
        }
    }

    /// Lets a transfer of a request wait in a lane, behind those of the request that are there.
    pub fn push(&mut self, class: Class, request: u64, lane: u16, bytes: u64, item: T) -> Ticket {
        let number = self.number;
        self.number += 1;
        let waiting = Waiting { item, bytes, number, lane: 0, fifo: Links::NONE };
        let key = self.transfers.insert(waiting) as u32;
        self.link(key, (class, request, lane));
        Ticket { key, number }
    }

    /// What goes next; it is then under way. None if nothing waits, or if the next one must go on waiting for bytes in flight or for the
    /// iteration's budget: then after [`ended`](Queue::ended), or a refill.
    pub fn pop(&mut self, allowance: &mut Allowance) -> Option<Popped<T>> {
        self.pop_open(allowance, |_| true)
    }

    /// As [`pop`](Queue::pop), of the lanes that are open.
    pub fn pop_open(&mut self, allowance: &mut Allowance, open: impl Fn(u16) -> bool) -> Option<Popped<T>> {
        let next = |class| Some((class, self.turn(class, &open)?));
        let (class, (flow, key)) = Class::ALL.into_iter().find_map(next)?;
        let bytes = self.transfers[key as usize].bytes;
        if !self.has_room(bytes) {
            return None;
        }
        if class != Class::Urgent {
            if !allowance.allows(bytes) {
                return None;
            }
            allowance.spend(bytes);
        }
        self.flows.slab[flow as usize].deficit -= cost(bytes);
        self.in_flight += 1;
        self.in_flight_bytes += bytes;
        Some(self.remove(key))
    }

    /// Whether so many bytes more may be under way.
    #[must_use]
    pub fn has_room(&self, bytes: u64) -> bool {
        let after = self.in_flight_bytes.checked_add(bytes);
        let full = self.in_flight >= self.limits.in_flight
            || after.is_none_or(|after| after > self.limits.in_flight_bytes);
        self.in_flight == 0 || !full
    }

    /// One that was popped is no longer under way, whatever came of it.
    pub fn ended(&mut self, bytes: u64) {
        debug_assert!(
            self.in_flight > 0 && bytes <= self.in_flight_bytes,
            "ended: {bytes} bytes, of {} in {}",
            self.in_flight_bytes,
            self.in_flight
        );
        self.in_flight = self.in_flight.saturating_sub(1);
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(bytes);
    }

    /// Takes out one that waits; none if it has left.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<T> {
        let key = self.key(ticket)?;
        Some(self.remove(key).item)
    }

    /// Lets one that waits go with a class, as the last of its request; it never falls to a later class than it has. Whether it still
    /// waits. Its ticket remains good.
    pub fn promote(&mut self, ticket: Ticket, class: Class) -> bool {
        let Some(key) = self.key(ticket) else { return false };
        if class < self.class(key) {
            let (_, request, lane) = self.unlink(key);
            self.link(key, (class, request, lane));
        }
        true
    }

    /// Transfers that wait.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.transfers.len() as u32
    }

    /// Those of a class.
    #[must_use]
    pub fn waiting_of(&self, class: Class) -> u32 {
        self.backlogs[class as usize].lanes.iter().sum()
    }

    /// Those of a class in a lane.
    #[must_use]
    pub fn waiting_in(&self, class: Class, lane: u16) -> u32 {
        self.backlogs[class as usize].lanes.get(usize::from(lane)).copied().unwrap_or(0)
    }

    /// Transfers under way.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Their bytes.
    #[must_use]
    pub fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    /// The flow of a class whose turn it is, and its first transfer, for which its deficit pays; of those with something in an open lane. Asked
    /// again, the answer is the same.
    fn turn(&mut self, class: Class, open: impl Fn(u16) -> bool) -> Option<(u32, u32)> {
        let quantum = self.limits.quantum_bytes;
        let backlog = &mut self.backlogs[class as usize];
        let mut waiting = (0..).zip(&backlog.lanes).filter(|(_, waiting)| **waiting > 0);
        if !waiting.any(|(lane, _)| open(lane)) {
            return None;
        }
        loop {
            // The least number of turns that one of those passed over still needs. Who is passed over is behind all others then.
            let mut turns = u64::MAX;
            let mut next = backlog.round.first();
            for _ in 0..backlog.round.length() {
                let key = next?;
                next = backlog.round.after(&mut self.flows.slab, key);
                let Some(first) = first_of(&mut self.flows, &self.transfers, key, &open) else { continue };
                let flow = &mut self.flows.slab[key as usize];
                if !flow.its_turn {
                    flow.its_turn = true;
                    flow.deficit = flow.deficit.saturating_add(quantum);
                }
                let cost = cost(self.transfers[first as usize].bytes);
                if flow.deficit >= cost {
                    return Some((key, first));
                }
                turns = turns.min((cost - flow.deficit).div_ceil(quantum));
                flow.its_turn = false;
                backlog.round.make_last(&mut self.flows.slab, key);
            }
            // Nobody can go in this round: all those in which nobody could, at once.
            let mut next = backlog.round.first();
            while let Some(key) = next {
                next = backlog.round.after(&mut self.flows.slab, key);
                if first_of(&mut self.flows, &self.transfers, key, &open).is_some() {
                    let flow = &mut self.flows.slab[key as usize];
                    flow.deficit = flow.deficit.saturating_add(quantum.saturating_mul(turns - 1));
                }
            }
        }
    }

    fn key(&self, ticket: Ticket) -> Option<u32> {
        let waiting = self.transfers.get(ticket.key as usize)?;
        (waiting.number == ticket.number).then_some(ticket.key)
    }

    fn class(&self, key: u32) -> Class {
        let lane = self.transfers[key as usize].lane;
        self.flows.slab[self.flows.lanes[lane as usize].flow as usize].class
    }

    fn remove(&mut self, key: u32) -> Popped<T> {
        let (class, request, lane) = self.unlink(key);
        let Waiting { item, bytes, .. } = self.transfers.remove(key as usize);
        Popped { item, class, request, lane, bytes }
    }

    fn link(&mut self, key: u32, (class, request, number): (Class, u64, u16)) {
        let backlog = &mut self.backlogs[class as usize];
        let flow = self.flows.find_or_add(&mut backlog.round, class, request);
        let lane = self.flows.lane(flow, number);
        self.transfers[key as usize].lane = lane;
        self.flows.lanes[lane as usize].transfers.push_last(&mut self.transfers, key);
        let number = usize::from(number);
        if backlog.lanes.len() <= number {
            backlog.lanes.resize(number + 1, 0);
        }
        backlog.lanes[number] += 1;
    }

    fn unlink(&mut self, key: u32) -> (Class, u64, u16) {
        let lane = self.transfers[key as usize].lane;
        let Lane { flow, number, ref mut transfers, .. } = self.flows.lanes[lane as usize];
        transfers.remove(&mut self.transfers, key);
        let empty = transfers.length() == 0;
        let Flow { class, request, .. } = self.flows.slab[flow as usize];
        let backlog = &mut self.backlogs[class as usize];
        backlog.lanes[usize::from(number)] -= 1;
        if empty {
            self.flows.remove_lane(&mut backlog.round, lane);
        }
        (class, request, number)
    }
}

/// What of a flow goes first, of its open lanes: what has come first of all that is first in one.
fn first_of<T>(
    flows: &mut Flows,
    transfers: &Slab<Waiting<T>>,
    flow: u32,
    open: impl Fn(u16) -> bool,
) -> Option<u32> {
    let (mut first, mut next) = (None, flows.slab[flow as usize].lanes.first());
    while let Some(key) = next {
        let lane = &flows.lanes[key as usize];
        let of_lane = lane.transfers.first().filter(|_| open(lane.number));
        let number = |key: u32| transfers[key as usize].number;
        first = [first, of_lane].into_iter().flatten().min_by_key(|key| number(*key));
        next = flows.lane_after(flow, key);
    }
    first
}

/// Bytes, as turns count them: what moves none still takes part of a turn, or a request of such transfers would never end its own.
fn cost(bytes: u64) -> u64 {
    bytes.max(1)
}
