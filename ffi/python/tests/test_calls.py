"""The contract of each call."""

from __future__ import annotations

import gc
import select
import threading
from pathlib import Path
from typing import Any

import pytest
from conftest import BLOCK, FINGERPRINT, Opener, payload, until_ended

import kvstrata
from kvstrata import Outcome


def test_stored_bytes_load_from_each_tier(each_store: kvstrata.Store) -> None:
    keys = [b"key %d" % number for number in range(8)]
    stored = each_store.store(keys, [payload(number) for number in range(8)])
    assert stored.ok and stored.kind == "store" and stored.outcomes == [Outcome.STORED] * 8
    targets = [bytearray(BLOCK) for _ in keys]
    loaded = each_store.load(keys, targets)
    assert loaded.ok and loaded.outcomes == [Outcome.LOADED] * 8 and loaded.leading == 8
    assert [bytes(target) for target in targets] == [payload(number) for number in range(8)]
    assert set(loaded.tiers) <= {"host", "disk"} and loaded.error is None


def test_lookups_tell_place_and_length(store: kvstrata.Store) -> None:
    store.store(["a", "b", "d"], [payload(1), b"x" * 100, payload(3)])
    keys = ["a", "b", "c", "d"]
    assert store.contains(keys) == [True, True, False, True]
    assert store.leading(keys) == 2
    assert store.find(keys) == [("disk", BLOCK), ("disk", 100), None, ("disk", BLOCK)]
    assert store.contains([]) == [] and store.leading([]) == 0 and store.find(()) == []


def test_keys_of_each_kind_are_equal_by_their_bytes(store: kvstrata.Store) -> None:
    store.store(["text"], [payload(1)])
    forms: list[Any] = [b"text", "text", bytearray(b"text"), memoryview(b"text"), memoryview(b"text").cast("b")]
    assert store.contains(forms) == [True] * len(forms)
    several: list[Any] = [tuple(forms), {b"text"}, iter(forms), {b"text": 1}.keys(), (key for key in forms)]
    for keys in several:
        assert all(store.contains(keys))
    assert store.contains([b"", b"\xff" * 500, "é"]) == [False] * 3


def test_answers_are_per_key(store: kvstrata.Store) -> None:
    store.store(["a", "b"], [payload(1), payload(2)])
    short, good = bytearray(BLOCK - 1), bytearray(BLOCK)
    answer = store.load(["absent", "a", "b"], [bytearray(BLOCK), short, good])
    assert answer.outcomes == [Outcome.ABSENT, Outcome.LENGTH, Outcome.LOADED]
    assert answer.done == [False, False, True] and not answer.ok and answer.leading == 0
    assert answer.error == "2 of 3 keys not loaded: 1 absent, 1 length"
    assert good == payload(2)
    again = store.store(["a", "long"], [payload(1), bytes(BLOCK + 1)])
    assert again.outcomes == [Outcome.PRESENT, Outcome.TOO_LONG]


def test_forgotten_keys_are_absent(store: kvstrata.Store) -> None:
    store.store(["a", "b"], [payload(1), payload(2)])
    assert store.forget(["a", "absent"]).outcomes == [Outcome.FORGOTTEN, Outcome.ABSENT]
    assert store.contains(["a", "b"]) == [False, True]


def test_submitted_batches_end_at_the_descriptor(store: kvstrata.Store) -> None:
    assert store.drain() == []
    jobs = [store.submit_store([b"%d" % number], [payload(number)]) for number in range(5)]
    ended = until_ended(store, 5)
    assert sorted(each.job for each in ended) == sorted(jobs) and all(each.ok for each in ended)
    assert not select.select([store.event_fd()], [], [], 0)[0], "drained, so not readable"
    targets = [bytearray(BLOCK) for _ in range(5)]
    job = store.submit_load([b"%d" % number for number in range(5)], targets)
    (loaded,) = until_ended(store)
    assert loaded.job == job and loaded.kind == "load" and targets[4] == payload(4)
    job = store.submit_forget([b"0"])
    (forgotten,) = until_ended(store)
    assert forgotten.job == job and forgotten.kind == "forget" and store.contains([b"0"]) == [False]


def test_handles_have_completions_of_their_own(store: kvstrata.Store) -> None:
    other = store.handle()
    assert other.event_fd() != store.event_fd()
    job = other.submit_store(["a"], [payload(1)])
    (ended,) = until_ended(other)
    assert ended.job == job and store.drain() == [] and store.contains(["a"]) == [True]
    assert store.close() and other.is_closed


