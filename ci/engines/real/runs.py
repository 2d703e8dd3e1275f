"""What tests say and ask of a run of a real engine."""

from pathlib import Path


def tier(folder: Path, **more) -> list[dict]:
    """The list `secondary_tiers` with ours."""
    return [{"type": "KvstrataTier", "module_path": "kvstrata.vllm", "path": str(folder), "capacity": "64MiB", **more}]


def from_disk(result: dict) -> int:
    """The prompt tokens that the engine says came from our tier."""
    return result["counters"].get("prompt_tokens_cached_by_source{source=disk}", 0)


def said(result: dict) -> list:
    """What the engine generated: tokens, and logprobs as exact numbers."""
    return [(answer["tokens"], answer["logprobs"]) for answer in result["rounds"][0]]
