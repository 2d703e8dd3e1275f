"""Which memory a store takes, and how long it holds it."""

from __future__ import annotations

import array
import ctypes
import mmap
import re
import threading
from typing import Any

import pytest
from conftest import BLOCK, Opener, aligned, payload, until_ended

import kvstrata
from kvstrata import Outcome


class Tensor:
    """A tensor as torch has them: an address, a length, a device."""

    def __init__(self, memory: bytearray, device: str = "cpu", contiguous: bool = True) -> None:
        self._memory = (ctypes.c_ubyte * len(memory)).from_buffer(memory)
        self.device = type("Device", (), {"type": device})()
        self.nbytes = len(memory)
        self.shape = (len(memory),)
        self._contiguous = contiguous

    def data_ptr(self) -> int:
        return ctypes.addressof(self._memory)

    def is_contiguous(self) -> bool:
        return self._contiguous


class Dlpack:
    """A tensor that only offers itself by DLPack."""

    def __init__(self, of: Any, device: tuple[int, int] = (1, 0)) -> None:
        self._of, self._device = of, device

    def __dlpack__(self) -> Any:
        return self._of.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


def views() -> dict[str, Any]:
    ctypes_array = (ctypes.c_ubyte * BLOCK)()
    return {
        "bytearray": bytearray(BLOCK),
        "signed view": memoryview(bytearray(BLOCK)).cast("b"),
        "char view": memoryview(bytearray(BLOCK)).cast("c"),
        "bool view": memoryview(bytearray(BLOCK)).cast("?"),
        "<B of ctypes": memoryview(ctypes_array),
        "ctypes": ctypes_array,
        "two dimensions": memoryview(bytearray(BLOCK)).cast("B", shape=[16, BLOCK // 16]),
        "three dimensions": memoryview(bytearray(BLOCK)).cast("b", shape=[4, 4, BLOCK // 16]),
        "two-byte items": array.array("H", bytes(BLOCK)),
        "mmap": mmap.mmap(-1, BLOCK),
        "part": memoryview(bytearray(BLOCK + 100))[37 : 37 + BLOCK],
        "tensor": Tensor(bytearray(BLOCK)),
    }


@pytest.mark.parametrize("kind", list(views()))
def test_buffer_of_each_kind_stores_and_loads(store: kvstrata.Store, kind: str) -> None:
    source, target = views()[kind], views()[kind]
    memory = source._memory if isinstance(source, Tensor) else source
    memoryview(memory).cast("B")[:] = payload(7)
    assert store.store([kind], [source]).ok
    assert store.load([kind], [target]).ok
    memory = target._memory if isinstance(target, Tensor) else target
    assert bytes(memoryview(memory).cast("B")) == payload(7)


def test_read_only_memory_stores_and_is_refused_for_loads(store: kvstrata.Store) -> None:
    assert store.store(["a"], [payload(1)]).ok
    for read_only in (bytes(BLOCK), memoryview(bytearray(BLOCK)).toreadonly()):
        with pytest.raises(kvstrata.SubmitError, match=r"buffers\[1\]: (bytes|memoryview) is read-only; a load writes"):
            store.load(["b", "a"], [bytearray(BLOCK), read_only])


def test_strided_and_other_memory_is_refused_by_name(store: kvstrata.Store) -> None:
    untyped: Any = store
    strided = memoryview(bytearray(2 * BLOCK))[::2]
    cases: list[tuple[type[Exception], str, Any]] = [
        (kvstrata.SubmitError, r"buffers\[0\]: memoryview is strided", strided),
        (kvstrata.SubmitError, r"buffers\[0\]: 0 bytes", bytearray()),
        (TypeError, r"buffers\[0\]: int; pass an object with the buffer protocol", 5),
        (TypeError, r"buffers\[0\]: a tuple other than \(address, bytes\)", ("a", "b")),
        (kvstrata.SubmitError, r"buffers\[0\]: 0 bytes", (0, 100)),
        (kvstrata.SubmitError, r"buffers\[0\]: a tensor on cuda.*tensor\.cpu\(\)", Tensor(bytearray(BLOCK), "cuda")),
        (kvstrata.SubmitError, r"buffers\[0\]: Tensor is strided", Tensor(bytearray(BLOCK), contiguous=False)),
        (kvstrata.SubmitError, r"buffers\[0\]: a tensor on device 2:1", Dlpack(None, (2, 1))),
    ]
    for kind, message, buffer in cases:
        for call in (untyped.store, untyped.load):
            with pytest.raises(kind, match=message):
                call(["a"], [buffer])
    assert store.stats()["batches"] == 0


def test_arguments_that_do_not_fit_are_refused(store: kvstrata.Store) -> None:
    untyped: Any = store
    one = bytearray(BLOCK)
    half = memoryview(one)
    cases: list[tuple[type[Exception], str, Any]] = [
        (kvstrata.SubmitError, r"buffers: 1, keys: 2; give one for each key", [one]),
        (kvstrata.SubmitError, r"buffers of keys 0 and 1 overlap", [one, one]),
        (kvstrata.SubmitError, r"buffers of keys 0 and 1 overlap", [half[100:], half[:101]]),
        (kvstrata.SubmitError, r"buffers: bytearray of one dimension", one),
        (TypeError, r"buffers: int; pass a list of buffers", 5),
    ]
    for kind, message, buffers in cases:
        with pytest.raises(kind, match=message):
            untyped.load(["a", "b"], buffers)
    # The same memory under two keys is no conflict for a store.
    assert store.store(["a", "b"], [one, one]).ok


def test_addresses_are_taken_with_their_owner(store: kvstrata.Store) -> None:
    memory = (ctypes.c_ubyte * BLOCK).from_buffer_copy(payload(3))
    pair = (ctypes.addressof(memory), BLOCK)
    assert store.store(["a"], [pair]).ok
    ctypes.memset(memory, 0, BLOCK)
    assert store.load(["a"], [pair]).ok and bytes(memory) == payload(3)


def test_rows_of_a_view_need_no_slices(store: kvstrata.Store) -> None:
    view = aligned(64 * BLOCK).cast("b", shape=[64, BLOCK])
    flat = view.cast("B")
    rows = array.array("i", [5, 63, 0, 17])
    for row in rows:
        flat[row * BLOCK : (row + 1) * BLOCK] = payload(row)
    keys = [b"%d" % row for row in rows]
    assert store.store(keys, view, rows=rows).ok
    back = aligned(64 * BLOCK).cast("b", shape=[64, BLOCK])
    for form in (array.array("q", [1, 2, 3, 4]), [1, 2, 3, 4], range(1, 5), memoryview(array.array("I", [1, 9, 2, 9, 3, 9, 4, 9]))[::2]):
        assert store.load(keys, back, rows=form).ok
        for key, row in zip(keys, [1, 2, 3, 4]):
            assert back.cast("B")[row * BLOCK : (row + 1) * BLOCK] == payload(int(key))
    assert store.stats()["straight"] > 0, "page-aligned rows go straight to the disk"
    untyped: Any = store
    for rows_, message in [
        ([0, 1, 2, 64], r"rows\[3\] = 64: the view has 64 rows; give a number from 0 to 63"),
        ([0, -1, 2, 3], r"rows\[1\] = -1"),
        ([0, 1], r"rows: 2, keys: 4"),
        ([0, 1, 2, 1], r"overlap"),
        (array.array("d", [0, 1, 2, 3]), r"rows: not integers of 4 or 8 bytes"),
        (b"abcd", r"rows: not integers of 4 or 8 bytes"),
    ]:
        with pytest.raises(kvstrata.SubmitError, match=message):
            untyped.load(keys, back, rows=rows_)
    view_of_four = memoryview(bytearray(4 * BLOCK)).cast("B", shape=[4, BLOCK])
    assert store.load(keys, view_of_four).ok and view_of_four.cast("B")[3 * BLOCK :] == payload(17)


def test_arrays_and_dlpack_of_numpy(store: kvstrata.Store) -> None:
    numpy = pytest.importorskip("numpy", reason="SKIP numpy: not installed")
    pool = numpy.arange(8 * BLOCK // 2, dtype=numpy.uint16).reshape(8, -1)
    keys = [b"%d" % row for row in range(8)]
    chunk_ids = numpy.arange(8, dtype=numpy.int32)
    assert store.store(keys, pool, rows=chunk_ids).ok
    back = numpy.zeros_like(pool)
    assert store.load(keys, back.data, rows=chunk_ids[::-1]).ok
    assert (back[::-1] == pool).all()
    back[:] = 0
    assert store.load(keys, [Dlpack(row) for row in back]).ok and (back == pool).all()
    back[:] = 0
    assert store.load(keys, Dlpack(back)).ok and (back == pool).all()
    with pytest.raises(kvstrata.SubmitError, match=r"buffers\[0\]: strided"):
        store.load(["0"], [Dlpack(numpy.zeros((BLOCK, 2), dtype=numpy.uint8)[:, 0])])
    with pytest.raises(kvstrata.SubmitError, match=r"elements that are Python objects"):
        store.store(["0"], [numpy.array([None, None])])


def test_views_are_held_until_the_transfer_ends(store: kvstrata.Store) -> None:
    source, target = bytearray(payload(1)), bytearray(BLOCK)
    job = store.submit_store(["a"], [source])
    with pytest.raises(BufferError):
        source.append(0)
    assert until_ended(store)[0].job == job
    source.append(0)
    region = memoryview(target)
    store.submit_load(["a"], [region])
    with pytest.raises(BufferError):
        region.release()
    assert until_ended(store)[0].ok
    region.release()
    assert target == payload(1)


def test_timeout_leaves_the_batch_and_its_buffers(store: kvstrata.Store) -> None:
    source, target = bytearray(payload(1)), bytearray(BLOCK)
    # A store may end at once, so several are tried.
    for key in (b"%d" % number for number in range(1000)):
        try:
            store.store([key], [source], timeout=0)
        except TimeoutError as error:
            assert re.match(r"timeout = 0 s: job \d+ has not ended; it goes on, and its buffers stay held", str(error))
            break
    else:
        pytest.fail("no store took any time")
    # The second store of the key joins the first, or finds its bytes.
    assert store.store([key], [payload(1)]).ok
    assert store.load([key], [target]).ok and target == payload(1)
    store.contains([])
    source.append(0)


def test_deadline_answers_keys_that_wait(store: kvstrata.Store) -> None:
    keys = [b"%d" % number for number in range(200)]
    answer = store.store(keys, [payload(number) for number in range(200)], deadline=0)
    assert set(answer.outcomes) <= {Outcome.STORED, Outcome.LATE}
    found = store.contains(keys)
    assert all(is_found for is_found, done in zip(found, answer.done) if done)


def test_references_do_not_pile_up(store: kvstrata.Store) -> None:
    import sys

    memory, view = bytearray(payload(1)), aligned(4 * BLOCK).cast("B", shape=[4, BLOCK])
    tensor, key = Tensor(bytearray(BLOCK)), b"a key of its own"
    pair = (tensor.data_ptr(), BLOCK)
    objects = (memory, view, tensor, key, pair)

    def batches() -> None:
        store.store([key], [memory])
        store.load([key], [memory])
        store.load([key, "b"], view, rows=[0, 1])
        store.load([key], [tensor])
        store.load([key], [pair])
        for wrong in ([memory, memory], [bytes(1)], [memory, 5]):
            with pytest.raises((kvstrata.SubmitError, TypeError)):
                store.load([key, key], wrong)  # type: ignore[arg-type]

    batches()
    before = [sys.getrefcount(each) for each in objects]
    for _ in range(100):
        batches()
    assert [sys.getrefcount(each) for each in objects] == before


def test_buffer_that_calls_back_does_not_deadlock(store: kvstrata.Store) -> None:
    """The end of a reference runs code of Python, which may call the store."""
    seen: list[list[bool]] = []

    class Owner(bytearray):
        def __del__(self) -> None:
            seen.append(store.contains(["a"]))

    assert store.store(["a"], [Owner(payload(1))]).ok
    store.contains([])
    assert seen == [[True]]


def test_many_threads_share_a_store(open_store: Opener) -> None:
    store = open_store(host_bytes="4M")
    failed: list[Any] = []

    def work(of: int) -> None:
        try:
            for number in range(40):
                key, target = b"%d/%d" % (of, number), bytearray(BLOCK)
                store.store([key], [payload(of * 1000 + number)])
                answer = store.load([key], [target])
                if answer.ok:
                    assert target == payload(of * 1000 + number)
                else:
                    assert set(answer.outcomes) == {Outcome.ABSENT}, answer
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(of,)) for of in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failed, failed
