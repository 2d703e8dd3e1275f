"""A host pool of SGLang, and its pages in a store. A page has one of two forms:

    straight   an entry for each of at most 4 pieces (K and V; one for MLA), moved between the pool and the disk
    flat       one entry: the page as `get_data_page` gives it, by way of a buffer. For layouts that scatter a page
               over its layers, for pools without addresses, and for the interface that copies

A flat page costs a copy and saves entries: with `layer_first`, a page of 64 layers has 128 pieces.

I1  A page is there only if all its entries are.
I2  A page is True only if all its bytes are in the pool, and are those that were stored.
I3  No place is written that a call does not name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ._shared import SharedStore, Span

__all__ = ["HostPool"]

_log = logging.getLogger("sglang.kvstrata")

# All that a pool of SGLang may say about the bytes of its pages.
_GEOMETRY = (
    "layout", "storage_format_tag", "page_size", "logical_page_size", "start_layer", "end_layer", "layer_num",
    "target_layer_num", "head_num", "head_dim", "v_head_dim", "head_group_num", "kv_lora_rank", "qk_rope_head_dim",
    "kv_cache_dim", "size_per_token", "item_bytes", "indexer_page_stride_size", "num_mamba_layers", "store_dtype",
    "dcp_size", "dcp_rank",
)  # fmt: skip

# What pools raise for a layout that has no addresses, or no flat pages.
_NOT_GIVEN = (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)

_MOST_PIECES = 4
# Bytes of pages that are copied at a time.
_COPY_BYTES = 64 << 20


class HostPool:
    """A host pool of SGLang, the form of its pages, and their store.

    sizes: bytes of a page's entries, in their order; none: the pool gives neither addresses nor pages.
    """

    def __init__(self, name: str, host: Any, may_straight: bool) -> None:
        self.name, self.host = name, host
        self.store: SharedStore | None = None
        self.page_tokens = int(getattr(host, "logical_page_size", None) or getattr(host, "page_size", 1) or 1)
        self.pages = int(getattr(host, "page_num", 0) or 0)
        # A pool with heads is cut by rank, whatever the model's main pool is.
        self.has_heads = int(getattr(host, "head_num", 1) or 1) > 1
        self.sizes: tuple[int, ...] = ()
        self.is_flat = False
        pieces = self._pieces() if may_straight else ()
        if pieces and len(pieces) <= _MOST_PIECES:
            self.sizes = pieces
        elif (page := self._page()) is not None:
            self.sizes, self.is_flat = (page.nbytes,), True
        if not self.sizes:
            _log.error("the pool %s gives neither addresses nor pages, and is not stored", name)
        self.page_bytes = sum(self.sizes)

    def _pieces(self) -> tuple[int, ...]:
        try:
            _, sizes = self.host.get_page_buffer_meta(torch.arange(self.page_tokens))
        except _NOT_GIVEN:
            return ()
        return tuple(int(size) for size in sizes)

    def _page(self) -> torch.Tensor | None:
        try:
            return self.host.get_dummy_flat_data_page()
        except _NOT_GIVEN:
            return None

    def new_page(self) -> torch.Tensor:
        page = self._page()
        return torch.empty(self.page_bytes, dtype=torch.uint8) if page is None else page

    def describe(self) -> str:
        """What the bytes of a page are."""
        facts = {name: getattr(self.host, name, None) for name in _GEOMETRY}
        form = "flat" if self.is_flat else "pieces"
        given = " ".join(f"{name} {value}" for name, value in facts.items() if value is not None)
        return f"{self.name} {type(self.host).__name__} {form} {','.join(map(str, self.sizes))} {given}"

    # Lookups: I1

    def _names(self, keys: Sequence[str]) -> list[str]:
        if len(self.sizes) == 1:
            return list(keys)
        return [f"{key}.{piece}" for key in keys for piece in range(len(self.sizes))]

    def _whole(self, pieces: Sequence[bool]) -> list[bool]:
        count = len(self.sizes)
        return [all(pieces[start : start + count]) for start in range(0, len(pieces), count)]

    def leading(self, keys: Sequence[str]) -> int:
        assert self.store is not None
        return self.store.leading(self._names(keys)) // len(self.sizes)

    def contains(self, keys: Sequence[str]) -> list[bool]:
        assert self.store is not None
        return self._whole(self.store.contains(self._names(keys)))

    # Pages in place

    def load(self, keys: Sequence[str], indices: Any) -> list[bool]:
        assert self.store is not None
        if not self.is_flat:
            spans = self._spans(keys, indices)
            return [False] * len(keys) if spans is None else self._whole(self.store.load(self._names(keys), spans))
        done: list[bool] = []
        page = self.new_page()
        for start, end in self._steps(len(keys)):
            buffer = torch.empty((end - start, self.page_bytes), dtype=torch.uint8)
            loaded = self.store.load(keys[start:end], [_span(row) for row in buffer])
            for number, is_loaded in enumerate(loaded):
                # I2, I3: the pool is touched by whole pages alone.
                place = int(indices[(start + number) * self.page_tokens])
                done.append(is_loaded and self._set(place, buffer[number].view(page.dtype)))
        return done

    def _set(self, place: int, page: torch.Tensor) -> bool:
        try:
            self.host.set_from_flat_data_page(place, page)
        except (RuntimeError, ValueError) as error:
            _log.error("%s: a page does not fit: %s", self.name, error)
            return False
        return True

    def save(self, keys: Sequence[str], indices: Any) -> list[bool]:
        assert self.store is not None
        if not self.is_flat:
            spans = self._spans(keys, indices)
            return [False] * len(keys) if spans is None else self._whole(self.store.store(self._names(keys), spans))
        done: list[bool] = []
        for start, end in self._steps(len(keys)):
            places = [int(indices[number * self.page_tokens]) for number in range(start, end)]
            pages = [self.host.get_data_page(place, flat=True).contiguous() for place in places]
            done += self.move_flat(keys[start:end], pages, is_load=False)
        return done

    def _spans(self, keys: Sequence[str], indices: Any) -> list[Span] | None:
        """The memory of each entry. Its form must be that of the fingerprint."""
        try:
            pointers, sizes = self.host.get_page_buffer_meta(indices)
        except _NOT_GIVEN as error:
            _log.error("%s: the pool gives no addresses: %s", self.name, error)
            return None
        if tuple(sizes) != self.sizes * len(keys) or len(pointers) != len(sizes):
            _log.error("%s: the pool's pages have changed their form", self.name)
            return None
        return [(int(pointer), size) for pointer, size in zip(pointers, sizes)]

    def _steps(self, count: int) -> list[tuple[int, int]]:
        pages = max(1, _COPY_BYTES // self.page_bytes)
        return [(start, min(start + pages, count)) for start in range(0, count, pages)]

    # Flat pages

    def move_flat(self, keys: Sequence[str], pages: Sequence[torch.Tensor], *, is_load: bool) -> list[bool]:
        """Moves tensors of a page each. Those of another length or of a device are not moved."""
        assert self.store is not None
        if not is_load:
            pages = [page.contiguous() if isinstance(page, torch.Tensor) else page for page in pages]
        call: Callable[[Sequence[str], Sequence[Span]], list[bool]] = self.store.load if is_load else self.store.store
        fits = [self._fits(page) for page in pages] if self._is_flat_in_order() else [False] * len(pages)
        spans: list[Span] = []
        for page, is_fit in zip(pages, fits):
            address = page.data_ptr() if is_fit else 0
            for size in self.sizes if is_fit else ():
                spans.append((address, size))
                address += size
        moved = iter(self._whole(call(self._names([key for key, is_fit in zip(keys, fits) if is_fit]), spans)))
        return [is_fit and next(moved) for is_fit in fits]

    def _fits(self, page: Any) -> bool:
        return (
            isinstance(page, torch.Tensor)
            and page.device.type == "cpu"
            and page.nbytes == self.page_bytes
            and page.is_contiguous()
        )

    def _is_flat_in_order(self) -> bool:
        """Whether a flat page is the pieces one behind the other."""
        if self.is_flat:
            return True
        pointers, _ = self.host.get_page_buffer_meta(torch.arange(self.page_tokens))
        try:
            page = self.host.get_data_page(0, flat=False)
        except _NOT_GIVEN:
            return False
        parts = [page] if len(pointers) == 1 else list(page)
        return [(part.data_ptr(), part.nbytes, part.is_contiguous()) for part in parts] == [
            (pointer, size, True) for pointer, size in zip(pointers, self.sizes)
        ]


def _span(tensor: torch.Tensor) -> Span:
    return tensor.data_ptr(), tensor.nbytes
