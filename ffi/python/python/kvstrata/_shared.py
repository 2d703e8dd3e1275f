"""A store that the processes of one machine share: the first one opens it and serves the others.

A volume belongs to one process. Ranks whose bytes are equal (MLA), or engines beside each other, need one copy alone:

    owner    holds <folder>/<name>.lock, has the store, listens at <folder>/<name>.socket
    guest    asks the owner; bytes pass through memory that both map (a sealed memfd), one for each connection

    request  4 bytes of length, then JSON: {"do": "load", "keys": [...], "sizes": [...]}
    answer   4 bytes of length, then JSON

I1  A guest's bytes are copied to their place only after the owner has answered that they are loaded.
I2  A thread has a connection of its own, so its memory has one batch at a time. After an error it is dropped with the
    connection, and never used again.
I3  An owner that ends gives up the lock; the next call of a guest takes it and opens the store.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import logging
import mmap
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from . import KvstrataError, Store
from ._engines import Epoch

__all__ = ["SharedStore"]

_log = logging.getLogger("kvstrata")

_T = TypeVar("_T")

Span = tuple[int, int]
"""An address and a number of bytes. The caller keeps the memory until the call returns."""

_MEMORY_BYTES = 64 << 20
_LENGTH = struct.Struct("<I")
_MOST_BYTES = 64 << 20
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
# Seconds between a guest's attempts to reach an owner.
_PAUSE = 1.0
# Seconds that a guest waits beyond the deadline of the owner's store.
_GRACE = 5.0


class SharedStore:
    """folder: of the lock and the socket; None: not shared. name: of the two files. opened: opens the store.
    identity: the fingerprint; guests of another one are refused. epoch: its salt is a part of every key.
    deadline: seconds after which a key that waits is answered as a miss. largest: bytes of the longest entry.

    Raises OpenError if this process is the owner and the store cannot be opened.
    """

    def __init__(
        self,
        folder: str | None,
        name: str,
        opened: Callable[[], Store],
        identity: str,
        epoch: Callable[[], Epoch],
        deadline: float,
        largest: int,
    ) -> None:
        # The same in each process, since the fingerprint is.
        self._memory_bytes = max(_MEMORY_BYTES, largest)
        self._folder, self._name = folder, name
        self._opened, self._make_epoch = opened, epoch
        self._identity, self._deadline = identity, deadline
        self._lock = threading.Lock()
        self._here = threading.local()
        self._store: Store | None = None
        self._epoch: Epoch | None = None
        self._lock_file = -1
        self._listener: socket.socket | None = None
        self._guests: set[socket.socket] = set()
        self._is_closed = False
        self._retry_at = 0.0
        self._has_warned = False
        self._join()

    @property
    def is_owner(self) -> bool:
        """Whether this process has the store open."""
        return self._store is not None

    # Calls: a miss is an answer, never an exception.

    def contains(self, keys: Sequence[str]) -> list[bool]:
        """Whether each key can be loaded now."""
        if not keys:
            return []
        store = self._store
        if store is not None:
            return _tried(lambda: store.contains(keys, salt=self._salt()), [False] * len(keys))
        answer = self._ask({"do": "contains", "keys": list(keys)})
        return [bool(each) for each in answer] if answer else [False] * len(keys)

    def leading(self, keys: Sequence[str]) -> int:
        """The number of leading keys that can be loaded now."""
        if not keys:
            return 0
        store = self._store
        if store is not None:
            return _tried(lambda: store.leading(keys, salt=self._salt()), 0)
        return int(self._ask({"do": "leading", "keys": list(keys)}) or 0)

    def load(self, keys: Sequence[str], spans: Sequence[Span]) -> list[bool]:
        """Loads key i into span i, and waits. The memory of a key that was not loaded may have been overwritten."""
        return self._move("load", keys, spans)

    def store(self, keys: Sequence[str], spans: Sequence[Span]) -> list[bool]:
        """Stores span i under key i, and waits until the disk has it."""
        return self._move("store", keys, spans)

    def clear(self) -> None:
        """From here on nothing is found that was stored before, also after a restart."""
        if self._epoch is None and self._ask({"do": "clear"}):
            return
        # Also a guest that has become the owner meanwhile.
        epoch = self._epoch
        if epoch is None:
            raise KvstrataError(f"the process that has the store in {self._folder} does not answer; clear again")
        with self._lock:
            epoch.advance()

    def stats(self) -> dict[str, Any] | None:
        """The store's figures; None in a guest."""
        store, nothing = self._store, dict[str, Any]()
        return None if store is None else _tried(store.stats, nothing)

    def close(self) -> None:
        """Closes the store, if this process has it. Nothing depends on it."""
        with self._lock:
            self._is_closed = True
            store, self._store = self._store, None
            self._close_door()
        if store is not None:
            store.close()
        self._unlock()

    # The owner's and a guest's way to move bytes

    def _move(self, do: str, keys: Sequence[str], spans: Sequence[Span]) -> list[bool]:
        if not keys:
            return []
        store = self._store
        if store is not None:
            return self._moved(store, do, keys, spans)
        done: list[bool] = []
        for start, end in _batches([size for _, size in spans], self._memory_bytes):
            done += self._moved_by_owner(do, keys[start:end], spans[start:end])
        return done

    def _moved(self, store: Store, do: str, keys: Sequence[str], spans: Sequence[Span]) -> list[bool]:
        call = store.load if do == "load" else store.store

        def moved() -> list[bool]:
            completion = call(keys, spans, salt=self._salt(), deadline=self._deadline)
            if completion.error is not None:
                _log.debug("%s", completion.error)
            return completion.done

        return _tried(moved, [False] * len(keys))

    def _moved_by_owner(self, do: str, keys: Sequence[str], spans: Sequence[Span]) -> list[bool]:
        sizes = [size for _, size in spans]
        misses = [False] * len(keys)
        link = self._link()
        if link is None or sum(sizes) > self._memory_bytes:
            return misses
        if do == "store":
            for (address, size), place in zip(spans, _places(sizes)):
                ctypes.memmove(link.address + place, address, size)
        answer = self._ask({"do": do, "keys": list(keys), "sizes": sizes})
        if not isinstance(answer, list) or len(answer) != len(keys):
            return misses
        if do == "load":
            for is_done, (address, size), place in zip(answer, spans, _places(sizes)):
                if is_done:
                    ctypes.memmove(address, link.address + place, size)
        return [bool(each) for each in answer]

    def _salt(self) -> str | None:
        return self._epoch.salt() if self._epoch is not None else None

    # A guest

    def _link(self) -> _Link | None:
        """This thread's connection to the owner; or None, and then perhaps this process has become the owner."""
        link: _Link | None = getattr(self._here, "link", None)
        if link is not None or self._is_closed or self._folder is None or time.monotonic() < self._retry_at:
            return link
        try:
            with _folder_of(self._folder) as folder:
                path, seconds = f"{folder}/{self._name}.socket", self._deadline + _GRACE
                link = _Link(path, self._identity, self._memory_bytes, seconds)
        except (ConnectionError, FileNotFoundError, TimeoutError) as error:
            self._lost(error)
            return None
        except (OSError, ValueError) as error:
            self._retry_at = time.monotonic() + _PAUSE
            if not self._has_warned:
                self._has_warned = True
                _log.warning("the process that has the store in %s cannot be used: %s", self._folder, error)
            return None
        self._here.link = link
        return link

    def _ask(self, request: dict[str, Any]) -> Any:
        """The owner's answer; None: there is none, and the keys are misses."""
        link = self._link()
        if link is None:
            return None
        try:
            return link.ask(request)
        except (OSError, ValueError) as error:
            # I2: the owner may still write into that memory.
            self._here.link = None
            link.close()
            self._lost(error)
            return None

    def _lost(self, why: Exception) -> None:
        """No owner answers: I3, or a pause. One that hangs holds a call for a while, so the next are spared longer."""
        try:
            self._join()
        except KvstrataError as error:
            _log.warning("%s", error)
        if self._store is None:
            self._retry_at = time.monotonic() + (self._deadline if isinstance(why, TimeoutError) else _PAUSE)

    # The owner

    def _join(self) -> None:
        """Becomes the owner, if there is none."""
        with self._lock:
            if self._is_closed or self._store is not None:
                return
            if self._folder is not None and not self._take_lock():
                return
            try:
                self._store = self._opened()
                self._epoch = self._make_epoch()
                if self._folder is not None:
                    self._open_door(self._folder)
            except BaseException:
                store, self._store = self._store, None
                if store is not None:
                    store.close()
                self._unlock()
                raise

    def _take_lock(self) -> bool:
        assert self._folder is not None
        file = os.open(Path(self._folder, f"{self._name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        self._lock_file = file
        return True

    def _unlock(self) -> None:
        file, self._lock_file = self._lock_file, -1
        if file >= 0:
            # A child that was forked may have the file open, too.
            fcntl.flock(file, fcntl.LOCK_UN)
            os.close(file)

    def _open_door(self, folder: str) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path = Path(folder, f"{self._name}.socket")
        path.unlink(missing_ok=True)
        with _folder_of(folder) as short:
            listener.bind(f"{short}/{path.name}")
        path.chmod(0o600)
        listener.listen()
        self._listener = listener
        threading.Thread(target=self._welcome, args=(listener,), name="kvstrata-share", daemon=True).start()

    def _close_door(self) -> None:
        listener, self._listener = self._listener, None
        for each in [listener, *self._guests]:
            if each is not None:
                try:
                    # `close` alone does not wake a thread that waits.
                    each.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        if listener is not None and self._folder is not None:
            listener.close()
            Path(self._folder, f"{self._name}.socket").unlink(missing_ok=True)

    def _welcome(self, listener: socket.socket) -> None:
        while True:
            try:
                guest, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(guest,), name="kvstrata-guest", daemon=True).start()

    def _serve(self, guest: socket.socket) -> None:
        with self._lock:
            self._guests.add(guest)
        try:
            with guest, self._admitted(guest) as memory:
                address = _address_of(memory)
                while True:
                    _send(guest, self._answer(_receive(guest), address))
        except (OSError, ValueError, KeyError, TypeError, KvstrataError) as error:
            _log.debug("a guest has left: %s", error)
        finally:
            with self._lock:
                self._guests.discard(guest)

    def _admitted(self, guest: socket.socket) -> mmap.mmap:
        _, user, _ = struct.unpack("3i", guest.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        _, files, _, _ = socket.recv_fds(guest, 1, 1)
        try:
            if user not in (0, os.getuid()) or len(files) != 1:
                raise ValueError(f"a guest of user {user} is refused")
            # Sealed: memory that shrinks would kill this process.
            if fcntl.fcntl(files[0], fcntl.F_GET_SEALS) & _SEALS != _SEALS:
                raise ValueError("a guest's memory is not sealed")
            memory = mmap.mmap(files[0], self._memory_bytes)
        finally:
            for file in files:
                os.close(file)
        is_ours = _receive(guest) == self._identity
        _send(guest, is_ours)
        if not is_ours:
            raise ValueError("a guest has another fingerprint")
        return memory

    def _answer(self, request: dict[str, Any], address: int) -> Any:
        store = self._store
        if store is None:
            raise ValueError("closed")
        do, keys = request["do"], request.get("keys", [])
        if do in ("load", "store"):
            sizes = [int(size) for size in request["sizes"]]
            if len(sizes) != len(keys) or min(sizes) < 0 or sum(sizes) > self._memory_bytes:
                raise ValueError("sizes beyond the memory")
            return self._moved(store, do, keys, [(address + at, size) for size, at in zip(sizes, _places(sizes))])
        if do == "clear":
            self.clear()
            return True
        return self.contains(keys) if do == "contains" else self.leading(keys)


class _Link:
    """A guest's connection, with the memory that it shares with the owner."""

    def __init__(self, path: str, identity: str, memory_bytes: int, seconds: float) -> None:
        file = os.memfd_create("kvstrata", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(file, memory_bytes)
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
            self._memory = mmap.mmap(file, memory_bytes)
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                self._socket.settimeout(seconds)
                self._socket.connect(path)
                socket.send_fds(self._socket, [b"m"], [file])
                if self.ask(identity) is not True:
                    raise ValueError("it has other settings, or another model; choose another path")
            except BaseException:
                self._socket.close()
                raise
        finally:
            os.close(file)
        self.address = _address_of(self._memory)

    def ask(self, request: Any) -> Any:
        _send(self._socket, request)
        return _receive(self._socket)

    def close(self) -> None:
        self._socket.close()


class _folder_of:
    """A short path of a folder: a socket's may have 107 bytes."""

    def __init__(self, folder: str) -> None:
        self._file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> str:
        return f"/proc/self/fd/{self._file}"

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def _tried(call: Callable[[], _T], otherwise: _T) -> _T:
    try:
        return call()
    except KvstrataError as error:
        _log.warning("%s", error)
        return otherwise


def _batches(sizes: Sequence[int], memory_bytes: int) -> Iterator[tuple[int, int]]:
    """Ranges of spans that the shared memory holds together."""
    start = total = 0
    for number, size in enumerate(sizes):
        if number > start and total + size > memory_bytes:
            yield start, number
            start, total = number, 0
        total += size
    if start < len(sizes):
        yield start, len(sizes)


def _places(sizes: Sequence[int]) -> Iterator[int]:
    place = 0
    for size in sizes:
        yield place
        place += size


def _address_of(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _send(to: socket.socket, value: Any) -> None:
    text = json.dumps(value).encode()
    to.sendall(_LENGTH.pack(len(text)) + text)


def _receive(of: socket.socket) -> Any:
    (length,) = _LENGTH.unpack(_exactly(of, _LENGTH.size))
    if length > _MOST_BYTES:
        raise ValueError("a message is too long")
    return json.loads(_exactly(of, length))


def _exactly(of: socket.socket, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        part = of.recv(length - len(parts))
        if not part:
            raise ConnectionError("the other end has closed")
        parts += part
    return bytes(parts)
