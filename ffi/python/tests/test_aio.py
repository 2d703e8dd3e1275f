"""The asyncio form."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from conftest import BLOCK, FINGERPRINT, payload

import kvstrata
import kvstrata.aio


def test_batches_are_awaited(tmp_path: Path) -> None:
    async def main() -> None:
        async with kvstrata.aio.Store({"store": FINGERPRINT}, disk_bytes="16M", disk_paths=[tmp_path], store_sizes=[BLOCK]) as store:
            keys = [b"%d" % number for number in range(100)]
            stores = [store.store([key], [payload(number)]) for number, key in enumerate(keys)]
            assert all(ended.ok for ended in await asyncio.gather(*stores))
            targets = [bytearray(BLOCK) for _ in keys]
            loads = [store.load([key], [target]) for key, target in zip(keys, targets)]
            assert all(ended.ok for ended in await asyncio.gather(*loads))
            assert targets == [payload(number) for number in range(100)]
            assert store.contains(keys[:2]) == [True, True]
            assert (await store.forget(keys[:1])).ok and store.leading(keys) == 0

    asyncio.run(asyncio.wait_for(main(), 60))


def test_cancelled_await_keeps_the_batch(store: kvstrata.Store) -> None:
    async def main() -> None:
        over = kvstrata.aio.Store(over=store)
        task = asyncio.ensure_future(over.store(["a"], [payload(1)]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        target = bytearray(BLOCK)
        await over.store(["b"], [payload(2)])
        assert (await over.load(["a"], [target])).ok and target == payload(1)
        with pytest.raises(kvstrata.SubmitError):
            await over.load(["a"], [b"read-only"])
        await over.close()

    asyncio.run(asyncio.wait_for(main(), 60))
    assert not store.is_closed and store.drain() == [], "the store belongs to its opener"


def test_close_ends_awaits(tmp_path: Path) -> None:
    async def main() -> None:
        store = kvstrata.aio.Store({"store": FINGERPRINT}, disk_bytes="16M", disk_paths=[tmp_path], store_sizes=[BLOCK])
        tasks = [asyncio.ensure_future(store.store([b"%d" % number], [payload(number)])) for number in range(50)]
        await asyncio.sleep(0)
        await store.close()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert len(ended) == 50
        for each in ended:
            assert isinstance(each, (kvstrata.Completion, kvstrata.ClosedError)), each
        with pytest.raises(kvstrata.ClosedError):
            await store.load(["a"], [bytearray(BLOCK)])

    asyncio.run(asyncio.wait_for(main(), 60))
