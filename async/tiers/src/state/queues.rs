//! The queues of the paths: transfers that wait for their turn, and the bytes that an iteration allows.
//!
//! Invariants
//! - I1: calls begin a transfer only while its queue has room for its class; less urgent transfers take
//!   no room of more urgent ones. A transfer that owns its blocks is queued in any case: refusing it
//!   would make no room.

use crate::state::{GroupId, TransferId};
use crate::transfer::{Allowance, Class, Limits, Path, Popped, Queue, Ticket};
use std::ops::Index;

/// The queues, one a path.
pub(crate) struct Queues {
    /// By [`Path::index`].
    paths: Box<[Queue<TransferId>]>,
    allowance: Allowance,
    /// The path that is served first.
    first: usize,
    /// Maximum number of transfers that wait, for each path (`transfer.queue`).
    bound: usize,
}

impl Queues {
    /// `limits`: by path.
    pub(crate) fn new(limits: Vec<Limits>, bound: u32, budget: Option<u64>) -> Queues {
        let paths = limits.into_iter().map(Queue::new).collect();
        Queues { paths, allowance: Allowance::new(budget), first: 0, bound: bound as usize }
    }

    /// Returns all queues.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Queue<TransferId>> {
        self.paths.iter()
    }

    /// Returns the paths in the order in which they are served: each is first in turn.
    pub(crate) fn in_turn(&self) -> impl Iterator<Item = Path> + Clone + use<> {
        let (first, count) = (self.first, self.paths.len());
        (first..count).chain(0..first).map(Path::at)
    }

    /// Returns the paths of reads from tiers below host memory.
    pub(crate) fn reads(&self) -> impl Iterator<Item = Path> + Clone + use<> {
        (0..self.paths.len()).map(Path::at).filter(|path| matches!(path, Path::FromBelow(_)))
    }

    /// Begins an iteration: refills its bytes, and lets the next path be first.
    pub(crate) fn iteration_begins(&mut self) {
        self.allowance.refill();
        self.first = (self.first + 1) % self.paths.len();
    }

    /// Whether the bytes of an iteration are limited now.
    pub(crate) fn is_limited(&self) -> bool {
        self.allowance.is_limited()
    }

    /// Whether transfers may have to wait for the bytes of the next iteration.
    pub(crate) fn has_budget(&self) -> bool {
        self.allowance.left().is_some()
    }

    /// Lifts the limit, since no iteration has come.
    pub(crate) fn lift_budget(&mut self) {
        self.allowance.lift();
    }

    /// Ends the limit, since no iteration will come.
    pub(crate) fn end_budget(&mut self) {
        self.allowance = Allowance::new(None);
    }

    /// Whether one more transfer of a class may wait in a lane. `to_come`: how many of a class are on
    /// their way to it.
    pub(crate) fn has_room(
        &self,
        path: Path,
        lane: u16,
        class: Class,
        to_come: impl Fn(Class) -> usize,
    ) -> bool {
        let queue = &self.paths[path.index()];
        let before = Class::ALL.into_iter().take_while(|other| *other <= class);
        let waiting =
            before.map(|other| queue.waiting_in(other, lane) as usize + to_come(other)).sum::<usize>();
        waiting < self.bound
    }

    /// Puts a transfer into a lane (I1).
    pub(crate) fn push(
        &mut self,
        (path, lane): (Path, u16),
        class: Class,
        request: u64,
        bytes: u64,
        transfer: TransferId,
    ) -> Ticket {
        self.paths[path.index()].push(class, request, lane, bytes, transfer)
    }

    /// Takes the next transfer of a path, if its bytes are allowed.
    pub(crate) fn pop(&mut self, path: Path) -> Option<Popped<TransferId>> {
        self.paths[path.index()].pop(&mut self.allowance)
    }

    /// The same of the open groups only: each group is a lane.
    pub(crate) fn pop_open(
        &mut self,
        path: Path,
        open: impl Fn(GroupId) -> bool,
    ) -> Option<Popped<TransferId>> {
        self.paths[path.index()].pop_open(&mut self.allowance, |lane| open(GroupId::of_lane(lane)))
    }

    /// Removes a transfer from its queue.
    pub(crate) fn cancel(&mut self, path: Path, ticket: Ticket) {
        self.paths[path.index()].cancel(ticket);
    }

    /// Makes a waiting transfer more urgent.
    pub(crate) fn promote(&mut self, path: Path, ticket: Ticket, class: Class) {
        self.paths[path.index()].promote(ticket, class);
    }

    /// Notes the end of a transfer that was in flight.
    pub(crate) fn ended(&mut self, path: Path, bytes: u64) {
        self.paths[path.index()].ended(bytes);
    }
}

impl Index<Path> for Queues {
    type Output = Queue<TransferId>;

    fn index(&self, path: Path) -> &Queue<TransferId> {
        &self.paths[path.index()]
    }
}
