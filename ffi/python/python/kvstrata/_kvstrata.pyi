"""The store in Rust. `kvstrata` has its names."""

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeAlias, final

from typing_extensions import Buffer, disjoint_base

__version__: str
_OUTCOMES: dict[str, int]

class _Tensor(Protocol):
    """A tensor in host memory that tells its address, such as torch's."""

    @property
    def nbytes(self) -> int: ...
    def data_ptr(self) -> int: ...

class _Dlpack(Protocol):
    """A tensor in host memory that offers itself by DLPack."""

    def __dlpack__(self) -> Any: ...
    def __dlpack_device__(self) -> tuple[Any, int]: ...

_Memory: TypeAlias = Buffer | _Tensor | _Dlpack | tuple[int, int]
_Memories: TypeAlias = Iterable[_Memory] | _Memory
_Keys: TypeAlias = Iterable[bytes | str | Buffer]
_Rows: TypeAlias = Buffer | Iterable[int]

class KvstrataError(Exception):
    """The base of kvstrata's exceptions."""

class OpenError(KvstrataError):
    """A store cannot be opened. The message names each wrong or missing setting, its value and the remedy."""

class SubmitError(KvstrataError):
    """A batch has not begun. The message names the argument, its value and the remedy."""

class BusyError(SubmitError):
    """As many batches are under way as may wait (transfer.queue). Drain some, then try again."""

class ForkedError(KvstrataError):
    """This process was forked from the one that opened the store. Open a store after the fork."""

class ClosedError(KvstrataError):
    """The store is closed."""

@final
class Completion:
    """The answer of a batch that has ended: no transfer touches its buffers any more."""

    @property
    def job(self) -> int:
        """The number that the submit call returned."""
    @property
    def kind(self) -> Literal["store", "load", "forget"]: ...
    @property
    def ok(self) -> bool:
        """Whether every key was done."""
    @property
    def outcomes(self) -> list[int]:
        """A number for each key, in the order of the call: see `kvstrata.Outcome`."""
    @property
    def done(self) -> list[bool]:
        """Whether the call did its work, for each key."""
    @property
    def tiers(self) -> list[Literal["host", "disk"] | None]:
        """The tier that has or had the bytes, for each key."""
    @property
    def leading(self) -> int:
        """The number of leading keys that were done: the usable prefix of a load."""
    @property
    def error(self) -> str | None:
        """Why keys were not done, with their number, or None: "2 of 32 keys not loaded: 1 absent, 1 late"."""

