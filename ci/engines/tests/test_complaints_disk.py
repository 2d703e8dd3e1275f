"""What the disk holds, and what happens when it holds no more."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine import chunk
from kvstrata import OpenError, lmcache

MIB = 1 << 20


def allocated_bytes(folder: Path) -> int:
    return sum(file.stat().st_blocks * 512 for file in folder.iterdir() if file.is_file())


def bytes_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("a small file system needs root and mount")
    mount = tmp_path / "small"
    mount.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(mount)], check=False)
    if done.returncode:
        pytest.skip("mount refuses a tmpfs")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=False)


@pytest.mark.parametrize("restarts", [0, 2])
def test_vllm_54779_files_are_never_longer_than_the_capacity(start: Any, tmp_path: Path, restarts: int) -> None:
    folder = tmp_path / "kv"
    folder.mkdir()
    for run in range(restarts + 1):
        engine = start(folder, capacity="2MiB", rows=512)
        # Three times as much as there is room for.
        for first in range(0, 384, 32):
            engine.store(range(run * 1000 + first, run * 1000 + first + 32))
            engine.empty_region()
            assert bytes_of(folder) <= 2 * MIB and allocated_bytes(folder) <= 2 * MIB
        engine.close()
        assert bytes_of(folder) <= 2 * MIB
    # One volume, and no file for each chunk.
    assert len(list(folder.iterdir())) <= 2


@pytest.mark.parametrize("fill", ["first", "background", "no"])
def test_sglang_26670_small_drive_is_refused_with_a_remedy(start: Any, small: Path, fill: str) -> None:
    with pytest.raises(OpenError) as error:
        start(small / "kv.kvs", capacity="64MiB", settings={"disk": {"fill": fill}})
    message = str(error.value)
    assert "free space" in message and "capacity" in message, message
    # A capacity that fits starts.
    engine = start(small / "kv.kvs", capacity="4MiB")
    engine.store(range(4))
    engine.empty_region()
    assert engine.find(range(4)) == 4


def test_vllm_52784_drive_that_is_full_later_is_a_miss(start: Any, small: Path) -> None:
    engine = start(small / "kv.kvs", capacity="6MiB", rows=512, settings={"disk": {"fill": "no"}})
    engine.store(range(8))
    others = small / "another program's"
    with others.open("wb") as file:
        try:
            while True:
                file.write(bytes(64 << 10))
                file.flush()
        except OSError:
            pass
    # What does not fit is a failed store. The engine goes on, and what is there is found.
    engine.store(range(100, 400))
    engine.empty_region()
    assert engine.find(range(8)) == 8
    found = sum(engine.find([number]) for number in range(100, 400, 10))
    assert found <= 30
    others.unlink()
    engine.store(range(500, 508))
    engine.empty_region()
    assert engine.find(range(500, 508)) == 8
    assert bytes_of(small) <= 6 * MIB


@pytest.mark.parametrize("sizes", [["16KiB"], [100], ["4K", 5000, "1MiB"]], ids=["one", "short", "three"])
def test_lmcache_4546_files_are_never_longer_than_the_capacity(tmp_path: Path, sizes: list[Any]) -> None:
    folder = tmp_path / "kv"
    folder.mkdir()
    client = lmcache.Store(folder, "16MiB", sizes=sizes, model="m", revision="1", dtype="d")
    assert bytes_of(folder) <= 16 * MIB
    assert allocated_bytes(folder) <= 16 * MIB
    client.close()


def test_lmcache_4546_full_drive_fails_the_batch_alone(small: Path) -> None:
    with pytest.raises(OpenError, match="adapter_params"):
        lmcache.Store(small / "kv.kvs", "64MiB", sizes=["16KiB"], model="m", revision="1", dtype="d")
    client = lmcache.Store(small / "kv.kvs", "2MiB", sizes=["16KiB"], model="m", revision="1", dtype="d")
    assert client._store.store(["a", "b"], [chunk(0), chunk(1)], 30).ok
    # More than a block holds: that key alone.
    answer = client._store.store(["c", "d"], [bytes(17 << 10), chunk(2)], 30)
    assert answer.done == [False, True]
    client.close()
