//! Submitting batches.

use crate::client::book::{Outcomes, Pending};
use crate::client::handle::{client, kvs_client};
use crate::client::loan::Loan;
use crate::client::shared::Shared;
use crate::edge::edge;
use crate::keys::{entries, hashes, kvs_entry, kvs_key};
use crate::options::kvs_batch_options;
use crate::outcome::kvs_outcome;
use crate::sized::read;
use crate::status::kvs_status::{KVS_BUSY, KVS_FORKED};
use crate::status::{Failure, kvs_status};
use crate::text::{check_array, check_out};
use kvstrata::SequenceHash;
use kvstrata::backend::{HostArena, Span};
use kvstrata::store::{JobId, Kind, SubmitError};
use std::sync::Arc;

/// Where the answers of a call go.
#[derive(Clone, Copy)]
struct To {
    outcomes: *mut kvs_outcome,
    job: *mut u64,
}

/// Begins to store entries: the bytes of each under its key. A key stands for bytes that never change: a key
/// that is there is answered with KVS_PRESENT, and nothing is written.
///
/// entries, count: the entries, at least one. The array and the keys are copied; the memory of the entries is
/// lent: no thread may write it until the job's completion has been reported.
/// options: NULL: the defaults.
/// outcomes: an array of count, or NULL. It is the library's until the job's completion has been reported,
/// and filled by then.
/// job: receives the number of the job, before any thread can drain it; may be NULL.
/// Returns KVS_OK; KVS_BUSY, KVS_CLOSED, KVS_INVALID or KVS_FORKED: nothing has begun, and everything is the
/// caller's; KVS_PANIC. It waits for no I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvs_submit_store(
    client: *mut kvs_client,
    entries: *const kvs_entry,
    count: usize,
    options: *const kvs_batch_options,
    outcomes: *mut kvs_outcome,
    job: *mut u64,
) -> kvs_status {
    // SAFETY: C1 to C4.
    edge(|| unsafe { submit_entries(client, Kind::Store, entries, count, options, To { outcomes, job }) })
}

/// Begins to load entries: the bytes of each key into its memory, which is as long as they are. Keys with
/// another length are answered with KVS_MISS_LENGTH: kvs_find knows the length.
///
/// entries, count: the entries, at least one. The array and the keys are copied; the memory of the entries is
/// lent: no thread may touch it until the job's completion has been reported, and no two entries share any.
/// The rest is as in kvs_submit_store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvs_submit_load(
    client: *mut kvs_client,
    entries: *const kvs_entry,
    count: usize,
    options: *const kvs_batch_options,
    outcomes: *mut kvs_outcome,
    job: *mut u64,
) -> kvs_status {
    // SAFETY: C1 to C4.
    edge(|| unsafe { submit_entries(client, Kind::Load, entries, count, options, To { outcomes, job }) })
}

/// Begins to forget keys: from the completion on, no lookup finds them until they are stored again. A crash
/// soon afterwards may bring keys back; an orderly end does not.
///
/// keys, count: the keys, at least one. They are copied.
/// options: lora, salt and user_data are read; NULL: the defaults.
/// outcomes, job: as in kvs_submit_store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvs_submit_forget(
    client: *mut kvs_client,
    keys: *const kvs_key,
    count: usize,
    options: *const kvs_batch_options,
    outcomes: *mut kvs_outcome,
    job: *mut u64,
) -> kvs_status {
    edge(|| {
        // SAFETY: C1.
        let shared = unsafe { client_to_submit(client, "keys", count, To { outcomes, job }) }?;
        // SAFETY: C2.
        let options = unsafe { read("options", options) }?;
        // SAFETY: C3.
        let namespace = unsafe { options.namespace(&shared.store) }?;
        // SAFETY: C2.
        let hashes = unsafe { hashes(&namespace, keys, count) }?.collect::<Result<Vec<_>, _>>()?;
        let submit = Submit::begin(shared, None);
        let begun = shared.client.submit_forget(&hashes);
        // SAFETY: C2.
        unsafe { submit.end(begun, options.user_data, To { outcomes, job }) }
    })
}

