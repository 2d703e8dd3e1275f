"""Loads that fail, and what users of engines have seen then. Each name has the project's tracker and number."""

import ctypes
import os
import random
import select
from pathlib import Path
from typing import Any

import pytest
from conftest import Drive, flip, places, volume_of
from engine import Engine, chunk, key, keys
from vllm.v1.kv_offload.base import LookupResult, ReqContext

from kvstrata import lmcache

CHUNKS = 9


def loads_of(engine: Engine) -> list[bytes]:
    """The keys of all loads that the tier is asked for from here on."""
    asked: list[bytes] = []
    submit = engine.tier.submit_load

    def counted(job: Any) -> None:
        asked.extend(job.keys)
        submit(job)

    engine.tier.submit_load = counted
    return asked


def results_of(engine: Engine) -> list[Any]:
    """All results that the tier reports from here on."""
    results: list[Any] = []
    finished = engine.tier.get_finished_jobs

    def kept() -> Any:
        new = list(finished())
        results.extend(new)
        return new

    engine.tier.get_finished_jobs = kept
    return results


@pytest.mark.parametrize("position", range(CHUNKS))
def test_vllm_39732_one_damaged_chunk_spoils_no_other(start: Any, tmp_path: Path, position: int) -> None:
    engine = start()
    engine.store(range(CHUNKS))
    engine.empty_region()
    (at,) = places(volume_of(tmp_path), position)
    flip(volume_of(tmp_path), at + 4321, bit=position % 8)
    results = results_of(engine)
    assert engine.find(range(CHUNKS)) == position
    (result,) = results
    assert not result.success
    assert set(result.successful_keys) == set(keys(range(CHUNKS))) - {key(position)}
    # The chunks behind it are in the region, with the right bytes.
    assert engine.find(range(position + 1, CHUNKS)) == CHUNKS - 1 - position


