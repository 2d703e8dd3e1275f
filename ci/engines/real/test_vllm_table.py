"""A real vLLM over our tier, in the ways in which it can run: each way beside itself without a tier."""

import pytest
from runs import from_disk, said, tier

LLAMA = {"own_process": False}
# Two requests fit into 12 blocks at first, and both outgrow them.
FEW = [{"seed": seed, "tokens": 150} for seed in range(4)]

# The way, its options, and the prompt tokens that a second process reads from the tier. None: some, since the engine
# may have computed them in the same process.
WAYS = {
    "preemption_with_12_blocks": ({"blocks": 12, "requests": FEW, "new_tokens": 96}, None),
    "chunks_of_2_blocks": ({"blocks_per_chunk": 2}, 4 * 256),
    "asynchronous_scheduling": ({"async_scheduling": True}, 4 * 288),
    "window_and_full_layers": ({"model": "window"}, None),
    "staged_transfers": ({"straight": False}, 4 * 288),
}


@pytest.fixture(scope="module")
def table(generate, models, tmp_path_factory):
    """For each way: alone, first process, second process; all in one run, which imports vLLM once."""
    cases = []
    for way, (options, _) in WAYS.items():
        options = dict(options)
        straight = options.pop("straight", True)
        model = models / options.pop("model", "llama")
        case = {**LLAMA, "model": str(model), **options}
        ours = {**case, "tiers": tier(tmp_path_factory.mktemp(way), straight=straight)}
        cases += [case, ours, ours]
    results = generate(cases)
    return {way: results[3 * at:3 * at + 3] for at, way in enumerate(WAYS)}


@pytest.mark.parametrize("way", WAYS)
def test_second_process_is_bit_identical(table, way):
    alone, first, second = table[way]
    assert said(first) == said(alone)
    assert said(second) == said(alone)
    expected = WAYS[way][1]
    assert from_disk(second) == expected if expected is not None else from_disk(second) > 0


def test_few_blocks_preempt(table):
    assert table["preemption_with_12_blocks"][1]["counters"]["num_preemptions"] > 0


def test_salts_and_adapters_do_not_meet(generate, models, tmp_path_factory):
    """The same prompt under two salts and two LoRA adapters: each finds its own blocks only."""
    folder = tmp_path_factory.mktemp("salts")
    prompt = {"seed": 1, "tokens": 300}
    case = {**LLAMA, "model": str(models / "llama")}
    loras = [{**prompt, "lora": str(models / f"lora-{number}")} for number in (1, 2)]
    salts = [{**prompt, "salt": salt} for salt in ("a", "b")]
    ours = {**case, "tiers": tier(folder)}
    alone_lora, first, other, again = generate([
        {**case, "requests": loras},
        {**ours, "requests": [loras[0], salts[0]]},
        {**ours, "requests": [loras[1], salts[1], prompt]},
        {**ours, "requests": [*loras, *salts, prompt]},
    ])
    assert from_disk(first) == from_disk(other) == 0
    assert from_disk(again) == 5 * 288
    assert said(again)[:2] == said(alone_lora)
    assert said(again)[0] != said(again)[1]
    # A salt changes the key and not the numbers.
    assert said(again)[2] == said(again)[3] == said(again)[4]
