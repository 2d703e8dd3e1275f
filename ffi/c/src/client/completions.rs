//! Completions for callers that drain.

use crate::bell::Limit;
use crate::client::book::kvs_completion;
use crate::client::handle::{kvs_client, polled};
use crate::client::shared::Waited;
use crate::edge::edge;
use crate::status::kvs_status::{KVS_CLOSED, KVS_TIMEOUT};
use crate::status::{Failure, kvs_status};
use crate::text::{check_array, check_out};
use std::ffi::c_int;

/// Returns the client's descriptor: readable while there are completions to drain. Use it with poll, epoll
/// or an event loop, and do nothing else with it: kvs_client_free closes it. -1: see kvs_last_error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvs_event_fd(client: *const kvs_client) -> c_int {
    let mut descriptor = -1;
    edge(|| {
        // SAFETY: C1.
        descriptor = unsafe { polled(client) }?.client.descriptor();
        Ok(())
    });
    descriptor
}

/// Waits until there are completions to drain: for callers without an event loop.
///
/// timeout_ms: how long to wait. 0 does not wait, a negative number waits without limit.
/// Returns KVS_OK: drain now; another thread may be faster. KVS_TIMEOUT. KVS_CLOSED: the store is closed, and
/// nothing is left to drain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvs_wait(client: *mut kvs_client, timeout_ms: i32) -> kvs_status {
    edge(|| {
        // SAFETY: C1.
        let shared = unsafe { polled(client) }?;
        let waited = shared.wait(Limit::of(timeout_ms));
        match waited.map_err(|error| Failure::system("cannot poll", &error))? {
            Waited::Ended => Ok(()),
            Waited::Closed => Err(Failure::new(KVS_CLOSED, "store: closed; nothing is left to drain")),
            Waited::Limit => {
                let message = format!("timeout_ms: {timeout_ms}; no job has ended by then");
                Err(Failure::new(KVS_TIMEOUT, message))
            }
        }
    })
}

/// Reports jobs that have ended, in the order of their ends. It does not wait. If more have ended than
/// there is room for, the descriptor stays readable.
///
/// completions, count: where to write them; at least one.
/// got: receives the number that was written, which may be 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvs_drain(
    client: *mut kvs_client,
    completions: *mut kvs_completion,
    count: usize,
    got: *mut usize,
) -> kvs_status {
    edge(|| {
        check_out("got", got)?;
        // SAFETY: C2.
        unsafe { got.write(0) };
        // SAFETY: C1.
        let shared = unsafe { polled(client) }?;
        if count == 0 {
            return Err(Failure::invalid("count: 0; give room for at least one completion"));
        }
        check_array("completions", completions, count)?;
        let written = shared.report(count, |index, completion| {
            // SAFETY: C2: there is room for `count`, and the index is less.
            let place = unsafe { completions.add(index) };
            // SAFETY: C2.
            unsafe { place.write(completion) };
        });
        // SAFETY: C2.
        unsafe { got.write(written) };
        Ok(())
    })
}
