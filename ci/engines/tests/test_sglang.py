"""kvstrata below SGLang's hierarchical cache: SGLang's factory, host pools, fault injector and controller, no engine.

    PYTHONPATH=$engines/sglang $engines/python/bin/python -m pytest ci/engines/tests/test_sglang.py

Numbers in names are those of issues in the tracker of SGLang, or of the project that is named before them.
"""

import itertools
import json
import logging
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from queue import Queue

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

import hicache  # noqa: E402
from hicache import PAGE, contents, fill, get, host_pool, page_keys, put  # noqa: E402
from sglang.srt.managers.cache_controller import HiCacheController, PrefetchOperation, StorageOperation  # noqa: E402
from sglang.srt.mem_cache.hicache_storage import (  # noqa: E402
    HiCacheFile, HiCacheStorageConfig, PoolHitPolicy, PoolName, PoolTransfer)
from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory  # noqa: E402

import kvstrata  # noqa: E402

# Tests fork: a child that enters the threads of OpenMP that its parent started would wait for ever.
torch.set_num_threads(1)

KINDS = ["mha", "mla"]
LAYOUTS = ["page_first", "page_first_direct", "layer_first"]
PAGES = 8
# What is expected of a page that nobody stored.
NOTHING = None
OURS = {"backend_name": "kvstrata", "module_path": "kvstrata.sglang", "class_name": "KvstrataHiCache",
        "interface_v1": 1, "capacity": "16MiB", "revision": "1", "deadline": 20}


@pytest.fixture
def attach(tmp_path):
    """Makes backends as SGLang's controller does: extra are keys of ours, the rest are fields of the configuration."""
    made = []

    def attached(pool, *, extra=None, sides=None, folder=tmp_path, register=True, **config):
        fields = dict(tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1,
                      is_mla_model="MLA" in type(pool).__name__, enable_storage_metrics=False,
                      is_page_first_layout=pool.layout == "page_first", model_name="tiny")
        given = {**OURS, "path": folder and str(folder), **(extra or {})}
        given = {name: value for name, value in given.items() if value is not None}
        backend = StorageBackendFactory.create_backend(
            "dynamic", HiCacheStorageConfig(**{**fields, **config}, extra_config=given), pool)
        made.append(backend)
        if register:
            backend.register_mem_pool_host(pool)
            for name, side in {PoolName.KV: pool, **(sides or {})}.items():
                backend.register_mem_host_pool_v2(side, name)
            backend.on_host_pools_registered()
        return backend

    yield attached
    for backend in made:
        backend.close()


