"""Writes LICENSE-THIRD-PARTY.txt, which the wheel carries: the licences of all crates that are linked into it.

    python ffi/python/licences.py
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAMES = ("license", "licence", "copying", "notice", "unlicense", "copyright")


def linked(metadata: dict) -> set[str]:
    """The packages that the module depends on, other than for its build or its tests."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    (root,) = (package["id"] for package in metadata["packages"] if package["name"] == "kvstrata-python")
    seen, left = set(), [root]
    while left:
        at = left.pop()
        if at not in seen:
            seen.add(at)
            kinds = ((each["pkg"], {kind["kind"] for kind in each["dep_kinds"]}) for each in nodes[at]["deps"])
            left += [package for package, of in kinds if None in of]
    return seen


def main() -> None:
    triple = next(line.split()[1] for line in subprocess.check_output(["rustc", "-vV"], text=True).splitlines() if line.startswith("host:"))
    command = ["cargo", "metadata", "--format-version", "1", "--filter-platform", triple, "--manifest-path", str(HERE / "Cargo.toml")]
    metadata = json.loads(subprocess.check_output(command))
    here = linked(metadata)
    packages = sorted((package for package in metadata["packages"] if package["id"] in here and package["source"]), key=lambda package: package["name"])
    # Many crates have the same text: it is printed once.
    texts: dict[str, list[str]] = {}
    listed, without = [], []
    for package in packages:
        name = f"{package['name']} {package['version']}"
        listed.append(f"{name}: {package['license']}")
        folder = Path(package["manifest_path"]).parent
        files = [file for file in sorted(folder.iterdir()) if file.is_file() and file.name.lower().startswith(NAMES)]
        for file in files:
            texts.setdefault(file.read_text(errors="replace").strip(), []).append(f"{name} ({file.name})")
        if not files:
            without.append(name)
    parts = ["Crates that are linked into this wheel, and their licences.", "\n".join(listed)]
    if without:
        parts.append("Without a file of their own, so by the licence named above: " + ", ".join(without))
    parts += [f"{', '.join(names)}:\n\n{text}" for text, names in texts.items()]
    (HERE / "LICENSE-THIRD-PARTY.txt").write_text(("\n\n" + "-" * 80 + "\n\n").join(parts) + "\n")
    print(f"{len(packages)} crates, {len(texts)} texts, {len(without)} crates without one", file=sys.stderr)


if __name__ == "__main__":
    main()
