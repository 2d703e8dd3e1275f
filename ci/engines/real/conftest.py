"""Real engines for tests: runs of cases, folders, models. Run by the Python of the engines' environment."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent.parent
sys.path.insert(0, str(HERE))


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    subprocess.run([sys.executable, HERE / "model.py", folder], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def generate(tmp_path_factory):
    """Runs cases of generate.py, one after the other, each with an engine of its own."""

    def run(cases: list[dict]) -> list[dict]:
        file = tmp_path_factory.mktemp("cases") / "cases.json"
        file.write_text(json.dumps(cases))
        log = file.with_name("log.txt")
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join([str(HERE), environment.get("PYTHONPATH", "")])
        with log.open("w") as errors:
            ran = subprocess.run([sys.executable, HERE / "generate.py", file], stdout=subprocess.PIPE, stderr=errors,
                                 text=True, env=environment, timeout=900, check=False)
        results = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
        failed = [result for result in results if "error" in result]
        assert len(results) == len(cases) and not failed, f"{failed}\n{log.read_text()[-4000:]}"
        return results

    return run
