"""What a key stands for: processes, fingerprints, resets, versions of an engine."""

import importlib
import inspect
import logging
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import forked
from engine import CONFIG, Engine, chunk, key
from vllm.v1.kv_offload.base import LookupResult, ReqContext
from vllm.v1.kv_offload.config import OffloadingGroupConfig
from vllm.v1.kv_offload.tiering.base import SecondaryTierManager

from kvstrata import OpenError, lmcache
from kvstrata.vllm import KvstrataTier

CHUNKS = 4
CONTEXT = ReqContext(req_id="a request")

# Hashes a prompt as vLLM does, and stores its chunks, or looks them up.
PROGRAM = """
import sys
sys.path.insert(0, FOLDER)
import engine as helper
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_offload.base import make_offload_key
from vllm.v1.request import Request
init_none_hash(sha256)
request = Request("a request", list(range(130)), SamplingParams(max_tokens=1), None,
                  block_hasher=get_request_block_hasher(32, sha256))
helper.key = lambda number: make_offload_key(request.block_hashes[number], 0)
engine = helper.Engine(PATH)
if IS_FIRST:
    engine.store(range(4))
else:
    print("found", engine.find(range(4)))
engine.close()
"""


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records
            if record.name == "vllm.kvstrata" and record.levelno >= logging.WARNING]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [None, "7"], ids=["no_seed", "seed_7"])
def test_lmcache_1139_second_process_finds_all(tmp_path: Path, seed: str | None) -> None:
    """The first process is a fork of this one, whose `hash` has another seed. The second one is fresh."""
    given = {"FOLDER": str(Path(__file__).parent), "PATH": str(tmp_path / "kv.kvs")}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    if seed is not None:
        environment["PYTHONHASHSEED"] = seed

    def first(_: int) -> None:
        os.environ.clear()
        os.environ.update(environment)
        exec(PROGRAM, {**given, "IS_FIRST": True})

    process, reader = forked(first)
    assert os.waitpid(process, 0)[1] == 0
    os.close(reader)
    assigned = "".join(f"{name} = {value!r}\n" for name, value in {**given, "IS_FIRST": False}.items())
    second = subprocess.run([sys.executable, "-c", assigned + PROGRAM], capture_output=True, text=True,
                            env=environment, check=False)
    assert second.returncode == 0, second.stderr
    assert "found 4" in second.stdout.splitlines()


def test_lmcache_1897_xxhash_is_warned_of_once(start: Any, caplog: pytest.LogCaptureFixture) -> None:
    engine = start()
    for number in range(3):
        engine.tier.lookup(key(number), CONTEXT)
    assert not warnings(caplog)
    for number in range(3):
        engine.tier.lookup(key(number, hash_bytes=16), CONTEXT)
    (warning,) = warnings(caplog)
    assert "--prefix-caching-hash-algo sha256" in warning


def parallel(**fields: Any) -> Any:
    return replace(CONFIG, parallel=replace(CONFIG.parallel, **fields))


# One field of the engine's configuration, or of the tier's arguments, is another one.
CHANGES: dict[str, dict[str, Any]] = {
    "model": {"config": replace(CONFIG, model=replace(CONFIG.model, name="another"))},
    "dtype": {"config": replace(CONFIG, model=replace(CONFIG.model, dtype="float8_e4m3"))},
    "revision": {"revision": "2"},
    "salt": {"salt": "a tenant"},
    "layout": {"config": replace(CONFIG, kv_cache_layout="LBHNC")},
    "canonical_layout": {"config": replace(CONFIG, canonical_layout=True)},
    "replicated_layout": {"config": replace(CONFIG, replicated_layout=True)},
    "tokens_of_hash": {"config": replace(CONFIG, cache=replace(CONFIG.cache, tokens_per_hash=16))},
    "tokens_of_block": {"config": replace(
        CONFIG, groups=(OffloadingGroupConfig(16, ("layers.0", "layers.1"), 0),))},
    "layer": {"config": replace(CONFIG, groups=(OffloadingGroupConfig(32, ("layers.0", "layers.2"), 0),))},
    "groups": {"config": replace(CONFIG, groups=(
        OffloadingGroupConfig(32, ("layers.0",), 0), OffloadingGroupConfig(32, ("layers.1",), 1)))},
    "tp": {"config": parallel(tp_size=2)},
    "pp": {"config": parallel(pp_size=2)},
    "pcp": {"config": parallel(pcp_size=2)},
    "dcp": {"config": parallel(dcp_size=2)},
    "bytes_of_block": {"config": replace(CONFIG, worker_kv_bytes_per_block=32 << 10)},
    "chunk": {"config": replace(CONFIG, cache=replace(CONFIG.cache, blocks_per_chunk=2))},
}