/// # Safety
/// C1 to C4.
unsafe fn submit_entries(
    client: *mut kvs_client,
    kind: Kind,
    entries: *const kvs_entry,
    count: usize,
    options: *const kvs_batch_options,
    to: To,
) -> Result<(), Failure> {
    // SAFETY: C1.
    let shared = unsafe { client_to_submit(client, "entries", count, to) }?;
    // SAFETY: C2.
    let options = unsafe { read("options", options) }?;
    let batch = options.batch()?;
    // SAFETY: C3.
    let namespace = unsafe { options.namespace(&shared.store) }?;
    // SAFETY: C2.
    let (keys, spans) = unsafe { self::entries(&namespace, entries, count) }?;
    let (loan, owner) = Loan::begin(&shared.bell);
    // SAFETY: C4: the spans are valid, and no thread of the caller writes those of a store or touches those
    // of a load, until the completion is reported. That happens only after the owner's drop (I2 of the book).
    let memory = unsafe { lend(spans, owner) }?;
    let submit = Submit::begin(shared, Some(loan));
    let begun = begin(shared, kind, &keys, memory, batch);
    #[cfg(test)]
    crate::edge::panics::perhaps("submitted");
    // SAFETY: C2.
    unsafe { submit.end(begun, options.user_data, to) }
}

fn begin(
    shared: &Shared,
    kind: Kind,
    keys: &[SequenceHash],
    memory: Arc<HostArena>,
    options: kvstrata::store::BatchOptions,
) -> Result<JobId, SubmitError> {
    match kind {
        Kind::Load => shared.client.submit_load(keys, memory, options),
        _ => shared.client.submit_store(keys, memory, options),
    }
}

/// A submit under way. If it panics, its drop keeps the loan, so that the client's end waits for it.
struct Submit<'s> {
    shared: &'s Shared,
    loan: Option<Arc<Loan>>,
    is_over: bool,
}

impl Submit<'_> {
    fn begin(shared: &Shared, loan: Option<Arc<Loan>>) -> Submit<'_> {
        shared.book().begin();
        Submit { shared, loan, is_over: false }
    }

    /// Enters the job, if one has begun.
    ///
    /// # Safety
    /// C2, for the number of the job.
    unsafe fn end(
        mut self,
        begun: Result<JobId, SubmitError>,
        user_data: u64,
        to: To,
    ) -> Result<(), Failure> {
        let mut book = self.shared.book();
        self.is_over = true;
        let JobId(job) = begun.map_err(|error| {
            book.refuse();
            let status = match error {
                SubmitError::Busy { .. } => KVS_BUSY,
                SubmitError::Forked => KVS_FORKED,
                SubmitError::Closed => kvs_status::KVS_CLOSED,
                _ => kvs_status::KVS_INVALID,
            };
            Failure::new(status, error.to_string())
        })?;
        if !to.job.is_null() {
            // SAFETY: C2. Before the job is entered, so before any thread can drain it.
            unsafe { to.job.write(job) };
        }
        let loan = self.loan.take();
        if book.enter(job, Pending { user_data, outcomes: Outcomes(to.outcomes), loan }) {
            self.shared.bell.ring();
        }
        Ok(())
    }
}

impl Drop for Submit<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.shared.book().lose(self.loan.take());
        }
    }
}

/// # Safety
/// As of `HostArena::lent`.
unsafe fn lend(spans: Vec<Span>, owner: super::loan::Owner) -> Result<Arc<HostArena>, Failure> {
    // SAFETY: as this function's.
    let memory = unsafe { HostArena::lent(spans, Box::new(owner)) };
    memory.map_err(|error| Failure::invalid(format!("entries: {error}")))
}

/// Returns the client of a call, once all that can be checked without its entries is in order.
///
/// # Safety
/// C1.
unsafe fn client_to_submit<'a>(
    client: *mut kvs_client,
    array_name: &str,
    count: usize,
    to: To,
) -> Result<&'a Arc<Shared>, Failure> {
    // SAFETY: C1.
    let handle = unsafe { self::client(client) }?;
    if count == 0 {
        return Err(Failure::invalid(format!("count: 0; give at least one of {array_name}")));
    }
    if !to.outcomes.is_null() {
        check_array("outcomes", to.outcomes, count)?;
    }
    if !to.job.is_null() {
        check_out("job", to.job)?;
    }
    handle.shared.store.check_open()?;
    Ok(&handle.shared)
}
