"""A real vLLM over our tier, through restarts: what it generates is bit for bit what it generates without a tier.

Each case says how many prompt tokens the engine itself counts as read from the tier: equal outputs alone would
show nothing if nothing had been loaded.
"""

import pytest
from runs import from_disk, said, tier
from volume import volumes

# Four prompts of 300 tokens: nine full blocks of 32 tokens each.
ALL = 4 * 288


@pytest.fixture(scope="module")
def restarts(generate, models, tmp_path_factory):
    """No tier; then a first process with ours, a second that is killed, and a third."""
    folder = tmp_path_factory.mktemp("restarts")
    case = {"model": str(models / "llama"), "own_process": False}
    ours = {**case, "tiers": tier(folder)}
    # The killed one also computes prompts of its own, whose stores may be on their way.
    more = [{"seed": seed, "tokens": 300} for seed in range(8)]
    results = generate([case, ours, ours, {**ours, "requests": more, "end": "kill"}, ours])
    return folder, results


def test_first_process_computes_and_stores(restarts):
    _, (alone, first, *_) = restarts
    assert said(first) == said(alone)
    assert from_disk(first) == 0


def test_second_process_starts_warm(restarts):
    _, (alone, _, second, *_) = restarts
    assert said(second) == said(alone)
    assert from_disk(second) == ALL


def test_process_after_a_kill_starts_warm(restarts):
    _, (alone, _, _, killed, third) = restarts
    assert said(killed)[:4] == said(alone)
    assert from_disk(killed) == ALL
    assert said(third) == said(alone)
    assert from_disk(third) == ALL


def test_damaged_blocks_are_computed_again_and_forged_ones_are_seen(restarts, generate, models):
    folder, (alone, *_) = restarts
    volume, = volumes(folder)
    for slot in volume.used()[::5]:
        volume.flip(slot)
    ours = {"model": str(models / "llama"), "own_process": False, "tiers": tier(folder)}
    damaged, mended = generate([ours, ours])
    assert said(damaged) == said(alone)
    assert 0 < from_disk(damaged) < ALL
    # What was damaged has been stored anew.
    assert said(mended) == said(alone)
    assert from_disk(mended) == ALL
    # The control: with sums that match wrong bytes, the outputs differ. So this test would see a wrong byte.
    volume, = volumes(folder)
    for slot in volume.used():
        volume.forge(slot)
    forged, = generate([ours])
    assert from_disk(forged) == ALL
    assert said(forged) != said(alone)