def test_lora_and_salt_of_a_call_part_the_keys(store: kvstrata.Store) -> None:
    store.store(["a"], [payload(1)], lora="x")
    store.store(["a"], [payload(2)], salt="y")
    store.store(["a"], [payload(3)], lora="x", salt="y")
    assert store.contains(["a"]) == [False]
    assert store.contains(["a"], lora="x") == store.contains(["a"], salt="y") == [True]
    assert store.contains(["a"], lora="y") == store.contains(["a"], salt="x") == [False]
    target = bytearray(BLOCK)
    assert store.load(["a"], [target], lora="x", salt="y").ok and target == payload(3)
    assert store.forget(["a"], lora="x").ok
    assert store.find(["a"], salt="y") == [("disk", BLOCK)] and store.leading(["a"], lora="x") == 0


def test_answer_by_the_host_comes_before_the_disk(open_store: Opener) -> None:
    store = open_store(host_bytes="8M")
    stored = store.store(["a"], [payload(1)], until="host")
    assert stored.tiers == ["host"]
    target = bytearray(BLOCK)
    assert store.load(["a"], [target], urgency="urgent", deadline=5.0).ok and target == payload(1)


def test_figures_count(store: kvstrata.Store) -> None:
    store.store(["a", "b"], [payload(1), payload(2)])
    store.load(["a", "c"], [bytearray(BLOCK), bytearray(BLOCK)])
    stats = store.stats()
    assert (stats["stored"], stats["loaded_from_below"], stats["absent"]) == (2, 1, 1)
    assert stats["classes"][0]["block_bytes"] == BLOCK and store.sizes == [BLOCK]
    assert "kvstrata_store_stored_keys_total 2" in store.metrics()
    parts = store.namespace
    assert parts["model"] == FINGERPRINT["model"] and parts["span"] == "16" and parts["salt"] == "given"
    assert FINGERPRINT["salt"] not in repr(store) + str(parts)
    assert store.metrics_address is None


def test_figures_are_served_over_http(open_store: Opener) -> None:
    from urllib.request import urlopen

    store = open_store(metrics_listen="127.0.0.1:0")
    text = urlopen(f"http://{store.metrics_address}/metrics", timeout=10).read().decode()
    assert "kvstrata_store_stored_keys_total 0" in text


def test_wrong_arguments_are_named(store: kvstrata.Store) -> None:
    untyped: Any = store
    buffer = bytearray(BLOCK)
    refused: list[tuple[type[Exception], str, Any]] = [
        (TypeError, r"keys: one str; pass a list", lambda: untyped.contains("a")),
        (TypeError, r"keys: one bytes; pass a list", lambda: untyped.load(b"a", [buffer])),
        (TypeError, r"keys: int; pass a list", lambda: untyped.contains(3)),
        (TypeError, r"keys\[1\]: float; pass bytes, str", lambda: untyped.contains(["a", 1.5])),
        (kvstrata.SubmitError, r"keys: none", lambda: untyped.load([], [])),
        (kvstrata.SubmitError, r"keys: none", lambda: untyped.forget([])),
        (kvstrata.SubmitError, r"until = \"nowhere\"", lambda: untyped.store(["a"], [buffer], until="nowhere")),
        (kvstrata.SubmitError, r"urgency = \"very\"", lambda: untyped.load(["a"], [buffer], urgency="very")),
        (kvstrata.SubmitError, r"deadline = -1", lambda: untyped.load(["a"], [buffer], deadline=-1)),
        (kvstrata.SubmitError, r"timeout = NaN", lambda: untyped.load(["a"], [buffer], float("nan"))),
    ]
    for kind, message, call in refused:
        with pytest.raises(kind, match=message):
            call()
    assert store.stats()["batches"] == 0 and store.drain() == []


def test_store_without_fingerprint_does_not_open(tmp_path: Path) -> None:
    with pytest.raises(kvstrata.OpenError) as raised:
        kvstrata.Store(disk_bytes="16M", disk_paths=[tmp_path], store_sizes=[BLOCK])
    for part in ("model", "revision", "dtype", "layout", "span", "ranks"):
        assert f"store.{part}" in str(raised.value)
    for part in ("model", "revision", "dtype", "layout", "span", "ranks"):
        rest = {name: value for name, value in FINGERPRINT.items() if name != part}
        with pytest.raises(kvstrata.OpenError, match=rf"^store\.{part}: none"):
            kvstrata.Store(store=rest, disk_bytes="16M", store_sizes=[BLOCK])
    assert not list(tmp_path.glob("*.kvs"))


