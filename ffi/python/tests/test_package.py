"""What the wheel brings: the command, stubs, licences; and how long an import takes."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from importlib import metadata, resources
from pathlib import Path

import pytest

import kvstrata


def test_version_is_the_wheels() -> None:
    assert kvstrata.__version__ == metadata.version("kvstrata")


def test_wheel_brings_stubs_and_licences() -> None:
    files = {str(file) for file in metadata.files("kvstrata") or []}
    assert {"kvstrata/py.typed", "kvstrata/_kvstrata.pyi", "kvstrata/lmcache.py", "kvstrata/aio.py"} <= files
    assert any(file.endswith("licenses/LICENSE") for file in files)
    assert resources.files("kvstrata").joinpath("py.typed").is_file()
    (module,) = [file for file in files if file.startswith("kvstrata/_kvstrata.") and file.endswith(".so")]
    assert ".abi3." in module


def test_names_have_documentation() -> None:
    for name in kvstrata.__all__:
        if name != "__version__":
            assert inspect.getdoc(getattr(kvstrata, name)), name
    for name, member in vars(kvstrata.Store).items():
        if not name.startswith("_"):
            assert member.__doc__, name


def test_import_is_quick_and_light() -> None:
    """Without the time of the interpreter's own start; the best of some, since the machine may be busy."""
    code = "import sys, time; a = set(sys.modules); t = time.perf_counter(); import kvstrata; t = time.perf_counter() - t; print(t, *(set(sys.modules) - a))"
    times = []
    for _ in range(5):
        took, *modules = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
        times.append(float(took))
        assert not {"numpy", "torch", "asyncio", "json"} & set(modules)
    print(f"import: {min(times) * 1000:.1f} ms")
    assert min(times) < 0.1


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    script = Path(sys.executable).with_name("kvstrata")
    return subprocess.run([script, *arguments], capture_output=True, text=True, timeout=120)


def test_command_comes_with_the_wheel() -> None:
    version = command("--version")
    assert version.returncode == 0 and version.stdout == f"kvstrata {kvstrata.__version__}\n"
    wrong = command("nonsense")
    assert wrong.returncode == 2 and "nonsense" in wrong.stderr and not wrong.stdout
    settings = command("config", "--toml")
    assert settings.returncode == 0 and "[store]" in settings.stdout
    replay = command("replay", "--requests", "5", "--json", "-")
    assert replay.returncode == 0, replay.stderr
    module = subprocess.run([sys.executable, "-m", "kvstrata", "--version"], capture_output=True, text=True, timeout=120)
    assert module.stdout == version.stdout


def blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)


def documents() -> list[Path]:
    here = Path(__file__).resolve().parent.parent
    return [here / "README.md", here.parent.parent / "docs" / "python.md"]


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.name)
def test_examples_of_documents_run(document: Path, tmp_path: Path) -> None:
    examples = blocks(document.read_text())
    assert examples
    for number, example in enumerate(examples):
        folder = tmp_path / str(number)
        folder.mkdir()
        program = example.replace("/data/kv", str(folder)).replace('"100G"', '"64M"')
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, env=environment)
        assert ran.returncode == 0, (example, ran.stdout, ran.stderr)
