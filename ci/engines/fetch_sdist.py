"""Downloads a source distribution without building it.

    fetch_sdist.py DISTRIBUTION VERSION FOLDER

pip asks a source distribution for its metadata, which runs its build, and vLLM's build wants compilers. This
program stands in for the build: pip, without build isolation, imports the `setuptools` that lies first on the
path, and gets the least metadata that it accepts.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

BACKEND = '''
import pathlib

def prepare_metadata_for_build_wheel(folder, config_settings=None):
    info = pathlib.Path(folder, "{name}-{version}.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
    return info.name
'''


def main(name: str, version: str, folder: str) -> None:
    with tempfile.TemporaryDirectory() as stand_in:
        package = pathlib.Path(stand_in, "setuptools")
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "build_meta.py").write_text(BACKEND.format(name=name, version=version))
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
             "--no-build-isolation", "--no-binary", name, "--dest", folder, f"{name}=={version}"],
            env={**os.environ, "PYTHONPATH": stand_in}, check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
