"""The contract of LMCache's native plugins, as its adapter calls them."""

from __future__ import annotations

import ctypes
import json
import select
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import BLOCK, payload

import kvstrata
from kvstrata.lmcache import Store

PARAMS: dict[str, Any] = {
    "capacity": "16MiB",
    "sizes": ["4KiB", BLOCK],
    "model": "a model",
    "revision": "1",
    "dtype": "bfloat16",
}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Store]:
    made = Store(str(tmp_path), **PARAMS)
    yield made
    made.close()


def buffers(*contents: bytes) -> list[memoryview]:
    """Views as LMCache has them: of ctypes arrays, format <B."""
    return [memoryview((ctypes.c_ubyte * len(content)).from_buffer_copy(content)) for content in contents]


def ended(client: Store, future: int) -> tuple[bool, str, list[bool]]:
    poll = select.poll()
    poll.register(client.event_fd(), select.POLLIN)
    while True:
        assert poll.poll(30_000), "no completion"
        for number, ok, error, bools in client.drain_completions():
            assert number == future and type(ok) is bool and type(bools) is list and type(error) is str
            return ok, error, bools


KEYS = [f"model@{number:08x}@0@{number:064x}" for number in range(8)]


def test_batches_go_there_and_back(client: Store) -> None:
    sources = buffers(*[payload(number, 1000 + number * 1000) for number in range(8)])
    assert ended(client, client.submit_batch_set(KEYS, sources)) == (True, "", [True] * 8)
    assert ended(client, client.submit_batch_exists([*KEYS, "absent"])) == (True, "", [True] * 8 + [False])
    targets = buffers(*[bytes(1000 + number * 1000) for number in range(8)])
    assert ended(client, client.submit_batch_get(KEYS, targets)) == (True, "", [True] * 8)
    assert [bytes(target) for target in targets] == [bytes(source) for source in sources]
    assert ended(client, client.submit_batch_delete([*KEYS[:2], "absent"])) == (True, "", [True, True, False])
    assert ended(client, client.submit_batch_exists(KEYS))[2] == [False] * 2 + [True] * 6
    assert client.stats()["stored"] == 8


def test_get_answers_each_key(client: Store) -> None:
    ended(client, client.submit_batch_set(KEYS[:2], buffers(payload(0), payload(1))))
    targets = buffers(bytes(BLOCK), bytes(BLOCK), bytes(BLOCK - 1), bytes(BLOCK))
    ok, error, bools = ended(client, client.submit_batch_get([KEYS[0], "absent", KEYS[1], KEYS[1]], targets))
    assert not ok and bools == [True, False, False, True]
    assert error == "2 of 4 keys not loaded: 1 absent, 1 length"
    assert bytes(targets[3]) == payload(1)


def test_set_of_another_length_keeps_the_first(client: Store) -> None:
    assert ended(client, client.submit_batch_set(KEYS[:1], buffers(payload(0))))[0]
    ok, _, bools = ended(client, client.submit_batch_set(KEYS[:2], buffers(payload(5, BLOCK - 100), payload(1))))
    assert not ok and bools == [False, True]
    targets = buffers(bytes(BLOCK))
    assert ended(client, client.submit_batch_get(KEYS[:1], targets))[0] and bytes(targets[0]) == payload(0)


def test_refused_batches_complete_as_failed(client: Store) -> None:
    read_only = [memoryview(bytes(BLOCK))]
    ok, error, bools = ended(client, client.submit_batch_get(KEYS[:1], read_only))
    assert not ok and "read-only" in error and bools == [False]
    ok, error, bools = ended(client, client.submit_batch_set(KEYS[:2], buffers(payload(0))))
    assert not ok and "give one for each key" in error and bools == [False, False]
    ok, error, bools = ended(client, client.submit_batch_set(KEYS[:1], buffers(bytes(BLOCK + 1))))
    assert not ok and error == "1 of 1 keys not stored: 1 too_long" and bools == [False]
    for submit in (client.submit_batch_set, client.submit_batch_get):
        assert ended(client, submit([], [])) == (True, "", [])
    assert ended(client, client.submit_batch_exists([])) == (True, "", [])
    assert ended(client, client.submit_batch_delete([])) == (True, "", [])


