"""Engines that are killed, or told to stop twice. Each runs in a fork, which has vLLM imported."""

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import forked
from engine import Engine


def of_kvstrata() -> set[str]:
    """Files that are not vLLM's own in the memory that processes share."""
    return {name for name in os.listdir("/dev/shm") if "kvs" in name and not name.startswith("vllm_offload_")}


def end_of(process: int, seconds: float) -> int:
    """The exit code, or the signal as a negative number."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    raise AssertionError(f"no end within {seconds} s")


def busy(path: Path, writer: int) -> None:
    """Stores and loads for ever. Says a byte at each step, the first one when the engine has started."""
    engine = Engine(path, capacity="8MiB", rows=256)
    for step in range(1 << 30):
        os.write(writer, b".")
        engine.begin_store(range(step * 8 % 400, step * 8 % 400 + 8))
        engine.step()
        if step % 5 == 4:
            engine.wait()
            engine.empty_region()
            engine.find(range(8))


def remove_region_of_killed() -> None:
    """vLLM's own file, which a killed engine leaves (vllm#57303)."""
    for name in os.listdir("/dev/shm"):
        if name.startswith("vllm_offload_kvstrata_"):
            os.unlink(f"/dev/shm/{name}")


@pytest.mark.parametrize("moment", range(20))
def test_vllm_51579_sigkill_leaves_nothing_and_next_start_works(start: Any, tmp_path: Path, moment: int) -> None:
    before, path = of_kvstrata(), tmp_path / "kv.kvs"
    process, reader = forked(lambda writer: busy(path, writer))
    # Moment 0 is at the start; each later one is some steps on, and some microseconds more.
    for _ in range(moment * 3):
        assert os.read(reader, 1), "the engine ended"
    time.sleep(random.Random(moment).random() / 500)
    os.kill(process, signal.SIGKILL)
    os.close(reader)
    assert end_of(process, 10) == -signal.SIGKILL
    assert of_kvstrata() == before
    engine = start(path, capacity="8MiB", rows=256)
    # What is found has the right bytes: `find` compares.
    found = sum(engine.find([number]) for number in range(0, 408))
    assert found <= 408
    engine.empty_region()
    engine.store(range(600, 608))
    engine.empty_region()
    assert engine.find(range(600, 608)) == 8
    engine.close()
    remove_region_of_killed()


def test_vllm_54002_second_engine_on_one_volume_is_refused(start: Any, tmp_path: Path) -> None:
    path = tmp_path / "kv.kvs"
    process, reader = forked(lambda writer: busy(path, writer))
    assert os.read(reader, 1)
    with pytest.raises(Exception, match="kv.kvs"):
        start(path, capacity="8MiB", rows=256)
    os.kill(process, signal.SIGKILL)
    os.close(reader)
    end_of(process, 10)
    # The lock ended with the process.
    start(path, capacity="8MiB", rows=256)
    remove_region_of_killed()


@pytest.mark.parametrize("ends_in_order", [True, False], ids=["vllm_handler", "default_handler"])
def test_kvcached_482_two_sigterms_end_within_two_seconds(
    start: Any, tmp_path: Path, ends_in_order: bool
) -> None:
    path = tmp_path / "kv.kvs"

    def work(writer: int) -> None:
        if not ends_in_order:
            busy(path, writer)
        stopping = False

        # As EngineCore has it: the first signal ends the loop, the others do nothing.
        def handler(*_: Any) -> None:
            nonlocal stopping
            if not stopping:
                stopping = True
                raise SystemExit

        signal.signal(signal.SIGTERM, handler)
        engine = Engine(path, capacity="8MiB", rows=256)
        try:
            for step in range(1 << 30):
                os.write(writer, b".")
                engine.begin_store(range(step * 8 % 400, step * 8 % 400 + 8))
                engine.wait()
        except SystemExit:
            engine.close()

    process, reader = forked(work)
    for _ in range(20):
        assert os.read(reader, 1)
    os.kill(process, signal.SIGTERM)
    time.sleep(0.005)
    os.kill(process, signal.SIGTERM)
    code = end_of(process, 2)
    os.close(reader)
    assert code == (0 if ends_in_order else -signal.SIGTERM)
    engine = start(path, capacity="8MiB", rows=256)
    found = engine.find(range(8))
    assert found == 8 if ends_in_order else found <= 8
    engine.close()
    remove_region_of_killed()
