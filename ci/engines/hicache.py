"""SGLang's hierarchical cache on the CPU: real host pools, real storage backends, no engine.

    hicache.py CASES        a case or a list of cases, JSON, as in generate.py; a line of JSON for each

A case fills a pool from a seed, stores pages by the backend, empties the pool and gets the pages into other
places of it; or it does one half of that. SGLang's fault injector is on when its variables are set:
SGLANG_TEST_HICACHE_BACKEND_RANDOM_DELAY, in seconds, and SGLANG_TEST_HICACHE_BACKEND_RANDOM_FAILURE, a
probability.
"""

import hashlib
import json
import os
import sys

import torch
from sglang.srt.mem_cache.device_pool_info import KVBufferLayout, KVBuffers, MHABufferInfo, MLABufferInfo
from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, HiCacheStorageConfig, PoolName, PoolTransfer
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
from sglang.srt.mem_cache.pool_host.mla import MLATokenToKVPoolHost
from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory

DEFAULTS = {
    "pool": "mha",                   # or "mla"
    "layout": "page_first_direct",   # or "page_first", "layer_first"
    "backend": "file",               # a name that SGLang knows, or "dynamic"
    "extra": {},                     # --hicache-storage-backend-extra-config
    "model": "tiny",
    "interface": "v1",               # v1: pages in place; v2: pools by name; copy: whole pages as tensors
    "pages": 8,
    "seed": 0,
    "store": True,
    "load": True,
}
LAYERS, HEADS, HEAD_DIM, PAGE = 4, 2, 32, 64
SLOTS = 32 * PAGE
DTYPE, CPU = torch.bfloat16, torch.device("cpu")


def host_pool(kind: str, layout: str, *, page: int = PAGE, layers: int = LAYERS, heads: int = HEADS,
              head_dim: int = HEAD_DIM, dtype: torch.dtype = DTYPE, slots: int = SLOTS):
    """A host pool over an empty device pool, as SGLang's cache controller makes it."""
    common = dict(host_to_device_ratio=1.0, host_size=0, page_size=page, layout=layout, pin_memory=False,
                  device="cpu", device_capacity_tokens=slots, start_layer=0, end_layer=layers)
    pointers = torch.zeros(layers, dtype=torch.uint64)
    if kind == "mha":
        keys, values = (
            tuple(torch.zeros(slots, heads, head_dim, dtype=dtype) for _ in range(layers)) for _ in "kv")
        info = MHABufferInfo(
            buffers=KVBuffers(k=keys, v=values, k_data_ptrs=pointers, v_data_ptrs=pointers,
                              layout=KVBufferLayout.NHD),
            page_size=page, head_num=heads, head_dim=head_dim, v_head_dim=head_dim, dtype=dtype, device=CPU)
        return MHATokenToKVPoolHost(info, **common)
    rank, rope = 48, 16
    rows = tuple(torch.zeros(slots, 1, rank + rope, dtype=dtype) for _ in range(layers))
    info = MLABufferInfo(
        buffers=rows, data_ptrs=pointers, layer_indices=tuple(range(layers)), device_layer_num=layers, page_size=page,
        kv_lora_rank=rank, qk_rope_head_dim=rope, kv_cache_dim=rank + rope, dtype=dtype, device=CPU)
    return MLATokenToKVPoolHost(info, target_layer_num=layers, **common)


def fill(pool, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    pool.kv_buffer.copy_(torch.randn(pool.kv_buffer.shape, generator=generator).to(pool.dtype))


def backend_for(case: dict, pool) -> HiCacheStorage:
    config = HiCacheStorageConfig(
        tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1,
        is_mla_model=case["pool"] == "mla", enable_storage_metrics=False,
        is_page_first_layout=case["layout"] == "page_first", model_name=case["model"],
        extra_config=case["extra"])
    backend = StorageBackendFactory.create_backend(case["backend"], config, pool)
    backend.register_mem_pool_host(pool)
    backend.register_mem_host_pool_v2(pool, PoolName.KV)
    backend.on_host_pools_registered()
    return backend


def page_keys(seed: int, pages: int) -> list[str]:
    """SGLang's keys are SHA-256 of a page's tokens, chained."""
    keys, last = [], str(seed)
    for _ in range(pages):
        last = hashlib.sha256(last.encode()).hexdigest()
        keys.append(last)
    return keys


def put(backend, pool, interface: str, keys: list[str], places: torch.Tensor) -> list[bool]:
    if interface == "v1":
        return backend.batch_set_v1(keys, places)
    if interface == "v2":
        transfer = PoolTransfer(name=PoolName.KV, host_indices=places, keys=keys)
        return backend.batch_set_v2([transfer])[PoolName.KV]
    pages = [pool.get_data_page(int(place)) for place in places[::pool.page_size]]
    return [backend.batch_set(keys, pages)] * len(keys)


def get(backend, pool, interface: str, keys: list[str], places: torch.Tensor) -> list[bool]:
    if interface == "v1":
        return backend.batch_get_v1(keys, places)
    if interface == "v2":
        transfer = PoolTransfer(name=PoolName.KV, host_indices=places, keys=keys)
        return backend.batch_get_v2([transfer])[PoolName.KV]
    pages = backend.batch_get(keys, [pool.get_dummy_flat_data_page() for _ in keys])
    for place, page in zip(places[::pool.page_size], pages, strict=True):
        if page is not None:
            pool.set_from_flat_data_page(int(place), page)
    return [page is not None for page in pages]


def contents(pool, places: torch.Tensor) -> list[str]:
    return [hashlib.sha256(pool.get_data_page(int(place)).contiguous().view(torch.uint8).numpy()).hexdigest()
            for place in places[::pool.page_size]]


def run(case: dict) -> dict:
    pool = host_pool(case["pool"], case["layout"])
    backend = backend_for(case, pool)
    keys, result = page_keys(case["seed"], case["pages"]), {}
    fill(pool, case["seed"])
    places = pool.alloc(case["pages"] * PAGE)
    result["expected"] = contents(pool, places)
    if case["store"]:
        result["stored"] = [bool(done) for done in put(backend, pool, case["interface"], keys, places)]
    if case["load"]:
        pool.kv_buffer.zero_()
        others = pool.alloc(case["pages"] * PAGE)
        result["found"] = backend.batch_exists(keys)
        result["loaded"] = [bool(done) for done in get(backend, pool, case["interface"], keys, others)]
        result["equal"] = [a == b for a, b in zip(contents(pool, others), result["expected"], strict=True)]
        # Where nobody asked for anything, nothing is written.
        result["untouched"] = not pool.get_data_page(int(places[0])).any()
    # Not every backend has it, and the fault injector passes it on without a question.
    if hasattr(getattr(backend, "_backend", backend), "close"):
        backend.close()
    return result


def main() -> None:
    text = sys.argv[1]
    cases = json.loads(text if text.lstrip()[:1] in ("{", "[") else open(text).read())
    for case in cases if isinstance(cases, list) else [cases]:
        assert case.keys() <= DEFAULTS.keys(), f"unknown fields {sorted(case.keys() - DEFAULTS.keys())}"
        print(json.dumps(run({**DEFAULTS, **case})), flush=True)


if __name__ == "__main__":
    main()
