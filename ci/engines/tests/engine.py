"""vLLM's tiering manager over a real region and KvstrataTier, without a model. The tests drive it as vLLM's scheduler
does.

An engine stores `chunk(number)` under `key(number)`: 16 KiB that name their number. What a lookup finds can thus be
compared with what was stored, byte by byte.
"""

import hashlib
import select
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch  # noqa: F401  vLLM's region wants it first.
from vllm.v1.kv_offload.base import LookupResult, OffloadKey, ReqContext, ScheduleEndContext, make_offload_key
from vllm.v1.kv_offload.config import (OffloadingCacheConfig, OffloadingConfig, OffloadingGroupConfig,
                                       OffloadingModelConfig, OffloadingParallelConfig)
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

from kvstrata.vllm import KvstrataTier

ROW_BYTES = 16 << 10

CONFIG = OffloadingConfig(
    groups=(OffloadingGroupConfig(32, ("layers.0", "layers.1"), 0),),
    worker_kv_bytes_per_block=ROW_BYTES,
    enable_kv_cache_events=False,
    extra_config={},
    engine_id="",
    model=OffloadingModelConfig("a model", "bfloat16"),
    cache=OffloadingCacheConfig(tokens_per_hash=32, blocks_per_chunk=1),
    parallel=OffloadingParallelConfig(0, 1, 1, 1, 1, 1, 0, 1, None, False),
    kv_cache_layout="LBNHC",
)


def key(number: int, hash_bytes: int = 32) -> OffloadKey:
    return make_offload_key(hashlib.sha256(b"%d" % number).digest()[:hash_bytes], 0)


def keys(numbers: Iterable[int]) -> list[OffloadKey]:
    return [key(number) for number in numbers]


def chunk(number: int) -> bytes:
    return b"<chunk %08d>" % number * (ROW_BYTES // 16)


class Engine:
    """path, and more: of the tier. config: fields of the engine's configuration. rows: chunks of the region."""

    def __init__(self, path: Any, *, config: OffloadingConfig = CONFIG, rows: int = 64, **of_tier: Any) -> None:
        tier = {"type": "KvstrataTier", "module_path": "kvstrata.vllm", "path": str(path), "capacity": "4MiB",
                "revision": "1", **of_tier}
        row_bytes = config.worker_kv_bytes_per_block * config.cache.blocks_per_chunk * config.parallel.world_size
        self.spec = TieringOffloadingSpec(replace(
            config, engine_id=f"kvstrata_{uuid.uuid4()}",
            extra_config={"cpu_bytes_to_use": rows * row_bytes, "secondary_tiers": [tier]}))
        self.manager = self.spec.get_manager()
        self.tier: KvstrataTier = self.manager.secondary_tiers[0]
        self._requests = 0

    def request(self) -> ReqContext:
        self._requests += 1
        context = ReqContext(req_id=f"request-{self._requests}")
        self.manager.on_new_request(context)
        return context

    def step(self) -> None:
        """What the scheduler does at the end of each step."""
        self.manager.on_schedule_end(ScheduleEndContext(new_req_ids=(), preempted_req_ids=()))
        list(self.manager.take_events())

    def wait(self, seconds: float = 30) -> None:
        """Steps until no job is left. Between the steps it sleeps until the store has an answer, or for 10 ms: a
        thread of vLLM 0.33 may have taken the answer."""
        deadline = time.monotonic() + seconds
        self.step()
        while self.manager._jobs:
            assert time.monotonic() < deadline, f"{len(self.manager._jobs)} jobs have no end"
            if not self.tier._finished:
                select.select([self.tier._store.event_fd()], [], [], 0.01)
            self.step()

    def begin_store(self, numbers: Sequence[int]) -> int:
        """A request computes chunks, and the worker copies them into the region. Returns how many were new."""
        context = self.request()
        output = self.manager.prepare_store(keys(numbers), context)
        assert output is not None
        by_key = dict(zip(keys(numbers), numbers))
        view = self.manager.primary_tier.get_kv_memoryview()
        with view.cast("B") as flat:
            for stored, row in zip(output.keys_to_store, output.store_spec.chunk_ids):
                at = row * view.strides[0]
                flat[at:at + ROW_BYTES] = chunk(by_key[stored])
        if output.keys_to_store:
            self.manager.complete_store(set(output.keys_to_store), context, success=True)
        self.manager.on_request_finished(context)
        return len(output.keys_to_store)

    def store(self, numbers: Sequence[int]) -> None:
        self.begin_store(numbers)
        self.wait()

    def find(self, numbers: Sequence[int], context: ReqContext | None = None, steps: int = 8) -> int:
        """A request looks its chunks up, and waits until they are in the region. Returns its leading hits, each
        of which has the right bytes."""
        context = context or self.request()
        for _ in range(steps):
            results = []
            for one in keys(numbers):
                results.append(self.manager.lookup(one, context))
                if results[-1] is LookupResult.MISS:
                    break
            if LookupResult.RETRY not in results and LookupResult.HIT_PENDING not in results:
                break
            self.wait()
        else:
            raise AssertionError(f"no end within {steps} steps: {results}")
        hits = results.count(LookupResult.HIT)
        assert self.read(numbers[:hits], context) == [chunk(number) for number in numbers[:hits]]
        self.manager.on_request_finished(context)
        return hits

    def read(self, numbers: Sequence[int], context: ReqContext) -> list[bytes]:
        """The bytes that the worker copies out of the region."""
        if not numbers:
            return []
        spec = self.manager.prepare_load(keys(numbers), context)
        with self.manager.primary_tier.get_kv_memoryview().cast("B") as flat:
            found = [bytes(flat[row * ROW_BYTES:(row + 1) * ROW_BYTES]) for row in spec.chunk_ids]
        self.manager.complete_load(keys(numbers), context)
        return found

    def empty_region(self) -> None:
        """The region forgets its chunks; the tier keeps them."""
        assert not self.manager._jobs
        self.manager.primary_tier.reset_cache()

    def reset(self) -> None:
        """What a weight update does. From vLLM 0.33 on, the manager hears when the workers are done with it."""
        self.manager.reset_cache()
        getattr(self.manager, "on_reset_flushed", lambda: None)()

    def close(self) -> None:
        self.manager.shutdown()
