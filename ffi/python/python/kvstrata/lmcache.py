"""A store for LMCache: the class that a `native_plugin` L2 adapter names.

    {"type": "native_plugin", "module_path": "kvstrata.lmcache", "class_name": "Store",
     "adapter_params": {"path": "/data/kv", "capacity": "100GiB", "sizes": ["2M"],
                        "model": "llama-3-8b", "revision": "1", "dtype": "bfloat16"}}

LMCache submits batches and polls `event_fd`. Each completion is (future, ok, error, one bool a key). A key whose
bytes are damaged, absent, late or of another length is False, and the others stay good.
"""

from __future__ import annotations

import itertools
import os
import threading
import warnings
from collections import deque
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from . import Completion, KvstrataError, OpenError, Outcome
from . import Store as _Store
from ._engines import bytes_of, disk_bytes_of, paths_of

__all__ = ["Store"]

_Done = tuple[int, bool, str, list[bool]]

_DELETED = (Outcome.FORGOTTEN, Outcome.ABSENT)

# Futures that are answered here have numbers that no job of the store gets.
_FIRST_NUMBER = 1 << 48


class Store:
    """A client for LMCache's `NativeConnectorL2Adapter`.

    path: a folder, a file, or a list of them on several drives; none: a temporary file, for a trial.
    capacity: bytes of the disk, such as "100GiB". The files are never longer.
    sizes or block_bytes: the lengths of LMCache's objects in bytes: that of a whole chunk, and of each other object
        that is common. An object takes a block of the smallest size that holds it. Instead of them:
    config, chunk_tokens, tp: the path of the model's config.json or its folder, the tokens of a chunk (LMCache's
        chunk_size), and the tensor-parallel degree, from which the sizes are computed.
    model, revision, dtype: the model's name, the revision of its weights, the element type of the KV cache. LMCache's
        keys have no revision and no element type, so without these the store does not open.
    layout: the layout of an object's bytes; default: LMCache's version, since it defines the layout.
    span: tokens of an object; default: chunk_tokens.
    ranks: default "in keys": LMCache's keys name the rank.
    lora, salt: further parts of the fingerprint.
    host: bytes of a host tier of the store's own, such as "8GiB"; default: none, since LMCache has one.
    deadline: seconds after which a key that waits is answered as a miss.
    settings: other settings of the store, as a dict of sections or TOML text.

    Unknown arguments are ignored with one warning: adapters of other LMCache versions pass more.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str] | None = None,
        capacity: str | int | None = None,
        *,
        sizes: Sequence[int | str] | None = None,
        block_bytes: int | str | None = None,
        config: str | os.PathLike[str] | None = None,
        chunk_tokens: int = 256,
        tp: int = 1,
        model: str | None = None,
        revision: str | None = None,
        dtype: str | None = None,
        layout: str | None = None,
        span: int | None = None,
        ranks: str = "in keys",
        lora: str | None = None,
        salt: str | None = None,
        host: str | int | None = None,
        deadline: float | None = None,
        settings: dict[str, Any] | str | None = None,
        **unknown: Any,
    ) -> None:
        if unknown:
            names = ", ".join(sorted(unknown))
            warnings.warn(f"kvstrata.lmcache.Store ignores adapter_params: {names}", stacklevel=2)
        if sizes is None and block_bytes is not None:
            sizes = [block_bytes]
        if sizes is None and config is None:
            raise OpenError("sizes, config: none; give sizes (the bytes of a chunk), or config and chunk_tokens")
        paths = paths_of(path)
        of_store = {
            "sizes": None if sizes is None else [bytes_of(size) for size in sizes],
            "model": model,
            "revision": revision,
            "dtype": dtype,
            "layout": layout or _lmcache_version(),
            "span": chunk_tokens if span is None else span,
            "ranks": ranks,
            "lora": lora,
            "salt": salt,
        }
        geometry: dict[str, Any] = {}
        if sizes is None:
            geometry = {"config": config, "page_size": chunk_tokens, "tp": tp, "dtype": dtype}
        try:
            self._store = _Store(
                settings,
                store=of_store,
                geometry=geometry,
                disk={"paths": paths, "bytes": disk_bytes_of(capacity, paths, sizes)},
                host={"bytes": bytes_of(host)},
            )
        except OpenError as error:
            raise OpenError(f"{error} (adapter_params: path, capacity, sizes, model, revision, dtype, …)") from None
        self._deadline = deadline
        self._event_fd = self._store.event_fd()
        self._numbers = itertools.count(_FIRST_NUMBER)
        self._answered: deque[_Done] = deque()
        self._lock = threading.Lock()

    def event_fd(self) -> int:
        """The descriptor to poll. It stays the same until `close`."""
        return self._event_fd

    def submit_batch_set(self, keys: Sequence[str], bufs: Sequence[Any]) -> int:
        """Begins to store bufs[i] under keys[i]."""
        return self._submit(self._store.submit_store, keys, bufs)

    def submit_batch_get(self, keys: Sequence[str], bufs: Sequence[Any]) -> int:
        """Begins to load keys[i] into bufs[i], which is as long as the stored bytes."""
        return self._submit(self._store.submit_load, keys, bufs)

    def submit_batch_exists(self, keys: Sequence[str]) -> int:
        """Looks keys up, without I/O. The answer comes by `drain_completions`, as others do."""
        try:
            return self._answer(True, "", self._store.contains(keys))
        except KvstrataError as error:
            return self._answer(False, str(error), [False] * len(keys))

    def submit_batch_delete(self, keys: Sequence[str]) -> int:
        """Begins to forget keys; True: the key was there."""
        if not keys:
            return self._answer(True, "", [])
        try:
            return self._store.submit_forget(keys)
        except KvstrataError as error:
            return self._answer(False, str(error), [False] * len(keys))

    def drain_completions(self) -> list[_Done]:
        """The batches that have ended: (future, ok, error, one bool a key). ok: every key was done."""
        # First the store's: that call resets the descriptor.
        ended = self._store.drain()
        done = [_done(each) for each in ended]
        while self._answered:
            done.append(self._answered.popleft())
        return done

    def close(self) -> None:
        """Closes the store. Nothing depends on it: after a kill the next start finds the same keys."""
        with self._lock:
            # The descriptor belongs to the store from here on.
            self._event_fd, event_fd = -1, self._event_fd
        if event_fd >= 0:
            self._store.close()

    def stats(self) -> dict[str, Any]:
        """The store's figures: see `kvstrata.Store.stats`."""
        return self._store.stats()

    def _submit(self, call: Any, keys: Sequence[str], bufs: Sequence[Any]) -> int:
        if not keys:
            return self._answer(True, "", [])
        try:
            return int(call(keys, bufs, deadline=self._deadline))
        except (KvstrataError, TypeError) as error:
            # LMCache burns its task if a submit raises; it handles a batch that has failed.
            return self._answer(False, str(error), [False] * len(keys))

    def _answer(self, ok: bool, error: str, bools: list[bool]) -> int:
        number = next(self._numbers)
        self._answered.append((number, ok, error, bools))
        # Behind the entry: whoever the descriptor wakes finds it.
        with self._lock:
            if self._event_fd >= 0:
                os.eventfd_write(self._event_fd, 1)
        return number


def _done(of: Completion) -> _Done:
    # To delete a key that is not there is no failure.
    if of.ok or of.kind == "forget" and all(outcome in _DELETED for outcome in of.outcomes):
        return of.job, True, "", of.done
    return of.job, False, of.error or "", of.done


def _lmcache_version() -> str:
    try:
        return f"lmcache {metadata.version('lmcache')}"
    except metadata.PackageNotFoundError:
        return "lmcache"