def test_descriptor_is_readable_until_all_is_drained(client: Store) -> None:
    assert client.drain_completions() == []
    futures = [client.submit_batch_exists(KEYS) for _ in range(20)]
    assert len(set(futures)) == 20
    assert select.select([client.event_fd()], [], [], 10)[0]
    assert [future for future, *_ in client.drain_completions()] == futures
    assert not select.select([client.event_fd()], [], [], 0)[0]


def test_threads_submit_while_one_drains(client: Store) -> None:
    """As in LMCache: submits under a lock of three threads, and one thread that polls and drains."""
    lock, seen, submitted = threading.Lock(), set[int](), set[int]()
    poll = select.poll()
    poll.register(client.event_fd(), select.POLLIN)
    stop = threading.Event()

    def demux() -> None:
        while not (stop.is_set() and len(seen) == len(submitted)):
            if poll.poll(500):
                done = client.drain_completions()
                with lock:
                    assert not seen & {future for future, *_ in done}
                    seen.update(future for future, *_ in done)

    def controller(of: int) -> None:
        for number in range(60):
            keys = [f"{of}/{number}/{place}" for place in range(4)]
            with lock:
                submitted.add(client.submit_batch_set(keys, buffers(*[payload(number)] * 4)))
                submitted.add(client.submit_batch_exists(keys))
            with lock:
                submitted.add(client.submit_batch_get(keys, buffers(*[bytes(BLOCK)] * 4)))
                submitted.add(client.submit_batch_delete(keys[:1]))

    threads = [threading.Thread(target=controller, args=(of,)) for of in range(3)]
    drainer = threading.Thread(target=demux)
    for thread in [drainer, *threads]:
        thread.start()
    for thread in threads:
        thread.join(120)
    stop.set()
    drainer.join(60)
    assert not drainer.is_alive() and seen == submitted and len(seen) == 720


def test_restart_finds_keys_of_the_same_parameters(tmp_path: Path) -> None:
    first = Store(path=tmp_path, **PARAMS)
    ended(first, first.submit_batch_set(KEYS[:1], buffers(payload(0))))
    first.close()
    first.close()
    changes: list[tuple[dict[str, Any], bool]] = [({}, True), ({"revision": "2"}, False), ({"dtype": "fp8"}, False), ({"salt": "x"}, False), ({"layout": "new"}, False), ({"chunk_tokens": 512}, False), ({}, True)]
    for change, is_found in changes:
        client = Store(path=tmp_path, **{**PARAMS, **change})
        assert ended(client, client.submit_batch_exists(KEYS[:1]))[2] == [is_found], change
        client.close()


def test_unknown_parameters_are_ignored_with_one_warning(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Store(path=tmp_path, **PARAMS, num_workers=8, max_capacity_gb=5).close()
    assert [str(each.message) for each in caught] == ["kvstrata.lmcache.Store ignores adapter_params: max_capacity_gb, num_workers"]


def test_missing_parameters_are_named(tmp_path: Path) -> None:
    for missing in ("model", "revision", "dtype"):
        rest = {name: value for name, value in PARAMS.items() if name != missing}
        with pytest.raises(kvstrata.OpenError, match=rf"store\.{missing}: none.*adapter_params"):
            Store(path=tmp_path, **rest)
    with pytest.raises(kvstrata.OpenError, match="sizes, config: none; give sizes"):
        Store(path=tmp_path, **{**PARAMS, "sizes": None})


def test_sizes_come_from_a_models_config(tmp_path: Path) -> None:
    config = {
        "model_type": "llama", "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4,
        "hidden_size": 256, "head_dim": 32, "torch_dtype": "bfloat16", "max_position_embeddings": 4096,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    given = {**PARAMS, "sizes": None, "config": tmp_path, "chunk_tokens": 256}
    client = Store(**given, tp=2)
    # Keys and values, layers, heads of a rank, elements of a head, bytes of an element, tokens.
    assert client._store.sizes == [2 * 4 * 2 * 32 * 2 * 256]
    client.close()


def test_adapter_of_lmcache_finds_the_calls() -> None:
    for name in ("event_fd", "submit_batch_get", "submit_batch_set", "submit_batch_exists", "submit_batch_delete", "drain_completions", "close"):
        assert callable(getattr(Store, name))
