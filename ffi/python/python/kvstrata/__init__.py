"""KV blocks of LLM engines by key, over host memory and disk.

    import kvstrata

    with kvstrata.Store(
        disk={"paths": ["/data/kv"], "bytes": "100G"},
        store={"sizes": ["64K"], "model": "llama-3-8b", "revision": "1", "dtype": "bfloat16",
               "layout": "mine 1", "span": 16, "ranks": "tp0of1"},
    ) as store:
        store.store([b"key"], [bytes(65536)])
        target = bytearray(65536)
        assert store.load([b"key"], [target]).ok

- `Store`: the calls; `Completion`, `Outcome`: the answers
- `kvstrata.aio.Store`: the same for asyncio
- `kvstrata.lmcache.Store`: a `native_plugin` of LMCache
- `kvstrata.sglang.KvstrataHiCache`: a storage backend of SGLang's hierarchical cache

docs/python.md has the rules for buffers, processes and the end of a program.
"""

from enum import IntEnum as _IntEnum

from ._kvstrata import (
    _OUTCOMES,
    BusyError,
    ClosedError,
    Completion,
    ForkedError,
    KvstrataError,
    OpenError,
    Store,
    SubmitError,
    __version__,
)

__all__ = [
    "BusyError",
    "ClosedError",
    "Completion",
    "ForkedError",
    "KvstrataError",
    "OpenError",
    "Outcome",
    "Store",
    "SubmitError",
    "__version__",
]


class Outcome(_IntEnum):
    """The answer for one key. Numbers below 16: the call did its work.

    `Completion.outcomes` has the plain numbers, which compare equal to these members.
    """

    STORED = _OUTCOMES["STORED"]
    """The bytes are stored, and lookups find them."""
    PRESENT = _OUTCOMES["PRESENT"]
    """The key was there already, with as many bytes. Nothing was written."""
    LOADED = _OUTCOMES["LOADED"]
    """The buffer has the bytes."""
    FORGOTTEN = _OUTCOMES["FORGOTTEN"]
    """No lookup finds the key any more."""
    ABSENT = _OUTCOMES["ABSENT"]
    """The key is not there. A load has left the buffer as it was."""
    LENGTH = _OUTCOMES["LENGTH"]
    """The key has another number of bytes than the buffer."""
    TOO_LONG = _OUTCOMES["TOO_LONG"]
    """The buffer is longer than the largest block size of the store."""
    FULL = _OUTCOMES["FULL"]
    """No block is free, and none can be evicted."""
    REFUSED = _OUTCOMES["REFUSED"]
    """The disk takes no more just now, or its filter or write budget refused the block."""
    BUSY = _OUTCOMES["BUSY"]
    """Too many batches wait already."""
    SLOW = _OUTCOMES["SLOW"]
    """The disk takes too long, so the store spares it for a while."""
    LATE = _OUTCOMES["LATE"]
    """The deadline passed first."""
    FAILED = _OUTCOMES["FAILED"]
    """The transfer failed, or the bytes were not those that were stored."""
    CLOSED = _OUTCOMES["CLOSED"]
    """The store is closed."""

    @property
    def is_done(self) -> bool:
        """Whether the call did its work for this key."""
        return self < 16
