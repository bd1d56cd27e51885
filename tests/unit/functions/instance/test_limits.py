"""An exception that a limit has caused names the limit."""

from __future__ import annotations

import errno
import resource

import pytest

from magnetar.functions.instance.limits import described


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "MemoryError:  (an instance of this function may use 2 MiB: raise resources.ram)"),
        (
            OSError(errno.EMFILE, "x"),
            "OSError: [Errno 24] x (an instance may have 2097152 files and connections open: close some)",
        ),
        (OSError(errno.EFBIG, "x"), "OSError: [Errno 27] x (a file may have 2 MiB: raise resources.disk)"),
        (ValueError("x"), "ValueError: x"),
    ],
)
def test_it_says_what_to_do(error: Exception, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (2 << 20, 2 << 20))
    assert described(error) == said


def test_without_a_limit_there_is_none_to_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert described(MemoryError("x")) == "MemoryError: x"
