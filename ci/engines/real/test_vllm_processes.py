"""A real vLLM over our tier as `vllm serve` runs it: EngineCore in a process of its own; and two ranks over gloo."""

from runs import from_disk, said, tier


def test_engine_core_of_its_own_starts_warm(generate, models, tmp_path_factory):
    case = {"model": str(models / "llama"), "own_process": True}
    ours = {**case, "tiers": tier(tmp_path_factory.mktemp("own"))}
    alone, _, second = generate([{**case, "own_process": False}, ours, ours])
    assert said(second) == said(alone)
    assert from_disk(second) == 4 * 288


def test_two_ranks_start_warm(generate, models, tmp_path_factory):
    case = {"model": str(models / "llama"), "own_process": False, "tensor_parallel": 2}
    ours = {**case, "tiers": tier(tmp_path_factory.mktemp("ranks"))}
    alone, _, second = generate([case, ours, ours])
    assert said(second) == said(alone)
    assert from_disk(second) == 4 * 288
