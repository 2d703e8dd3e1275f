//! The queues of the paths: what waits for its turn, and the bytes that an iteration allows.
//!
//! Invariants
//! - I1: no more of a class wait in a queue than its bound lets begin; what is less urgent takes no room of
//!   what is more so. A transfer that owns its blocks is queued all the same: to refuse it would not make
//!   room.

use crate::state::{GroupId, TransferId};
use crate::transfer::{Allowance, Class, Limits, Path, Popped, Queue, Ticket};
use std::ops::Index;

/// A queue a path.
pub(crate) struct Queues {
    /// By [`Path::index`].
    paths: Box<[Queue<TransferId>]>,
    allowance: Allowance,
    /// The path that is asked first.
    first: usize,
    /// Of each path: transfers that may wait (`transfer.queue`).
    bound: usize,
}

impl Queues {
    /// `limits`: a path's, by its place.
    pub(crate) fn new(limits: Vec<Limits>, bound: u32, budget: Option<u64>) -> Queues {
        let paths = limits.into_iter().map(Queue::new).collect();
        Queues { paths, allowance: Allowance::new(budget), first: 0, bound: bound as usize }
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Queue<TransferId>> {
        self.paths.iter()
    }

    /// The paths, in the order in which they are asked: each is the first in turn.
    pub(crate) fn in_turn(&self) -> impl Iterator<Item = Path> + Clone + use<> {
        let (first, count) = (self.first, self.paths.len());
        (first..count).chain(0..first).map(Path::at)
    }

    /// The paths of reads: from tiers below host memory.
    pub(crate) fn reads(&self) -> impl Iterator<Item = Path> + Clone + use<> {
        (0..self.paths.len()).map(Path::at).filter(|path| matches!(path, Path::FromBelow(_)))
    }

    /// An iteration begins: its bytes are anew, and the next path is asked first.
    pub(crate) fn iteration_begins(&mut self) {
        self.allowance.refill();
        self.first = (self.first + 1) % self.paths.len();
    }

    /// Whether an iteration allows so many bytes only.
    pub(crate) fn is_limited(&self) -> bool {
        self.allowance.is_limited()
    }

    /// Whether something may wait for the bytes of the next iteration.
    pub(crate) fn has_budget(&self) -> bool {
        self.allowance.left().is_some()
    }

    /// No iteration has come: nothing waits for its bytes.
    pub(crate) fn lift_budget(&mut self) {
        self.allowance.lift();
    }

    /// No iteration will come any more.
    pub(crate) fn end_budget(&mut self) {
        self.allowance = Allowance::new(None);
    }

    /// Whether one more of a class may wait in a lane, beside so many of each class that are to come to it.
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

    /// The same of the groups that are open: a group is a lane.
    pub(crate) fn pop_open(
        &mut self,
        path: Path,
        open: impl Fn(GroupId) -> bool,
    ) -> Option<Popped<TransferId>> {
        self.paths[path.index()].pop_open(&mut self.allowance, |lane| open(GroupId::of_lane(lane)))
    }

    /// A transfer waits for its turn no more.
    pub(crate) fn cancel(&mut self, path: Path, ticket: Ticket) {
        self.paths[path.index()].cancel(ticket);
    }

    /// A transfer becomes more urgent.
    pub(crate) fn promote(&mut self, path: Path, ticket: Ticket, class: Class) {
        self.paths[path.index()].promote(ticket, class);
    }

    /// A transfer that was under way has ended.
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
