//! The parts of a client that its handle and its thread of callbacks share.
//!
//! Invariants
//! - I1: the descriptor is readable while a job is to be reported: a thread that takes answers and leaves
//!   some rings.
//! - I2: the book's lock is not held while the store works: neither submits nor drains wait for each other's
//!   transfers to begin.

use crate::bell::{Bell, Limit, poll};
use crate::client::book::{Book, kvs_completion};
use crate::store;
use kvstrata::store::Client;
use kvstrata_ffi::process::Origin;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(super) struct Shared {
    pub(super) store: Arc<store::Shared>,
    pub(super) client: Client,
    pub(super) bell: Arc<Bell>,
    pub(super) origin: Origin,
    book: Mutex<Book>,
}

/// Why a wait ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Waited {
    Ended,
    Closed,
    Limit,
}

impl Shared {
    pub(super) fn new(store: &Arc<store::Shared>) -> io::Result<Shared> {
        let client = store.store.client()?;
        // SAFETY: the client's descriptor is open as long as the client.
        let bell = Arc::new(unsafe { Bell::of(client.descriptor()) }?);
        let origin = store.origin;
        Ok(Shared { store: Arc::clone(store), client, bell, origin, book: Mutex::default() })
    }

    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports jobs, to at most `most` calls of `to`. Returns their number.
    pub(super) fn report(&self, most: usize, mut to: impl FnMut(usize, kvs_completion)) -> usize {
        let mut book = self.book();
        book.take_answers(&self.client);
        let mut count = 0;
        while count < most {
            let Some(completion) = book.report() else { break };
            to(count, completion);
            count += 1;
        }
        if book.has_ended() {
            self.bell.ring();
        }
        count
    }

    /// Waits until there may be something to report.
    pub(super) fn wait(&self, limit: Limit) -> io::Result<Waited> {
        match poll([self.bell.raw(), self.store.closed()], limit)? {
            [true, _] => return Ok(Waited::Ended),
            [false, false] => return Ok(Waited::Limit),
            [false, true] => {}
        }
        {
            let mut book = self.book();
            if !book.is_lent() && !book.has_ended() {
                return Ok(Waited::Closed);
            }
        }
        // Nothing else comes of a closed store: the jobs that are left ring.
        Ok(if poll([self.bell.raw()], limit)? == [true] { Waited::Ended } else { Waited::Limit })
    }

    /// Waits until the store touches no memory of a job any more. Returns whether that is so within the
    /// limit.
    pub(super) fn wait_until_returned(&self, limit: Limit) -> io::Result<bool> {
        loop {
            let mut book = self.book();
            book.take_answers(&self.client);
            if !book.is_lent() {
                return Ok(true);
            }
            drop(book);
            if poll([self.bell.raw()], limit)? == [false] {
                if self.book().has_ended() {
                    self.bell.ring();
                }
                return Ok(false);
            }
        }
    }
}
