"""Makes tiny random models: the same bytes on each machine, a megabyte each, no model hub.

    model.py FOLDER     makes FOLDER/llama, FOLDER/window, FOLDER/lora-1, FOLDER/lora-2; keeps what is there

`llama` has four layers of full attention. `window` (Gemma 3) has sliding-window and full layers in turn,
hence two groups of cache blocks. The two LoRA adapters are for `llama`.

The weights come from a generator with a seed, scaled by 1/sqrt(inputs): attention then matters for the
output, and a test sees a block of cache with wrong content.
"""

import json
import os
import pathlib
import shutil
import sys

import numpy
import torch
import transformers
from safetensors.torch import save_file

SHAPE = dict(vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=4, num_attention_heads=4,
             num_key_value_heads=2, head_dim=32, max_position_embeddings=2048, tie_word_embeddings=False)
WINDOW_TOKENS = 64
LORA_RANK = 8


def llama() -> transformers.PreTrainedModel:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE))


def window() -> transformers.PreTrainedModel:
    turns = ["sliding_attention", "full_attention"] * 2
    return transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(
        **SHAPE, layer_types=turns, sliding_window=WINDOW_TOKENS, query_pre_attn_scalar=32))


def random(generator: numpy.random.Generator, shape: torch.Size) -> torch.Tensor:
    values = generator.standard_normal(tuple(shape), dtype=numpy.float32) / numpy.sqrt(shape[-1])
    return torch.from_numpy(values).to(torch.bfloat16)


def save_model(model: transformers.PreTrainedModel, folder: pathlib.Path, seed: int) -> None:
    generator = numpy.random.default_rng(seed)
    model = model.to(torch.bfloat16)
    with torch.no_grad():
        for _, weights in sorted(model.named_parameters()):
            # Vectors are norms: they keep their first value.
            if weights.dim() > 1:
                weights.copy_(random(generator, weights.shape))
    model.save_pretrained(folder)


def save_lora(folder: pathlib.Path, seed: int) -> None:
    """An adapter of queries, keys and values in PEFT's format, large enough to change the tokens."""
    generator = numpy.random.default_rng(seed)
    hidden, head = SHAPE["hidden_size"], SHAPE["head_dim"]
    outputs = {"q_proj": SHAPE["num_attention_heads"] * head, "k_proj": SHAPE["num_key_value_heads"] * head,
               "v_proj": SHAPE["num_key_value_heads"] * head}
    weights = {}
    for layer in range(SHAPE["num_hidden_layers"]):
        for part, width in outputs.items():
            name = f"base_model.model.model.layers.{layer}.self_attn.{part}"
            weights[f"{name}.lora_A.weight"] = random(generator, torch.Size((LORA_RANK, hidden)))
            weights[f"{name}.lora_B.weight"] = random(generator, torch.Size((width, LORA_RANK)))
    save_file(weights, folder / "adapter_model.safetensors")
    config = dict(peft_type="LORA", task_type="CAUSAL_LM", r=LORA_RANK, lora_alpha=2 * LORA_RANK, lora_dropout=0.0,
                  bias="none", target_modules=sorted(outputs), base_model_name_or_path="llama")
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2))


def make(folder: pathlib.Path) -> None:
    makers = {"llama": lambda f: save_model(llama(), f, 1), "window": lambda f: save_model(window(), f, 2),
              "lora-1": lambda f: save_lora(f, 3), "lora-2": lambda f: save_lora(f, 4)}
    for name, maker in makers.items():
        if (folder / name).is_dir():
            continue
        # Made elsewhere, then renamed: a model that is there is whole.
        making = folder / f"making-{name}-{os.getpid()}"
        making.mkdir(parents=True)
        try:
            maker(making)
            making.rename(folder / name)
        finally:
            shutil.rmtree(making, ignore_errors=True)


if __name__ == "__main__":
    make(pathlib.Path(sys.argv[1]))
