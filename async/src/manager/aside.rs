//! Flights up that have their block, and wait: beside a queue that is full, or for staging.
//!
//! ```text
//!   line ──► first: all its blocks ──► the path's queue has room for its class ── yes ──► queue
//!                                                     │ no                                ▲
//!                                                     ▼                                   │
//!                                         aside: by path and class, FIFO ─────────────────┘
//! ```
//!
//! Who fills a queue waits for it here, and not in the line, where free blocks are given to whoever is next.
//!
//! Staging is little, and what has some may wait for an iteration's budget. What is urgent and waits for staging must not wait for that:
//! the next iteration may wait for it. So then what has staging becomes as urgent, and a guess gives it up.
//!
//! Invariants
//! - I1: whoever is aside has its device block, and waits for nothing but transfers that are in its queue: these end, or are promoted.
//! - I2: of a path and class, who came first goes first. An entry may be stale, or there twice: only what still waits aside goes, and a
//!   flight's key may be another's by now, but not its number.

use super::inner::Inner;
use super::line::Line;
use super::traffic::{At, Id, Traffic};
use super::up::{Source, Up};
use crate::transfer::{Class, Path};
use std::collections::VecDeque;

/// By path and class: keys and numbers of flights.
#[derive(Debug, Default)]
pub(super) struct Aside([[VecDeque<(u32, u64)>; Class::ALL.len()]; Path::ALL.len()]);

impl Up {
    pub(super) fn is_aside(&self) -> bool {
        self.device.is_some() && matches!(self.at, At::Wants)
    }

    /// The path that it takes next.
    pub(super) fn path(&self) -> Path {
        self.source.path()
    }

    /// The block of staging that it has.
    fn staged(&self) -> Option<u32> {
        match self.source {
            Source::Disk(_, staged) => staged,
            Source::Host(_) => None,
        }
    }
}

impl Traffic {
    /// The flight has its block: into its queue, or beside it (I2).
    pub(super) fn queue_or_aside(&mut self, inner: &Inner, key: u32) {
        let Some(up) = self.ups.get(key as usize) else { return };
        let (path, class) = (up.path(), up.class);
        let behind = &mut self.aside.0[path as usize][class as usize];
        behind.push_back((key, up.serial));
        if behind.len() == 1 {
            self.serve_aside_of(inner, path, class);
        }
    }

    /// Fills queues that have room again. Whether anybody has left for one.
    pub(super) fn serve_aside(&mut self, inner: &Inner) -> bool {
        let mut left = false;
        for path in [Path::HostToDevice, Path::DiskToDevice] {
            for class in Class::ALL {
                left |= self.serve_aside_of(inner, path, class);
            }
        }
        left
    }

    fn serve_aside_of(&mut self, inner: &Inner, path: Path, class: Class) -> bool {
        let mut left = false;
        loop {
            let list = &mut self.aside.0[path as usize][class as usize];
            let waits = |key: u32, serial| {
                self.ups.get(key as usize).is_some_and(|up| up.serial == serial && up.is_aside())
            };
            let stale = |entry: Option<&(u32, u64)>| entry.is_some_and(|(key, serial)| !waits(*key, *serial));
            // At both ends: who is given up while nothing goes leaves no trace.
            while stale(list.back()) {
                list.pop_back();
            }
            while stale(list.front()) {
                list.pop_front();
            }
            let first = list.front().copied().filter(|_| self.has_room(path, class));
            let Some((key, _)) = first else { return left };
            left = true;
            self.aside.0[path as usize][class as usize].pop_front();
            self.queue_up(inner, key);
        }
    }

    /// Notes which flight has a block of host memory, if it is staging.
    pub(super) fn note_staged(&mut self, inner: &Inner, stack: u16, staged: u32, flight: Id) {
        let first = inner.stack(stack).host.as_ref().map_or(0, |host| host.pool.capacity());
        let Some(place) = (staged as usize).checked_sub(first) else { return };
        let line = &mut self.lines[stack as usize];
        if line.staged.len() <= place {
            line.staged.resize(place + 1, None);
        }
        line.staged[place] = Some((staged, flight));
        line.news = true;
    }

    /// The stack whose read from the disk would go next, and finds no staging, and the read's class.
    pub(super) fn lacks_staging(&mut self, inner: &Inner) -> Option<(u16, Class)> {
        let (Id::Up(key), class) = self.queues[Path::DiskToDevice as usize].peek()? else { return None };
        let stack = self.ups.get(key as usize)?.stack;
        // What will never find any fails.
        let lacks = self.lines[stack as usize].staging.is_empty() && !self.is_without_staging(inner, stack);
        lacks.then_some((stack, class))
    }

    /// An urgent read waits for staging.
    pub(super) fn press_for_reads(&mut self, inner: &Inner) {
        if let Some((stack, Class::Urgent)) = self.lacks_staging(inner) {
            self.press(inner, stack);
        }
    }

    /// Whatever has staging goes without the iteration's budget; a guess gives it up.
    pub(super) fn press(&mut self, inner: &Inner, stack: u16) {
        let held = std::mem::take(&mut self.lines[stack as usize].staged);
        for (staged, flight) in held.iter().flatten().copied() {
            match flight {
                Id::Up(key) => {
                    let Some(up) = self.ups.get(key as usize) else { continue };
                    let has = up.stack == stack && up.staged() == Some(staged);
                    match up.class {
                        _ if !has => {}
                        Class::Prefetch => self.recall_guess(inner, key),
                        _ => self.promote(inner, key, Class::Urgent),
                    }
                }
                Id::Down(key) => {
                    let down = self.downs.get(key as usize);
                    if down.is_some_and(|down| down.stack == stack && down.host == Some(staged)) {
                        self.promote_down(key);
                    }
                }
            }
        }
        self.lines[stack as usize].staged = held;
    }

    /// A copy down waits for no iteration's budget any more.
    pub(super) fn promote_down(&mut self, key: u32) {
        let Some(down) = self.downs.get_mut(key as usize) else { return };
        down.class = Class::Urgent;
        if let At::Queued(path, ticket) = down.at {
            self.queues[path as usize].promote(ticket, Class::Urgent);
        }
    }

    /// Whether a guess that has been read is in the way of who waits: for blocks, for its tenant's credits, or for staging.
    pub(super) fn is_in_the_way(&self, key: u32) -> bool {
        let guess = self.ups.get(key as usize).filter(|up| up.class == Class::Prefetch);
        guess.is_some_and(|up| {
            let line = &self.lines[up.stack as usize];
            let reads = &self.queues[Path::DiskToDevice as usize];
            !line.is_empty()
                || line.holds(up.tenant)
                || line.staging.is_empty() && reads.waiting_of(Class::Urgent) > 0
        })
    }
}

impl Line {
    /// Whether something of a tenant waits for credits.
    fn holds(&self, tenant: super::tenants::TenantId) -> bool {
        self.held.iter().any(|entry| entry.tenant == tenant)
    }
}
