"""The store for asyncio: the same calls, awaited.

    async with kvstrata.aio.Store(...) as store:
        await store.store([b"key"], [buffer])
"""

from __future__ import annotations

import asyncio
from typing import Any

from . import ClosedError, Completion
from . import Store as _Store

__all__ = ["Store"]


class Store:
    """A store whose batches are awaited in one event loop.

    The arguments are those of `kvstrata.Store`, or `over=` an open store, which other code goes on to use.
    A cancelled await leaves the batch under way: its buffers stay held until it ends.
    """

    def __init__(self, settings: Any = None, *, over: _Store | None = None, **arguments: Any) -> None:
        self._owns = over is None
        # A handle of its own: nobody else drains its completions.
        self._handle = _Store(settings, **arguments) if over is None else over.handle()
        self._waiting: dict[int, asyncio.Future[Completion]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def _submit(self, call: Any, *arguments: Any, **options: Any) -> asyncio.Future[Completion]:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._handle.event_fd(), self._ready)
        future: asyncio.Future[Completion] = self._loop.create_future()
        # The loop's thread is here, so the completion cannot come before its future is entered.
        self._waiting[call(*arguments, **options)] = future
        return future

    def _ready(self) -> None:
        for completion in self._handle.drain():
            future = self._waiting.pop(completion.job, None)
            if future is not None and not future.done():
                future.set_result(completion)

    async def store(self, keys: Any, buffers: Any, **options: Any) -> Completion:
        """Stores buffer i under key i: see `kvstrata.Store.submit_store`."""
        return await self._submit(self._handle.submit_store, keys, buffers, **options)

    async def load(self, keys: Any, buffers: Any, **options: Any) -> Completion:
        """Loads key i into buffer i: see `kvstrata.Store.submit_load`."""
        return await self._submit(self._handle.submit_load, keys, buffers, **options)

    async def forget(self, keys: Any, **options: Any) -> Completion:
        """Forgets keys: see `kvstrata.Store.submit_forget`."""
        return await self._submit(self._handle.submit_forget, keys, **options)

    def __getattr__(self, name: str) -> Any:
        # Calls that do not wait: contains, leading, find, stats, metrics, …
        return getattr(self._handle, name)

    async def close(self, timeout: float | None = None) -> bool:
        """Closes the store, in a thread, if it was opened here; ends the awaits that are left."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.remove_reader(self._handle.event_fd())
        ended = True
        if self._owns:
            ended = await asyncio.to_thread(self._handle.close, timeout)
        self._ready()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ClosedError("the store was closed before the batch ended"))
        self._waiting.clear()
        return ended

    async def __aenter__(self) -> Store:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