def in_child(call, *arguments):
    """Runs a function in a process of its own, and returns what it returned."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            with os.fdopen(writer, "w") as out:
                json.dump(call(*arguments), out)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader) as text:
        answer = text.read()
    assert os.waitpid(child, 0)[1] == 0
    return json.loads(answer)


class Child:
    """A process that answers questions until it ends."""

    def __init__(self, answers):
        self._asked, asked = os.pipe()
        answer, self._answer = os.pipe()
        self.process = os.fork()
        if self.process == 0:
            try:
                os.close(asked)
                os.close(answer)
                call = answers()
                with os.fdopen(self._asked) as questions, os.fdopen(self._answer, "w") as out:
                    while line := questions.readline().strip():
                        print(json.dumps(call(*json.loads(line))), file=out, flush=True)
                os._exit(0)
            finally:
                os._exit(1)
        os.close(self._asked)
        os.close(self._answer)
        self._to, self._from = os.fdopen(asked, "w"), os.fdopen(answer)

    def ask(self, *question):
        print(json.dumps(question), file=self._to, flush=True)
        return json.loads(self._from.readline())

    def kill(self):
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)

    def end(self):
        # Children that were forked later have the pipe open, too: its end would tell nothing.
        print(file=self._to, flush=True)
        assert os.waitpid(self.process, 0)[1] == 0


def stored(backend, pool, *, seed=0, pages=PAGES, interface="v1"):
    """Fills the pool, stores pages, and empties the pool: the keys, and what each page held."""
    fill(pool, seed)
    pool.clear()
    places = pool.alloc(pages * pool.page_size)
    keys, expected = page_keys(seed, pages), contents(pool, places)
    assert list(put(backend, pool, interface, keys, places)) == [True] * pages
    pool.kv_buffer.zero_()
    return keys, expected


def held(pool, *, seed=0, pages=PAGES):
    """What `stored` stores, without storing it."""
    fill(pool, seed)
    pool.clear()
    expected = contents(pool, pool.alloc(pages * pool.page_size))
    pool.kv_buffer.zero_()
    return page_keys(seed, pages), expected


def loaded(backend, pool, keys, expected, *, interface="v1"):
    """Loads into fresh places of an empty pool. No wrong byte, and nothing beside the places: the answers."""
    pool.kv_buffer.zero_()
    pool.clear()
    pool.alloc(3 * pool.page_size)
    places = pool.alloc(len(keys) * pool.page_size)
    done = [bool(each) for each in get(backend, pool, interface, keys, places)]
    starts = places[::pool.page_size]
    for place, now, then, is_done in zip(starts, contents(pool, places), expected, done, strict=True):
        assert now == then or not is_done
        if then is NOTHING:
            assert not pool.get_data_page(int(place)).any()
    everywhere = torch.arange(0, pool.size)
    beside = everywhere[~torch.isin(everywhere, places)]
    for place in beside[::pool.page_size]:
        assert not pool.get_data_page(int(place)).any(), f"place {place} is written"
    return done


# Pages go and come back


@pytest.mark.parametrize("interface", ["v1", "v2", "copy"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_pages_come_back_in_other_slots(attach, kind, layout, interface):
    pool = host_pool(kind, layout)
    backend = attach(pool)
    keys, expected = stored(backend, pool, interface=interface)
    assert len(set(expected)) == PAGES
    assert backend.batch_exists(keys) == PAGES and backend.batch_exists(keys + ["f" * 64]) == PAGES
    assert backend.exists(keys[3]) and not backend.exists("f" * 64)
    for other in ("v1", "v2", "copy"):
        assert loaded(backend, pool, keys, expected, interface=other) == [True] * PAGES
    assert loaded(backend, pool, [keys[0], "f" * 64, keys[2]], [expected[0], NOTHING, expected[2]]) == [True, False, True]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_second_process_restores_all(attach, kind, layout):
    def first():
        pool = host_pool(kind, layout)
        backend = attach(pool)
        keys, expected = stored(backend, pool, seed=4)
        backend.close()
        return [keys, expected]

    keys, expected = in_child(first)
    pool = host_pool(kind, layout)
    backend = attach(pool)
    assert backend.batch_exists(keys) == PAGES
    assert loaded(backend, pool, keys, expected) == [True] * PAGES


def test_a_killed_process_leaves_whole_pages(attach):
    """The records of blocks reach the file a quarter of a second after the blocks: some may be missing."""
    def first():
        pool = host_pool("mha", "page_first_direct")
        backend = attach(pool)
        return lambda: stored(backend, pool)

    child = Child(first)
    keys, expected = child.ask()
    child.kill()
    pool = host_pool("mha", "page_first_direct")
    backend = attach(pool)
    found = backend.batch_exists(keys)
    assert loaded(backend, pool, keys, expected)[:found] == [True] * found


@pytest.mark.parametrize("kind", KINDS)
def test_without_interface_v1_pages_are_copied(attach, kind):
    pool = host_pool(kind, "layer_first")
    backend = attach(pool, extra={"interface_v1": 0})
    keys, expected = stored(backend, pool, interface="copy")
    assert loaded(backend, pool, keys, expected, interface="copy") == [True] * PAGES
    page = backend.get(keys[1])
    assert page.nbytes == pool.get_dummy_flat_data_page().nbytes and backend.get("f" * 64) is None
    # Too short, or no tensor at all: no answer, and no exception.
    assert backend.batch_get(keys[:2], [page[:-1], page])[0] is None
    for wrong in (page[:-1], None, page.to("meta")):
        assert not backend.batch_set(["e" * 64], [wrong]) and not backend.exists("e" * 64)
    assert not backend.set("e" * 64) and not backend.batch_set(["e" * 64], [])
    # A page with gaps is made whole.
    assert backend.set("e" * 64, torch.stack([page, page], 1)[:, 0]) and torch.equal(backend.get("e" * 64), page)


@pytest.mark.parametrize("straight", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS[:2])
@pytest.mark.parametrize("kind", KINDS)
def test_whole_pages_of_memory_move_straight(attach, kind, layout, straight):
    pool = host_pool(kind, layout)
    backend = attach(pool, extra={"straight": straight})
    keys, expected = stored(backend, pool)
    assert loaded(backend, pool, keys, expected) == [True] * PAGES
    figures = backend.stats()["kv"]
    assert (figures["staged"] == 0) == straight and (figures["straight"] > 0) == straight


def test_a_second_set_answers_true_and_writes_nothing(attach):
    pool = host_pool("mha", "page_first_direct")
    backend = attach(pool)
    keys, expected = stored(backend, pool)
    written = backend.stats()["kv"]["stored_bytes"]
    stored(backend, pool)
    assert backend.stats()["kv"]["stored_bytes"] == written


def test_calls_of_many_threads_each_get_their_pages(attach):
    pool = host_pool("mha", "page_first_direct", slots=128 * PAGE)
    backend = attach(pool)
    fill(pool, 1)
    places = pool.alloc(64 * PAGE).split(4 * PAGE)
    wanted = [contents(pool, each) for each in places]
    errors = []

    def store_and_load(number):
        try:
            keys = page_keys(100 + number, 4)
            assert all(backend.batch_set_v1(keys, places[number]))
            target = pool.alloc(4 * PAGE)
            assert backend.batch_exists(keys) == 4 and all(backend.batch_get_v1(keys, target))
            assert contents(pool, target) == wanted[number]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=store_and_load, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


# SGLang's controller


class Controller(HiCacheController):
    """The storage half of SGLang's controller, with its own code, one rank, and no device."""

    def __init__(self, backend, pool):
        self.storage_backend, self.storage_host_pool, self.mem_pool_host = backend, pool, pool
        self.page_size, self.enable_storage = pool.page_size, True
        self.page_get_func, self.page_set_func = self._page_get_zero_copy, self._page_set_zero_copy
        self.prefetch_sync_queue, self.prefetch_hits_sync_groups = Queue(), []


