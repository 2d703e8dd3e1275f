//! Transfers in flight, several at a time, and their times: the contenders of all sections.
//!
//! A turn's time is by the wall, from its first submission to the answer for its last, divided by its
//! transfers. A window of 1 gives the time of one transfer alone, completion included; a larger one
//! gives the time a transfer in a stream, in which the device does not wait for the host.

use super::{DEADLINE, Failure};
use crate::rounds::{Effort, Samples};
use crate::work::Timed;
use core::time::Duration;
use kvstrata_core::BlockId;
use kvstrata_ffi::cuda::{
    Batch, Held, PinnedStorage, PreparedCopy, Rejected, Route, Transfer, TransferQueue,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// Submits a transfer over lane `n`: of all lanes, those in flight touch different memory.
pub type Submit<'a> = Box<dyn FnMut(usize, Batch) -> Result<Transfer, Failure> + 'a>;

/// Transfers of one kind, in a queue.
pub struct Stream<'a> {
    submit: Submit<'a>,
    window: usize,
    flying: VecDeque<Transfer>,
    idle: Vec<Batch>,
    submitted: usize,
}

impl<'a> Stream<'a> {
    /// Keeps at most `window` transfers in flight.
    #[must_use]
    pub fn new(window: usize, submit: Submit<'a>) -> Stream<'a> {
        let window = window.max(1);
        Stream { submit, window, flying: VecDeque::with_capacity(window), idle: Vec::new(), submitted: 0 }
    }

    /// Submits one more; waits for the oldest first if the window is full.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn push(&mut self) -> Result<(), Failure> {
        if self.flying.len() == self.window {
            self.pop()?;
        }
        let transfer = (self.submit)(self.submitted % self.window, self.idle.pop().unwrap_or_default())?;
        self.submitted += 1;
        self.flying.push_back(transfer);
        Ok(())
    }

    /// Waits for the oldest, if there is one.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn pop(&mut self) -> Result<bool, Failure> {
        let Some(transfer) = self.flying.pop_front() else { return Ok(false) };
        let mut batch = transfer.wait_for(DEADLINE)?;
        batch.release().for_each(drop::<Held>);
        self.idle.push(batch);
        Ok(true)
    }

    /// Waits for all.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn drain(&mut self) -> Result<(), Failure> {
        while self.pop()? {}
        Ok(())
    }
}

/// A contender that takes turns: one stream, or two at once.
pub struct Contender<'a> {
    streams: Vec<Stream<'a>>,
    /// The error that stopped it.
    failed: Option<Failure>,
}

impl<'a> Contender<'a> {
    /// Takes streams that run at once.
    #[must_use]
    pub fn new(streams: Vec<Stream<'a>>) -> Contender<'a> {
        Contender { streams, failed: None }
    }

    fn turn(&mut self, runs: u64) -> Result<Duration, Failure> {
        let begun = Instant::now();
        for _ in 0..runs {
            self.streams.iter_mut().try_for_each(Stream::push)?;
        }
        self.streams.iter_mut().try_for_each(Stream::drain)?;
        Ok(begun.elapsed())
    }
}

impl Timed for Contender<'_> {
    fn items(&self) -> u64 {
        1
    }

    fn time(&mut self, runs: u64) -> Duration {
        if self.failed.is_none() {
            match self.turn(runs) {
                Ok(took) => return took,
                Err(error) => self.failed = Some(error),
            }
        }
        // Long enough that no caller asks for more runs; the samples are thrown away.
        Duration::from_secs(1)
    }
}

/// Runs all contenders in turns, in fewer rounds if time is up: nanoseconds a
/// transfer (of each of its streams).
///
/// # Errors
/// The first error of a contender.
pub fn turns(effort: Effort, contenders: &mut [Contender<'_>], ends: Instant) -> Result<Samples, Failure> {
    let mut timed: Vec<&mut dyn Timed> =
        contenders.iter_mut().map(|contender| contender as &mut dyn Timed).collect();
    let samples = Samples::take_until(effort, &mut timed, Some(ends));
    match contenders.iter_mut().find_map(|contender| contender.failed.take()) {
        Some(failed) => Err(failed),
        None => Ok(samples),
    }
}

/// The blocks of a transfer.
#[derive(Clone, Debug)]
pub struct Lane {
    /// Blocks of the source.
    pub src: Vec<BlockId>,
    /// Blocks of the destination.
    pub dst: Vec<BlockId>,
}

/// Takes the guards of the host's blocks of a lane.
///
/// # Errors
/// Another guard has one of them.
pub fn guard(
    batch: &mut Batch,
    host: Option<(&Arc<PinnedStorage>, bool)>,
    lane: &Lane,
) -> Result<(), Failure> {
    let Some((pinned, writes)) = host else { return Ok(()) };
    for block in if writes { &lane.dst } else { &lane.src } {
        let block = block.0 as usize;
        if writes {
            batch.write(pinned.arena().write(block)?, pinned)?;
        } else {
            batch.read(pinned.arena().read(block)?, pinned)?;
        }
    }
    Ok(())
}

/// Submits a prepared copy by a route, or by the one that it chooses.
///
/// # Errors
/// An error of the driver.
pub fn submit(
    copy: &PreparedCopy,
    route: Option<Route>,
    queue: &TransferQueue,
    lane: &Lane,
    batch: Batch,
) -> Result<Transfer, Failure> {
    let done = match route {
        Some(route) => copy.submit_by(route, queue, &lane.src, &lane.dst, batch),
        None => copy.submit(queue, &lane.src, &lane.dst, batch),
    };
    done.map_err(|rejected: Box<Rejected>| rejected.error.into())
}

/// Returns a stream of a prepared copy over lanes that touch different memory.
#[must_use]
pub fn copies<'a>(
    copy: &'a PreparedCopy,
    route: Option<Route>,
    queue: &'a TransferQueue,
    host: Option<(&'a Arc<PinnedStorage>, bool)>,
    lanes: &'a [Lane],
) -> Stream<'a> {
    let act = move |lane: usize, mut batch: Batch| {
        let lane = &lanes[lane];
        guard(&mut batch, host, lane)?;
        submit(copy, route, queue, lane, batch)
    };
    Stream::new(lanes.len(), Box::new(act))
}
