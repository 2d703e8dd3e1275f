"""ffi/python/examples/transformers_restart.py: transformers without an engine, restarted over the same folder.

    PYTHONPATH=$package $engines/python/bin/python -m pytest ci/engines/tests/test_transformers.py
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent.parent
EXAMPLE = HERE.parent.parent / "ffi/python/examples/transformers_restart.py"
PROMPT, SPAN = 1948, 128
FULL = PROMPT // SPAN * SPAN


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    subprocess.run([sys.executable, HERE / "model.py", folder], check=True, capture_output=True)
    return folder / "llama"


def run(model: Path, folder: Path, *arguments: str) -> dict:
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    ran = subprocess.run([sys.executable, EXAMPLE, model, folder, *arguments], capture_output=True, text=True,
                         env=environment, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def answers(of: dict) -> tuple:
    return of["tokens"], of["logits_sha256"]


def test_restart_is_warm_and_the_same_to_the_bit(model, tmp_path):
    cold = run(model, tmp_path)
    assert (cold["prompt_tokens"], cold["loaded_tokens"], cold["stored_tokens"]) == (PROMPT, 0, FULL)
    assert len(set(cold["tokens"])) > 4
    warm = run(model, tmp_path)
    assert (warm["loaded_tokens"], warm["stored_tokens"]) == (FULL, 0)
    assert answers(warm) == answers(cold)
    # Another revision of the weights finds nothing.
    other = run(model, tmp_path, "--revision", "2")
    assert other["loaded_tokens"] == 0 and answers(other) == answers(cold)


def test_flipped_bits_are_computed_again(model, tmp_path):
    cold = run(model, tmp_path)
    [file] = [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size > 1 << 20]
    size = file.stat().st_size
    with file.open("r+b") as volume:
        # One bit in each 4 KiB behind the first MiB: in each payload, and maybe in the tables.
        for place in range(1 << 20, size, 4096):
            volume.seek(place)
            byte = volume.read(1)
            volume.seek(place)
            volume.write(bytes([byte[0] ^ 4]))
    flipped = run(model, tmp_path)
    assert flipped["loaded_tokens"] < FULL
    assert answers(flipped) == answers(cold)
