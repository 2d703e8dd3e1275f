"""A storage backend for SGLang's hierarchical cache (HiCache): pages of KV on disk, that outlive the engine.

    --enable-hierarchical-cache --hicache-mem-layout page_first_direct --hicache-io-backend direct
    --hicache-storage-backend dynamic
    --hicache-storage-backend-extra-config '{
        "backend_name": "kvstrata", "module_path": "kvstrata.sglang", "class_name": "KvstrataHiCache",
        "interface_v1": 1, "path": "/data/kv", "capacity": "500GiB"}'

Each pool of the host memory (KV, and the side pools of hybrid models) has a store of its own, with the pool's layout in
its fingerprint (`_sglang_pool`). Processes of one machine whose bytes are equal share a store (`_shared`).

docs/sglang.md says how to size it, what is tested, and what to do when it does not work.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from sglang.srt.mem_cache.hicache_storage import (
    HiCacheStorage,
    HiCacheStorageConfig,
    HiCacheStorageExtraInfo,
    PoolHitPolicy,
    PoolName,
    PoolTransfer,
    PoolTransferResult,
)
from sglang.version import __version__ as _sglang_version

from . import OpenError, Store
from ._engines import Epoch, bytes_of, paths_of, revision_of, warn_unknown
from ._sglang_pool import HostPool
from ._shared import SharedStore

__all__ = ["KvstrataHiCache"]

_log = logging.getLogger("sglang.kvstrata")

# The keys of the extra configuration that are ours, and those that SGLang reads.
_OURS = {
    "path", "capacity", "capacities", "model", "revision", "salt", "on_reset", "straight", "host", "deadline",
    "settings",
}  # fmt: skip
_SGLANGS = {
    "backend_name", "module_path", "class_name", "interface_v1", "tp_lcm_size", "prefetch_threshold",
    "prefetch_timeout_base", "prefetch_timeout_per_ki_token", "hicache_storage_pass_prefix_keys",
}  # fmt: skip

# Seconds until a store that could not be opened is tried again.
_PAUSE = 30.0


class KvstrataHiCache(HiCacheStorage):  # type: ignore[misc]
    """A backend for `--hicache-storage-backend dynamic`. The extra configuration has:

    path: a folder, or a list of folders on several drives; it is made if need be. None: a temporary file, for a trial.
    capacity: bytes of the disk for each rank, such as "500GiB"; it is never exceeded. All pools share it.
    capacities: bytes for pools by name, such as {"mamba": "50GiB"}, instead of the share that they would get.
    model: the model's name or folder; default: the name under which SGLang serves it.
    revision: of the weights; default: told from the model's folder or from the local cache of the hub. If it cannot
        be told, the backend does not start without it.
    salt: a further part of the fingerprint. SGLang's keys contain the LoRA adapter and each request's cache salt.
    on_reset: what `clear` does: "forget" (default) all pages, or "keep" them.
    straight: False: all bytes pass through staging memory of the store, so that a drive that hangs cannot hold a
        thread beyond `deadline`, at the cost of a copy.
    host: bytes of a host tier of the store's own; default: none, since HiCache has one.
    deadline: seconds after which a key that waits is answered as a miss; default: 30.
    settings: other settings of the store, as a dict of sections.

    Unknown keys are ignored with a warning.

    Each method can be called from any thread. A miss is an answer, never an exception.
    """

    def __init__(self, storage_config: HiCacheStorageConfig, kwargs: dict[str, Any] | None = None, **_: Any) -> None:
        given: dict[str, Any] = dict(storage_config.extra_config or {})
        ignored = {name: value for name, value in given.items() if name not in _OURS | _SGLANGS}
        warn_unknown(_log, "KvstrataHiCache", {**ignored, **(kwargs or {})})
        self._config, self._given = storage_config, given
        self._on_reset = given.get("on_reset", "forget")
        if self._on_reset not in ("forget", "keep"):
            raise OpenError(f"on_reset: {self._on_reset!r}; choose forget or keep")
        if given.get("capacity") is None:
            raise OpenError('capacity: none; give the bytes of the disk for each rank, such as "500GiB"')
        if not isinstance(given.get("settings") or {}, dict):
            raise OpenError("settings: give a dict of sections, such as {\"disk\": {\"trim\": true}}")
        self._deadline = float(given.get("deadline", 30.0))
        self._paths = paths_of(given.get("path"))
        for path in self._paths:
            if Path(path).exists() and not Path(path).is_dir():
                raise OpenError(f"path: {path!r} is a file; give a folder, since each rank and pool has files of its own")
        self._model = given.get("model") or storage_config.model_name or "unnamed"
        self._revision = given.get("revision") or revision_of(self._model)
        if self._revision is None:
            raise OpenError(
                f"revision: cannot be told for the model {self._model!r}; set it in the extra configuration, to another "
                "value each time that the weights change, or set model to the folder of the weights"
            )
        self._lock = threading.RLock()
        self._pools: dict[str, HostPool] = {}
        self._is_open = self._is_closed = False
        self._retry_at = 0.0
        self._metrics = _Metrics()
        self.registered_pools: dict[Any, Any] = {}

    # Pools

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        """The pool of KV."""
        super().register_mem_pool_host(mem_pool_host)
        self._register(PoolName.KV.value, mem_pool_host)

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        """A pool by name. KV's is known already."""
        super().register_mem_host_pool_v2(host_pool, host_pool_name)
        self._register(str(host_pool_name), host_pool)

    def _register(self, name: str, host: Any) -> None:
        with self._lock:
            known = self._pools.get(name)
            if known is not None and known.host is host:
                return
            # Without interface_v1 SGLang sends KV as flat pages alone.
            may_straight = name != PoolName.KV or bool(self._given.get("interface_v1", 0))
            pool = HostPool(name, host, may_straight)
            if known is not None and known.store is not None:
                # A new pool of the same form reads what the earlier one wrote.
                if known.describe() != pool.describe():
                    raise OpenError(f"the pool {name!r} is registered a second time, with another layout")
                pool.store = known.store
            self._pools[name] = pool
            if self._is_open and pool.store is None:
                self._open_late(pool)

    def on_host_pools_registered(self) -> None:
        """Checks what can be checked before the pools are complete: side pools may follow. Raises OpenError."""
        for path in self._paths:
            try:
                os.makedirs(path, exist_ok=True)
            except OSError as error:
                raise OpenError(f"path: {path}: {error.strerror}; give a folder that this user may write to") from None
        pool = self._pools.get(PoolName.KV.value)
        if pool is None or not pool.sizes:
            raise OpenError("the pool of KV gives neither addresses nor pages; choose another --hicache-mem-layout")
        for each, capacity in self._shares():
            if capacity < each.page_bytes:
                raise OpenError(
                    f"capacity: {capacity} bytes for the pool {each.name}, whose pages have {each.page_bytes} bytes; "
                    "give more"
                )
        # A trial of the settings, beside the path.
        self._store_of(pool, 2 * max(pool.sizes) * len(pool.sizes) + (4 << 20), []).close()
        _log.info("kvstrata: %s", json.dumps(self._fingerprint(pool)))

    def _opened(self, name: str) -> HostPool | None:
        """The pool with its store. The stores open at the first use: then all pools are known, and so their shares."""
        if not self._is_open:
            with self._lock:
                if self._may_open():
                    try:
                        for pool, capacity in self._shares():
                            if pool.store is None:
                                pool.store = self._share(pool, capacity)
                        self._is_open = True
                    except OpenError as error:
                        self._retry_at = time.monotonic() + _PAUSE
                        _log.error("nothing is stored or found: %s", error)
        pool_ = self._pools.get(name)
        return pool_ if pool_ is not None and pool_.store is not None else None

    def _may_open(self) -> bool:
        is_ready = PoolName.KV.value in self._pools and not self._is_closed
        return is_ready and not self._is_open and time.monotonic() >= self._retry_at

    def _shares(self) -> list[tuple[HostPool, int]]:
        """The bytes of each pool's store: in proportion to the pools' pages, in powers of two."""
        given = {name: _bytes(size, "capacities") for name, size in (self._given.get("capacities") or {}).items()}
        capacity = _bytes(self._given["capacity"], "capacity") - sum(given.values())
        pools = [pool for pool in self._pools.values() if pool.sizes]
        anchor = self._pools[PoolName.KV.value]
        # Powers of two: the number of pages follows from free memory, and a volume's size must not.
        weights = {
            pool.name: pool.page_bytes * 2.0 ** round(math.log2(max(pool.pages, 1) / max(anchor.pages, 1)))
            for pool in pools
            if pool.name not in given
        }
        total = sum(weights.values())
        return [(pool, given.get(pool.name) or int(capacity * weights[pool.name] / total)) for pool in pools]

    def _open_late(self, pool: HostPool) -> None:
        size = (self._given.get("capacities") or {}).get(pool.name)
        if size is None:
            _log.error("the pool %s comes after the first request: name it in capacities; it is not stored", pool.name)
            return
        pool.store = self._share(pool, _bytes(size, "capacities"))

    def _share(self, pool: HostPool, capacity: int) -> SharedStore:
        fingerprint = self._fingerprint(pool)
        identity = json.dumps({**fingerprint, "capacity": capacity}, sort_keys=True)
        digest = hashlib.sha256(json.dumps(fingerprint, sort_keys=True).encode()).hexdigest()[:12]
        folder = self._paths[0] if self._paths else None
        epoch_paths = [] if folder is None else [os.path.join(folder, f"sglang-{digest}")]
        return SharedStore(
            folder,
            f"sglang-{fingerprint['ranks']}-{'-'.join(map(str, sorted(set(pool.sizes))))}",
            lambda: self._store_of(pool, capacity, self._paths),
            identity,
            lambda: Epoch(epoch_paths, self._given.get("salt")),
            self._deadline,
            max(pool.sizes),
        )

    def _store_of(self, pool: HostPool, capacity: int, paths: Sequence[str]) -> Store:
        settings: dict[str, dict[str, Any]] = {
            name: dict(section) for name, section in (self._given.get("settings") or {}).items()
        }
        # A long first start would hold the engine's first request.
        settings.setdefault("disk", {}).setdefault("fill", "background")
        return Store(
            settings,
            store={
                **self._fingerprint(pool),
                "sizes": sorted(set(pool.sizes)),
                "salt": self._given.get("salt"),
                "straight": bool(self._given.get("straight", True)),
            },
            disk={"paths": list(paths), "bytes": capacity},
            host={"bytes": bytes_of(self._given.get("host"))},
            deadline={"onboard": f"{self._deadline * 1000:.0f}ms", "offload": f"{self._deadline * 1000:.0f}ms"},
        )

    def _fingerprint(self, pool: HostPool) -> dict[str, Any]:
        """All that decides which bytes a key stands for, besides the tokens, the adapter and the salt of a request,
        which SGLang's keys contain."""
        config = self._config
        # Replicated pools have the same bytes on each rank of the tensor-parallel group, whatever its size.
        is_replicated = config.is_mla_model and pool.name != PoolName.MAMBA and not pool.has_heads
        parts = [] if is_replicated else [f"tp{config.tp_rank}of{config.tp_size}"]
        for name in ("pp", "attn_cp", "dcp"):
            rank, size = getattr(config, f"{name}_rank", 0), getattr(config, f"{name}_size", 1)
            if size > 1:
                parts.append(f"{name.removeprefix('attn_')}{rank}of{size}")
        return {
            "model": self._model,
            "revision": self._revision,
            "dtype": str(getattr(pool.host, "dtype", None)),
            "layout": f"sglang {_sglang_version}; {pool.describe()}",
            "span": pool.page_tokens,
            "ranks": "-".join([pool.name.replace("_", "."), *(parts or ["all"])]),
        }

    # The interface of pages in place (v1)

    def batch_exists(self, keys: list[str], extra_info: HiCacheStorageExtraInfo | None = None) -> int:
        """The number of leading pages of KV that can be loaded now."""
        pool = self._opened(PoolName.KV.value)
        return pool.leading(keys) if pool is not None else 0

    def exists(self, key: str) -> bool:
        """Whether a page of KV can be loaded now."""
        return self.batch_exists([key]) == 1

    def batch_get_v1(
        self, keys: list[str], host_indices: torch.Tensor, extra_info: HiCacheStorageExtraInfo | None = None
    ) -> list[bool]:
        """Loads pages of KV into the pool. Each has its own answer."""
        return self._move(PoolName.KV.value, keys, host_indices, is_load=True)

    def batch_set_v1(
        self, keys: list[str], host_indices: torch.Tensor, extra_info: HiCacheStorageExtraInfo | None = None
    ) -> list[bool]:
        """Stores pages of KV from the pool. Pages that are there already count."""
        return self._move(PoolName.KV.value, keys, host_indices, is_load=False)

    # Pools by name (v2)

    def batch_exists_v2(
        self,
        keys: list[str],
        pool_transfers: list[PoolTransfer] | None = None,
        extra_info: HiCacheStorageExtraInfo | None = None,
    ) -> PoolTransferResult:
        """The prefixes that all pools can restore, by the policy of each: see `PoolHitPolicy`."""
        kv_pages = self.batch_exists(keys)
        hits: dict[str, int] = {PoolName.KV: kv_pages} if kv_pages else {}
        restorable = list(range(1, kv_pages + 1))
        for transfer in pool_transfers or []:
            pool = self._opened(str(transfer.name))
            if transfer.hit_policy == PoolHitPolicy.BLOCK_GROUPS:
                # Its own verdict; it never gates the others.
                boundary, legal = _leading_groups(pool, transfer), set(restorable)
            elif pool is None or not restorable:
                boundary, legal = 0, set()
            elif transfer.hit_policy == PoolHitPolicy.ALL_PAGES:
                boundary = pool.leading(keys[:kv_pages])
                legal = set(range(1, boundary + 1))
            elif transfer.hit_policy == PoolHitPolicy.TRAILING_PAGES:
                trailing = max(1, len(transfer.keys or []))
                legal = _trailing(pool.contains(keys[:kv_pages]), trailing)
                boundary = max(legal, default=0)
            else:
                raise ValueError(f"unknown hit policy {transfer.hit_policy!r} of the pool {transfer.name}")
            if boundary:
                hits[transfer.name] = boundary
            restorable = [length for length in restorable if length in legal]
        return PoolTransferResult(restorable[-1] if restorable else 0, hits, restorable)

    def batch_get_v2(
        self, transfers: list[PoolTransfer], extra_info: HiCacheStorageExtraInfo | None = None
    ) -> dict[str, list[bool]]:
        """Loads pages of pools."""
        return {
            each.name: self._move(str(each.name), each.keys or [], each.host_indices, is_load=True)
            for each in transfers
        }

    def batch_set_v2(
        self, transfers: list[PoolTransfer], extra_info: HiCacheStorageExtraInfo | None = None
    ) -> dict[str, list[bool]]:
        """Stores pages of pools."""
        return {
            each.name: self._move(str(each.name), each.keys or [], each.host_indices, is_load=False)
            for each in transfers
        }

    def _move(self, name: str, keys: Sequence[str], indices: Any, *, is_load: bool) -> list[bool]:
        pool = self._opened(name)
        if pool is None or not keys:
            return [False] * len(keys)
        if indices is None or len(indices) != len(keys) * pool.page_tokens:
            _log.error("%s: %d keys, but %d places", name, len(keys), 0 if indices is None else len(indices))
            return [False] * len(keys)
        started = time.monotonic()
        done = pool.load(keys, indices) if is_load else pool.save(keys, indices)
        if name == PoolName.KV:
            self._metrics.add(is_load, sum(done), sum(done) * pool.page_bytes, time.monotonic() - started)
        return done

    # The interface that copies flat pages

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> torch.Tensor | None:
        """Loads a page into a tensor; None: it is not there."""
        return self.batch_get([key], None if target_location is None else [target_location])[0]

    def batch_get(
        self, keys: list[str], target_locations: Any = None, target_sizes: Any = None
    ) -> list[torch.Tensor | None]:
        """Loads pages into tensors of a page's bytes each."""
        pool = self._opened(PoolName.KV.value)
        targets = list(target_locations) if target_locations is not None else [None] * len(keys)
        if pool is None or len(targets) != len(keys):
            return [None] * len(keys)
        targets = [pool.new_page() if each is None else each for each in targets]
        started = time.monotonic()
        done = pool.move_flat(keys, targets, is_load=True)
        self._metrics.add(True, sum(done), sum(done) * pool.page_bytes, time.monotonic() - started)
        return [target if is_done else None for target, is_done in zip(targets, done)]

    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        """Stores a page."""
        return self.batch_set([key], [value])

    def batch_set(
        self, keys: list[str], values: Any = None, target_locations: Any = None, target_sizes: Any = None
    ) -> bool:
        """Stores pages; True: all of them are there."""
        pool = self._opened(PoolName.KV.value)
        pages = list(values) if values is not None else []
        if pool is None or len(pages) != len(keys):
            return False
        started = time.monotonic()
        done = pool.move_flat(keys, pages, is_load=False)
        self._metrics.add(False, sum(done), sum(done) * pool.page_bytes, time.monotonic() - started)
        return all(done)

    # The rest

    def clear(self) -> bool:
        """With on_reset "forget": nothing that was stored until now is found from here on, also after a restart."""
        if self._on_reset == "keep":
            return True
        if self._opened(PoolName.KV.value) is None:
            return False
        for pool in self._pools.values():
            if pool.store is not None:
                pool.store.clear()
        return True

    def get_stats(self) -> Any:
        """Pages and bandwidths since the last call, for SGLang's metrics; None if they are off."""
        return self._metrics.take() if self._config.enable_storage_metrics else None

    def stats(self) -> dict[str, Any]:
        """The figures of each pool's store; of those that this process has open."""
        stores = {name: pool.store.stats() for name, pool in self._pools.items() if pool.store is not None}
        return {name: figures for name, figures in stores.items() if figures is not None}

    def close(self) -> None:
        """Closes the stores. Nothing depends on it: after a kill the next start finds the same pages."""
        with self._lock:
            self._is_closed = True
            stores = [pool.store for pool in self._pools.values() if pool.store is not None]
        for store in stores:
            store.close()


