//! A ring for device memory beside one for host memory: cuFile's calls, made by a few threads.
//!
//! ```text
//!               push ─┬─ host memory, syncs, punches ─► inner ring ──────────────► done
//!   engine            │                                   ▲ bell
//!               turn ─┴─ device memory, its sums ─► pool: cuFileRead / cuFileWrite / DeviceSums ─► ended
//! ```
//!
//! Pieces of both kinds belong to one engine, and are cut, ordered, capped, resumed and retried alike; a
//! piece is of one kind. The ring sleeps only in the inner ring, and the pool rings its bell for each of
//! its answers.
//!
//! Invariants
//! - I1: a piece of device memory has a share in that memory from `push` until cuFile has answered.
//!   Dropping the ring waits for the calls under way, before the file is deregistered.
//! - I2: an answer that comes while the ring sleeps, or is about to, ends that sleep. The pool leaves the
//!   answer before it rings the bell; the bell is kept until the inner ring's `turn` has returned for it;
//!   and after that the ring looks for answers.
//! - I3: with pieces of device memory under way the ring never waits for several: a bell stands for one
//!   completion, and a batch of them would wait for its patience to end.

use super::super::error::FailureCause;
use super::super::format::Sum;
use super::{Action, Bell, Completion, DevicePart, Op, Ring, Wait};
use crate::gds::{Answer, Job, Pool, Task};
use std::time::Duration;

pub(in crate::disk) struct GdsRing {
    /// Dropped first: the pool ends before the ring whose bell it rings.
    pool: Pool,
    inner: Box<dyn Ring>,
    /// Pieces with the pool.
    in_flight: usize,
    answers: Vec<(u32, Answer)>,
    /// Answers that need no thread.
    refused: Vec<Completion>,
    /// Sums that have not been taken yet, by token.
    sums: Vec<(u32, Result<u64, i32>)>,
}

impl GdsRing {
    /// `pool` rings the bell of `inner`.
    pub(in crate::disk) fn new(inner: Box<dyn Ring>, pool: Pool) -> GdsRing {
        GdsRing { pool, inner, in_flight: 0, answers: Vec::new(), refused: Vec::new(), sums: Vec::new() }
    }

    /// Appends the answers of the pool. Returns whether there were any.
    fn take(&mut self, done: &mut Vec<Completion>) -> bool {
        let before = done.len();
        done.append(&mut self.refused);
        if self.in_flight > 0 {
            self.pool.ended(&mut self.answers);
        }
        for (token, answer) in self.answers.drain(..) {
            self.in_flight -= 1;
            let result = match answer {
                Answer::Moved(result) => result,
                Answer::Summed(sum) => {
                    self.sums.push((token, sum));
                    0
                }
            };
            done.push(Completion { token, result });
        }
        done.len() > before
    }
}

impl Ring for GdsRing {
    fn depth(&self) -> usize {
        self.inner.depth()
    }

    fn bell(&self) -> Bell {
        self.inner.bell()
    }

    fn now(&self) -> Duration {
        self.inner.now()
    }

    unsafe fn push(&mut self, token: u32, op: &Op<'_>) {
        let Some(DevicePart { range, offset }) = op.device else {
            // SAFETY: the caller's promise, about the same piece.
            return unsafe { self.inner.push(token, op) };
        };
        let task = match op.action {
            Action::Read => Some(Task::Read),
            Action::Write => Some(Task::Write),
            Action::Sum => Some(Task::Sum),
            Action::Sync | Action::Punch => None,
        };
        // A piece lies within its range, so neither is missing.
        match task.zip(range.share(offset, op.bytes)) {
            Some((task, range)) => {
                self.in_flight += 1;
                self.pool.begin(Job { token, task, range, file_offset: op.file_offset });
            }
            None => self.refused.push(Completion { token, result: -libc::EINVAL }),
        }
    }

    fn turn(&mut self, done: &mut Vec<Completion>, wait: Wait) -> Result<u32, i32> {
        if self.in_flight == 0 && self.refused.is_empty() {
            return self.inner.turn(done, wait);
        }
        let wait = match (self.take(done), wait) {
            (_, Wait::No) => Wait::No,
            // There are answers to return: the inner ring starts the pushed pieces, and gives its
            // completions.
            (true, _) => Wait::Look,
            // I3.
            (false, Wait::Batch { .. }) => Wait::Forever,
            (false, wait) => wait,
        };
        let calls = self.inner.turn(done, wait)?;
        self.take(done);
        Ok(calls)
    }

    fn take_sum(&mut self, token: u32) -> Result<Sum, FailureCause> {
        let at = self.sums.iter().position(|(of, _)| *of == token);
        match at.map(|at| self.sums.swap_remove(at)) {
            Some((_, Ok(sum))) => Ok(Sum::given(sum)),
            Some((_, Err(code))) => Err(FailureCause::DeviceSum { code }),
            // A sum is not asked for twice.
            None => Err(FailureCause::DeviceSum { code: libc::ENODATA }),
        }
    }
}
