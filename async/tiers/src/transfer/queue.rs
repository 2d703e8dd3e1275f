//! The queue of a path: which transfers wait, which goes next, and how many bytes are under way. It has
//! no lock, no clock and no thread.
//!
//! ```text
//!   class      round of requests              transfers of each, FIFO
//!   Urgent     request 7 ► request 9          [a]─[b]    [c]
//!   Offload    request 7                      [d]─[e]─[f]
//!   Background
//!   Prefetch   request 8 ► request 7          [g]        [h]
//! ```
//!
//! It refuses nothing: a waiting transfer owns its blocks, so a refusal would make no room. Callers look
//! at the queue's length before they begin a transfer.
//!
//! Besides the path, a transfer may need a resource that is short for some transfers only: staging
//! blocks, which each group of layers has of its own. So a transfer is in a lane, and the caller of a
//! pop says which lanes are open. Transfers in a shut lane wait as they are; all others go as if these
//! were not there.
//!
//! The requests of a class share bytes by deficit round robin (Shreedhar & Varghese, SIGCOMM 1995): a
//! request's turn adds the quantum to its deficit, and lasts while the deficit pays for its next transfer.
//!
//! Invariants
//! - I1: no transfer of a class goes while one of an earlier class waits in an open lane. A transfer
//!   that may not go yet (in-flight limits, the iteration's budget) holds back all behind it, of its own
//!   request and of others: if small transfers passed it, a large one would never go.
//! - I2: transfers and bytes in flight are within the limits, or there is one transfer, alone. In flight
//!   are those popped and not ended.
//! - I3: within a request, class and lane, transfers go in the order of arrival. A retried one arrives anew.
//! - I4: while two requests of a class both wait in open lanes, the bytes that they get differ by less
//!   than the quantum plus twice the largest transfer; by less than the quantum plus the largest transfer,
//!   if neither had been served before. A request with all lanes shut keeps its place in the round, its
//!   turn and the rest of its turn.
//! - I5: no allocation until the queue holds more than ever before. A request is known only while one of
//!   its transfers waits.
//! - I6: a ticket is good from the push until the transfer leaves, however often its place is used
//!   again: it has the push's number.

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

/// Limits of a queue's transfers in flight, and how requests share them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Transfers in flight: as many as their mover or tier takes. With 0, one still goes.
    pub in_flight: u32,
    /// Bytes in flight (`transfer.in_flight`).
    pub in_flight_bytes: u64,
    /// Bytes that a request may move before the next one's turn (`transfer.quantum`). A quantum below a
    /// transfer's size is as fair, but some transfers then cost a walk over the requests.
    pub quantum_bytes: u64,
}

/// A waiting transfer. Once the transfer has left, in whatever way, its ticket is stale: no other
/// transfer answers to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket {
    key: u32,
    number: u64,
}

/// A transfer that is now under way. The caller owes one [`Queue::ended`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Popped<T> {
    /// The item that was pushed.
    pub item: T,
    /// The class in which it waited last.
    pub class: Class,
    /// Its request.
    pub request: u64,
    /// The lane in which it waited.
    pub lane: u16,
    /// The bytes that it moves.
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

/// A class: its requests that have waiting transfers.
#[derive(Debug)]
struct Backlog {
    round: List<ROUND>,
    /// By lane: how many transfers wait.
    lanes: Vec<u32>,
}

/// The queue of a path.
#[derive(Debug)]
pub struct Queue<T> {
    limits: Limits,
    transfers: Slab<Waiting<T>>,
    flows: Flows,
    backlogs: [Backlog; Class::ALL.len()],
    /// The number of the next push.
    number: u64,
    in_flight: u32,
    in_flight_bytes: u64,
}

impl<T: Copy> Queue<T> {
    /// Returns an empty queue. A quantum of 0 is taken as one byte.
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

