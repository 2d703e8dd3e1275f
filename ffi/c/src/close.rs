//! Closing and freeing a store.

use crate::bell::Limit;
use crate::edge::edge;
use crate::status::kvs_status::KVS_TIMEOUT;
use crate::status::{Failure, kvs_status};
use crate::store::kvs_store;

/// Closes a store: later calls answer KVS_CLOSED, batches that have not begun to move bytes are answered as
/// misses, those that move bytes end, and the volumes get the mark of a clean end. Drain the clients as
/// before: each job still has its completion.
///
/// timeout_ms: how long to wait. 0 does not wait, a negative number waits without limit.
/// Returns KVS_OK if the store is closed; KVS_TIMEOUT if that takes longer: it goes on, and a later call
/// waits for it again. It may be called any number of times, by any threads. Nothing depends on it: after a
/// process that was killed, the next start finds the blocks that the disk has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvs_close(store: *mut kvs_store, timeout_ms: i32) -> kvs_status {
    edge(|| {
        // SAFETY: C1.
        let shared = unsafe { crate::store::store(store) }?;
        match shared.close(Limit::of(timeout_ms)) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let message = format!("timeout_ms: {timeout_ms}; the store is closing still: call again");
                Err(Failure::new(KVS_TIMEOUT, message))
            }
            Err(error) => Err(Failure::system("cannot start the thread that closes the store", &error)),
        }
    })
}

/// Frees a store's handle. NULL is ignored. The store itself ends when its clients have been freed as well.
/// For an orderly end call kvs_close first; without it, the volumes are recovered at the next start.
///
/// No other call may use the handle at the same time, or afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvs_store_free(store: *mut kvs_store) -> kvs_status {
    edge(|| {
        if store.is_null() {
            return Ok(());
        }
        // SAFETY: C1.
        unsafe { crate::store::store(store) }?;
        // SAFETY: C1: kvs_open made it of a box, and this call is the last one.
        drop(unsafe { Box::from_raw(store) });
        Ok(())
    })
}
