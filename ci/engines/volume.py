"""Damages the volumes of a store, as docs/disk-format.md describes them, for tests.

    flip       a bit of the payload of some blocks: their sums do not match any more
    forge      the same, with seals and records made to match: no reader can tell
"""

import struct
from pathlib import Path

import xxhash

_RECORD = 64
_CHUNK = 65536


class Volume:
    """A volume of an orderly shutdown. Nothing else has it open."""

    def __init__(self, path: Path):
        self._path = path
        with path.open("rb") as file:
            head = file.read(4096)
        assert head[:8] == b"KVSTRATA", f"{path} is no volume"
        low, high = struct.unpack_from("<QQ", head, 16)
        self._seed = low ^ high
        self._slots, _, self._stride, self._table, self._origin = struct.unpack_from("<QQQQQ", head, 80)

    def used(self) -> list[int]:
        """The slots with a block, in order."""
        with self._path.open("rb") as file:
            file.seek(self._table)
            table = file.read(self._slots * _RECORD)
        return [slot for slot in range(self._slots) if any(table[slot * _RECORD:(slot + 1) * _RECORD])]

    def flip(self, slot: int, at: int = 100) -> None:
        """Flips a bit of a payload."""
        with self._path.open("r+b") as file:
            file.seek(self._origin + slot * self._stride + at)
            byte = file.read(1)[0]
            file.seek(-1, 1)
            file.write(bytes([byte ^ 0x40]))

    def forge(self, slot: int) -> None:
        """Flips a bit in each 64 bytes of a payload, and makes seal and record match."""
        with self._path.open("r+b") as file:
            file.seek(self._table + slot * _RECORD)
            record = bytearray(file.read(_RECORD))
            length, = struct.unpack_from("<I", record, 56)
            start = self._origin + slot * self._stride
            file.seek(start)
            payload = bytearray(file.read(length))
            for at in range(1, length, 64):
                payload[at] ^= 0x40
            file.seek(start)
            file.write(payload)
            chunks = [payload[at:at + _CHUNK] for at in range(0, length, _CHUNK)]
            sums = [xxhash.xxh3_64_intdigest(bytes(chunk), seed) for seed, chunk in enumerate(chunks)]
            struct.pack_into("<QQ", record, 40, sum(sums) & (1 << 64) - 1, 0)
            check = xxhash.xxh3_64_intdigest(bytes(record[:60]), self._seed ^ slot)
            struct.pack_into("<I", record, 60, check & 0xFFFFFFFF)
            file.seek(self._table + slot * _RECORD)
            file.write(record)


def volumes(folder: Path) -> list[Volume]:
    """The volumes of the stores in a folder."""
    return [Volume(path) for path in sorted(folder.glob("*.kvs"))]
