//! Any ring, with faults on purpose: tests the engine on short, interrupted and failed transfers.

use super::{Bell, Buffer, Completion, Op, Ring, Wait};
use std::time::Duration;

/// The fault of a piece, chosen by the piece's running number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::disk) enum Fault {
    None,
    /// Move only this many bytes.
    Short(usize),
    /// Move nothing and answer with this error number.
    Errno(i32),
    /// Move nothing, answer 0.
    Nothing,
    /// The ring breaks down with this error number.
    Break(i32),
}

/// Chooses by a piece's running number and by the piece.
type Plan = Box<dyn FnMut(u64, &Op<'_>) -> Fault>;

pub(in crate::disk) struct FaultyRing {
    inner: Box<dyn Ring>,
    plan: Plan,
    pushed: u64,
    /// Answers to pieces that the inner ring never got.
    made_up: Vec<Completion>,
    /// Shortened lists of buffers, kept to the end since the inner ring may look at them.
    shortened: Vec<Box<[Buffer]>>,
    broken: Option<i32>,
}

impl FaultyRing {
    pub(in crate::disk) fn new(
        inner: Box<dyn Ring>,
        plan: impl FnMut(u64, &Op<'_>) -> Fault + 'static,
    ) -> FaultyRing {
        FaultyRing {
            inner,
            plan: Box::new(plan),
            pushed: 0,
            made_up: Vec::new(),
            shortened: Vec::new(),
            broken: None,
        }
    }
}

impl Ring for FaultyRing {
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
        let fault = (self.plan)(self.pushed, op);
        self.pushed += 1;
        let mut op = *op;
        let made_up = match fault {
            Fault::None => None,
            Fault::Short(bytes) => {
                op.bytes = op.bytes.min(bytes);
                self.shortened.push(first_bytes(op.buffers, op.bytes));
                None
            }
            Fault::Errno(errno) => Some(-errno),
            Fault::Nothing => Some(0),
            Fault::Break(errno) => {
                self.broken = Some(errno);
                None
            }
        };
        match made_up {
            Some(result) => self.made_up.push(Completion { token, result }),
            None => {
                if let Fault::Short(_) = fault
                    && let Some(shortened) = self.shortened.last()
                {
                    op.buffers = shortened;
                }
                // SAFETY: the same promise, about the same memory or less of it; a shortened list is kept.
                unsafe { self.inner.push(token, &op) };
            }
        }
    }

    fn turn(&mut self, done: &mut Vec<Completion>, wait: Wait) -> Result<u32, i32> {
        if let Some(errno) = self.broken {
            return Err(errno);
        }
        if self.made_up.is_empty() {
            return self.inner.turn(done, wait);
        }
        done.append(&mut self.made_up);
        // Pieces pushed beside them start now; there is no wait, since answers are there.
        self.inner.turn(done, Wait::No)
    }
}

/// A list of buffers for the first `bytes` of `buffers`.
fn first_bytes(buffers: &[Buffer], mut bytes: usize) -> Box<[Buffer]> {
    let mut list = Vec::new();
    for buffer in buffers {
        if bytes == 0 {
            break;
        }
        let iov_len = buffer.iov_len.min(bytes);
        bytes -= iov_len;
        list.push(Buffer { iov_len, ..*buffer });
    }
    list.into_boxed_slice()
}
