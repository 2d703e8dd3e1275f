"""A pytest plugin: LMCache's tests of its native L2 adapter run over `kvstrata.lmcache.Store`, not over their mock.

The mock, `MockNativeConnector`, is a class of the test file itself. The plugin puts a class without arguments in its
place, under the mock's subclass too. Nothing else is changed, and nothing waits.
"""

from typing import Any

import pytest

from kvstrata.lmcache import Store

_opened = []
_count = 0


class InPlaceOfMock(Store):
    def __init__(self) -> None:
        super().__init__(None, "4MiB", sizes=["4KiB"], model="a model", revision="1", dtype="float32",
                         settings={"disk": {"fill": "no"}})
        _opened.append(self)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    for module in {item.module for item in items}:
        module.RecordingNativeConnector.__bases__ = (InPlaceOfMock,)
        module.MockNativeConnector = InPlaceOfMock


@pytest.fixture(autouse=True)
def count_opened(request: pytest.FixtureRequest):
    global _count
    yield
    _count += len(_opened)
    if {"adapter", "recording_adapter", "padded_adapter", "adapter_with_capacity"} & set(request.fixturenames):
        assert _opened, "the test ran over something else"
    while _opened:
        _opened.pop().close()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_line(f"kvstrata.lmcache.Store took the mock's place {_count} times")