    /// Queues a transfer in a lane, behind its request's transfers in that lane.
    pub fn push(&mut self, class: Class, request: u64, lane: u16, bytes: u64, item: T) -> Ticket {
        let number = self.number;
        self.number += 1;
        let waiting = Waiting { item, bytes, number, lane: 0, fifo: Links::NONE };
        let key = self.transfers.insert(waiting) as u32;
        self.link(key, (class, request, lane));
        Ticket { key, number }
    }

    /// Takes the transfer that goes next; it is then under way. None if none waits, or if the next one
    /// must wait for bytes in flight or for the iteration's budget: try again after
    /// [`ended`](Queue::ended), or after a refill.
    pub fn pop(&mut self, allowance: &mut Allowance) -> Option<Popped<T>> {
        self.pop_open(allowance, |_| true)
    }

    /// Does the same as [`pop`](Queue::pop), for the open lanes.
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

    /// Returns whether so many bytes more may be under way.
    #[must_use]
    pub fn has_room(&self, bytes: u64) -> bool {
        let after = self.in_flight_bytes.checked_add(bytes);
        let full = self.in_flight >= self.limits.in_flight
            || after.is_none_or(|after| after > self.limits.in_flight_bytes);
        self.in_flight == 0 || !full
    }

    /// Records that a popped transfer has ended, well or not.
    pub fn ended(&mut self, bytes: u64) {
        debug_assert!(
            self.in_flight > 0 && bytes <= self.in_flight_bytes,
            "a transfer of {bytes} bytes ended, but {} bytes are in flight in {} transfers",
            self.in_flight_bytes,
            self.in_flight
        );
        self.in_flight = self.in_flight.saturating_sub(1);
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(bytes);
    }

    /// Takes out a waiting transfer. None if it has left.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<T> {
        let key = self.key(ticket)?;
        Some(self.remove(key).item)
    }

    /// Moves a waiting transfer to a more urgent class, as the last of its request there. It never falls
    /// to a less urgent class. Returns whether it still waits. Its ticket remains good.
    pub fn promote(&mut self, ticket: Ticket, class: Class) -> bool {
        let Some(key) = self.key(ticket) else { return false };
        if class < self.class(key) {
            let (_, request, lane) = self.unlink(key);
            self.link(key, (class, request, lane));
        }
        true
    }

    /// Returns the number of waiting transfers.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.transfers.len() as u32
    }

    /// Returns the number of waiting transfers of a class.
    #[must_use]
    pub fn waiting_of(&self, class: Class) -> u32 {
        self.backlogs[class as usize].lanes.iter().sum()
    }

    /// Returns the number of waiting transfers of a class in a lane.
    #[must_use]
    pub fn waiting_in(&self, class: Class, lane: u16) -> u32 {
        self.backlogs[class as usize].lanes.get(usize::from(lane)).copied().unwrap_or(0)
    }

    /// Returns the number of transfers under way.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns the bytes under way.
    #[must_use]
    pub fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    /// Returns the flow of a class whose turn it is, and its first transfer, for which its deficit pays.
    /// Only flows with a transfer in an open lane count. Asked again, the answer is the same.
    fn turn(&mut self, class: Class, open: impl Fn(u16) -> bool) -> Option<(u32, u32)> {
        let quantum = self.limits.quantum_bytes;
        let backlog = &mut self.backlogs[class as usize];
        let mut waiting = (0..).zip(&backlog.lanes).filter(|(_, waiting)| **waiting > 0);
        if !waiting.any(|(lane, _)| open(lane)) {
            return None;
        }
        loop {
            // The fewest turns that a flow passed over still needs. A flow passed over goes
            // behind all others.
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
            // No flow can go in this round. This skips all rounds in which none could, at once.
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

/// Returns the flow's transfer that goes first: of the first ones of its open lanes, the one that came first.
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

/// Returns the bytes as turns count them. A transfer without bytes still uses part of a turn, or its
/// request would never end its own.
fn cost(bytes: u64) -> u64 {
    bytes.max(1)
}
