"""vLLM's tiered offloading on its CPU platform, where vLLM itself refuses only the worker that copies blocks.

`CpuTieringSpec` is `TieringOffloadingSpec` with a worker that copies host memory. vLLM makes it from

    "spec_name": "CpuTieringSpec", "spec_module_path": "cpu_offload"

in `kv_connector_extra_config`, with this folder on PYTHONPATH.
"""

import time

import torch
from vllm.v1.kv_offload.base import (CanonicalKVCaches, GPULoadStoreSpec, LoadStoreSpec, OffloadingWorker,
                                     TransferResult)
from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec


class HostCopyWorker(OffloadingWorker):
    """Copies between the engine's cache and the shared region, within the call.

    A row of the region holds one chunk: for each tensor of this rank, `blocks_per_chunk` pages.
    """

    def __init__(self, caches: CanonicalKVCaches, blocks_per_chunk: int, region: SharedOffloadRegion):
        self._region = region
        self._blocks_per_chunk = blocks_per_chunk
        self._groups = caches.group_data_refs
        self._blocks = [cache.tensor for cache in caches.tensors]
        self._chunks = []
        for cache in caches.tensors:
            rows = region.create_next_worker_view(cache.page_size_bytes * blocks_per_chunk)
            self._chunks.append(rows.unflatten(1, (blocks_per_chunk, cache.page_size_bytes)))
        self._finished: list[TransferResult] = []

    def submit_store(self, job_id: int, src_spec: GPULoadStoreSpec, dst_spec: LoadStoreSpec) -> bool:
        return self._copy(job_id, src_spec, dst_spec, to_region=True)

    def submit_load(self, job_id: int, src_spec: LoadStoreSpec, dst_spec: GPULoadStoreSpec,
                    expedited: bool = False) -> bool:  # From vLLM 0.33 on; each load here is.
        return self._copy(job_id, dst_spec, src_spec, to_region=False)

    def _copy(self, job_id: int, gpu: GPULoadStoreSpec, cpu: LoadStoreSpec, to_region: bool) -> bool:
        assert isinstance(cpu, CPULoadStoreSpec)
        began, moved = time.perf_counter(), 0
        first_block = first_chunk = 0
        for references, size, index in zip(self._groups, gpu.group_sizes, gpu.block_indices, strict=True):
            # A group's first block may lie within a chunk.
            places = torch.arange(size) + index % self._blocks_per_chunk
            rows = places // self._blocks_per_chunk
            chunks = torch.from_numpy(cpu.chunk_ids)[first_chunk + rows].long()
            parts = places % self._blocks_per_chunk
            blocks = torch.from_numpy(gpu.block_ids[first_block:first_block + size]).long()
            for reference in references:
                used = reference.page_size_bytes
                cache = self._blocks[reference.tensor_idx][:, :used]
                region = self._chunks[reference.tensor_idx][:, :, :used]
                if to_region:
                    region[chunks, parts] = cache[blocks]
                else:
                    cache[blocks] = region[chunks, parts]
                moved += size * used
            first_block += size
            first_chunk += int(rows[-1]) + 1 if size else 0
        assert first_chunk == len(cpu.chunk_ids)
        self._finished.append(TransferResult(job_id, True, moved, time.perf_counter() - began))
        return True

    def get_finished(self) -> list[TransferResult]:
        finished, self._finished = self._finished, []
        return finished

    def wait(self, job_ids: set[int]) -> None:
        """Each copy ended within its call."""

    def shutdown(self) -> None:
        # The region closes only when no view is left.
        self._chunks.clear()
        self._region.cleanup()


class CpuTieringSpec(TieringOffloadingSpec):
    def get_worker(self, kv_caches: CanonicalKVCaches) -> OffloadingWorker:
        assert not self.config.canonical_layout, "the canonical layout needs copies by fragments"
        if not self._worker:
            region = SharedOffloadRegion(
                engine_id=self._engine_id, num_chunks=self.num_chunks,
                rank=0 if self.replicated_layout else self.config.parallel.rank,
                kv_bytes_per_chunk=self.kv_bytes_per_chunk, cpu_page_size=self.cpu_page_size_per_worker)
            self._worker = HostCopyWorker(kv_caches, self.blocks_per_chunk, region)
        return self._worker
