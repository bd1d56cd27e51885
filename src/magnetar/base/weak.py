"""Callbacks that do not keep their objects alive."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec
from weakref import WeakMethod

_P = ParamSpec("_P")


def weakly(method: Callable[_P, None]) -> Callable[_P, None]:
    """A callback that calls a bound method while its object exists, without keeping the object alive.

    For parts of that object: a part that held it would form a cycle, which only the garbage collector frees.
    """
    held = WeakMethod(method)

    def call(*args: _P.args, **kwargs: _P.kwargs) -> None:
        if (bound := held()) is not None:
            bound(*args, **kwargs)

    return call


def nobody(*_: object) -> None:
    """Does nothing. It replaces a callback of an object that has ended, so that a part that is still
    referenced does not keep that object alive."""