@disjoint_base
class Store:
    """KV blocks by key, in host memory and on disk.

    settings: a dict of sections, or the text of a TOML file. Further settings as keyword arguments, by section
    (`store={"model": "m"}`) or by name (`store_model="m"`); they are stronger. environment: also read KVSTRATA_*
    variables, which are weaker than both. Sizes are bytes, or text with K, M, G or T (powers of 1024).

    A store needs a fingerprint: store.model, revision, dtype, layout, span (tokens of an entry) and ranks; lora and
    salt may be added. It finds only keys that were stored under the same fingerprint.

    Raises OpenError. Opening a large disk for the first time fills it with zeros, and can take minutes; the GIL is
    released.

    Example:

        with kvstrata.Store(disk_bytes="1G", disk_paths=["/data/kv"], store={...}) as store:
            job = store.submit_store([b"a", b"b"], [buffer_a, buffer_b])
            select.select([store.event_fd()], [], [])
            for completion in store.drain():
                assert completion.job == job and completion.ok

    Buffers (see docs/python.md): C-contiguous objects with the buffer protocol, of any format and number of
    dimensions; tensors in host memory; tuples (address, bytes). One for each key, of the length of its bytes. Do not
    change the buffers of a store, and do not touch those of a load, before the completion. The store holds them
    until then. Instead of a list: one view of several dimensions, whose row i is the memory of key i, or of which
    `rows` gives the row numbers.

    Each method can be called from any thread. After a fork each raises ForkedError in the child, and after close
    ClosedError, except for `close` and `drain`.
    """

    def __new__(
        cls,
        settings: dict[str, Any] | str | None = None,
        *,
        environment: bool = False,
        **arguments: Any,
    ) -> Self: ...
    def handle(self) -> Store:
        """Another handle of the same store, with a queue of completions and a descriptor of its own."""
    def contains(self, keys: _Keys, *, lora: str | None = None, salt: str | None = None) -> list[bool]:
        """Whether each key can be loaded now. No I/O and no lock; False while the disk takes too long.

        lora, salt: instead of those of the settings, in all calls.
        """
    def leading(self, keys: _Keys, *, lora: str | None = None, salt: str | None = None) -> int:
        """The number of leading keys that can be loaded now."""
    def find(
        self, keys: _Keys, *, lora: str | None = None, salt: str | None = None
    ) -> list[tuple[Literal["host", "disk"], int] | None]:
        """The tier and the length in bytes of each key, or None."""
    def submit_store(
        self,
        keys: _Keys,
        buffers: _Memories,
        *,
        rows: _Rows | None = None,
        lora: str | None = None,
        salt: str | None = None,
        until: Literal["disk", "host"] | None = None,
        deadline: float | None = None,
    ) -> int:
        """Begins to store buffer i under key i. Returns the job's number, which its completion has.

        until: when the store is answered: "disk" (default): the disk has the bytes; "host": the host tier has them.
        deadline: seconds after which a key that waits is answered as LATE; default: deadline.offload.

        Raises SubmitError: nothing has begun. BusyError: too many batches are under way.
        """
    def submit_load(
        self,
        keys: _Keys,
        buffers: _Memories,
        *,
        rows: _Rows | None = None,
        lora: str | None = None,
        salt: str | None = None,
        urgency: Literal["ordinary", "urgent"] | None = None,
        deadline: float | None = None,
    ) -> int:
        """Begins to load key i into buffer i, which is as long as its bytes. Returns the job's number.

        urgency: "urgent" loads go first. deadline: as for a store; default: deadline.onboard. The buffer of a key
        that was not loaded may have been overwritten.
        """
    def submit_forget(self, keys: _Keys, *, lora: str | None = None, salt: str | None = None) -> int:
        """Begins to forget keys: from the completion on, no lookup finds them until they are stored again."""
    def store(
        self,
        keys: _Keys,
        buffers: _Memories,
        timeout: float | None = None,
        *,
        rows: _Rows | None = None,
        lora: str | None = None,
        salt: str | None = None,
        until: Literal["disk", "host"] | None = None,
        deadline: float | None = None,
    ) -> Completion:
        """Stores buffer i under key i, and waits for the answers without the GIL.

        timeout: seconds to wait; then TimeoutError: the batch goes on, and its buffers stay held until it ends.
        """
    def load(
        self,
        keys: _Keys,
        buffers: _Memories,
        timeout: float | None = None,
        *,
        rows: _Rows | None = None,
        lora: str | None = None,
        salt: str | None = None,
        urgency: Literal["ordinary", "urgent"] | None = None,
        deadline: float | None = None,
    ) -> Completion:
        """Loads key i into buffer i, and waits for the answers without the GIL."""
    def forget(
        self, keys: _Keys, timeout: float | None = None, *, lora: str | None = None, salt: str | None = None
    ) -> Completion:
        """Forgets keys, and waits for the answers."""
    def drain(self) -> list[Completion]:
        """The batches of this handle that have ended since the last call, in the order of their ends.

        Only jobs of `submit_*`. Makes the descriptor unreadable. After close: those that were left.
        """
    def event_fd(self) -> int:
        """The descriptor that is readable while `drain` has something to return. It stays the same until close."""
    def stats(self) -> dict[str, Any]:
        """Figures since the store was opened: keys, bytes and misses by cause; blocks by size."""
    def metrics(self) -> str:
        """The figures as Prometheus text."""
    @property
    def metrics_address(self) -> str | None:
        """The address at which the figures are served (setting metrics.listen)."""
    @property
    def namespace(self) -> dict[str, str | None]:
        """The parts of the fingerprint, by name. The salt is shown only as "given"."""
    @property
    def sizes(self) -> list[int]:
        """The sizes of blocks in bytes, from small to large."""
    @property
    def is_closed(self) -> bool:
        """Whether the store is closed, or closing."""
    def close(self, timeout: float | None = None) -> bool:
        """Closes the store of all handles: what has not begun to move is answered, and the disk is marked as closed
        in order. Returns whether that ended within the timeout (seconds; default: deadline.shutdown).

        A second call, also of another thread, waits for the first. In a forked child it does nothing. Nothing
        depends on it: after a kill the next start finds the same keys.
        """
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /
    ) -> bool: ...

def run_command(arguments: Sequence[str], /) -> int:
    """Runs the `kvstrata` command. The first argument is its name. Returns the exit code."""