def test_settings_come_as_dict_text_or_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '[store]\nsizes = ["16K"]\nmodel = "from text"\nrevision = "1"\ndtype = "d"\nlayout = "l"\nspan = 1\nranks = "r"\n'
    with kvstrata.Store(text, host={"bytes": 1 << 20}, store_model='by "argument"\n\\') as store:
        assert store.namespace["model"] == 'by "argument"\n\\' and store.namespace["dtype"] == "d"
    nested = {"store": {**FINGERPRINT, "sizes": [BLOCK, "64K"]}, "host": {"bytes": "1M", "policy": None}}
    with kvstrata.Store(nested) as store:
        assert store.sizes == [BLOCK, 65536]
    monkeypatch.setenv("KVSTRATA_STORE_REVISION", "of the environment")
    with kvstrata.Store(text, environment=True, host_bytes="1M") as store:
        assert store.namespace["model"] == "from text" and store.namespace["revision"] == "of the environment"


def test_wrong_settings_are_named() -> None:
    wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (kvstrata.OpenError, r"store\.spam .*unknown setting", {"store_spam": 1}),
        (kvstrata.OpenError, r"store\.span = x .*must be", {"store_span": "x"}),
        (kvstrata.OpenError, r"disk\.bytes, host\.bytes: none", {"store": FINGERPRINT, "store_sizes": [BLOCK]}),
        (kvstrata.OpenError, r"disk\.paths = /nonexistent", {"store": FINGERPRINT, "disk_bytes": "16M", "disk_paths": ["/nonexistent/x"]}),
        (kvstrata.OpenError, r"settings:1.*not TOML", {"settings": "]"}),
        (TypeError, r"settings: int; pass a dict", {"settings": 3}),
        (TypeError, r"store\.model: object; pass a str", {"store_model": object()}),
    ]
    for kind, message, arguments in wrong:
        with pytest.raises(kind, match=message):
            kvstrata.Store(**arguments)


def test_exceptions_have_one_base() -> None:
    names = ["OpenError", "SubmitError", "BusyError", "ForkedError", "ClosedError"]
    for name in names:
        kind = getattr(kvstrata, name)
        assert issubclass(kind, kvstrata.KvstrataError) and kind.__module__ == "kvstrata" and kind.__doc__
    assert issubclass(kvstrata.BusyError, kvstrata.SubmitError)


def test_too_many_batches_are_refused_and_release_buffers(open_store: Opener) -> None:
    store = open_store(transfer_queue=1)
    buffer = bytearray(BLOCK)
    jobs = 0
    with pytest.raises(kvstrata.BusyError, match="batches under way"):
        for number in range(10_000):
            store.submit_store([b"%d" % number], [buffer])
            jobs += 1
    until_ended(store, jobs)
    store.drain()
    buffer.extend(b"no view is left")


def test_closed_store_refuses_calls(store: kvstrata.Store) -> None:
    fd = store.event_fd()
    store.submit_store(["a"], [payload(1)])
    with store as same:
        assert same is store and not store.is_closed
    assert store.is_closed and store.close() and store.close(0)
    buffer = bytearray(BLOCK)
    for call in (
        lambda: store.contains(["a"]),
        lambda: store.submit_store(["a"], [buffer]),
        lambda: store.load(["a"], [buffer]),
        lambda: store.stats(),
        lambda: store.event_fd(),
        lambda: store.handle(),
        lambda: store.__enter__(),
    ):
        with pytest.raises(kvstrata.ClosedError, match="the store is closed; open another one"):
            call()
    (left,) = store.drain()
    assert left.ok or set(left.outcomes) == {Outcome.CLOSED}
    assert store.drain() == [] and "closed" in repr(store)
    buffer.extend(b"no view is left")
    assert fd >= 0


def test_two_threads_may_close(open_store: Opener) -> None:
    store = open_store()
    for number in range(50):
        store.submit_store([b"%d" % number], [payload(number)])
    ended: list[bool] = []
    threads = [threading.Thread(target=lambda: ended.append(store.close(30))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert ended == [True] * 4


def test_store_without_close_frees_itself(open_store: Opener, tmp_path: Path) -> None:
    buffer = bytearray(BLOCK)
    for number in range(3):
        given = {"store": {**FINGERPRINT, "sizes": [BLOCK]}, "disk": {"bytes": "16M", "paths": [tmp_path / str(number)]}}
        store = kvstrata.Store(given)
        store.submit_store([b"%d" % number], [buffer])
        del store
        gc.collect()
    # Loans of stores that are gone end at a call of any store.
    other = open_store()
    import time

    ends = time.monotonic() + 30
    while True:
        other.contains([])
        try:
            buffer.append(0)
            break
        except BufferError:
            assert time.monotonic() < ends, "a view is left"
            threading.Event().wait(0.01)


def test_store_does_not_pickle(store: kvstrata.Store) -> None:
    import pickle

    with pytest.raises(TypeError, match="stays in its process"):
        pickle.dumps(store)


def test_outcomes_name_each_number() -> None:
    assert [outcome for outcome in Outcome if outcome.is_done] == [1, 2, 3, 4]
    assert len(Outcome) == len(kvstrata._kvstrata._OUTCOMES)
