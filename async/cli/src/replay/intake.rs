//! Requests as they are read, a few ahead of need, by a thread of its own: a pipe may keep whoever reads it
//! waiting for ever, and a replay is to be stopped all the same.
//!
//! The thread ends with the last request that is asked for, or where nobody takes them any more. Nobody waits
//! for it: a read cannot be given up.
//!
//! Invariants
//! - I1: requests come in the order of the trace, and an error behind all before it; no more is read than is
//!   asked for.
//! - I2: a reader that panics is no end of the trace.

use crate::trace::{Request, TraceError, TraceReader};
use std::io;
use std::panic::resume_unwind;
use std::thread::{Builder, JoinHandle};
use tokio::sync::mpsc::{Receiver, channel};

/// Requests read ahead: enough that nobody waits for a file, and few, since one may have many blocks.
const AHEAD: usize = 8;

/// A request, and where it stands.
pub(super) struct Arrival {
    pub(super) request: Request,
    /// Its line in the trace.
    pub(super) line: u64,
    /// Bytes taken from the trace up to it, compressed as it is.
    pub(super) input_bytes: u64,
}

pub(super) struct Intake {
    arrivals: Receiver<Result<Arrival, TraceError>>,
    reader: Option<JoinHandle<()>>,
}

impl Intake {
    /// Reads a trace's first `limit` requests.
    pub(super) fn new(mut trace: TraceReader, limit: u64) -> io::Result<Intake> {
        let (give, arrivals) = channel(AHEAD);
        let read = move || {
            for nth in 1..=limit {
                let Some(read) = trace.next_request().transpose() else { return };
                if nth == limit {
                    // Before the last request is given, so that whoever takes it finds all doubts of the trace.
                    trace.end();
                }
                let (line, input_bytes) = (trace.line(), trace.consumed_bytes());
                let arrival = read.map(|request| Arrival { request, line, input_bytes });
                let is_last = arrival.is_err();
                if give.blocking_send(arrival).is_err() || is_last {
                    return;
                }
            }
        };
        let reader = Builder::new().name("kvstrata-trace".to_owned()).spawn(read)?;
        Ok(Intake { arrivals, reader: Some(reader) })
    }

    /// The next request; none at the end. What is given up while it waits has taken nothing.
    pub(super) async fn next(&mut self) -> Result<Option<Arrival>, TraceError> {
        let arrival = self.arrivals.recv().await;
        // I2: the channel ends with the thread, whichever way.
        if arrival.is_none()
            && let Some(Err(panic)) = self.reader.take().map(JoinHandle::join)
        {
            resume_unwind(panic);
        }
        arrival.transpose()
    }
}