def controller_stores(controller, pool, seed, pages):
    fill(pool, seed)
    pool.clear()
    places = pool.alloc(pages * PAGE)
    keys, expected = page_keys(seed, pages), contents(pool, places)
    operation = StorageOperation(places, list(range(pages * PAGE)), hash_value=keys)
    controller._page_backup(operation)
    pool.kv_buffer.zero_()
    return keys, expected, operation.completed_tokens // PAGE


def controller_loads(controller, pool, keys):
    pool.clear()
    places = pool.alloc(len(keys) * PAGE)
    operation = PrefetchOperation("request", list(range(len(keys) * PAGE)))
    operation.hash_value, operation.host_indices = keys, places
    pages = controller._page_transfer(operation)
    return pages, contents(pool, places)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_controller_prefetches_what_it_backed_up(attach, kind, layout):
    pages = 300    # three batches of the controller
    pool = host_pool(kind, layout, slots=320 * PAGE, layers=3)
    backend = attach(pool, extra={"capacity": "32MiB"})
    controller = Controller(backend, pool)
    keys, expected, done = controller_stores(controller, pool, 7, pages)
    assert done == pages and backend.batch_exists(keys) == pages
    got, now = controller_loads(controller, pool, keys)
    assert got == pages and now == expected


def test_the_controller_survives_faults_and_serves_no_wrong_byte(attach, monkeypatch):
    monkeypatch.setenv("SGLANG_TEST_HICACHE_BACKEND_RANDOM_DELAY", "0.005")
    monkeypatch.setenv("SGLANG_TEST_HICACHE_BACKEND_RANDOM_FAILURE", "0.3")
    pool = host_pool("mha", "page_first_direct", slots=320 * PAGE, layers=1)
    controller = Controller(attach(pool, extra={"capacity": "32MiB"}), pool)
    partial = 0
    for seed in range(12):
        keys, expected, done = controller_stores(controller, pool, seed, 256)
        assert done in (0, 128, 256)
        got, now = controller_loads(controller, pool, keys)
        assert got in (0, 128, 256) and got <= done and now[:got] == expected[:got]
        partial += got < 256
    assert 0 < partial <= 12


# SGLang's fault injector


@pytest.mark.parametrize("interface", ["v1", "v2", "copy"])
@pytest.mark.parametrize("kind", KINDS)
def test_faults_injected_answers_are_exact(attach, monkeypatch, kind, interface):
    monkeypatch.setenv("SGLANG_TEST_HICACHE_BACKEND_RANDOM_DELAY", "0.05")
    monkeypatch.setenv("SGLANG_TEST_HICACHE_BACKEND_RANDOM_FAILURE", "0.3")
    pool = host_pool(kind, "page_first_direct")
    backend = attach(pool)
    assert type(backend).__name__ == "HiCacheStorageFailureInjector"
    sets, gets = [], []
    for seed in range(10):
        fill(pool, seed)
        pool.clear()
        places = pool.alloc(PAGES * PAGE)
        keys, expected = page_keys(seed, PAGES), contents(pool, places)
        done = [bool(each) for each in put(backend, pool, interface, keys, places)]
        assert backend._backend.batch_exists(keys) == (PAGES if all(done) else 0)
        assert backend.batch_exists(keys) in ((0, PAGES) if all(done) else (0,))
        for _ in range(3):
            got = loaded(backend, pool, keys, expected, interface=interface)
            # All of them, or, by the injector, none: nothing else.
            assert got in ([done[0]] * PAGES, [False] * PAGES)
            gets.append(all(got))
        sets.append(all(done))
    assert True in sets and False in gets and True in gets


# Damage


