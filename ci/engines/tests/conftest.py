"""Fixtures: engines that are closed behind the test, drives that fail or stall, processes."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from engine import Engine, ROW_BYTES, chunk  # noqa: E402


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    """Starts engines, by default over the same folder; closes them behind the test."""
    engines: list[Engine] = []

    def started(path: Any = None, **more: Any) -> Engine:
        engines.append(Engine(path or tmp_path / "kv.kvs", **more))
        return engines[-1]

    yield started
    for engine in engines:
        if engine.tier._view is not None:
            engine.close()


def volume_of(folder: Path) -> Path:
    (volume,) = folder.glob("*.kvs")
    return volume


def places(volume: Path, number: int) -> list[int]:
    """Where a chunk's bytes lie in the volume."""
    content, found, at = volume.read_bytes(), [], -1
    while (at := content.find(chunk(number), at + 1)) >= 0:
        found.append(at)
        # The chunk repeats itself every 16 bytes.
        at += ROW_BYTES
    return found


def flip(volume: Path, at: int, bit: int = 0) -> None:
    """Flips a bit of the file, whoever has it open."""
    with volume.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0] ^ (1 << bit)
        file.seek(at)
        file.write(bytes([byte]))
        file.flush()
        os.fsync(file.fileno())


class Drive:
    """A file system of its own on a loop device, which can fail its reads, or answer none."""

    def __init__(self, folder: Path) -> None:
        self.image, self.mount = folder / "image", folder / "drive"
        self._group = Path("/sys/fs/cgroup/blkio") / f"kvstrata-{os.getpid()}"
        self.mount.mkdir()
        self.image.write_bytes(b"")
        os.truncate(self.image, 64 << 20)
        self._call("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", self.image)
        self._call("mount", "-o", "loop,noatime", self.image, self.mount)
        device = os.stat(self.mount).st_dev
        self._device = f"{os.major(device)}:{os.minor(device)}"

    @staticmethod
    def _call(*command: Any) -> None:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(f"{command[0]}: {done.stderr.strip()}")

    def fail_reads(self) -> None:
        """From here on a read of the drive's data is an I/O error."""
        self._call("sync", "-f", self.mount)
        os.truncate(self.image, 1 << 20)

    def stall(self) -> None:
        """From here on this process's reads and writes of the drive take hours."""
        self._group.mkdir(exist_ok=True)
        (self._group / "cgroup.procs").write_text(str(os.getpid()))
        self._limit(1)

    def go_on(self) -> None:
        if self._group.exists():
            self._limit(0)
            Path("/sys/fs/cgroup/blkio/cgroup.procs").write_text(str(os.getpid()))

    def _limit(self, bytes_per_second: int) -> None:
        for name in ("read_bps_device", "write_bps_device"):
            (self._group / f"blkio.throttle.{name}").write_text(f"{self._device} {bytes_per_second}")

    def close(self) -> None:
        self.go_on()
        subprocess.run(["umount", "-l", self.mount], check=False)
        if self._group.exists():
            self._group.rmdir()


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[Drive]:
    needed = ["mkfs.ext4", "mount", "umount"]
    missing = [name for name in needed if not shutil.which(name)]
    if missing or os.geteuid() != 0:
        pytest.skip("a drive of its own needs root and " + ", ".join(missing or needed))
    try:
        made = Drive(tmp_path)
    except OSError as error:
        pytest.skip(f"no loop device: {error}")
    yield made
    made.close()


@pytest.fixture
def stalling_drive(drive: Drive) -> Drive:
    if not Path("/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device").exists():
        pytest.skip("a drive that stalls needs the blkio controller of control groups, version 1")
    return drive


def forked(work: Callable[[int], None]) -> tuple[int, int]:
    """Runs `work(descriptor)` in a fork of this process; returns its id, and the end of a pipe to read from."""
    assert threading.active_count() == 1, "a fork beside threads"
    reader, writer = os.pipe()
    process = os.fork()
    if process:
        os.close(writer)
        return process, reader
    try:
        os.close(reader)
        work(writer)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)
