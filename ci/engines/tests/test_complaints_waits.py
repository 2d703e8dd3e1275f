"""Drives that hang, and who waits for them."""

import statistics
import time
from collections.abc import Callable
from resource import RUSAGE_THREAD, getrusage
from typing import Any

from conftest import Drive
from engine import Engine, key, keys
from vllm.v1.kv_offload.base import LookupResult, ReqContext

# All that vLLM's scheduler calls, but for drain_jobs and shutdown, which wait by contract.
CALLS = ["lookup", "submit_store", "submit_load", "get_finished_jobs", "has_pending_work", "take_events", "touch",
         "on_new_request", "on_request_finished", "serve_external_requests", "on_schedule_end", "get_stats"]

STALL_SECONDS = 10


def timed(tier: Any) -> dict[str, list[float]]:
    """Measures each call from here on, in seconds. A call during which the kernel gave the core to another thread is
    left out: the machine may be busy. A call that waits gives the core up itself, and stays."""
    measured: dict[str, list[float]] = {name: [] for name in CALLS}

    def wrapped(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            preempted, began = getrusage(RUSAGE_THREAD).ru_nivcsw, time.perf_counter()
            try:
                return call(*arguments, **named)
            finally:
                seconds = time.perf_counter() - began
                if getrusage(RUSAGE_THREAD).ru_nivcsw == preempted:
                    measured[name].append(seconds)
        return run

    for name in CALLS:
        setattr(tier, name, wrapped(name, getattr(tier, name)))
    return measured


def test_vllm_45765_no_call_waits_while_the_drive_hangs(start: Any, stalling_drive: Drive) -> None:
    drive = stalling_drive
    engine = start(drive.mount / "kv.kvs", rows=512, capacity="16MiB", deadline=60)
    engine.store(range(256))
    engine.empty_region()
    measured = timed(engine.tier)
    drive.stall()
    began, step, pending = time.monotonic(), 0, engine.request()
    for number in range(32):
        assert engine.manager.lookup(key(number), pending) is LookupResult.HIT_PENDING
    engine.step()
    while time.monotonic() < began + STALL_SECONDS:
        # In each step a request that finds a chunk more than the last one did, in each fourth one a store.
        context = engine.request()
        for number in (*range(32, min(33 + step, 256)), *range(10_000, 10_008)):
            engine.manager.lookup(key(number), context)
        if step % 4 == 0 and step < 400:
            engine.begin_store([1000 + step, 1001 + step])
        engine.manager.touch(keys(range(8)), context)
        engine.manager.on_request_finished(context)
        engine.step()
        engine.manager.get_stats()
        step += 1
        time.sleep(0.002)
    # The drive did hang: the loads that waited for it still wait.
    assert engine.manager.lookup(key(0), pending) is LookupResult.HIT_PENDING
    drive.go_on()
    engine.wait(60)
    assert engine.find(range(32), pending) == 32
    every = sorted(second for each in measured.values() for second in each)
    for name, seconds in measured.items():
        assert not seconds or statistics.median(seconds) < 100e-6, (name, len(seconds), statistics.median(seconds))
    report = {name: [round(statistics.median(each) * 1e6, 1), round(max(each) * 1e6)]
              for name, each in measured.items() if each}
    print(f"{step} steps, {len(every)} calls; median and longest in us: {report}")
    assert every[int(len(every) * 0.999)] < 100e-6, report


def test_dynamo_5012_hanging_drive_is_a_miss_at_the_deadline(start: Any, stalling_drive: Drive) -> None:
    drive = stalling_drive
    engine = start(drive.mount / "kv.kvs", straight=False, deadline=1)
    engine.store(range(16))
    engine.empty_region()
    drive.stall()
    began = time.monotonic()
    assert engine.find(range(16)) == 0
    assert time.monotonic() - began < 3
    # Nobody is sent to a drive that hangs a second time.
    assert engine.tier.lookup(key(0), ReqContext(req_id="later")) is LookupResult.MISS
    drive.go_on()


def test_dynamo_6032_engine_stops_beside_a_hanging_drive(start: Any, stalling_drive: Drive) -> None:
    drive = stalling_drive
    engine: Engine = start(drive.mount / "kv.kvs", straight=False, deadline=1,
                           settings={"deadline": {"shutdown": "1s"}})
    engine.store(range(16))
    engine.empty_region()
    drive.stall()
    assert engine.find(range(16)) == 0
    began = time.monotonic()
    engine.close()
    assert time.monotonic() - began < 3
    drive.go_on()
