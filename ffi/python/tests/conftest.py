"""Parts that the tests share: a fingerprint, stores in temporary folders, programs with a deadline."""

from __future__ import annotations

import mmap
import os
import select
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kvstrata

FINGERPRINT: dict[str, Any] = {
    "model": "a model",
    "revision": "1",
    "dtype": "bfloat16",
    "layout": "a layout",
    "span": 16,
    "ranks": "tp0of1",
    "lora": "an adapter",
    "salt": "a tenant",
}

BLOCK = 16 << 10

# The beginning of each program that a test runs: a store in the folder of its first argument.
PRELUDE = """
import os, signal, sys, threading, time
import kvstrata
FINGERPRINT = %r
BLOCK = %d
def opened(folder=sys.argv[1] if len(sys.argv) > 1 else None, **more):
    paths = [folder] if folder else []
    given = {"disk_bytes": "16M", "store_sizes": [BLOCK], **more}
    return kvstrata.Store({"store": FINGERPRINT, "disk": {"paths": paths}}, **given)
def payload(number, length=BLOCK):
    return (b"<%%014d>" %% number * (length // 16 + 1))[:length]
def settle():
    # A volume writes the records of blocks 250 ms after the blocks, and tells nobody.
    time.sleep(1)
def say(*words):
    print(*words, flush=True)
""" % (FINGERPRINT, BLOCK)


def payload(number: int, length: int = BLOCK) -> bytes:
    return (b"<%014d>" % number * (length // 16 + 1))[:length]


def until_ended(store: Any, jobs: int = 1, seconds: float = 30) -> list[Any]:
    """Polls the descriptor until so many batches have ended."""
    ended: list[Any] = []
    poll = select.poll()
    poll.register(store.event_fd(), select.POLLIN)
    while len(ended) < jobs:
        assert poll.poll(seconds * 1000), f"{len(ended)} of {jobs} batches ended in {seconds} s"
        ended += store.drain()
    return ended


def aligned(bytes_: int) -> memoryview:
    """Page-aligned memory."""
    return memoryview(mmap.mmap(-1, bytes_))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident_bytes() -> int:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


Opener = Callable[..., kvstrata.Store]


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[Opener]:
    """Opens stores over the disk of a temporary folder; closes them after the test."""
    stores: list[kvstrata.Store] = []

    def opened(**more: Any) -> kvstrata.Store:
        given: dict[str, Any] = {"disk_bytes": "16M", "disk_paths": [tmp_path], "store_sizes": [BLOCK]}
        store = kvstrata.Store({"store": FINGERPRINT}, **{**given, **more})
        stores.append(store)
        return store

    yield opened
    for store in stores:
        store.close()


@pytest.fixture
def store(open_store: Opener) -> kvstrata.Store:
    return open_store()


@pytest.fixture(params=["disk", "host", "both"])
def each_store(request: pytest.FixtureRequest, open_store: Opener) -> kvstrata.Store:
    """A store of each combination of tiers."""
    host = None if request.param == "disk" else "8M"
    disk = None if request.param == "host" else "16M"
    paths = None if request.param == "host" else [request.getfixturevalue("tmp_path")]
    return open_store(host_bytes=host, disk_bytes=disk, disk_paths=paths)


def start(code: str, *arguments: Any) -> subprocess.Popen[str]:
    """Starts a program of Python."""
    program = PRELUDE + textwrap.dedent(code)
    # Python warns of forks beside threads; that is what some programs test.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(code: str, *arguments: Any, seconds: float = 60) -> str:
    """Runs a program of Python to its end, within a deadline; returns what it printed."""
    program = start(code, *arguments)
    try:
        printed, errors = program.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        program.kill()
        pytest.fail(f"no end within {seconds} s: {program.communicate()}")
    assert program.returncode == 0, (program.returncode, printed, errors)
    assert not errors, errors
    return printed
