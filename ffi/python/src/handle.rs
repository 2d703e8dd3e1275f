//! `kvstrata.Store`: the calls.

use super::buffers::{Access, lend};
use super::completion::{Completion, tier_name};
use super::errors::{OpenError, of_refusal, refused};
use super::fields::object;
use super::shared::{Queue, Shared};
use super::waits::{after, duration, wait};
use super::{keys, settings};
use kvstrata::SequenceHash;
use kvstrata::backend::HostArena;
use kvstrata::store::{BatchOptions, Kind, KvStore, Namespace, Until};
use kvstrata_ffi::disk::Urgency;
use pyo3::exceptions::{PyRuntimeError, PyTimeoutError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::borrow::Cow;
use std::sync::Arc;

type Object<'a, 'py> = &'a Bound<'py, PyAny>;

/// KV blocks by key, in host memory and on disk.
///
/// settings: a dict of sections, or the text of a TOML file. Keyword arguments are settings too, by section
/// (store={"model": "m"}) or by name (store_model="m"), and stronger. environment: also read KVSTRATA_*
/// variables, which are weaker. Sizes are bytes, or text with K, M, G or T (powers of 1024). Needed are
/// disk.bytes or host.bytes, and store.model, revision, dtype, layout, span and ranks: keys of another
/// fingerprint are not found. Raises OpenError.
///
///     with kvstrata.Store(disk_bytes="1G", disk_paths=["/data/kv"], store={...}) as store:
///         job = store.submit_store([b"a", b"b"], [buffer_a, buffer_b])
///         select.select([store.event_fd()], [], [])
///         for completion in store.drain():
///             assert completion.job == job and completion.ok
///
/// A buffer is any C-contiguous object with the buffer protocol, a tensor in host memory, or a tuple
/// (address, bytes): one for each key, of the length of its bytes. Or pass one view of several dimensions:
/// row i, or row rows[i], is the memory of key i. The store holds buffers until the completion. Until then do
/// not change those of a store, and do not touch those of a load.
///
/// Each method can be called from any thread. It raises ForkedError in a forked child, and ClosedError after
/// close, except for close and drain.
#[pyclass(frozen, subclass, weakref, module = "kvstrata")]
pub(crate) struct Store {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    fingerprint: Arc<[(&'static str, Option<String>)]>,
}

/// A namespace of the store, of an adapter and of a tenant.
struct Names<'s> {
    lora: Option<&'s str>,
    salt: Option<&'s str>,
}

impl Store {
    fn enter(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.enter(py)
    }

    fn names(&self, of: &Names<'_>) -> Cow<'_, Namespace> {
        let base = &self.shared.namespace;
        match (of.lora, of.salt) {
            (None, None) => Cow::Borrowed(base),
            (Some(lora), None) => Cow::Owned(base.with_lora(lora)),
            (None, Some(salt)) => Cow::Owned(base.with_salt(salt)),
            (Some(lora), Some(salt)) => Cow::Owned(base.with_lora(lora).with_salt(salt)),
        }
    }

    fn keys(&self, keys: Object<'_, '_>, names: &Names<'_>) -> PyResult<Vec<SequenceHash>> {
        keys::of(&self.names(names), keys)
    }

    /// Reads the arguments of a batch.
    fn batch(&self, call: &Call<'_, '_>) -> PyResult<(Vec<SequenceHash>, Option<Arc<HostArena>>)> {
        let hashes = self.keys(call.keys, &call.names)?;
        if hashes.is_empty() {
            return Err(refused("keys: none; give at least one key"));
        }
        let Some(buffers) = call.buffers else { return Ok((hashes, None)) };
        let access = if call.kind == Kind::Store { Access::Read } else { Access::Write };
        let memory = lend(buffers, call.rows, hashes.len(), access, &self.shared.ended)?;
        Ok((hashes, Some(memory)))
    }

    fn submit(&self, py: Python<'_>, call: &Call<'_, '_>) -> PyResult<u64> {
        self.enter(py)?;
        // Refused before the buffers are read.
        self.shared.with(|_| ())?;
        let (hashes, memory) = self.batch(call)?;
        let options = call.options;
        let begun = self.queue.with(|client| match (call.kind, memory) {
            (Kind::Store, Some(memory)) => client.submit_store(&hashes, memory, options),
            (Kind::Load, Some(memory)) => client.submit_load(&hashes, memory, options),
            _ => client.submit_forget(&hashes),
        });
        begun?.map(|job| job.0).map_err(of_refusal)
    }

    fn blocking(&self, py: Python<'_>, call: &Call<'_, '_>, timeout: Option<f64>) -> PyResult<Completion> {
        self.enter(py)?;
        let until = after("timeout", timeout)?;
        let store = self.shared.store()?;
        let (hashes, memory) = self.batch(call)?;
        let begun = match (call.kind, memory) {
            (Kind::Store, Some(memory)) => store.store(&hashes, memory, call.options),
            (Kind::Load, Some(memory)) => store.load(&hashes, memory, call.options),
            _ => store.forget(&hashes),
        };
        drop(store);
        let batch = begun.map_err(of_refusal)?;
        let job = batch.job().0;
        match wait(py, batch, until)? {
            None => Err(PyTimeoutError::new_err(format!(
                "timeout = {} s: job {job} has not ended; it goes on, and its buffers stay held until it ends",
                timeout.unwrap_or_default()
            ))),
            Some(None) => {
                Err(PyRuntimeError::new_err("the store ended without an answer; report this as a bug"))
            }
            Some(Some(ended)) => {
                let completion = Completion::of(ended);
                self.shared.ended.release(py);
                Ok(completion)
            }
        }
    }

    fn another(&self) -> PyResult<Store> {
        Ok(Store {
            shared: Arc::clone(&self.shared),
            queue: self.shared.queue()?,
            fingerprint: Arc::clone(&self.fingerprint),
        })
    }
}

/// The arguments of a batch.
struct Call<'a, 'py> {
    kind: Kind,
    keys: Object<'a, 'py>,
    buffers: Option<Object<'a, 'py>>,
    rows: Option<Object<'a, 'py>>,
    names: Names<'a>,
    options: BatchOptions,
}

fn options(until: Option<&str>, urgency: Option<&str>, deadline: Option<f64>) -> PyResult<BatchOptions> {
    let mut options = BatchOptions::default();
    match until {
        None | Some("disk") => {}
        Some("host") => options = options.until(Until::Host),
        Some(other) => return Err(refused(format!("until = {other:?}: pass \"disk\" or \"host\""))),
    }
    match urgency {
        None | Some("ordinary") => {}
        Some("urgent") => options = options.urgency(Urgency::Urgent),
        Some(other) => return Err(refused(format!("urgency = {other:?}: pass \"ordinary\" or \"urgent\""))),
    }
    Ok(match duration("deadline", deadline)? {
        Some(within) => options.within(within),
        None => options,
    })
}

#[pymethods]
impl Store {
    #[new]
    #[pyo3(signature = (settings=None, *, environment=false, **arguments))]
    fn new(
        py: Python<'_>,
        settings: Option<Object<'_, '_>>,
        environment: bool,
        arguments: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Store> {
        super::loans::sweep(py);
        let config = settings::read(settings, arguments, environment)?;
        let of = config.store.clone();
        let salt = of.salt.map(|_| "given".to_owned());
        let span = of.span.map(|span| span.to_string());
        let fingerprint = [
            ("model", of.model),
            ("revision", of.revision),
            ("dtype", of.dtype),
            ("layout", of.layout),
            ("span", span),
            ("ranks", of.ranks),
            ("lora", of.lora),
            ("salt", salt),
        ];
        let store = py.detach(|| KvStore::open(&config));
        let store = store.map_err(|error| OpenError::new_err(error.to_string()))?;
        let shared = Shared::new(store);
        let queue = shared.queue()?;
        Ok(Store { shared, queue, fingerprint: Arc::new(fingerprint) })
    }

    /// Another handle of the same store, with a queue and a descriptor of its own.
    fn handle(&self, py: Python<'_>) -> PyResult<Store> {
        self.enter(py)?;
        self.another()
    }

    /// Whether each key can be loaded now: a list of bool. No I/O and no lock. lora, salt: instead of
    /// those of the settings, in all calls.
    #[pyo3(signature = (keys, *, lora=None, salt=None))]
    fn contains(
        &self,
        py: Python<'_>,
        keys: Object<'_, '_>,
        lora: Option<&str>,
        salt: Option<&str>,
    ) -> PyResult<Vec<bool>> {
        self.enter(py)?;
        let keys = self.keys(keys, &Names { lora, salt })?;
        self.shared.with(|store| keys.iter().map(|key| store.contains(*key)).collect())
    }

    /// The number of leading keys that can be loaded now.
    #[pyo3(signature = (keys, *, lora=None, salt=None))]
    fn leading(
        &self,
        py: Python<'_>,
        keys: Object<'_, '_>,
        lora: Option<&str>,
        salt: Option<&str>,
    ) -> PyResult<usize> {
        self.enter(py)?;
        let keys = self.keys(keys, &Names { lora, salt })?;
        self.shared.with(|store| store.leading(&keys))
    }

    /// The tier and the length of each key: ("host" or "disk", bytes), or None.
    #[pyo3(signature = (keys, *, lora=None, salt=None))]
    fn find(
        &self,
        py: Python<'_>,
        keys: Object<'_, '_>,
        lora: Option<&str>,
        salt: Option<&str>,
    ) -> PyResult<Vec<Option<(&'static str, usize)>>> {
        self.enter(py)?;
        let keys = self.keys(keys, &Names { lora, salt })?;
        let found = |store: &KvStore, key: &SequenceHash| {
            store.find(*key).map(|found| (tier_name(found.tier), found.bytes))
        };
        self.shared.with(|store| keys.iter().map(|key| found(store, key)).collect())
    }

    /// Begins to store buffer i under key i. Returns the job's number, which its completion has.
    ///
    /// until: "disk" (default) or "host": the tier that has the bytes when the store is answered. deadline:
    /// seconds after which a key that waits is answered as LATE. Raises SubmitError, and BusyError while too
    /// many batches are under way: nothing has begun then.
    #[pyo3(signature = (keys, buffers, *, rows=None, lora=None, salt=None, until=None, deadline=None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn submit_store(
        &self,
        py: Python<'_>,
        keys: Object<'_, '_>,
        buffers: Object<'_, '_>,
        rows: Option<Object<'_, '_>>,
        lora: Option<&str>,
        salt: Option<&str>,
        until: Option<&str>,
        deadline: Option<f64>,
    ) -> PyResult<u64> {
        let options = options(until, None, deadline)?;
        let names = Names { lora, salt };
        self.submit(py, &Call { kind: Kind::Store, keys, buffers: Some(buffers), rows, names, options })
    }

    /// Begins to load key i into buffer i, which is as long as its bytes. Returns the job's number.
    ///
    /// urgency: "ordinary" (default) or "urgent". The buffer of a key that was not loaded may have been
    /// overwritten. Otherwise as `submit_store`.
    #[pyo3(signature = (keys, buffers, *, rows=None, lora=None, salt=None, urgency=None, deadline=None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn submit_load(
        &self,
        py: Python<'_>,
        keys: Object<'_, '_>,
        buffers: Object<'_, '_>,
        rows: Option<Object<'_, '_>>,
        lora: Option<&str>,
        salt: Option<&str>,
        urgency: Option<&str>,
        deadline: Option<f64>,
    ) -> PyResult<u64> {
        let options = options(None, urgency, deadline)?;
        let names = Names { lora, salt };
        self.submit(py, &Call { kind: Kind::Load, keys, buffers: Some(buffers), rows, names, options })
    }

    /// Begins to forget keys. Returns the job's number.
    #[pyo3(signature = (keys, *, lora=None, salt=None))]
    fn submit_forget(
        &self,
        py: Python<'_>,
        keys: Object<'_, '_>,
        lora: Option<&str>,
        salt: Option<&str>,
    ) -> PyResult<u64> {
        let (names, options) = (Names { lora, salt }, BatchOptions::default());
        self.submit(py, &Call { kind: Kind::Forget, keys, buffers: None, rows: None, names, options })
    }

    /// Stores buffer i under key i, and waits for the answers without the GIL. Returns a Completion.
    ///
    /// timeout: seconds to wait; then TimeoutError: the batch goes on, and holds its buffers until its end.
    #[pyo3(signature = (keys, buffers, timeout=None, *, rows=None, lora=None, salt=None, until=None, deadline=None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn store(
        &self,
        py: Python<'_>,
        keys: Object<'_, '_>,
        buffers: Object<'_, '_>,
        timeout: Option<f64>,
        rows: Option<Object<'_, '_>>,
        lora: Option<&str>,
        salt: Option<&str>,
        until: Option<&str>,
        deadline: Option<f64>,
    ) -> PyResult<Completion> {
        let options = options(until, None, deadline)?;
        let names = Names { lora, salt };
        self.blocking(
            py,
            &Call { kind: Kind::Store, keys, buffers: Some(buffers), rows, names, options },
            timeout,
        )
    }

    /// Loads key i into buffer i, and waits for the answers without the GIL. Returns a Completion. timeout:
    /// as of `store`.
    #[pyo3(signature = (keys, buffers, timeout=None, *, rows=None, lora=None, salt=None, urgency=None, deadline=None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn load(
        &self,
        py: Python<'_>,
        keys: Object<'_, '_>,
        buffers: Object<'_, '_>,
        timeout: Option<f64>,
        rows: Option<Object<'_, '_>>,
        lora: Option<&str>,
        salt: Option<&str>,
        urgency: Option<&str>,
        deadline: Option<f64>,
    ) -> PyResult<Completion> {
        let options = options(None, urgency, deadline)?;
        let names = Names { lora, salt };
        self.blocking(
            py,
            &Call { kind: Kind::Load, keys, buffers: Some(buffers), rows, names, options },
            timeout,
        )
    }

    /// Forgets keys, and waits for the answers.
    #[pyo3(signature = (keys, timeout=None, *, lora=None, salt=None))]
    fn forget(
        &self,
        py: Python<'_>,
        keys: Object<'_, '_>,
        timeout: Option<f64>,
        lora: Option<&str>,
        salt: Option<&str>,
    ) -> PyResult<Completion> {
        let (names, options) = (Names { lora, salt }, BatchOptions::default());
        self.blocking(
            py,
            &Call { kind: Kind::Forget, keys, buffers: None, rows: None, names, options },
            timeout,
        )
    }

    /// The completions of this handle's batches that have ended since the last call, in the order of their
    /// ends. Makes the descriptor unreadable.
    fn drain<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.enter(py)?;
        let ended = PyList::new(py, self.queue.drain().into_iter().map(Completion::of).map(Drained))?;
        self.shared.ended.release(py);
        Ok(ended)
    }

    /// The descriptor that is readable while `drain` has something to return.
    fn event_fd(&self, py: Python<'_>) -> PyResult<i32> {
        self.enter(py)?;
        self.queue.with(|client| client.descriptor())
    }

    /// Figures since the store was opened.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.enter(py)?;
        let stats = self.shared.with(|store| store.stats())?;
        let value =
            serde_json::to_value(&stats).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        object(py, &value)
    }

    /// The figures as Prometheus text.
    fn metrics(&self, py: Python<'_>) -> PyResult<String> {
        self.enter(py)?;
        self.shared.with(|store| store.metrics_text())
    }

    /// The address at which the figures are served (setting `metrics.listen`), or None.
    #[getter]
    fn metrics_address(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.enter(py)?;
        self.shared.with(|store| store.metrics_address().map(|address| address.to_string()))
    }

    /// The parts of the fingerprint, by name. The salt is shown only as "given".
    #[getter]
    fn namespace<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let parts = PyDict::new(py);
        self.fingerprint.iter().try_for_each(|(name, part)| parts.set_item(name, part))?;
        Ok(parts)
    }

    /// The sizes of blocks in bytes, from small to large.
    #[getter]
    fn sizes(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        self.enter(py)?;
        self.shared.with(|store| store.block_sizes().collect())
    }

    /// Whether the store is closed, or closing.
    #[getter]
    fn is_closed(&self, py: Python<'_>) -> PyResult<bool> {
        self.enter(py)?;
        Ok(self.shared.with(|_| ()).is_err())
    }

    /// Closes the store of all handles: transfers that have not begun are answered, and the disk is marked as
    /// closed in order. Returns whether that ended within the timeout (seconds; default: deadline.shutdown).
    ///
    /// A second call, also of another thread, waits for the first. In a forked child it does nothing. Nothing
    /// depends on it: after a kill the next start finds the same keys.
    #[pyo3(signature = (timeout=None))]
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        if !self.shared.is_here() {
            return Ok(false);
        }
        let until = match timeout {
            None => std::time::Instant::now().checked_add(self.shared.within),
            given => after("timeout", given)?,
        };
        self.shared.close(py, until)
    }

    fn __enter__(slf: Py<Store>, py: Python<'_>) -> PyResult<Py<Store>> {
        let store = slf.get();
        store.enter(py)?;
        store.shared.with(|_| ())?;
        Ok(slf)
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: Object<'_, '_>,
        _value: Object<'_, '_>,
        _trace: Object<'_, '_>,
    ) -> PyResult<bool> {
        self.close(py, None)?;
        Ok(false)
    }

    fn __repr__(&self) -> String {
        let state = match (self.shared.is_here(), self.shared.is_here() && self.shared.with(|_| ()).is_ok()) {
            (false, _) => "of another process",
            (true, true) => "open",
            (true, false) => "closed",
        };
        let model = self.fingerprint[0].1.as_deref().unwrap_or_default();
        format!("<kvstrata.Store {state}, model={model:?}>")
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(pyo3::exceptions::PyTypeError::new_err(
            "a kvstrata.Store stays in its process; open one where it is used",
        ))
    }
}

/// A completion on its way into a list.
struct Drained(Completion);

impl<'py> IntoPyObject<'py> for Drained {
    type Target = Completion;
    type Output = Bound<'py, Completion>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, Completion>> {
        Bound::new(py, self.0)
    }
}
