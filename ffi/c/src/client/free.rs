//! The end of a client.

use crate::bell::Limit;
use crate::client::handle::{client, kvs_client};
use crate::edge::edge;
use crate::status::kvs_status::KVS_TIMEOUT;
use crate::status::{Failure, kvs_status};
use std::thread;

/// Ends a client, and frees its handle. NULL is ignored. It waits for the client's jobs: after KVS_OK, the
/// library touches no memory and no outcomes of theirs, and calls no callback. Completions that were not
/// drained are dropped; a callback has had all of them.
///
/// timeout_ms: how long to wait. 0 does not wait, a negative number waits without limit. A disk that hangs
/// keeps the memory of its transfers; the deadline of a batch ends only transfers that have not begun.
/// Returns KVS_OK; KVS_TIMEOUT: the handle is still good, for a later call of kvs_client_free, and of
/// kvs_drain. No other call may use it at the same time, or after KVS_OK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvs_client_free(client: *mut kvs_client, timeout_ms: i32) -> kvs_status {
    edge(|| {
        if client.is_null() {
            return Ok(());
        }
        // SAFETY: C1.
        let handle = unsafe { self::client(client) }?;
        let limit = Limit::of(timeout_ms);
        let is_over = match &handle.callbacks {
            Some(callbacks) if callbacks.thread() == thread::current().id() => {
                let message = "client: this is the thread of its callback; free it from another thread";
                return Err(Failure::invalid(message));
            }
            Some(callbacks) => Ok(callbacks.end(&handle.shared, limit)),
            None => handle.shared.wait_until_returned(limit),
        };
        if !is_over.map_err(|error| Failure::system("cannot poll", &error))? {
            let message = format!("timeout_ms: {timeout_ms}; jobs of the client are under way: call again");
            return Err(Failure::new(KVS_TIMEOUT, message));
        }
        // SAFETY: C1: kvs_client_open made it of a box, and this call is the last one.
        let handle = unsafe { Box::from_raw(client) };
        if let Some(callbacks) = handle.callbacks {
            callbacks.join();
        }
        Ok(())
    })
}