def test_vllm_39732_torn_volume_is_no_error(start: Any, tmp_path: Path) -> None:
    engine = start()
    engine.store(range(CHUNKS))
    engine.empty_region()
    (first,), volume = places(volume_of(tmp_path), 0), volume_of(tmp_path)
    (last,) = places(volume, CHUNKS - 1)
    # Half of a chunk is gone, and all that lies behind it.
    os.truncate(volume, (first + last) // 2 // 16384 * 16384 + 8192)
    found = engine.find(range(CHUNKS))
    assert found < CHUNKS
    engine.store(range(100, 104))


def test_vllm_39732_read_error_is_a_miss(start: Any, drive: Drive) -> None:
    engine = start(drive.mount / "kv.kvs")
    engine.store(range(CHUNKS))
    engine.empty_region()
    drive.fail_reads()
    results = results_of(engine)
    assert engine.find(range(CHUNKS)) == 0
    (result,) = results
    assert not result.success and not result.successful_keys


@pytest.mark.parametrize("damaged", [{0}, {4}, {CHUNKS - 1}, set(range(CHUNKS))])
def test_vllm_49176_failed_load_is_a_miss_at_once(start: Any, tmp_path: Path, damaged: set[int]) -> None:
    engine = start()
    engine.store(range(CHUNKS))
    engine.empty_region()
    for number in damaged:
        (at,) = places(volume_of(tmp_path), number)
        flip(volume_of(tmp_path), at)
    asked = loads_of(engine)
    assert engine.find(range(CHUNKS), steps=3) == min(damaged)
    assert len(asked) == len(set(asked)) == CHUNKS, "a chunk was loaded twice"
    context = ReqContext(req_id="later")
    for number in range(CHUNKS):
        expected = LookupResult.MISS if number in damaged else LookupResult.HIT
        assert engine.tier.lookup(key(number), context) is expected
    # The engine computes them again, and stores them.
    engine.store(sorted(damaged))
    engine.empty_region()
    assert engine.find(range(CHUNKS)) == CHUNKS


def test_dynamo_15079_flipped_bit_never_serves_other_bytes(start: Any, tmp_path: Path) -> None:
    engine = start()
    engine.store(range(CHUNKS))
    engine.close()
    volume = volume_of(tmp_path)
    good, dice = volume.read_bytes(), random.Random(15079)
    payload = [at for number in range(CHUNKS) for at in places(volume, number)]
    found = []
    for attempt in range(60):
        # Half of the bits lie in chunks, half anywhere.
        at = dice.choice(payload) + dice.randrange(16 << 10) if attempt % 2 else dice.randrange(len(good))
        volume.write_bytes(good)
        flip(volume, at, dice.randrange(8))
        try:
            engine = start()
        except Exception as error:  # A header that is damaged may be refused.
            assert "kv.kvs" in str(error), error
            continue
        # `find` compares the bytes.
        found.append(sum(engine.find([number]) for number in range(CHUNKS)))
        engine.close()
    assert found.count(CHUNKS - 1) >= 30 and CHUNKS in found


def test_vllm_44294_eight_requests_read_each_chunk_once(start: Any) -> None:
    engine = start()
    engine.store(range(CHUNKS))
    engine.empty_region()
    asked, requests = loads_of(engine), [engine.request() for _ in range(8)]
    for context in requests:
        assert [engine.manager.lookup(one, context) for one in keys(range(CHUNKS))] == [
            LookupResult.HIT_PENDING] * CHUNKS
    engine.wait()
    assert sorted(asked) == sorted(keys(range(CHUNKS)))
    # All of them start in the same step.
    for context in requests:
        assert [engine.manager.lookup(one, context) for one in keys(range(CHUNKS))] == [LookupResult.HIT] * CHUNKS
        assert engine.read(range(CHUNKS), context) == [chunk(number) for number in range(CHUNKS)]


def test_sglang_40193_reported_hit_is_the_delivered_one(start: Any) -> None:
    """Also while the volume, which holds fewer chunks than were stored, evicts."""
    engine = start(capacity="1MiB", rows=256)
    dice, tier = random.Random(40193), engine.tier
    for round_ in range(20):
        engine.store(range(round_ * 20, round_ * 20 + 20))
        engine.empty_region()
        numbers = dice.sample(range(round_ * 20 + 20), 12)
        hits = [number for number in numbers
                if tier.lookup(key(number), ReqContext(req_id="count")) is LookupResult.HIT]
        assert sum(engine.find([number]) for number in numbers) == len(hits)
        engine.empty_region()


def answer_of(client: lmcache.Store, number: int) -> tuple[bool, list[bool]]:
    poll = select.poll()
    poll.register(client.event_fd(), select.POLLIN)
    while True:
        assert poll.poll(30_000), "no answer"
        for answered, ok, _, bools in client.drain_completions():
            assert answered == number
            return ok, bools


def views(*contents: bytes) -> list[memoryview]:
    """As LMCache has them."""
    return [memoryview((ctypes.c_ubyte * len(content)).from_buffer_copy(content)) for content in contents]


def test_lmcache_3388_damaged_object_is_false_alone(tmp_path: Path) -> None:
    client = lmcache.Store(tmp_path / "kv.kvs", "4MiB", sizes=["16KiB"], model="m", revision="1", dtype="d")
    names = [f"object {number}" for number in range(CHUNKS)]
    contents = [chunk(number) for number in range(CHUNKS)]
    assert answer_of(client, client.submit_batch_set(names, views(*contents))) == (True, [True] * CHUNKS)
    (at,) = places(volume_of(tmp_path), 4)
    flip(volume_of(tmp_path), at + 999)
    good = [number != 4 for number in range(CHUNKS)]
    targets = views(*[bytes(len(content)) for content in contents])
    assert answer_of(client, client.submit_batch_get(names, targets)) == (False, good)
    assert [bytes(target) == content for target, content in zip(targets, contents)] == good
    assert answer_of(client, client.submit_batch_exists(names)) == (True, good)
    client.close()


def test_sglang_31108_object_of_another_length_is_no_hit(tmp_path: Path) -> None:
    client = lmcache.Store(tmp_path / "kv.kvs", "4MiB", sizes=["16KiB"], model="m", revision="1", dtype="d")
    names, lengths = ["short", "whole", "shorter"], [1000, 16384, 64]
    assert answer_of(client, client.submit_batch_set(names, views(*map(bytes, lengths)))) == (True, [True] * 3)
    asked = views(bytes(1001), bytes(16384), bytes(63))
    assert answer_of(client, client.submit_batch_get(names, asked)) == (False, [False, True, False])
    client.close()
