"""The rate of the Python module beside that of the Rust façade, in interleaved rounds.

    cargo build --release -p kvstrata --example store_rate
    python ffi/python/benches/rate.py target/release/examples/store_rate [rounds]

A round stores 1,000 keys of 64 KiB from page-aligned memory, in ten batches, loads them and forgets them. The
engine's keys are made before; the store's, of them, within the time. Prints
MiB/s as median and quartiles, and the ratio of the medians; exit code 1 if one is below 0.9.
"""

from __future__ import annotations

import array
import ctypes
import mmap
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import kvstrata

BYTES, BATCHES, KEYS = 64 << 10, 10, 100
HUGE = 2 << 20
FINGERPRINT = {"model": "a model", "revision": "1", "dtype": "bfloat16", "layout": "a layout", "span": 16, "ranks": "tp0of1"}

Round = Callable[[], tuple[float, float]]


def huge(length: int) -> memoryview:
    """Memory on huge pages, as that of the example: a drive's transfer has to find each page of its buffers."""
    mapping = mmap.mmap(-1, length + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = -ctypes.addressof(ctypes.c_char.from_buffer(mapping)) % HUGE
    mapping.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(mapping)[start : start + length]


class Python:
    """Rounds in this process: rows of one view, by the descriptor."""

    def __init__(self, place: str) -> None:
        tier = {"host_bytes": "128M"} if place == "host" else {"disk_bytes": "128M", "disk_paths": [place]}
        self.store = kvstrata.Store({"store": FINGERPRINT}, store_sizes=[BYTES], **tier)
        memory = huge(BATCHES * KEYS * BYTES)
        for block in range(BATCHES * KEYS):
            memory[block * BYTES : (block + 1) * BYTES] = bytes([block % KEYS]) * BYTES
        self.view = memory.cast("b", shape=[BATCHES * KEYS, BYTES])
        self.rows = [array.array("i", range(batch * KEYS, (batch + 1) * KEYS)) for batch in range(BATCHES)]
        self.poll = select.poll()
        self.poll.register(self.store.event_fd(), select.POLLIN)
        self.number = 0

    def keys(self, batch: int) -> list[bytes]:
        return [b"an engine's key %d %d %d" % (self.number, batch, key) for key in range(KEYS)]

    def wait(self) -> None:
        ended = 0
        while ended < BATCHES:
            self.poll.poll()
            for completion in self.store.drain():
                assert completion.ok, completion
                ended += 1

    def round(self) -> tuple[float, float]:
        self.number += 1
        batches = [self.keys(batch) for batch in range(BATCHES)]
        times = []
        for submit in (self.store.submit_store, self.store.submit_load):
            began = time.perf_counter()
            for keys, rows in zip(batches, self.rows):
                submit(keys, self.view, rows=rows)
            self.wait()
            times.append(time.perf_counter() - began)
        for keys in batches:
            self.store.submit_forget(keys)
        self.wait()
        return times[0], times[1]


class Rust:
    """Rounds of the example, which waits for a line before each."""

    def __init__(self, program: str, place: str) -> None:
        self.process = subprocess.Popen([program, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def round(self) -> tuple[float, float]:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        stored, loaded = self.process.stdout.readline().split()
        return float(stored), float(loaded)


def main() -> int:
    program, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 21
    worst = 1.0
    for place in ("host", "disk"):
        with tempfile.TemporaryDirectory(dir=Path(program).parent) as folder:
            folders = {name: str(Path(folder) / name) for name in ("python", "rust")}
            for each in folders.values():
                Path(each).mkdir()
            python = Python(place if place == "host" else folders["python"])
            rust = Rust(program, place if place == "host" else folders["rust"])
            sides: dict[str, Round] = {"python": python.round, "rust": rust.round}
            took: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
            for number in range(rounds + 2):
                for name in sorted(sides, reverse=number % 2 == 1):
                    figures = sides[name]()
                    if number >= 2:
                        took[name].append(figures)
            python.store.close()
            rust.process.communicate()
        for at, what in enumerate(("store", "load")):
            rates = {name: [BATCHES * KEYS * BYTES / (1 << 20) / pair[at] for pair in pairs] for name, pairs in took.items()}
            ratio = statistics.median(rates["python"]) / statistics.median(rates["rust"])
            worst = min(worst, ratio)
            texts = []
            for name, each in rates.items():
                low, middle, high = statistics.quantiles(each, n=4)
                texts.append(f"{name} {middle:.0f} MiB/s ({low:.0f} to {high:.0f})")
            print(f"{place} {what}: {', '.join(texts)}: {ratio:.2f}")
    return 0 if worst >= 0.9 else 1


if __name__ == "__main__":
    sys.exit(main())
