"""A transformers model that finds its prompt's KV cache again after a restart: run it twice with the same folder.

    python transformers_restart.py MODEL FOLDER [--prompt FILE] [--tokens 32]

A block holds the keys and values of SPAN tokens in all layers, as (layers, 2, heads, SPAN, head_dim). Its key is
a hash of all tokens up to its end. The prompt is computed one block at a time, with or without blocks from the
disk: the tokens and logits of both runs are the same to the last bit.
"""

import argparse
import hashlib
import json
import time

import kvstrata
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

SPAN = 128

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("model", help="a folder or a name in the hub")
parser.add_argument("folder", help="a folder of the disk, for kvstrata.blocks")
parser.add_argument("--prompt", help="a file of text; 2,000 made-up tokens if absent")
parser.add_argument("--tokens", type=int, default=32, help="tokens to generate (default: 32)")
parser.add_argument("--revision", default="1", help="of the model's weights: another one finds no block (default: 1)")
options = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.bfloat16).to(device).eval()
config = model.config
if options.prompt:
    with open(options.prompt, encoding="utf-8") as text:
        prompt = AutoTokenizer.from_pretrained(options.model)(text.read())["input_ids"]
else:
    prompt = [number * 7919 % config.vocab_size for number in range(min(2000, config.max_position_embeddings - 100))]

heads, dim = config.num_key_value_heads, getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)
shape = (config.num_hidden_layers, 2, heads, SPAN, dim)
full = (len(prompt) - 1) // SPAN  # the last token is always computed: its logits choose the first new token
pool = torch.empty((full, *shape), dtype=model.dtype, pin_memory=device == "cuda")
hashes = hashlib.sha256(repr(shape).encode())
keys = []
for block in range(full):
    hashes.update(repr(prompt[block * SPAN : (block + 1) * SPAN]).encode())
    keys.append(hashes.digest())

store = kvstrata.Store(
    disk={"paths": [options.folder], "bytes": "256M"}, host={"bytes": "64M"},
    store={"sizes": [str(pool[0].nbytes)], "model": options.model, "revision": options.revision,
           "dtype": str(model.dtype), "layout": "layers,2,heads,span,dim", "span": SPAN, "ranks": "tp0of1"},
)
began, cache = time.perf_counter(), DynamicCache(config=config)
loaded = store.load(keys, list(pool)).leading
for layer in range(config.num_hidden_layers):
    for kind in pool[:loaded, layer] if loaded else ():
        cache.update(kind[None, 0].to(device), kind[None, 1].to(device), layer)
generated, logits = [], torch.empty(0)
with torch.inference_mode():
    for start in range(loaded * SPAN, len(prompt), SPAN):
        logits = model(torch.tensor([prompt[start : start + SPAN]], device=device), past_key_values=cache).logits[0, -1]
    first = time.perf_counter() - began
    for block in range(loaded, full):
        for layer, parts in enumerate(cache.layers):
            here = slice(block * SPAN, (block + 1) * SPAN)
            pool[block, layer, 0].copy_(parts.keys[0, :, here])
            pool[block, layer, 1].copy_(parts.values[0, :, here])
    stored = sum(store.store(keys[loaded:], list(pool[loaded:])).done) if loaded < full else 0
    digest = hashlib.sha256(logits.float().cpu().numpy().tobytes()).hexdigest()
    while len(generated) < options.tokens:
        generated.append(int(logits.argmax()))
        logits = model(torch.tensor([generated[-1:]], device=device), past_key_values=cache).logits[0, -1]
store.close()
print(json.dumps({"prompt_tokens": len(prompt), "loaded_tokens": loaded * SPAN, "stored_tokens": stored * SPAN,
                  "seconds_to_first_token": round(first, 3), "tokens": generated, "logits_sha256": digest}))
