"""Passes the options of a command as one value, for commands with many options."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps


def given_as(kind: type[object]) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """A decorator that passes a command's options to its function as one `kind`, after positional arguments.

    `kind`: a dataclass with a field for each option and argument of the command. Place it below all
    decorators that declare them.
    """

    def decorate(command: Callable[..., object]) -> Callable[..., object]:
        @wraps(command)
        def run(*places: object, **options: object) -> object:
            return command(*places, kind(**options))

        return run

    return decorate
