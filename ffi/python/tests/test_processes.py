"""Forks, ends and restarts: nothing hangs, nothing depends on close, and no wrong byte is served."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import BLOCK, FINGERPRINT, Opener, payload, run, start

import kvstrata

STORED = 64


def store_some(folder: Path, end: str = "store.close()") -> None:
    """Stores in another process."""
    code = f"""
        store = opened()
        keys = [b"key %d" % number for number in range({STORED})]
        assert store.store(keys, [payload(number) for number in range({STORED})]).ok
        {end}
    """
    run(code, folder)


def load_all(store: kvstrata.Store) -> list[bool]:
    """Loads; each key that is answered as loaded has its very bytes."""
    keys = [b"key %d" % number for number in range(STORED)]
    targets = [bytearray(BLOCK) for _ in keys]
    answer = store.load(keys, targets)
    for number, (done, target) in enumerate(zip(answer.done, targets)):
        assert not done or target == payload(number), f"wrong bytes under key {number}"
    return answer.done


def test_restart_finds_and_loads_all(tmp_path: Path, open_store: Opener) -> None:
    store_some(tmp_path)
    assert load_all(open_store()) == [True] * STORED


def test_restart_after_an_exit_without_close(tmp_path: Path, open_store: Opener) -> None:
    store_some(tmp_path, end="pass")
    assert load_all(open_store()) == [True] * STORED


def test_restart_after_a_crash_finds_settled_keys(tmp_path: Path, open_store: Opener) -> None:
    store_some(tmp_path, end="settle(); os._exit(0)")
    assert load_all(open_store()) == [True] * STORED


def test_restart_after_sigkill_finds_what_was_answered(tmp_path: Path, open_store: Opener) -> None:
    program = start(
        f"""
        store = opened()
        keys = [b"key %d" % number for number in range({STORED})]
        assert store.store(keys, [payload(number) for number in range({STORED})]).ok
        settle()
        say("stored")
        number = 0
        while True:
            try:
                store.submit_store([b"more %d" % number], [payload(number)])
                number += 1
            except kvstrata.BusyError:
                pass
            store.drain()
        """,
        tmp_path,
    )
    assert program.stdout and program.stdout.readline() == "stored\n"
    program.kill()
    program.wait(30)
    store = open_store()
    found = load_all(store)
    # The writer went on over the same blocks, so the oldest keys may be evicted; what is found is right.
    assert store.contains([b"key %d" % number for number in range(STORED)]) == found
    more = [b"more %d" % number for number in range(1000)]
    here = [number for number, is_here in enumerate(store.contains(more)) if is_here]
    targets = [bytearray(BLOCK) for _ in here]
    if here:
        answer = store.load([more[number] for number in here], targets)
        for number, done, target in zip(here, answer.done, targets):
            assert not done or target == payload(number)
    assert any(found) or here


def test_restart_after_sigkill_of_an_idle_writer_finds_all(tmp_path: Path, open_store: Opener) -> None:
    store_some(tmp_path, end="pass")
    program = start("store = opened(); say(store.contains([b'key 0'])); signal.pause()", tmp_path)
    assert program.stdout and program.stdout.readline() == "[True]\n"
    program.send_signal(signal.SIGKILL)
    program.wait(30)
    assert load_all(open_store()) == [True] * STORED


def test_flipped_bits_miss_and_others_load(tmp_path: Path, open_store: Opener) -> None:
    store_some(tmp_path)
    (volume,) = [file for file in tmp_path.iterdir() if file.suffix == ".kvs"]
    damaged = {3, 17, 40, 63}
    content = volume.read_bytes()
    with volume.open("r+b") as file:
        for number in damaged:
            at = content.find(payload(number))
            assert at >= 0, "the payload is found in the volume"
            at += (number * 997) % BLOCK
            file.seek(at)
            file.write(bytes([content[at] ^ 1 << number % 8]))
    store = open_store()
    assert load_all(store) == [number not in damaged for number in range(STORED)]
    # A damaged key is absent from then on, so that an engine stores it again.
    assert store.contains([b"key %d" % number for number in sorted(damaged)]) == [False] * len(damaged)
    assert store.store([b"key 3"], [payload(3)]).ok and load_all(store)[3]


@pytest.mark.parametrize("part", list(FINGERPRINT))
def test_other_fingerprint_finds_nothing(tmp_path: Path, part: str) -> None:
    store_some(tmp_path)
    other = {"span": 32, "ranks": "tp1of2"}.get(part, "another")
    code = f"""
        FINGERPRINT[{part!r}] = {other!r}
        keys = [b"key %d" % number for number in range({STORED})]
        with opened() as store:
            assert not any(store.contains(keys)), "found under another {part}"
            assert store.load(keys[:4], [bytearray(BLOCK) for _ in range(4)]).outcomes == [16] * 4
            say(store.namespace[{part!r}])
        FINGERPRINT.update({FINGERPRINT!r})
        with opened() as store:
            assert all(store.contains(keys)), "lost by a look under another {part}"
    """
    printed = run(code, tmp_path)
    assert printed.strip() == ("given" if part == "salt" else str(other))


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_use_after_fork_is_refused(store: kvstrata.Store) -> None:
    store.store(["a"], [payload(1)])
    handle = store.handle()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = []
        buffer = bytearray(BLOCK)
        calls: list[Any] = [
            lambda: store.contains(["a"]),
            lambda: store.submit_load(["a"], [buffer]),
            lambda: store.load(["a"], [buffer]),
            lambda: store.drain(),
            lambda: store.event_fd(),
            lambda: store.stats(),
            lambda: handle.metrics(),
            lambda: store.handle(),
        ]
        for call in calls:
            try:
                call()
                said.append("no error")
            except kvstrata.ForkedError as error:
                said.append("forked" if "after the fork" in str(error) else str(error))
            except BaseException as error:
                said.append(repr(error))
        said.append(str(store.close()))
        said.append(repr(store))
        os.write(write, "|".join(said).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read().split("|")
    assert os.waitpid(child, 0)[1] == 0
    assert said[:8] == ["forked"] * 8 and said[8] == "False" and "another process" in said[9]
    assert store.contains(["a"]) == [True], "the parent's store goes on"


def test_forked_child_ends_and_opens_its_own_store(tmp_path: Path) -> None:
    """Also while transfers run, with views that are held, in a child that ends as a program does."""
    code = """
        store = opened()
        stop = threading.Event()
        def load():
            number = 0
            while not stop.is_set():
                try:
                    store.submit_store([b"%d" % number], [payload(number)])
                except kvstrata.BusyError:
                    pass
                store.drain()
                number += 1
        thread = threading.Thread(target=load)
        thread.start()
        for child_number in range(10):
            child = os.fork()
            if child == 0:
                with kvstrata.Store({"store": FINGERPRINT}, host_bytes="1M", store_sizes=[BLOCK]) as own:
                    assert own.store(["a"], [payload(1)]).ok
                del store
                sys.exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        stop.set()
        thread.join()
        store.close()
        say("ended")
    """
    assert run(code, tmp_path) == "ended\n"


def test_multiprocessing_by_fork_is_refused(tmp_path: Path) -> None:
    code = """
        import multiprocessing
        store = opened()
        def child(queue):
            try:
                queue.put(store.contains(["a"]))
            except kvstrata.ForkedError as error:
                queue.put("forked")
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        process = context.Process(target=child, args=(queue,))
        process.start()
        say(queue.get(timeout=30))
        process.join(30)
        assert process.exitcode == 0
        store.close()
    """
    assert run(code, tmp_path) == "forked\n"


@pytest.mark.parametrize("end", ["pass", "sys.exit(0)", "store.close()", "del store, buffers", "threading.Thread(target=store.close).start()"])
def test_interpreter_ends_with_io_in_flight(tmp_path: Path, end: str) -> None:
    code = f"""
        store = opened()
        buffers = [bytearray(payload(number)) for number in range(200)]
        for number, buffer in enumerate(buffers):
            store.submit_store([b"%d" % number], [buffer])
            store.submit_load([b"%d" % (number // 2)], [bytearray(BLOCK)])
        {end}
    """
    run(code, tmp_path)


@pytest.mark.parametrize("closes", [True, False])
def test_interpreter_ends_under_waiting_threads(tmp_path: Path, closes: bool) -> None:
    """Daemon threads in blocking calls when the interpreter ends, also if nothing closes the store."""
    code = f"""
        import atexit
        if not {closes}:
            atexit._clear()
        store = opened()
        started = threading.Barrier(5)
        def work(of):
            started.wait()
            number = 0
            try:
                while True:
                    store.store([b"%d/%d" % (of, number)], [payload(number)])
                    number += 1
            except kvstrata.ClosedError:
                pass
        for of in range(4):
            threading.Thread(target=work, args=(of,), daemon=True).start()
        started.wait()
        time.sleep(0.2)
    """
    run(code, tmp_path)


@pytest.mark.parametrize("twice", [False, True])
def test_sigterm_then_sigkill_loses_nothing_answered(tmp_path: Path, open_store: Opener, twice: bool) -> None:
    """As vLLM ends its engine: SIGTERM, SIGTERM, SIGKILL at once."""
    program = start(
        f"""
        def end(number, frame):
            raise SystemExit(0)
        signal.signal(signal.SIGTERM, end)
        store = opened()
        keys = [b"key %d" % number for number in range({STORED})]
        assert store.store(keys, [payload(number) for number in range({STORED})]).ok
        settle()
        say("stored")
        while True:
            store.load(keys[:8], [bytearray(BLOCK) for _ in range(8)])
        """,
        tmp_path,
    )
    assert program.stdout and program.stdout.readline() == "stored\n"
    program.terminate()
    if twice:
        program.terminate()
        program.kill()
        program.wait(30)
    else:
        try:
            assert program.wait(30) == 0
        except subprocess.TimeoutExpired:
            program.kill()
            pytest.fail("SIGTERM did not end the program")
    assert load_all(open_store()) == [True] * STORED


def test_ctrl_c_ends_a_blocking_call(tmp_path: Path) -> None:
    program = start(
        """
        store = opened()
        try:
            say("opened")
            while True:
                store.load([b"%d" % number for number in range(100)], [bytearray(BLOCK) for _ in range(100)])
        except KeyboardInterrupt:
            say("interrupted")
        store.close()
        """,
        tmp_path,
    )
    assert program.stdout and program.stdout.readline() == "opened\n"
    program.send_signal(signal.SIGINT)
    assert program.communicate(timeout=30)[0] == "interrupted\n" and program.returncode == 0
