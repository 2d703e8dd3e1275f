"""Memory, descriptors, and the GIL, over many batches."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import BLOCK, Opener, aligned, descriptors, resident_bytes

import kvstrata

# ci/nightly sets 100,000.
BATCHES = int(os.environ.get("KVSTRATA_PYTHON_BATCHES", "5000"))


def test_memory_and_descriptors_stay_flat(open_store: Opener) -> None:
    store = open_store(disk_bytes="8M", host_bytes="2M")
    view = aligned(8 * BLOCK).cast("B", shape=[8, BLOCK])
    poll = select.poll()
    poll.register(store.event_fd(), select.POLLIN)

    def batches(first: int, count: int) -> None:
        for number in range(first, first + count):
            keys = [b"%d" % (number * 4 + place) for place in range(4)]
            jobs = {store.submit_store(keys, view, rows=[0, 1, 2, 3]), store.submit_load(keys, view, rows=[4, 5, 6, 7])}
            while jobs:
                assert poll.poll(30_000), "a batch did not end"
                jobs -= {ended.job for ended in store.drain()}
            store.contains(keys)

    batches(0, 1000)
    memory, files = resident_bytes(), descriptors()
    batches(1000, BATCHES)
    grown = resident_bytes() - memory
    print(f"after {BATCHES} batches: {grown} bytes more, {descriptors() - files} descriptors more")
    assert descriptors() == files
    # Less than 100 bytes a batch beyond what the allocator keeps.
    assert grown < (4 << 20) + BATCHES * 100, grown


def test_stores_give_back_memory_and_descriptors(open_store: Opener, tmp_path: Any) -> None:
    given = {"store": dict(model="m", revision="1", dtype="d", layout="l", span=1, ranks="r", sizes=[BLOCK])}

    def once() -> None:
        with kvstrata.Store(given, host_bytes="2M", disk_bytes="4M", disk_paths=[tmp_path]) as store:
            assert store.store(["a"], [bytes(BLOCK)]).ok

    def settled(limit: int) -> int:
        # The volume's own threads end a moment after close has returned.
        ends = time.monotonic() + 10
        while descriptors() > limit and time.monotonic() < ends:
            threading.Event().wait(0.01)
        return descriptors()

    for _ in range(3):
        once()
    files, memory = descriptors(), resident_bytes()
    for _ in range(30):
        once()
    assert settled(files) <= files
    assert resident_bytes() - memory < 16 << 20


def times() -> tuple[int, int, int]:
    """Nanoseconds of this thread: by the clock, on a processor, and waiting for one."""
    try:
        run, queued, _ = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").read_text().split()
    except FileNotFoundError:
        pytest.skip("SKIP schedstat: the kernel does not tell how long a thread waits for a processor")
    return time.monotonic_ns(), int(run), int(queued)


def lost_while(goes_on: Callable[[], bool]) -> float:
    """Counts as long as a condition holds; returns the share of the time that it waited for anything but a processor."""
    began, counted = times(), 0
    while goes_on():
        counted += 1
    wall, ran, queued = (after - before for before, after in zip(began, times()))
    assert counted > 0
    return (wall - ran - queued) / wall


def test_counting_thread_loses_little_while_a_store_opens(open_store: Opener, tmp_path: Path) -> None:
    thread = threading.Thread(target=lambda: open_store(disk_bytes="512M"))
    thread.start()
    lost = lost_while(thread.is_alive)
    print(f"a counting thread loses {lost:.1%} to the GIL while a store opens")
    assert (tmp_path / "kvstrata.hash-key").exists() and lost < 0.05


def test_counting_thread_loses_little(open_store: Opener) -> None:
    """The GIL is free while transfers run. A thread that counts never waits but for the GIL and for a processor; the
    kernel tells the latter apart, so other processes do not disturb the figure.
    """
    store = open_store(disk_bytes="64M", store_sizes=["1M"])
    memory = aligned(8 << 20)
    parts = [memory[at << 20 : (at + 1) << 20] for at in range(8)]
    stop = threading.Event()
    rounds = [0]

    def transfers() -> None:
        while not stop.is_set():
            keys = [b"%d" % (rounds[0] * 8 + place) for place in range(8)]
            store.store(keys, parts)
            store.load(keys, parts)
            rounds[0] += 1

    thread = threading.Thread(target=transfers)
    thread.start()
    ends = time.monotonic() + 2
    lost = lost_while(lambda: time.monotonic() < ends)
    stop.set()
    thread.join(60)
    print(f"a counting thread loses {lost:.1%} to the GIL beside {rounds[0]} rounds of 16 MiB in 2 s")
    assert rounds[0] > 0 and lost < 0.05


@pytest.mark.parametrize("form", ["list", "rows"])
def test_submits_take_little_of_the_caller(open_store: Opener, form: str) -> None:
    """Processor time of a submit of 32 keys, which other processes do not disturb. The figure is printed."""
    store = open_store(disk_bytes="64M")
    view = aligned(32 * BLOCK).cast("B", shape=[32, BLOCK])
    parts = [view.cast("B")[at * BLOCK : (at + 1) * BLOCK] for at in range(32)]
    poll = select.poll()
    poll.register(store.event_fd(), select.POLLIN)
    took: dict[str, list[float]] = {"store": [], "load": []}
    for number in range(200):
        keys = [b"%d" % (number * 32 + place) for place in range(32)]
        for kind, call in (("store", store.submit_store), ("load", store.submit_load)):
            began = time.thread_time()
            if form == "rows":
                call(keys, view, rows=range(32))
            else:
                call(keys, parts)
            took[kind].append((time.thread_time() - began) * 1e6)
            while not store.drain():
                assert poll.poll(30_000)
    for kind, figures in took.items():
        figures.sort()
        print(f"{form}: submit_{kind} of 32 keys: p50 {figures[100]:.1f} us, p99 {figures[198]:.1f} us")
        assert figures[100] < 300