def flip(folder, payload, at=100):
    """Flips a bit of a payload where it lies in a volume."""
    for file in folder.glob("*.kvs"):
        data = file.read_bytes()
        start = data.find(payload)
        if start >= 0:
            assert data.find(payload, start + 1) < 0
            with file.open("r+b") as volume:
                volume.seek(start + at)
                volume.write(bytes([data[start + at] ^ 0x10]))
            return
    raise AssertionError("the payload is in no volume")


def pieces_of(pool, place):
    """The bytes of a page's entries."""
    page = pool.get_data_page(place).contiguous().view(torch.uint8).numpy().tobytes()
    if pool.layout == "layer_first" or "MLA" in type(pool).__name__:
        return [page]
    return [page[:len(page) // 2], page[len(page) // 2:]]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_flipped_bits_miss_exactly_issue_lmcache_3388(attach, tmp_path, kind, layout):
    pool = host_pool(kind, layout)
    backend = attach(pool)
    keys, expected = stored(backend, pool, seed=9)
    backend.close()
    fill(pool, 9)
    # Of the fourth page the last piece, of the seventh the first.
    flip(tmp_path, pieces_of(pool, 3 * PAGE)[-1])
    flip(tmp_path, pieces_of(pool, 6 * PAGE)[0])
    backend = attach(pool)
    answers = [number not in (3, 6) for number in range(PAGES)]
    assert loaded(backend, pool, keys, expected) == answers
    # From now on no lookup says that they are there: the prefix ends before the first.
    assert backend.batch_exists(keys) == 3
    assert loaded(backend, pool, keys, expected) == answers
    # Stored again, they are there again.
    stored(backend, pool, seed=9)
    assert backend.batch_exists(keys) == PAGES
    assert loaded(backend, pool, keys, expected) == [True] * PAGES


# Fingerprints


CHANGES = {
    "model": dict(model_name="another"),
    "revision": dict(extra={"revision": "2"}),
    "salt": dict(extra={"salt": "a tenant"}),
    "tp rank": dict(tp_size=2, tp_rank=1),
    "tp size": dict(tp_size=2),
    "pp rank": dict(pp_size=2, pp_rank=1),
    "cp rank": dict(attn_cp_size=2, attn_cp_rank=1),
    "dtype of the same size": dict(pool=dict(dtype=torch.float16)),
    "dtype": dict(pool=dict(dtype=torch.int8)),
    "page size": dict(pool=dict(page=32)),
    "page size, same bytes": dict(pool=dict(page=32, layers=8)),
    "layers, heads, same bytes": dict(pool=dict(layers=2, heads=4)),
    "heads, head_dim, same bytes": dict(pool=dict(heads=4, head_dim=16)),
    "layout of the same bytes": dict(layout="page_first"),
    "layout": dict(layout="layer_first"),
}


@pytest.mark.parametrize("changed", CHANGES)
def test_one_field_other_finds_0_issue_24758_33268(attach, changed):
    pool = host_pool("mha", "page_first_direct")
    backend = attach(pool)
    keys, expected = stored(backend, pool)
    backend.close()
    change = dict(CHANGES[changed])
    other = host_pool("mha", change.pop("layout", "page_first_direct"), **change.pop("pool", {}))
    backend = attach(other, **change)
    places = other.alloc(PAGES * other.page_size)
    assert backend.batch_exists(keys) == 0
    assert backend.batch_get_v1(keys, places) == [False] * PAGES and not other.kv_buffer.any()
    backend.close()
    # The first configuration finds its pages again.
    backend = attach(pool)
    assert loaded(backend, pool, keys, expected) == [True] * PAGES


def test_mla_field_other_finds_0_issue_24758(attach):
    pool = host_pool("mla", "page_first_direct")
    backend = attach(pool)
    keys, expected = stored(backend, pool)
    backend.close()
    for change in (dict(model_name="another"), dict(extra={"revision": "2"}), dict(pp_size=2)):
        backend = attach(pool, **change)
        assert backend.batch_exists(keys) == 0, change
        backend.close()
    # MLA's bytes are those of each rank, whatever the degree.
    backend = attach(pool, tp_size=4, tp_rank=3)
    assert loaded(backend, pool, keys, expected) == [True] * PAGES


def test_clear_forgets_also_after_a_restart_issue_26792(attach):
    pool = host_pool("mha", "page_first_direct")
    backend = attach(pool)
    keys, expected = stored(backend, pool)
    assert backend.clear() and backend.batch_exists(keys) == 0
    assert loaded(backend, pool, keys, expected) == [False] * PAGES
    backend.close()
    backend = attach(pool)
    assert backend.batch_exists(keys) == 0
    # What comes after it stays.
    new, expected = stored(backend, pool, seed=2)
    backend.close()
    backend = attach(pool)
    assert backend.batch_exists(keys) == 0 and loaded(backend, pool, new, expected) == [True] * PAGES


def test_clear_with_keep_keeps(attach):
    pool = host_pool("mha", "page_first_direct")
    backend = attach(pool, extra={"on_reset": "keep"})
    keys, _ = stored(backend, pool)
    assert backend.clear() and backend.batch_exists(keys) == PAGES


# Capacity


def test_folder_never_grows_beyond_capacity_issue_26670_28654(attach, tmp_path):
    pool = host_pool("mha", "page_first_direct")
    backend = attach(pool, extra={"capacity": "2MiB"})
    lengths = set()
    for seed in range(20):    # 20 times 8 pages of 64 KiB: 10 MiB
        keys, expected = stored(backend, pool, seed=seed)
        lengths.add(sum(file.stat().st_size for file in tmp_path.iterdir()))
        assert backend.batch_exists(keys) == PAGES
        assert loaded(backend, pool, keys, expected) == [True] * PAGES
    # The bytes of the pages are the capacity; the tables of a volume are beside them.
    assert len(lengths) == 1 and max(lengths) <= (2 << 20) + (256 << 10)
    assert backend.batch_exists(page_keys(0, PAGES)) == 0


def test_hit_reported_is_hit_delivered_issue_40193(attach):
    pool = host_pool("mha", "page_first_direct")
    # 31 pieces: K of a page can be there without its V.
    backend = attach(pool, extra={"capacity": str(31 * 32768)})
    order, found = random.Random(1), set()
    expected = {seed: held(pool, seed=seed)[1] for seed in range(5)}
    for _ in range(60):
        seed = order.randrange(5)
        keys = page_keys(seed, PAGES)
        pages = backend.batch_exists(keys)
        found.add(pages)
        assert loaded(backend, pool, keys[:pages], expected[seed][:pages]) == [True] * pages
        some = order.randrange(1, PAGES + 1)
        fill(pool, seed)
        pool.clear()
        places = pool.alloc(PAGES * PAGE)
        assert all(backend.batch_set_v1(keys[:some], places[:some * PAGE]))
    assert len(found) > 3, found


# Side pools


def hybrid(attach, **more):
    pool = host_pool("mha", "page_first_direct", layers=2)
    sides = {PoolName.DRAFT: host_pool("mha", "page_first_direct", layers=1),
             PoolName.SWA: host_pool("mha", "layer_first", layers=3),
             PoolName.MAMBA: host_pool("mha", "page_first_direct", page=1, layers=1, slots=64)}
    backend = attach(pool, sides=sides, extra={"capacity": "32MiB"}, **more)
    return backend, pool, sides


def put_side(backend, side, name, keys):
    places = torch.arange(len(keys) * side.page_size)
    return backend.batch_set_v2([PoolTransfer(name=name, host_indices=places, keys=keys)])[name]


def test_side_pools_have_their_own_pages_and_answers(attach):
    backend, pool, sides = hybrid(attach)
    keys, expected = stored(backend, pool)
    assert backend.batch_exists_v2(keys, [PoolTransfer(name=PoolName.DRAFT)]).kv_hit_pages == 0
    for name, side in sides.items():
        fill(side, 5)
        wanted = contents(side, torch.arange(PAGES * side.page_size))
        assert put_side(backend, side, name, keys) == [True] * PAGES
        side.kv_buffer.zero_()
        places = torch.arange(9 * side.page_size, (9 + PAGES) * side.page_size)
        got = backend.batch_get_v2([PoolTransfer(name=name, host_indices=places, keys=[*keys[:-1], "f" * 64])])
        assert got == {name: [True] * 7 + [False]}
        assert contents(side, places)[:7] == wanted[:7]
        assert not side.get_data_page(0).any()
    assert loaded(backend, pool, keys, expected) == [True] * PAGES
    transfers = [PoolTransfer(name=name) for name in sides]
    assert backend.batch_exists_v2(keys, transfers).kv_hit_pages == PAGES


@pytest.mark.parametrize("seed", range(4))
def test_v2_prefixes_are_those_of_the_file_backend(attach, tmp_path, seed):
    backend, pool, sides = hybrid(attach, folder=tmp_path / "ours")
    config = HiCacheStorageConfig(0, 1, 0, 1, 0, 1, False, False, False, "tiny")
    file = HiCacheFile(config, str(tmp_path / "file"))
    file.register_mem_host_pool_v2(pool, PoolName.KV)
    for name, side in sides.items():
        file.register_mem_host_pool_v2(side, name)
    order, pools = random.Random(seed), {PoolName.KV: pool, **sides}
    compared = 0
    for chain in range(10):
        keys = page_keys(1000 * seed + chain, 12)
        for name, each in pools.items():
            chosen = [key for key in keys if order.random() < (0.95 if name == PoolName.KV else 0.8)]
            if chosen:
                assert all(put_side(backend, each, name, chosen)) and all(put_side(file, each, name, chosen))
        for names in [(), *itertools.combinations(sides, 1), *itertools.combinations(sides, 2), tuple(sides)]:
            transfers = [
                PoolTransfer(name=name, keys=keys[:order.randrange(4)] or None,
                             hit_policy=order.choice([PoolHitPolicy.ALL_PAGES, PoolHitPolicy.TRAILING_PAGES]))
                for name in names]
            ours, theirs = backend.batch_exists_v2(keys, transfers), file.batch_exists_v2(keys, transfers)
            assert ours.kv_hit_pages == theirs.kv_hit_pages
            assert ours.restorable_prefix_pages == theirs.restorable_prefix_pages
            assert ours.extra_pool_hit_pages == theirs.extra_pool_hit_pages
            compared += ours.kv_hit_pages > 0
    assert compared > 10


def test_block_groups_report_and_gate_nothing(attach):
    backend, pool, sides = hybrid(attach)
    keys, _ = stored(backend, pool)
    groups = page_keys(77, 6)
    put_side(backend, sides[PoolName.DRAFT], PoolName.DRAFT, groups[:5])
    transfer = PoolTransfer(name=PoolName.DRAFT, keys=groups, hit_policy=PoolHitPolicy.BLOCK_GROUPS,
                            block_pages=3, group_pages=2)
    result = backend.batch_exists_v2(keys, [transfer])
    # Two whole groups of two keys stand for two blocks of three pages.
    assert result.kv_hit_pages == PAGES and result.extra_pool_hit_pages == {PoolName.KV: PAGES, PoolName.DRAFT: 6}


def test_short_sidecar_page_never_counts_issue_31108(attach, tmp_path):
    backend, pool, sides = hybrid(attach)
    keys, _ = stored(backend, pool)
    side = sides[PoolName.DRAFT]
    transfer = PoolTransfer(name=PoolName.DRAFT, keys=keys)
    for places in (None, torch.arange(0), torch.arange(PAGES * PAGE - 1), torch.arange(PAGES * PAGE + 1)):
        short = PoolTransfer(name=PoolName.DRAFT, keys=keys, host_indices=places)
        assert backend.batch_set_v2([short]) == {PoolName.DRAFT: [False] * PAGES}
        assert backend.batch_get_v2([short]) == {PoolName.DRAFT: [False] * PAGES}
    assert backend.batch_exists_v2(keys, [transfer]).kv_hit_pages == 0
    # A pool that nobody registered.
    nobody = PoolTransfer(name=PoolName.INDEXER, keys=keys, host_indices=torch.arange(PAGES * PAGE))
    assert backend.batch_get_v2([nobody]) == backend.batch_set_v2([nobody]) == {PoolName.INDEXER: [False] * PAGES}
    assert backend.batch_exists_v2(keys, [nobody]).kv_hit_pages == 0
    # One that is damaged: the load says so, and from then on the lookup.
    fill(side, 3)
    piece = pieces_of(side, 4 * PAGE)[1]
    put_side(backend, side, PoolName.DRAFT, keys)
    assert backend.batch_exists_v2(keys, [transfer]).kv_hit_pages == PAGES
    backend.close()
    flip(tmp_path, piece)
    backend = attach(pool, sides=sides, extra={"capacity": "32MiB"})
    whole = PoolTransfer(name=PoolName.DRAFT, keys=keys, host_indices=torch.arange(PAGES * PAGE))
    assert backend.batch_get_v2([whole])[PoolName.DRAFT] == [number != 4 for number in range(PAGES)]
    assert backend.batch_exists_v2(keys, [transfer]).kv_hit_pages == 4


def test_a_pool_that_comes_late_is_stored_if_named(attach, caplog):
    for extra, count in (({}, 0), ({"capacities": {"draft": "4MiB"}}, PAGES)):
        pool = host_pool("mha", "page_first_direct")
        backend = attach(pool, extra={"model": str(count), "capacity": "16MiB", **extra}, folder=None)
        keys, _ = stored(backend, pool)
        side = host_pool("mha", "page_first_direct", layers=1)
        backend.register_mem_host_pool_v2(side, PoolName.DRAFT)
        assert sum(put_side(backend, side, PoolName.DRAFT, keys)) == count
        backend.close()
    assert "name it in capacities" in caplog.text


def test_a_pool_that_comes_before_the_first_request_has_a_share(attach, tmp_path):
    pool = host_pool("mha", "page_first_direct")
    backend = attach(pool)
    side = host_pool("mha", "page_first_direct", layers=2)
    backend.register_mem_host_pool_v2(side, PoolName.DRAFT)
    keys, _ = stored(backend, pool)
    assert put_side(backend, side, PoolName.DRAFT, keys) == [True] * PAGES
    # As many pages of each: a page of the side pool has half the bytes.
    lengths = sorted(file.stat().st_size for file in tmp_path.glob("*.kvs"))
    assert len(lengths) == 2 and 1.9 < lengths[1] / lengths[0] < 2.1 and sum(lengths) < 1.02 * (16 << 20)


# Ranks


def rank_in_child(attach, kind, **config):
    """A rank in a process of its own, that answers ("store", seed), ("load", seed), ("exists", seed), ("clear",)."""
    def answers():
        pool = host_pool(kind, "page_first_direct")
        backend = attach(pool, **config)

        def answer(do, seed=0):
            keys, expected = held(pool, seed=seed)
            if do == "store":
                return stored(backend, pool, seed=seed)[0]
            if do == "load":
                return loaded(backend, pool, keys, expected)
            if do == "some":
                return loaded(backend, pool, [keys[0], "f" * 64, keys[2]], [expected[0], NOTHING, expected[2]])
            if do == "close":
                return backend.close()
            return backend.clear() if do == "clear" else backend.batch_exists(keys)

        return answer

    return Child(answers)


def test_mla_ranks_share_one_copy_issue_lmcache_2947(attach, tmp_path):
    ranks = [rank_in_child(attach, "mla", tp_size=3, tp_rank=rank) for rank in range(3)]
    assert [rank.ask("exists") for rank in ranks] == [0, 0, 0]
    # SGLang writes from rank 0 alone.
    ranks[0].ask("store")
    assert len(list(tmp_path.glob("*.kvs"))) == 1
    for rank in ranks:
        assert rank.ask("exists") == PAGES and rank.ask("load") == [True] * PAGES
    # Also a rank that is a guest can store.
    ranks[2].ask("store", 1)
    assert [rank.ask("load", 1) for rank in ranks] == [[True] * PAGES] * 3
    ranks[1].ask("clear")
    assert [rank.ask("exists") for rank in ranks] == [0, 0, 0]
    for rank in ranks:
        rank.end()


@pytest.mark.parametrize("kind", KINDS)
def test_a_guest_gets_exact_answers_and_a_miss_touches_nothing(attach, kind):
    owner, guest = (rank_in_child(attach, kind) for _ in range(2))
    owner.ask("store")
    assert guest.ask("load") == [True] * PAGES
    # What lies in the shared memory from the load before is not taken for a page.
    assert guest.ask("some") == [True, False, True]
    assert owner.ask("some") == [True, False, True]
    guest.end()
    owner.end()


def test_mla_rank_takes_over_when_the_owner_ends(attach):
    first = rank_in_child(attach, "mla", tp_size=2, tp_rank=0)
    first.ask("store")
    second = rank_in_child(attach, "mla", tp_size=2, tp_rank=1)
    assert second.ask("load") == [True] * PAGES
    first.ask("close")
    # The call that finds the owner gone is a miss. It opens the volume, and the next one is served.
    assert second.ask("load") in ([False] * PAGES, [True] * PAGES)
    assert second.ask("load") == [True] * PAGES
    # The other way round, by a kill.
    third = rank_in_child(attach, "mla", tp_size=2, tp_rank=0)
    assert third.ask("load") == [True] * PAGES
    second.kill()
    assert third.ask("load") in ([False] * PAGES, [True] * PAGES)
    assert third.ask("load") == [True] * PAGES
    first.end()
    third.end()


def test_an_owner_that_hangs_is_a_miss_issue_dynamo_5012(attach):
    owner = rank_in_child(attach, "mla", extra={"deadline": 0.5})
    owner.ask("store")
    guest = rank_in_child(attach, "mla", extra={"deadline": 0.5})
    assert guest.ask("load") == [True] * PAGES
    os.kill(owner.process, signal.SIGSTOP)
    started = time.monotonic()
    assert guest.ask("load") == [False] * PAGES
    # Spared: these do not wait for it again.
    assert [guest.ask("exists") for _ in range(5)] == [0] * 5
    assert time.monotonic() - started < 15
    os.kill(owner.process, signal.SIGCONT)
    while guest.ask("load") != [True] * PAGES:
        assert time.monotonic() - started < 60
    guest.end()
    owner.end()


def test_a_guest_with_another_model_finds_nothing_issue_24758(attach):
    owner = rank_in_child(attach, "mla")
    owner.ask("store")
    guest = rank_in_child(attach, "mla", model_name="another")
    assert guest.ask("exists") == 0 and guest.ask("load") == [False] * PAGES
    assert owner.ask("load") == [True] * PAGES
    guest.end()
    owner.end()


def test_mha_ranks_have_volumes_of_their_own_issue_lmcache_1379(attach, tmp_path):
    ranks = [rank_in_child(attach, "mha", tp_size=2, tp_rank=rank) for rank in range(2)]
    ranks[0].ask("store")
    # SGLang takes the minimum over the ranks.
    assert [rank.ask("exists") for rank in ranks] == [PAGES, 0]
    ranks[1].ask("store")
    assert [rank.ask("exists") for rank in ranks] == [PAGES, PAGES]
    assert len(list(tmp_path.glob("*.kvs"))) == 2
    for rank in ranks:
        rank.end()


def test_engines_beside_each_other_share_a_folder(attach):
    """Two data-parallel engines: the same model, the same ranks, one folder."""
    first, second = (rank_in_child(attach, "mha") for _ in range(2))
    first.ask("store")
    assert second.ask("load") == [True] * PAGES
    first.end()
    second.end()


# Configuration


def test_unknown_keys_are_ignored_with_one_warning(attach, caplog):
    pool = host_pool("mha", "page_first_direct")
    with caplog.at_level(logging.WARNING):
        backend = attach(pool, extra={"colour": "red", "prefetch_threshold": 1, "taste": 2})
    assert [record.message for record in caplog.records if "ignores" in record.message] == [
        "KvstrataHiCache ignores colour, taste"]
    stored(backend, pool)


@pytest.mark.parametrize("extra, words", [
    ({"capacity": None}, "capacity: none; give"),
    ({"revision": None}, "revision: cannot be told"),
    ({"on_reset": "x"}, "on_reset: 'x'; choose"),
    ({"capacity": "4K"}, "capacity: 4096 bytes for the pool kv"),
    ({"capacity": "much"}, "capacity: 'much' is no number"),
    ({"path": __file__}, "is a file; give a folder"),
    ({"path": "/proc/kvstrata"}, "give a folder that"),
    ({"settings": {"disk": {"policy": "none at all"}}}, "disk.policy"),
    ({"settings": "disk"}, "give a dict"),
])
def test_wrong_configuration_fails_the_attach_with_a_remedy(attach, extra, words):
    with pytest.raises(kvstrata.OpenError, match=words.replace("(", ".")):
        backend = attach(host_pool("mha", "page_first_direct"), extra=extra)
        backend.batch_exists(["a"])


def test_revision_comes_from_the_folder_of_the_weights(attach, tmp_path):
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "model.safetensors").write_bytes(b"1")
    (weights / "config.json").write_text("{}")
    pool = host_pool("mha", "page_first_direct")
    given = dict(extra={"revision": None}, model_name=str(weights))
    backend = attach(pool, **given)
    keys, _ = stored(backend, pool)
    backend.close()
    backend = attach(pool, **given)
    assert backend.batch_exists(keys) == PAGES
    backend.close()
    (weights / "model.safetensors").write_bytes(b"22")
    assert attach(pool, **given).batch_exists(keys) == 0


def test_after_close_each_call_is_a_miss(attach):
    pool = host_pool("mha", "page_first_direct")
    backend = attach(pool)
    keys, _ = stored(backend, pool)
    backend.close()
    backend.close()
    places = torch.arange(PAGES * PAGE)
    assert backend.batch_exists(keys) == 0 and not backend.exists(keys[0])
    assert backend.batch_get_v1(keys, places) == backend.batch_set_v1(keys, places) == [False] * PAGES
    assert backend.batch_get(keys) == [None] * PAGES and not backend.batch_set(keys, [torch.zeros(1)] * PAGES)
    assert backend.batch_exists_v2(keys, []).kv_hit_pages == 0


def test_before_the_pools_are_known_each_call_is_a_miss(attach):
    pool = host_pool("mha", "page_first_direct")
    backend = attach(pool, register=False)
    assert backend.batch_exists(["a"]) == 0 and backend.batch_set_v1(["a"], torch.arange(PAGE)) == [False]
    assert backend.batch_get(["a"]) == [None] and not backend.clear() and backend.stats() == {}


def test_metrics_are_those_that_sglang_collects(attach):
    pool = host_pool("mha", "page_first_direct")
    backend = attach(pool, enable_storage_metrics=True)
    keys, expected = stored(backend, pool)
    loaded(backend, pool, keys, expected)
    metrics = backend.get_stats()
    assert metrics.backup_pgs == [PAGES] and metrics.prefetch_pgs == [PAGES]
    assert metrics.backup_bandwidth[0] > 0 and metrics.prefetch_bandwidth[0] > 0
    assert backend.get_stats().prefetch_pgs == []
    assert attach(host_pool("mla", "page_first_direct")).get_stats() is None