class _Metrics:
    """What SGLang's metrics of a storage backend want."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: dict[bool, list[tuple[int, float]]] = {True: [], False: []}

    def add(self, is_load: bool, pages: int, moved_bytes: int, seconds: float) -> None:
        with self._lock:
            samples = self._samples[is_load]
            samples.append((pages, moved_bytes / (1 << 30) / max(seconds, 1e-9)))
            # Nobody may ask.
            del samples[:-1000]

    def take(self) -> Any:
        from sglang.srt.observability.metrics_collector import StorageMetrics

        with self._lock:
            loads, saves = self._samples[True], self._samples[False]
            self._samples = {True: [], False: []}
        return StorageMetrics(
            prefetch_pgs=[pages for pages, _ in loads],
            backup_pgs=[pages for pages, _ in saves],
            prefetch_bandwidth=[rate for _, rate in loads],
            backup_bandwidth=[rate for _, rate in saves],
        )


def _trailing(is_there: Sequence[bool], trailing: int) -> set[int]:
    """The prefixes whose last pages are all there."""
    legal, run = set(), 0
    for length, here in enumerate(is_there, 1):
        run = run + 1 if here else 0
        if run >= min(trailing, length):
            legal.add(length)
    return legal


def _leading_groups(pool: HostPool | None, transfer: PoolTransfer) -> int:
    """The pages of KV that the leading whole groups cover."""
    keys, group = transfer.keys or [], transfer.group_pages
    if pool is None or group <= 0 or not keys:
        return 0
    return int(pool.leading(keys) // group * transfer.block_pages)


_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def _bytes(size: int | str, key: str) -> int:
    """A number of bytes: 64K, 500GiB, or a plain number."""
    text = str(bytes_of(size)).strip()
    unit = _UNITS.get(text[-1:].upper(), 1)
    try:
        return int(float(text[:-1] if unit > 1 else text) * unit)
    except ValueError:
        raise OpenError(f"{key}: {size!r} is no number of bytes; write it such as 500GiB") from None
