"""What the engines' adapters share: sizes, revisions of weights, epochs."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["Epoch", "bytes_of", "disk_bytes_of", "paths_of", "revision_of", "time_of", "warn_unknown"]

# Of a volume: docs/disk-format.md.
_PAGE = 4096
_RECORD = 64

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None


def bytes_of(size: int | str | None) -> int | str | None:
    """The settings' form of a size: they take 64K, 2M, 1G and 1T for powers of 1024."""
    if not isinstance(size, str):
        return size
    text = size.strip()
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        if text.lower().endswith(unit.lower()):
            return text[: -len(unit)].strip() + unit[0]
    return text


def disk_bytes_of(
    capacity: int | str | None, paths: Sequence[str], sizes: Sequence[int | str] | None
) -> int | str | None:
    """The setting disk.bytes with which all files together are no longer than the capacity. The setting counts
    blocks alone, in whole pages; a volume has tables beside them."""
    whole = _number_of(capacity)
    numbers = [_number_of(size) for size in (sizes if sizes is not None else [_PAGE])]
    known = [number for number in numbers if number]
    if not whole or len(known) < len(numbers) or not known:
        # Nothing to compute with: the store says what is wrong.
        return bytes_of(capacity)
    least = -(-min(known) // _PAGE) * _PAGE
    # Two superblocks, the rest of a page of the table, and a page for the small files beside a volume.
    left = whole - 4 * _PAGE * len(known) * max(len(paths), 1)
    return left * least // (least + _RECORD) if left > 0 else whole


def _number_of(size: int | str | None) -> int | None:
    text = bytes_of(size)
    if not isinstance(text, str):
        return text
    power = "KMGT".find(text[-1:]) + 1
    number = text[:-1] if power else text
    return int(number) << 10 * power if number.strip().isdecimal() else None


def paths_of(path: Paths) -> list[str]:
    """The paths of a store as a list."""
    if path is None:
        return []
    return [os.fspath(path)] if isinstance(path, (str, os.PathLike)) else [os.fspath(each) for each in path]


def time_of(seconds: float) -> str:
    """The settings' form of a time."""
    return f"{max(1, round(seconds * 1000))}ms"


def revision_of(model: str) -> str | None:
    """The revision of a model's weights, or None if it cannot be told.

    A folder: a digest of the names, lengths and times of its weights, and of its config.json. A name of a hub: the
    commit that the local cache has under "main".
    """
    folder = Path(model)
    if folder.is_dir():
        digest = hashlib.sha256()
        files = [each for each in sorted(folder.iterdir()) if each.suffix in (".safetensors", ".bin", ".gguf", ".pt")]
        for file in files:
            state = file.stat()
            digest.update(f"{file.name}\0{state.st_size}\0{state.st_mtime_ns}\0".encode())
        config = folder / "config.json"
        if config.is_file():
            digest.update(config.read_bytes())
        return f"folder {digest.hexdigest()[:16]}" if files else None
    cache = os.environ.get("HF_HUB_CACHE") or os.path.join(
        os.environ.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface"), "hub"
    )
    main = Path(cache, "models--" + model.replace("/", "--"), "refs", "main")
    return f"commit {main.read_text().strip()}" if main.is_file() else None


def warn_unknown(log: Any, adapter: str, unknown: dict[str, Any]) -> None:
    """Says once which arguments an adapter ignores: an engine of another version may pass more."""
    if unknown:
        log.warning("%s ignores %s", adapter, ", ".join(sorted(unknown)))


class Epoch:
    """A number in a file beside the volumes, and a part of every key's salt. The next epoch finds nothing of the
    earlier ones, also after a restart."""

    def __init__(self, paths: Sequence[str], salt: str | None) -> None:
        first = Path(paths[0]) if paths else None
        self._file = None
        if first is not None:
            self._file = first / "kvstrata.epoch" if first.is_dir() else first.with_name(first.name + ".epoch")
        self._salt = salt
        self._number = 0
        self._number = self._read()

    def _read(self) -> int:
        return int(self._file.read_text()) if self._file is not None and self._file.exists() else 0

    def salt(self) -> str | None:
        """The salt of this epoch's keys."""
        if self._number == 0:
            return self._salt
        return f"{'' if self._salt is None else self._salt}\0epoch {self._number}"

    def advance(self) -> None:
        """Begins the next epoch. It is on disk before this returns."""
        # Another store of the folder may have advanced it: it never goes back.
        self._number = max(self._number, self._read()) + 1
        if self._file is None:
            return
        descriptor, name = tempfile.mkstemp(dir=self._file.parent, prefix=".kvstrata-epoch")
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{self._number}\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, self._file)
        folder = os.open(self._file.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
