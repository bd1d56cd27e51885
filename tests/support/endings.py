"""What a test opens and closes when it ends."""

from __future__ import annotations

from typing import Protocol, TypeVar


class Closable(Protocol):
    """Has descriptors."""

    def close(self) -> object: ...


Opened = TypeVar("Opened", bound=Closable)
_opened: list[Closable] = []


def closed_at_end(opened: Opened) -> Opened:
    """Hands on what was opened; tests/unit/conftest.py closes it after the test."""
    _opened.append(opened)
    return opened


def close_all() -> None:
    """Closes what was handed to `closed_at_end`, the last one first."""
    while _opened:
        _opened.pop().close()
