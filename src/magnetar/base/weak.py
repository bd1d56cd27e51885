"""Callbacks that do not keep their objects alive."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec
from weakref import WeakMethod

_P = ParamSpec("_P")


def weakly(method: Callable[_P, None]) -> Callable[_P, None]:
    """Calls a bound method as long as others hold its object: for what belongs to that object.

    A part that holds its whole is a cycle, which only the garbage collector frees.
    """
    held = WeakMethod(method)

    def call(*args: _P.args, **kwargs: _P.kwargs) -> None:
        if (bound := held()) is not None:
            bound(*args, **kwargs)

    return call


def nobody(*_: object) -> None:
    """In place of a callback of who has ended: a part that is held on to then holds nothing else."""
