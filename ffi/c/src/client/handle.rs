//! The handle of a client.

use crate::client::callbacks::{Callbacks, kvs_callback};
use crate::client::shared::Shared;
use crate::edge::{check_here, edge};
use crate::sized::{SizeFirst, read};
use crate::status::{Failure, kvs_status};
use crate::store::{kvs_store, store};
use crate::text::check_out;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

/// A client: submits batches, and gets their completions, which no other client gets. Any number of threads
/// may use one client at once. kvs_client_open makes it, kvs_client_free ends it.
pub struct kvs_client {
    pub(super) shared: Arc<Shared>,
    pub(super) callbacks: Option<Callbacks>,
}

/// Options of kvs_client_open. Zero the struct, then set the size and the other fields.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct kvs_client_options {
    /// sizeof(kvs_client_options).
    pub size: u32,
    /// 0.
    pub reserved: u32,
    /// Is called for each completion, on a thread of the client's own. NULL: the caller drains.
    pub callback: kvs_callback,
    /// The callback's first argument.
    pub context: *mut c_void,
}

// SAFETY: two numbers in the first unit, and 0 is the second one's default; then a pointer a unit, and NULL
// is `None` and the default.
unsafe impl SizeFirst for kvs_client_options {
    const NAME: &'static str = "kvs_client_options";
}

/// Returns the client behind a handle of this process.
///
/// # Safety
/// C1.
pub(super) unsafe fn client<'a>(client: *const kvs_client) -> Result<&'a kvs_client, Failure> {
    // SAFETY: C1.
    let client = unsafe { client.as_ref() };
    let client =
        client.ok_or_else(|| Failure::invalid("client: NULL; give a client that kvs_client_open made"))?;
    check_here(client.shared.origin, "client")?;
    Ok(client)
}

/// Returns the client of a caller that drains.
///
/// # Safety
/// C1.
pub(super) unsafe fn polled<'a>(client: *const kvs_client) -> Result<&'a Shared, Failure> {
    // SAFETY: C1.
    let client = unsafe { self::client(client) }?;
    if client.callbacks.is_some() {
        let message = "client: it has a callback, which gets the completions; open one without a callback";
        return Err(Failure::invalid(message));
    }
    Ok(&client.shared)
}

/// Makes a client of a store.
///
/// options: NULL: the caller drains.
/// client: receives the handle, or NULL.
/// Returns KVS_OK, KVS_INVALID, KVS_CLOSED, KVS_SYSTEM or KVS_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvs_client_open(
    store: *const kvs_store,
    options: *const kvs_client_options,
    client: *mut *mut kvs_client,
) -> kvs_status {
    edge(|| {
        check_out("client", client)?;
        // SAFETY: C2.
        unsafe { client.write(ptr::null_mut()) };
        // SAFETY: C1.
        let store = unsafe { self::store(store) }?;
        store.check_open()?;
        // SAFETY: C2.
        let options = unsafe { read("options", options) }?;
        if options.reserved != 0 {
            return Err(Failure::invalid(format!("options->reserved: {}; set it to 0", options.reserved)));
        }
        let made = Shared::new(store).map_err(|error| Failure::system("cannot make an eventfd", &error))?;
        let shared = Arc::new(made);
        let callbacks = options.callback.map(|function| Callbacks::start(&shared, function, options.context));
        let callbacks = callbacks.transpose();
        let callbacks = callbacks.map_err(|error| Failure::system("cannot start kvstrata-calls", &error))?;
        // SAFETY: C2.
        unsafe { client.write(Box::into_raw(Box::new(kvs_client { shared, callbacks }))) };
        Ok(())
    })
}
