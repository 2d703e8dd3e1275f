//! Any ring, with faults on purpose: what the engine makes of short, interrupted and failed transfers.

use super::super::inbox::Bell;
use super::{Completion, Op, Ring};

/// What to do to a piece, decided by its running number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::disk) enum Fault {
    None,
    /// Move only this many bytes.
    Short(u32),
    /// Move nothing and answer with this error number.
    Errno(i32),
    /// Move nothing, answer 0.
    Nothing,
    /// The ring breaks down with this error number.
    Break(i32),
}

/// Decides by a piece's running number and by the piece.
type Plan = Box<dyn FnMut(u64, &Op) -> Fault>;

pub(in crate::disk) struct FaultyRing {
    inner: Box<dyn Ring>,
    plan: Plan,
    pushed: u64,
    /// Answers that the inner ring never hears of.
    made_up: Vec<Completion>,
    broken: Option<i32>,
}

impl FaultyRing {
    pub(in crate::disk) fn new(
        inner: Box<dyn Ring>,
        plan: impl FnMut(u64, &Op) -> Fault + 'static,
    ) -> FaultyRing {
        FaultyRing { inner, plan: Box::new(plan), pushed: 0, made_up: Vec::new(), broken: None }
    }
}

impl Ring for FaultyRing {
    fn depth(&self) -> usize {
        self.inner.depth()
    }

    fn bell(&self) -> Bell {
        self.inner.bell()
    }

    unsafe fn push(&mut self, token: u32, op: &Op) {
        let fault = (self.plan)(self.pushed, op);
        self.pushed += 1;
        let mut op = *op;
        let made_up = match fault {
            Fault::None => None,
            Fault::Short(bytes) => {
                op.bytes = op.bytes.min(bytes);
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
            // SAFETY: the same promise, about the same memory or less of it.
            None => unsafe { self.inner.push(token, &op) },
        }
    }

    fn turn(&mut self, done: &mut Vec<Completion>) -> Result<(), i32> {
        if let Some(errno) = self.broken {
            return Err(errno);
        }
        if self.made_up.is_empty() {
            return self.inner.turn(done);
        }
        done.append(&mut self.made_up);
        // What was pushed beside them starts now, and may be waited for: the bell makes sure it is not for long.
        self.inner.bell()();
        self.inner.turn(done)
    }
}
