"""A pytest plugin: vLLM's tests of tiers run over `kvstrata.vllm.KvstrataTier` in the place of vLLM's example tier.

The example tier is a dict that answers within the call, and the tests use three things of it that no other tier has.
The class below has them over the disk of a real store:

    tier.chunks[key] = True     the chunk is on the disk when this returns
    tier.completed_jobs         the results that the manager has not taken yet
    tier.get_num_chunks()       chunks on the disk

Where the tests expect an answer at once, it waits for the store's threads: in `get_finished_jobs`, and in these three.
All other calls are KvstrataTier's own. The tests ask for the medium CPU, which the example tier has.

Most tests pass a mock for the engine's configuration, and some for the region; a mock's numbers are no numbers, so it
is replaced here.
"""

import select
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from vllm.v1.kv_offload.base import Medium, ReqContext
from vllm.v1.kv_offload.tiering.base import TransferJob
from vllm.v1.kv_offload.tiering.example import manager as example

from kvstrata import Store
from kvstrata.vllm import KvstrataTier

_opened: list["InPlaceOfExample"] = []
_count = 0


class Chunks(dict):
    """The keys that a test puts on the disk by hand."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __setitem__(self, key: bytes, value: bool) -> None:
        assert self._store.store([key], [bytes(16)], 30).ok
        super().__setitem__(key, value)


class InPlaceOfExample(KvstrataTier):
    medium = Medium.CPU

    def __init__(self, offloading_spec: Any, primary_kv_view: Any, tier_type: str, custom_param: int = 0,
                 backpressure_detector: Any = None) -> None:
        if not isinstance(primary_kv_view, memoryview):
            primary_kv_view = memoryview(np.zeros((5, 16), np.int8))
        config = SimpleNamespace(
            model=SimpleNamespace(name="a model", dtype="bfloat16"),
            cache=SimpleNamespace(tokens_per_hash=16, blocks_per_chunk=1),
            parallel=SimpleNamespace(), groups=(), worker_kv_bytes_per_block=16)
        super().__init__(SimpleNamespace(config=config), primary_kv_view, tier_type, backpressure_detector,
                         capacity="1MiB", revision="1", settings={"disk": {"fill": "no"}})
        _opened.append(self)
        self.chunks = Chunks(self._store)
        self._offered: set[bytes] = set()

    def submit_store(self, job_metadata: TransferJob) -> None:
        self._offered.update(job_metadata.keys)
        super().submit_store(job_metadata)

    def _wait(self) -> None:
        while self._jobs:
            assert select.select([self._store.event_fd()], [], [], 30)[0], f"{len(self._jobs)} jobs have no end"
            for completion in self._store.drain():
                self._ended(completion)

    @property
    def completed_jobs(self) -> list[Any]:
        self._wait()
        return self._finished

    def get_finished_jobs(self) -> Any:
        self._wait()
        return super().get_finished_jobs()

    def get_num_chunks(self) -> int:
        self._wait()
        return sum(self.lookup(key, ReqContext(req_id="count")).name == "HIT"
                   for key in self._offered | set(self.chunks))


# The tests name the class by its module; the factory asks for this name.
InPlaceOfExample.__name__ = InPlaceOfExample.__qualname__ = "ExampleSecondaryTierManager"
example.ExampleSecondaryTierManager = InPlaceOfExample


@pytest.fixture(autouse=True)
def close_tiers():
    global _count
    yield
    _count += len(_opened)
    while _opened:
        _opened.pop().shutdown()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_line(f"kvstrata.vllm.KvstrataTier took the example tier's place {_count} times")
