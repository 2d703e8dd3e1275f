"""Makes a cache of a model hub, with the configuration of the one model that vLLM's connector tests name.

    hub.py FOLDER       then HF_HOME=FOLDER HF_HUB_OFFLINE=1

The tests make a vLLM configuration of `facebook/opt-125m` and mock everything behind it: they need its
config.json, whose values are the defaults of transformers' OPTConfig, and no weights.
"""

import pathlib
import sys

import transformers

NAME = "facebook/opt-125m"
REVISION = "0" * 40


def make(folder: pathlib.Path) -> None:
    model = folder / "hub" / f"models--{NAME.replace('/', '--')}"
    snapshot = model / "snapshots" / REVISION
    snapshot.mkdir(parents=True, exist_ok=True)
    transformers.OPTConfig(architectures=["OPTForCausalLM"], dtype="float16").save_pretrained(snapshot)
    (model / "refs").mkdir(exist_ok=True)
    (model / "refs" / "main").write_text(REVISION)


if __name__ == "__main__":
    make(pathlib.Path(sys.argv[1]))