@pytest.mark.parametrize("field", CHANGES)
def test_sglang_24758_another_value_of_a_field_finds_nothing(start: Any, field: str) -> None:
    engine = start()
    engine.store(range(CHUNKS))
    engine.close()
    try:
        changed = start(**CHANGES[field])
    except OpenError as error:
        # A volume of other block sizes is refused, with the remedy.
        assert field in ("bytes_of_block", "chunk") and "disk.reinitialize" in str(error), error
    else:
        assert [changed.tier.lookup(key(number), CONTEXT) for number in range(CHUNKS)] == [
            LookupResult.MISS] * CHUNKS
        changed.close()
    assert start().find(range(CHUNKS)) == CHUNKS


def test_vllm_55904_adapter_and_cache_salt_are_in_the_keys() -> None:
    """vLLM has them in its block hashes, so the fingerprint need not."""
    from vllm.lora.request import LoRARequest
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.request import Request

    init_none_hash(sha256)

    def first_hash(**more: Any) -> bytes:
        return Request("a request", list(range(64)), SamplingParams(max_tokens=1), None,
                       block_hasher=get_request_block_hasher(32, sha256), **more).block_hashes[0]

    adapters = [LoRARequest(name, number, f"/{name}") for number, name in enumerate(("a", "b"), 1)]
    hashes = [first_hash(), first_hash(cache_salt="a"), first_hash(cache_salt="b"),
              *(first_hash(lora_request=adapter) for adapter in adapters)]
    assert len(set(hashes)) == len(hashes) and first_hash() == hashes[0]


LMCACHE = {"capacity": "1MiB", "sizes": ["16KiB"], "model": "a model", "revision": "1", "dtype": "bfloat16",
           "layout": "a layout", "span": 256, "ranks": "in keys", "lora": "an adapter", "salt": "a tenant"}


def found(client: lmcache.Store, names: list[str]) -> list[bool]:
    number = client.submit_batch_exists(names)
    ((answered, ok, _, bools),) = client.drain_completions()
    assert answered == number and ok
    return bools


@pytest.mark.parametrize("field", ["model", "revision", "dtype", "layout", "span", "ranks", "lora", "salt"])
def test_lmcache_4825_another_value_of_a_field_finds_nothing(tmp_path: Path, field: str) -> None:
    client = lmcache.Store(tmp_path / "kv.kvs", **LMCACHE)
    assert client._store.store(["a key"], [chunk(0)], 30).ok
    assert found(client, ["a key"]) == [True]
    client.close()
    client = lmcache.Store(tmp_path / "kv.kvs", **{**LMCACHE, field: 128 if field == "span" else "another"})
    assert found(client, ["a key"]) == [False]
    client.close()
    client = lmcache.Store(tmp_path / "kv.kvs", **LMCACHE)
    assert found(client, ["a key"]) == [True]
    client.close()


def test_sglang_26792_reset_forgets_also_after_a_restart(start: Any) -> None:
    engine = start()
    engine.store(range(CHUNKS))
    engine.reset()
    assert engine.find(range(CHUNKS)) == 0
    engine.close()
    engine = start()
    assert engine.find(range(CHUNKS)) == 0
    engine.store(range(CHUNKS))
    engine.close()
    assert start().find(range(CHUNKS)) == CHUNKS


def test_sglang_26792_reset_then_sigkill_forgets(start: Any, tmp_path: Path) -> None:
    def work(_: int) -> None:
        engine = Engine(tmp_path / "kv.kvs")
        engine.store(range(CHUNKS))
        engine.reset()
        os.kill(os.getpid(), signal.SIGKILL)

    process, reader = forked(work)
    os.close(reader)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    assert start().find(range(CHUNKS)) == 0


def test_sglang_26792_reset_keeps_chunks_if_told_so(start: Any) -> None:
    engine = start(on_reset="keep")
    engine.store(range(CHUNKS))
    engine.reset()
    assert engine.find(range(CHUNKS)) == CHUNKS


def test_lmcache_4870_unknown_arguments_are_warned_of(
    start: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = start(an_argument_of_a_later_version=1, locality="local")
    assert warnings(caplog) == ["KvstrataTier ignores an_argument_of_a_later_version"]
    engine.store(range(CHUNKS))
    with pytest.warns(UserWarning, match="ignores adapter_params: a_later_one"):
        lmcache.Store(tmp_path / "other.kvs", **LMCACHE, a_later_one=1).close()


@pytest.mark.parametrize("name", [name for name, _ in inspect.getmembers(SecondaryTierManager, callable)
                                  if not name.startswith("_")])
def test_vllm_factory_each_method_takes_what_this_version_gives(name: str) -> None:
    """Whichever vLLM is installed: the base class says what it gives."""
    parameters = inspect.signature(getattr(SecondaryTierManager, name)).parameters
    assert list(inspect.signature(getattr(KvstrataTier, name)).parameters) == list(parameters)


def test_vllm_factory_class_has_no_abstract_methods() -> None:
    assert not KvstrataTier.__abstractmethods__
    constructor = inspect.signature(KvstrataTier.__init__)
    assert constructor.parameters["unknown"].kind is inspect.Parameter.VAR_KEYWORD
    assert list(constructor.parameters)[1:5] == list(inspect.signature(SecondaryTierManager.__init__).parameters)[1:5]
    assert importlib.import_module("kvstrata.vllm").KvstrataTier is KvstrataTier
