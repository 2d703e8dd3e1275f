#!/usr/bin/env python3
"""The vectors of core/src/hash/keyed/tests.rs, by OpenSSL's AES and nothing of this repository.

Run: python3 core/tests/vectors/keyed.py   (needs the command `openssl`)
"""
import struct
import subprocess

SECRET = bytes(range(32))


def aes(mode, key, data):
    """AES without padding; CBC starts from zeros."""
    command = ["openssl", "enc", f"-aes-{8 * len(key)}-{mode}", "-nopad", "-K", key.hex()]
    if mode == "cbc":
        command += ["-iv", "00" * 16]
    return subprocess.run(command, input=data, capture_output=True, check=True).stdout


KEY = aes("ecb", SECRET, b"kvstrata hash v1")
ID = aes("ecb", SECRET, b"kvstrata keyid 1")


def padded(data):
    return data + bytes(-len(data) % 16)


def mac(domain, length, data):
    """The last block of the CBC encryption of first block and data."""
    return aes("cbc", KEY, struct.pack("<QQ", domain, length) + data)[-16:]


def number(block):
    return f"0x{int.from_bytes(block, 'little'):032x}"


def tokens(count):
    return [i * 2654435761 % 2**32 for i in range(count)]


def packed(block):
    return padded(struct.pack(f"<{len(block)}I", *block))


print("id     ", number(ID))
print("salt   ", number(mac(0, 5, padded(b"salty"))))
print("empty  ", number(mac(0, 0, b"")))
print("marked ", number(mac(3, 16, packed(tokens(16)) + bytes([9] * 16) + bytes([5] * 16))))
for size in (1, 4, 5, 16, 17, 32, 64, 512, 513):
    parent = bytes(16)
    chain = []
    for i in range(11):
        parent = mac(2, size, packed(tokens(11 * size)[i * size : (i + 1) * size]) + parent)
        chain.append(parent)
    print(f"V {{ block_size: {size}, block: {number(mac(1, size, packed(tokens(size))))}, "
          f"third: {number(chain[2])}, eleventh: {number(chain[10])} }},")
