"""Gather, scatter and permutation of KV blocks as torch users write them: index_select and permute, layer by layer, on the shape of the
table (benches/gpu/README.md). Prints one JSON object; `benches/gpu/run` puts it beside ours.

    torch_peer.py [DEVICE]
"""
import json
import statistics
import sys

import torch

LAYERS, BLOCKS, PAGE, HEADS, SIZE = 80, 256, 16, 8, 128
ROUNDS, WARM_UP = 15, 3

device = torch.device("cuda", int(sys.argv[1]) if len(sys.argv) > 1 else 0)
torch.cuda.set_device(device)


def empty(*shape):
    return torch.empty(shape, dtype=torch.bfloat16, device=device)


def filled(*shape):
    return torch.randint(-99, 99, shape, dtype=torch.int16, device=device).to(torch.bfloat16)


# An engine's: [2][blocks][page][heads][size] a layer, twice as many blocks as are copied, no two of these adjacent.
engine = [filled(2, 2 * BLOCKS, PAGE, HEADS, SIZE) for _ in range(LAYERS)]
numbers = (2 * (torch.arange(BLOCKS, device=device) * 99 % BLOCKS) + 1).contiguous()
tier = empty(BLOCKS, LAYERS, 2, PAGE, HEADS, SIZE)
turned = empty(BLOCKS, LAYERS, 2, HEADS, PAGE, SIZE)
bytes_moved = tier.numel() * tier.element_size()


def gather():
    for number, layer in enumerate(engine):
        tier[:, number].copy_(layer.index_select(1, numbers).transpose(0, 1))


def scatter():
    for number, layer in enumerate(engine):
        layer.index_copy_(1, numbers, tier[:, number].transpose(0, 1))


def gather_turned():
    for number, layer in enumerate(engine):
        turned[:, number].copy_(layer.index_select(1, numbers).permute(1, 0, 3, 2, 4))


def scatter_turned():
    for number, layer in enumerate(engine):
        layer.index_copy_(1, numbers, turned[:, number].permute(1, 0, 3, 2, 4))


def gb_per_s(act):
    rates = []
    for turn in range(WARM_UP + ROUNDS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        act()
        end.record()
        end.synchronize()
        if turn >= WARM_UP:
            rates.append(bytes_moved / begin.elapsed_time(end) / 1e6)
    low, median, high = statistics.quantiles(rates, n=4)
    return {"q1": low, "median": median, "q3": high}


work = {"gather": gather, "gather, NHD to HND": gather_turned, "scatter": scatter, "scatter, HND to NHD": scatter_turned}
gather()
wanted = torch.stack([layer[:, numbers] for layer in engine[:2]], 0).permute(2, 0, 1, 3, 4, 5)
assert torch.equal(tier[:, :2], wanted), "torch's own gather"
rows = [{"what": what, "gb_per_s": gb_per_s(act)} for what, act in work.items()]
print(json.dumps({"who": f"torch {torch.__version__}", "rows": rows}))
