//! A thread that reads requests, a few ahead of need. A read of a pipe may block for ever, and the
//! replay must stop all the same.
//!
//! The thread ends after the last request wanted, or when the receiver has been dropped. It is not
//! joined, because a blocked read cannot be cancelled.
//!
//! Invariants
//! - I1: requests arrive in the order of the trace, and an error after the requests before it. No request
//!   is read beyond the limit.
//! - I2: a panic of the reader is not taken for the end of the trace.

use crate::trace::{Request, TraceError, TraceReader};
use std::io;
use std::panic::resume_unwind;
use std::thread::{Builder, JoinHandle};
use tokio::sync::mpsc::{Receiver, channel};

/// Requests read ahead: enough that no request waits for a file, and few, since a
/// request may have many blocks.
const AHEAD: usize = 8;

/// A request and its position in the trace.
pub(super) struct Arrival {
    pub(super) request: Request,
    /// Its line in the trace.
    pub(super) line: u64,
    /// Bytes of the (compressed) trace up to it.
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
                    // Before the last request is sent, so that its receiver finds all warnings of the trace.
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

    /// The next request; `None` at the end. A future dropped while it waits takes no request.
    pub(super) async fn next(&mut self) -> Result<Option<Arrival>, TraceError> {
        let arrival = self.arrivals.recv().await;
        // I2: the channel also ends if the thread panics.
        if arrival.is_none()
            && let Some(Err(panic)) = self.reader.take().map(JoinHandle::join)
        {
            resume_unwind(panic);
        }
        arrival.transpose()
    }
}
